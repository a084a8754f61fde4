"""An index of access rules: what somebody may do, and which rule decides that. Pure, rules of acls.py.

The rules of a pattern are kept as bits, one for each operation that they allow and one for each that they deny. So a
lookup costs the number of different lengths that the prefixes of one principal have, and never the number of rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.base.security import ANYBODY, WILDCARD, Operation, PatternType, Permission, ResourceType
from ottla.security.acls import (
    IMPLYING,
    NO_ENTRIES,
    AccessControlEntry,
    AclBinding,
    Acls,
    Entries,
    ResourcePattern,
    canonical_host,
    is_for,
)

OPERATIONS: Final = len(Operation)
# What rules say, as bits: shifted by the number of an operation, these tell about it.
ALLOWED_BIT: Final = 1
DENIED_BIT: Final = ALLOWED_BIT << OPERATIONS
NAMED_BIT: Final = DENIED_BIT << OPERATIONS  # allowed, and not because another operation is


def bits_of(operations: Iterable[int], bit: int) -> int:
    return sum(bit << operation for operation in set(operations))


def meant(operation: Operation) -> Iterable[Operation]:
    return Operation if operation is Operation.ALL else (operation,)


def implied(operation: Operation) -> Iterable[int]:
    return [each for each, by in IMPLYING.items() if operation in by]


ALLOWED_BITS: Final = [
    bits_of([*meant(each), *implied(each)], ALLOWED_BIT) | bits_of(meant(each), NAMED_BIT) for each in Operation
]
DENIED_BITS: Final = [bits_of(meant(each), DENIED_BIT) for each in Operation]


class PatternRules:
    """The rules of one principal about one pattern, as bits: ALLOWED_BITS and DENIED_BITS of each."""

    __slots__ = ("anywhere", "by_host", "entries")

    def __init__(self) -> None:
        self.anywhere = 0
        self.by_host: dict[str, int] | None = None  # what holds for single hosts, beside that; most rules name none
        self.entries: Entries = NO_ENTRIES  # the rules themselves, where they are kept for all principals at once

    def add(self, entry: AccessControlEntry) -> None:
        _, host, operation, permission = entry
        bits = ALLOWED_BITS[operation] if permission == Permission.ALLOW else DENIED_BITS[operation]
        if host == WILDCARD:
            self.anywhere |= bits
            return
        if self.by_host is None:
            self.by_host = {}
        host = canonical_host(host)
        self.by_host[host] = self.by_host.get(host, 0) | bits

    def bits(self, host: str) -> int:
        return self.anywhere if self.by_host is None else self.anywhere | self.by_host.get(host, 0)


class NameTable:
    """Rules by the name of their pattern: all those that one principal has about one type of resource."""

    __slots__ = ("_length_counts", "for_all", "literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, PatternRules] = {}
        self.prefixed: dict[str, PatternRules] = {}
        self.for_all: PatternRules | None = None  # the literal `*` once more
        self.prefix_lengths: list[int] = []
        self._length_counts: dict[int, int] = {}

    def rules(self, name: str, is_prefix: bool) -> PatternRules:
        """Those of one pattern; new ones if it has none."""
        table = self.prefixed if is_prefix else self.literal
        rules = table.get(name)
        if rules is None:
            rules = table[name] = PatternRules()
            if is_prefix:
                self._count(len(name), 1)
            elif name == WILDCARD:
                self.for_all = rules
        return rules

    def remove(self, name: str, is_prefix: bool) -> None:
        del (self.prefixed if is_prefix else self.literal)[name]
        if is_prefix:
            self._count(len(name), -1)
        elif name == WILDCARD:
            self.for_all = None

    def bits(self, name: str, host: str) -> int:
        """All that is said about this resource."""
        rules = self.literal.get(name)
        bits = 0 if rules is None else rules.bits(host)
        if self.for_all is not None:
            bits |= self.for_all.bits(host)
        if self.prefixed:
            own_length = len(name)
            for length in self.prefix_lengths:
                if length > own_length:
                    break
                rules = self.prefixed.get(name[:length])
                if rules is not None:
                    bits |= rules.bits(host)
        return bits

    def about(self, name: str) -> list[tuple[str, PatternType, PatternRules]]:
        """The same rules, each with its pattern: that of the name itself, that of all, those of its beginnings."""
        literals = [each for each in dict.fromkeys((name, WILDCARD)) if each in self.literal]
        beginnings = [each for each in self.beginnings(name) if each in self.prefixed]
        return [(each, PatternType.LITERAL, self.literal[each]) for each in literals] + [
            (each, PatternType.PREFIXED, self.prefixed[each]) for each in beginnings
        ]

    def beginnings(self, name: str) -> list[str]:
        """Those that may be prefixes in the table."""
        return [name[:length] for length in self.prefix_lengths if length <= len(name)]

    def _count(self, length: int, change: int) -> None:
        count = self._length_counts.get(length, 0) + change
        if count:
            self._length_counts[length] = count
        else:
            del self._length_counts[length]
        if count in (0, change):  # the first or the last of its length
            self.prefix_lengths = sorted(self._length_counts)


class TypeRules:
    """All rules about one type of resource."""

    __slots__ = ("by_principal", "everybody")

    def __init__(self) -> None:
        self.by_principal: dict[str, NameTable] = {}
        self.everybody = NameTable()  # of all rules, whomever they are about

    def put(self, name: str, is_prefix: bool, entries: Entries) -> None:
        """The whole new set of rules of one pattern; none at all removes it."""
        pattern = self.everybody.rules(name, is_prefix)
        for principal in {entry[0] for entry in pattern.entries}:
            table = self.by_principal[principal]
            table.remove(name, is_prefix)
            if not table.literal and not table.prefixed:
                del self.by_principal[principal]
        pattern.entries = entries
        for entry in entries:
            self._table(entry[0]).rules(name, is_prefix).add(entry)
        if not entries:
            self.everybody.remove(name, is_prefix)

    def _table(self, principal: str) -> NameTable:
        table = self.by_principal.get(principal)
        if table is None:
            table = self.by_principal[principal] = NameTable()
        return table


class AclIndex:
    """Rules, found by what somebody wants to do. Changed by `put` alone."""

    def __init__(self, acls: Acls | None = None) -> None:
        self._types = [TypeRules() for _ in ResourceType]
        for pattern, entries in (acls or {}).items():
            self.put(pattern, entries)

    def put(self, pattern: ResourcePattern, entries: Entries) -> None:
        """The whole new set of rules of one pattern; none at all removes it."""
        resource_type, name, pattern_type = pattern
        self._types[resource_type].put(name, pattern_type == PatternType.PREFIXED, entries)

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Rule 1, but for super users and what holds without rules: that is not the index's affair."""
        by_principal = self._types[resource_type].by_principal
        table = by_principal.get(principal)
        bits = 0 if table is None else table.bits(name, host)
        table = by_principal.get(ANYBODY)
        if table is not None:
            bits |= table.bits(name, host)
        bits >>= operation
        return bits & (ALLOWED_BIT | DENIED_BIT) == ALLOWED_BIT

    def has_rules(self, resource_type: int, name: str) -> bool:
        """Whether the resource has any, about whomever."""
        return bool(self._types[resource_type].everybody.about(name))

    def deciding(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> AclBinding | None:
        """The rule that decides, if one does: the first that denies, or else the first that allows."""
        allowing: AclBinding | None = None
        for pattern_name, pattern_type, rules in self._types[resource_type].everybody.about(name):
            pattern = ResourcePattern(ResourceType(resource_type), pattern_name, pattern_type)
            for entry in sorted(rules.entries):
                if entry.principal in (principal, ANYBODY) and is_for(entry, host, operation):
                    if entry.permission != Permission.ALLOW:
                        return AclBinding(pattern, entry)
                    allowing = allowing or AclBinding(pattern, entry)
        return allowing

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of the type to which this may be done, whether it exists or not.

        Only rules about the very operation count, or about all of them. A rule that allows is worth nothing if one that
        denies is about everything that it allows: about all names, the same name, or a beginning of it.
        """
        by_principal = self._types[resource_type].by_principal
        tables = [by_principal[who] for who in dict.fromkeys((principal, ANYBODY)) if who in by_principal]
        wanted = Wanted(host, operation, tables)
        if wanted.is_denied_by([table.for_all for table in tables]):
            return False
        return any(
            wanted.is_allowed_by(rules) and not wanted.is_dominated(name, is_prefix)
            for table in tables
            for is_prefix, patterns in ((False, table.literal), (True, table.prefixed))
            for name, rules in patterns.items()
        )


class Wanted:
    """Something that somebody wants to do to any resource of a type."""

    def __init__(self, host: str, operation: int, tables: list[NameTable]) -> None:
        self.host = host
        self.operation = operation
        self.tables = tables

    def is_allowed_by(self, rules: PatternRules) -> bool:
        return rules.bits(self.host) >> self.operation & NAMED_BIT != 0

    def is_denied_by(self, candidates: Iterable[PatternRules | None]) -> bool:
        return any(
            rules is not None and rules.bits(self.host) >> self.operation & DENIED_BIT != 0 for rules in candidates
        )

    def is_dominated(self, name: str, is_prefix: bool) -> bool:
        """Whether a rule that denies is about all that one with this name allows."""
        if name == WILDCARD and not is_prefix:
            return False  # nothing is about more, and a denial of the same was looked for first
        for table in self.tables:
            denials = [table.prefixed.get(beginning) for beginning in table.beginnings(name)]
            if self.is_denied_by(denials) or (not is_prefix and self.is_denied_by([table.literal.get(name)])):
                return True
        return False
