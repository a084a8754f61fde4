"""Access rules (ACLs): what one is, what it is about, and which of them a filter means.

Pure. The rules are those of Kafka's StandardAuthorizer:

1. A rule that denies beats all that allow. Without either nobody may do anything, unless the resource has no rules at
   all and `allow.everyone.if.no.acl.found` says otherwise.
2. Who may READ, WRITE, DELETE or ALTER may DESCRIBE, and who may ALTER_CONFIGS may DESCRIBE_CONFIGS. Nothing follows
   from a denial but itself.
3. A literal rule named `*` is about every resource of its type, a prefixed one about all names that begin so.
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

NO_ENTRIES: Final[Entries] = frozenset()
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


def is_about(pattern: ResourcePattern, name: str) -> bool:
    """Rule 3."""
    if pattern.pattern_type == PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def is_for(entry: AccessControlEntry, host: str, operation: int) -> bool:
    """Whether a rule of the right principal and resource is about this host and operation (rule 2)."""
    if canonical_host(entry.host) not in (WILDCARD, host):
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


def acls_of(bindings: Iterable[AclBinding]) -> Acls:
    """Rules by what they are about."""
    found: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for pattern, entry in bindings:
        found.setdefault(pattern, set()).add(entry)
    return {pattern: frozenset(entries) for pattern, entries in found.items()}
