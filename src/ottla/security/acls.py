"""Access rules (ACLs): what one is, which of them a filter means, and an index that finds the one that decides.

Pure. The rules are those of Kafka's StandardAuthorizer:

1. A rule that denies beats all that allow. Without either nobody may do anything, unless the resource has no rules at
   all and `allow.everyone.if.no.acl.found` says otherwise.
2. Who may READ, WRITE, DELETE or ALTER may DESCRIBE, and who may ALTER_CONFIGS may DESCRIBE_CONFIGS. Nothing follows
   from a denial but itself.
3. A literal rule named `*` is about every resource of its type, a prefixed one about all names that begin so.

A lookup costs the number of different lengths that prefixes have, and never the number of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from ottla.base.security import ANYBODY, WILDCARD, Operation, PatternType, Permission, ResourceType

IMPLYING: Final[Mapping[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


class ResourcePattern(NamedTuple):
    """What a rule is about."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


class AccessControlEntry(NamedTuple):
    """Who may or may not do what, and from where."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


class AclBinding(NamedTuple):
    """A whole rule."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        return f"(pattern={self.pattern}, entry={self.entry})"


Entries = frozenset[AccessControlEntry]
Acls = Mapping[ResourcePattern, Entries]  # no pattern without entries

# What a node that cannot be read stands for: nobody knows whom it denied something, so it denies everything.
DENY_ALL: Final = frozenset({AccessControlEntry(ANYBODY, WILDCARD, Operation.ALL, Permission.DENY)})


class AclFilter(NamedTuple):
    """Which rules somebody means; None and ANY stand for all. The words of DescribeAcls and DeleteAcls."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == pattern.name
        return is_about(pattern, self.name)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def select(self, acls: Acls) -> dict[ResourcePattern, Entries]:
        """The rules that are meant; one resource that is named exactly is looked up."""
        if self.name is not None and self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            types = [self.resource_type] if self.resource_type != ResourceType.ANY else list(ResourceType)
            named = [ResourcePattern(ResourceType(kind), self.name, PatternType(self.pattern_type)) for kind in types]
            candidates: Iterable[ResourcePattern] = [pattern for pattern in named if pattern in acls]
        else:
            candidates = [pattern for pattern in acls if self.matches_pattern(pattern)]
        found = {pattern: frozenset(filter(self.matches_entry, acls[pattern])) for pattern in candidates}
        return {pattern: entries for pattern, entries in found.items() if entries}


class Verdict(NamedTuple):
    """What the rules say; `binding` is the one that decides, if one does."""

    is_allowed: bool
    binding: AclBinding | None
    has_rules: bool  # whether the resource has any, about whomever


def is_about(pattern: ResourcePattern, name: str) -> bool:
    """Rule 3."""
    if pattern.pattern_type == PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def is_for(entry: AccessControlEntry, host: str, operation: int) -> bool:
    """Whether a rule of the right principal and resource is about this host and operation (rule 2)."""
    if entry.host not in (WILDCARD, host):
        return False
    if entry.operation in (Operation.ALL, operation):
        return True
    return entry.permission == Permission.ALLOW and entry.operation in IMPLYING.get(operation, ())


def canonical_host(host: str) -> str:
    """An IPv6 address in the one form that sockets tell: Java writes 0:0:0:0:0:0:0:1 for ::1."""
    if ":" not in host:
        return host
    try:
        return str(ip_address(host))
    except ValueError:
        return host


ByPrincipal = dict[str, list[AccessControlEntry]]


class TypeRules:
    """All rules about one type of resource."""

    def __init__(self) -> None:
        self.literal: dict[str, ByPrincipal] = {}
        self.prefixed: dict[str, ByPrincipal] = {}
        self.patterns_by_principal: dict[str, dict[ResourcePattern, None]] = {}
        self.prefix_lengths: list[int] = []
        self._length_counts: dict[int, int] = {}

    def put(self, pattern: ResourcePattern, entries: Entries) -> None:
        """The whole new set of rules of one pattern; none at all removes it."""
        is_prefixed = pattern.pattern_type == PatternType.PREFIXED
        table = self.prefixed if is_prefixed else self.literal
        before = table.pop(pattern.name, {})
        for principal in before:
            patterns = self.patterns_by_principal[principal]
            del patterns[pattern]
            if not patterns:
                del self.patterns_by_principal[principal]
        if entries:
            now: ByPrincipal = {}
            for entry in sorted(entries):
                known = entry._replace(host=canonical_host(entry.host))
                now.setdefault(entry.principal, []).append(known)
            table[pattern.name] = now
            for principal in now:
                self.patterns_by_principal.setdefault(principal, {})[pattern] = None
        if is_prefixed and bool(before) != bool(entries):
            self._count(len(pattern.name), 1 if entries else -1)

    def _count(self, length: int, change: int) -> None:
        count = self._length_counts.get(length, 0) + change
        if count:
            self._length_counts[length] = count
        else:
            del self._length_counts[length]
        self.prefix_lengths = sorted(self._length_counts)

    def about(self, name: str) -> list[tuple[str, PatternType, ByPrincipal]]:
        """The rules that this resource has: those of its own name, those of all, those of its beginnings."""
        found = []
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            rules = self.literal.get(literal)
            if rules is not None:
                found.append((literal, PatternType.LITERAL, rules))
        for length in self.prefix_lengths:
            if length > len(name):
                break
            prefix = name[:length]
            rules = self.prefixed.get(prefix)
            if rules is not None:
                found.append((prefix, PatternType.PREFIXED, rules))
        return found


class AclIndex:
    """Rules, found by what somebody wants to do. Changed by `put` alone."""

    def __init__(self, acls: Acls | None = None) -> None:
        self._types = [TypeRules() for _ in ResourceType]
        for pattern, entries in (acls or {}).items():
            self.put(pattern, entries)

    def put(self, pattern: ResourcePattern, entries: Entries) -> None:
        """The whole new set of rules of one pattern; none at all removes it."""
        self._types[pattern.resource_type].put(pattern, entries)

    def judge(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Verdict:
        """Rule 1, but for super users and what holds without rules: that is not the index's affair."""
        allowing: AclBinding | None = None
        about = self._types[resource_type].about(name)
        for pattern_name, pattern_type, rules in about:
            for who in (principal, ANYBODY):
                for entry in rules.get(who, ()):
                    if not is_for(entry, host, operation):
                        continue
                    pattern = ResourcePattern(ResourceType(resource_type), pattern_name, pattern_type)
                    if entry.permission != Permission.ALLOW:
                        return Verdict(False, AclBinding(pattern, entry), True)
                    allowing = allowing or AclBinding(pattern, entry)
        return Verdict(allowing is not None, allowing, bool(about))

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of the type to which this may be done, whether it exists or not.

        Only rules about the very operation count, or about all of them. A rule that allows is worth nothing if one that
        denies is about everything that it allows: about all names, the same name, or a beginning of it.
        """
        rules = self._types[resource_type]
        denied: set[tuple[PatternType, str]] = set()
        allowed: set[tuple[PatternType, str]] = set()
        for who in dict.fromkeys((principal, ANYBODY)):
            for pattern in rules.patterns_by_principal.get(who, ()):
                table = rules.prefixed if pattern.pattern_type == PatternType.PREFIXED else rules.literal
                for entry in table[pattern.name][who]:
                    if entry.host in (WILDCARD, host) and entry.operation in (Operation.ALL, operation):
                        side = allowed if entry.permission == Permission.ALLOW else denied
                        side.add((pattern.pattern_type, pattern.name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        if (PatternType.LITERAL, WILDCARD) in allowed:
            return True
        return any(not is_dominated(kind, name, denied) for kind, name in allowed)


def is_dominated(kind: PatternType, name: str, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether a rule that denies is about all that this one allows."""
    if kind == PatternType.LITERAL and (kind, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def acls_of(bindings: Iterable[AclBinding]) -> Acls:
    """Rules by what they are about."""
    found: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for pattern, entry in bindings:
        found.setdefault(pattern, set()).add(entry)
    return {pattern: frozenset(entries) for pattern, entries in found.items()}
