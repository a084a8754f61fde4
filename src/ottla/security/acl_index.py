"""An index of access rules that decides requests by principal, host, operation and resource. Pure; the rules are in
acls.py.

A lookup costs as much as the length of the name, and does not depend on the number of rules, even with deeply nested
prefixes. Compiled with mypyc where possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.base.security import WILDCARD, WILDCARD_PRINCIPAL, Operation, PatternType, Permission, ResourceType
from ottla.security.acls import (
    IMPLYING_OPERATIONS,
    NO_ENTRIES,
    AccessControlEntry,
    AclBinding,
    Acls,
    Entries,
    ResourcePattern,
    applies_to,
    canonical_host,
)

OPERATIONS: Final = len(Operation)
# Bit masks of the rules, shifted by the number of an operation.
ALLOWED_BIT: Final = 1
DENIED_BIT: Final = ALLOWED_BIT << OPERATIONS
NAMED_BIT: Final = DENIED_BIT << OPERATIONS  # allowed by itself, not implied by another operation


def bits_of(operations: Iterable[int], bit: int) -> int:
    return sum(bit << operation for operation in set(operations))


def expanded_operations(operation: Operation) -> Iterable[Operation]:
    return Operation if operation is Operation.ALL else (operation,)


def implied_operations(operation: Operation) -> Iterable[int]:
    return [each for each, by in IMPLYING_OPERATIONS.items() if operation in by]


ALLOWED_BITS: Final = [
    bits_of([*expanded_operations(each), *implied_operations(each)], ALLOWED_BIT)
    | bits_of(expanded_operations(each), NAMED_BIT)
    for each in Operation
]
DENIED_BITS: Final = [bits_of(expanded_operations(each), DENIED_BIT) for each in Operation]


class PatternRules:
    """The rules of one principal about one pattern, as bit masks for allowed and denied operations."""

    __slots__ = ("any_host_bits", "bits_by_host", "entries")

    def __init__(self) -> None:
        self.any_host_bits = 0
        self.bits_by_host: dict[str, int] | None = None  # additional rules for single hosts; most rules have none
        self.entries: Entries = NO_ENTRIES  # the rules themselves, in the table of all principals

    def add(self, entry: AccessControlEntry) -> None:
        _, host, operation, permission = entry
        bits = ALLOWED_BITS[operation] if permission == Permission.ALLOW else DENIED_BITS[operation]
        if host == WILDCARD:
            self.any_host_bits |= bits
            return
        if self.bits_by_host is None:
            self.bits_by_host = {}
        host = canonical_host(host)
        self.bits_by_host[host] = self.bits_by_host.get(host, 0) | bits

    def bits(self, host: str) -> int:
        return self.any_host_bits if self.bits_by_host is None else self.any_host_bits | self.bits_by_host.get(host, 0)


class PrefixNode:
    """A prefix with rules, or an intermediate node of the search for one."""

    __slots__ = ("any_host_bits", "nearest_with_hosts", "parent", "prefix", "rules", "use_count", "version")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.rules: PatternRules | None = None
        self.use_count = 0  # number of prefixes with rules that need this node
        # Cached results for all prefixes up to here, valid if `version` is the table's.
        self.version = -1
        self.parent: PrefixNode | None = None  # the longest shorter prefix with rules
        self.any_host_bits = 0
        self.nearest_with_hosts: PrefixNode | None = (
            None  # the longest prefix, including this one, with rules for single hosts
        )


class PrefixTable:
    """Rules by prefix. A lookup hashes at most as many prefixes of a name as its length has bits: 8 for a topic.

    Every prefix has a node at each length that results from adding up the bits of its own length, highest first: a
    prefix of 11 characters (1011) at 8, 10 and 11. A search takes the same steps while nodes exist. It ends at the
    longest prefix of the name with rules, or at a node that references it.
    """

    __slots__ = ("_nodes", "_top_bit", "_version", "count")

    def __init__(self) -> None:
        self._nodes: dict[str, PrefixNode] = {}
        self.count = 0
        self._top_bit = 0
        self._version = 0

    def items(self) -> Iterator[tuple[str, PatternRules]]:
        for prefix, node in self._nodes.items():
            if node.rules is not None:
                yield prefix, node.rules

    def get(self, prefix: str) -> PatternRules | None:
        node = self._nodes.get(prefix)
        return None if node is None else node.rules

    def rules(self, prefix: str) -> PatternRules:
        """Return the rules of a prefix, for an immediate change; new ones if there are none."""
        self._version += 1
        node = self._nodes.get(prefix)
        if node is not None and node.rules is not None:
            return node.rules
        self.count += 1
        for length in _node_lengths(len(prefix)):
            beginning = prefix[:length]
            step = self._nodes.get(beginning)
            if step is None:
                step = self._nodes[beginning] = PrefixNode(beginning)
            step.use_count += 1
        if len(prefix) >= 2 * self._top_bit:
            self._top_bit = 1 << (len(prefix).bit_length() - 1) if prefix else 0
        rules = self._nodes[prefix].rules = PatternRules()
        return rules

    def remove(self, prefix: str) -> None:
        self._version += 1
        self.count -= 1
        self._nodes[prefix].rules = None
        for length in _node_lengths(len(prefix)):
            step = self._nodes[prefix[:length]]
            step.use_count -= 1
            if step.use_count == 0:
                del self._nodes[step.prefix]

    def longest_prefix(self, name: str) -> PrefixNode | None:
        """Return the longest prefix of this name with rules; `above` leads to the shorter ones."""
        node = self._deepest_node(name)
        if node is None:
            return None
        if node.version != self._version:
            self._refresh(node)
        return node.parent if node.rules is None else node

    def bits(self, name: str, host: str) -> int:
        """Return the combined rules of all prefixes of the name."""
        node = self._deepest_node(name)
        if node is None:
            return 0
        if node.version != self._version:
            self._refresh(node)
        bits = node.any_host_bits
        node = node.nearest_with_hosts
        while node is not None:
            assert node.rules is not None, "this node has rules for hosts"
            bits |= node.rules.bits(host)
            above = node.parent
            node = None if above is None else above.nearest_with_hosts
        return bits

    def _deepest_node(self, name: str) -> PrefixNode | None:
        nodes = self._nodes
        found: PrefixNode | None = None
        if "" in nodes:
            found = nodes[""]
        length, bit, end = 0, self._top_bit, len(name)
        while bit:
            if length + bit <= end:
                beginning = name[: length + bit]
                if beginning in nodes:
                    found = nodes[beginning]
                    length += bit
            bit >>= 1
        return found

    def _refresh(self, lowest: PrefixNode) -> None:
        version, nodes = self._version, self._nodes
        outdated: list[PrefixNode] = []
        node: PrefixNode | None = lowest
        while node is not None and node.version != version:
            outdated.append(node)
            shorter = node.prefix[:-1]
            # In a chain of prefixes the next one is a character shorter.
            node = (nodes.get(shorter) or self._deepest_node(shorter)) if node.prefix else None
        while outdated:
            below = outdated.pop()
            above = None if node is None else node.parent if node.rules is None else node
            below.parent = above
            below.any_host_bits = 0 if above is None else above.any_host_bits
            below.nearest_with_hosts = None if above is None else above.nearest_with_hosts
            rules = below.rules
            if rules is not None:
                below.any_host_bits |= rules.any_host_bits
                if rules.bits_by_host is not None:
                    below.nearest_with_hosts = below
            below.version = version
            node = below


def _node_lengths(length: int) -> list[int]:
    """Return the lengths at which a prefix of this length has nodes."""
    steps, bit = [], 1 << length.bit_length() >> 1
    reached = 0
    while bit:
        if length & bit:
            reached += bit
            steps.append(reached)
        bit >>= 1
    return steps or [0]


class PatternTable:
    """The rules of one principal about one resource type, by pattern."""

    __slots__ = ("literal", "prefixed", "wildcard_rules")

    def __init__(self) -> None:
        self.literal: dict[str, PatternRules] = {}
        self.prefixed = PrefixTable()
        self.wildcard_rules: PatternRules | None = None  # the same object as literal["*"]

    def rules(self, name: str, is_prefix: bool) -> PatternRules:
        """Return the rules of one pattern, for an immediate change; new ones if there are none."""
        if is_prefix:
            return self.prefixed.rules(name)
        rules = self.literal.get(name)
        if rules is None:
            rules = self.literal[name] = PatternRules()
            if name == WILDCARD:
                self.wildcard_rules = rules
        return rules

    def remove(self, name: str, is_prefix: bool) -> None:
        if is_prefix:
            self.prefixed.remove(name)
            return
        del self.literal[name]
        if name == WILDCARD:
            self.wildcard_rules = None

    def bits(self, name: str, host: str) -> int:
        """Return the combined rules about this resource."""
        rules = self.literal.get(name)
        bits = 0 if rules is None else rules.bits(host)
        if self.wildcard_rules is not None:
            bits |= self.wildcard_rules.bits(host)
        return bits | self.prefixed.bits(name, host) if self.prefixed.count else bits

    def matching_patterns(self, name: str) -> list[tuple[str, PatternType, PatternRules]]:
        """Return the matching rules, each with its pattern."""
        found = [(each, PatternType.LITERAL, self.literal[each]) for each in {name, WILDCARD} if each in self.literal]
        node = self.prefixed.longest_prefix(name)
        while node is not None:
            assert node.rules is not None, "nodes above have rules"
            found.append((node.prefix, PatternType.PREFIXED, node.rules))
            node = node.parent
        return found

    def rules_of(self, name: str, is_prefix: bool) -> PatternRules:
        rules = self.prefixed.get(name) if is_prefix else self.literal.get(name)
        assert rules is not None, f"no rules of {name!r}"
        return rules

    def has_any(self, name: str) -> bool:
        return name in self.literal or self.wildcard_rules is not None or self.prefixed.longest_prefix(name) is not None


class ResourceTypeRules:
    """All rules about one resource type."""

    __slots__ = ("all_principals", "by_principal")

    def __init__(self) -> None:
        self.by_principal: dict[str, PatternTable] = {}
        self.all_principals = PatternTable()  # of all rules, for any principal

    def put(self, name: str, is_prefix: bool, entries: Entries) -> None:
        """Replace the rules of one pattern; no entries remove it."""
        pattern = self.all_principals.rules(name, is_prefix)
        for principal in {entry[0] for entry in pattern.entries}:
            table = self.by_principal[principal]
            table.remove(name, is_prefix)
            if not table.literal and not table.prefixed.count:
                del self.by_principal[principal]
        pattern.entries = entries
        for entry in entries:
            self._table(entry[0]).rules(name, is_prefix).add(entry)
        if not entries:
            self.all_principals.remove(name, is_prefix)

    def tables_of(self, principal: str) -> list[PatternTable]:
        """Return the tables that apply to a principal: its own, and that of User:*."""
        return [self.by_principal[each] for each in {principal, WILDCARD_PRINCIPAL} if each in self.by_principal]

    def _table(self, principal: str) -> PatternTable:
        table = self.by_principal.get(principal)
        if table is None:
            table = self.by_principal[principal] = PatternTable()
        return table


class AclIndex:
    """The index of all rules; changed only by `put`."""

    def __init__(self, acls: Acls | None = None) -> None:
        self._types = [ResourceTypeRules() for _ in ResourceType]
        for pattern, entries in (acls or {}).items():
            self.put(pattern, entries)

    def put(self, pattern: ResourcePattern, entries: Entries) -> None:
        """Replace the rules of one pattern; no entries remove it."""
        resource_type, name, pattern_type = pattern
        self._types[resource_type].put(name, pattern_type == PatternType.PREFIXED, entries)

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Return whether rule 1 allows the request, without super users and the default for resources without rules."""
        by_principal = self._types[resource_type].by_principal
        table = by_principal.get(principal)
        bits = 0 if table is None else table.bits(name, host)
        table = by_principal.get(WILDCARD_PRINCIPAL)
        if table is not None:
            bits |= table.bits(name, host)
        bits >>= operation
        return bits & (ALLOWED_BIT | DENIED_BIT) == ALLOWED_BIT

    def has_rules(self, resource_type: int, name: str) -> bool:
        """Return whether the resource has rules for any principal."""
        return self._types[resource_type].all_principals.has_any(name)

    def deciding_binding(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> AclBinding | None:
        """Return the rule that decides, if any: the first that denies, otherwise the first that allows."""
        rules = self._types[resource_type]
        tables = rules.tables_of(principal)
        bits = 0
        for table in tables:
            bits |= table.bits(name, host)
        bits >>= operation
        if not bits & (ALLOWED_BIT | DENIED_BIT):
            return None
        bit, permission = (DENIED_BIT, Permission.DENY) if bits & DENIED_BIT else (ALLOWED_BIT, Permission.ALLOW)
        deciding = {
            (pattern_type == PatternType.PREFIXED, pattern_name != name, len(pattern_name), pattern_name)
            for table in tables
            for pattern_name, pattern_type, said in table.matching_patterns(name)
            if said.bits(host) >> operation & bit
        }
        is_prefix, _, _, pattern_name = min(deciding)  # in this order: the name itself, the wildcard, prefixes
        kind = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
        for entry in sorted(rules.all_principals.rules_of(pattern_name, is_prefix).entries):
            is_about_it = entry.permission == permission and entry.principal in (principal, WILDCARD_PRINCIPAL)
            if is_about_it and applies_to(entry, host, operation):
                return AclBinding(ResourcePattern(ResourceType(resource_type), pattern_name, kind), entry)
        raise AssertionError(f"no rule explains the decision about {name!r}")

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether the operation is allowed on any resource of the type, existing or not.

        Only rules about this operation or ALL are used. An ALLOW rule has no effect if a DENY rule covers everything
        that it allows: all names, the same name, or a prefix of it.
        """
        tables = self._types[resource_type].tables_of(principal)
        wanted = AccessRequest(host, operation, tables)
        if wanted.is_denied_by([table.wildcard_rules for table in tables]):
            return False
        return any(
            wanted.is_allowed_by(rules) and not wanted.is_denied_by_dominant_rule(name, is_prefix)
            for table in tables
            for is_prefix, patterns in ((False, table.literal.items()), (True, table.prefixed.items()))
            for name, rules in patterns
        )


class AccessRequest:
    """An operation on any resource of a type."""

    def __init__(self, host: str, operation: int, tables: list[PatternTable]) -> None:
        self.host = host
        self.operation = operation
        self.tables = tables

    def is_allowed_by(self, rules: PatternRules) -> bool:
        return rules.bits(self.host) >> self.operation & NAMED_BIT != 0

    def is_denied_by(self, candidates: Iterable[PatternRules | None]) -> bool:
        return any(
            rules is not None and rules.bits(self.host) >> self.operation & DENIED_BIT != 0 for rules in candidates
        )

    def is_denied_by_dominant_rule(self, name: str, is_prefix: bool) -> bool:
        """Return whether a DENY rule covers everything that a rule with this name allows."""
        if name == WILDCARD and not is_prefix:
            return False  # no pattern covers more, and a denial of all names was checked first
        for table in self.tables:
            if table.prefixed.bits(name, self.host) >> self.operation & DENIED_BIT:
                return True
            if not is_prefix and self.is_denied_by([table.literal.get(name)]):
                return True
        return False
