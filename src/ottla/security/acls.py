"""Access rules (ACLs): their parts, their filters, and which rules apply to a request.

Pure. The semantics are those of Kafka's StandardAuthorizer:

1. A DENY rule takes precedence over all ALLOW rules. Without a matching rule access is denied, unless the resource has
   no rules at all and `allow.everyone.if.no.acl.found` is set.
2. READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS. A denial implies no other
denial.
3. A literal pattern `*` matches every resource of its type; a prefixed pattern matches all names with that prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from ottla.base.security import WILDCARD, WILDCARD_PRINCIPAL, Operation, PatternType, Permission, ResourceType

IMPLYING_OPERATIONS: Final[Mapping[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


class ResourcePattern(NamedTuple):
    """The resources that a rule applies to."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


class AccessControlEntry(NamedTuple):
    """Principal, host, operation and permission of a rule."""

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
    """A complete rule."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        return f"(pattern={self.pattern}, entry={self.entry})"


Entries = frozenset[AccessControlEntry]
Acls = Mapping[ResourcePattern, Entries]  # no pattern without entries

NO_ENTRIES: Final[Entries] = frozenset()
# The rules of a node that cannot be read: its denials are unknown, so everything is denied.
DENY_ALL: Final = frozenset({AccessControlEntry(WILDCARD_PRINCIPAL, WILDCARD, Operation.ALL, Permission.DENY)})


class AclFilter(NamedTuple):
    """A filter of DescribeAcls and DeleteAcls; None and ANY match everything."""

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
        return matches_name(pattern, self.name)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def select(self, acls: Acls) -> dict[ResourcePattern, Entries]:
        """Return the matching rules; an exact resource name is looked up directly."""
        if self.name is not None and self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            types = [each for each in ResourceType if self.resource_type in (ResourceType.ANY, each)]
            named = [ResourcePattern(kind, self.name, PatternType(self.pattern_type)) for kind in types]
            candidates: Iterable[ResourcePattern] = [pattern for pattern in named if pattern in acls]
        else:
            candidates = [pattern for pattern in acls if self.matches_pattern(pattern)]
        found = {pattern: frozenset(filter(self.matches_entry, acls[pattern])) for pattern in candidates}
        return {pattern: entries for pattern, entries in found.items() if entries}


def matches_name(pattern: ResourcePattern, name: str) -> bool:
    """Return whether a pattern matches a name (rule 3)."""
    if pattern.pattern_type == PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def applies_to(entry: AccessControlEntry, host: str, operation: int) -> bool:
    """Return whether a rule, of the right principal and resource, applies to this host and operation (rule 2)."""
    if canonical_host(entry.host) not in (WILDCARD, host):
        return False
    if entry.operation in (Operation.ALL, operation):
        return True
    return entry.permission == Permission.ALLOW and entry.operation in IMPLYING_OPERATIONS.get(operation, ())


def canonical_host(host: str) -> str:
    """Return an IPv6 address in the form that sockets report: Java writes 0:0:0:0:0:0:0:1 for ::1."""
    if ":" not in host:
        return host
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def group_by_pattern(bindings: Iterable[AclBinding]) -> Acls:
    """Group rules by pattern."""
    found: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for pattern, entry in bindings:
        found.setdefault(pattern, set()).add(entry)
    return {pattern: frozenset(entries) for pattern, entries in found.items()}
