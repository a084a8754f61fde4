"""FP-growth (Han, Pei, Yin 2000): the sets of items that stand together in many baskets, and the rules among them.

Pure Python, for the baskets of one window. A tree holds every basket as a path, items ordered from frequent to rare, so
that baskets share their beginnings; the sets that end in an item are found in the smaller tree of the paths to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

Items = frozenset[str]
Paths = list[tuple[tuple[str, ...], int]]  # items from frequent to rare, and how many baskets


class Rule(NamedTuple):
    """Who has all of `when` has `then`, too, in `confidence` of all cases; lift 1 would be pure chance."""

    when: list[str]
    then: str
    together: int
    support: float
    confidence: float
    lift: float


class Limits(NamedTuple):
    """What is looked for, and where the search ends."""

    support: float = 0.01
    confidence: float = 0.5
    items_in_set_max: int = 4
    sets_max: int = 100_000
    rules_max: int = 1_000


class _Node:
    __slots__ = ("children", "count", "item", "parent")

    def __init__(self, item: str, parent: _Node | None) -> None:
        self.item = item
        self.parent = parent
        self.count = 0
        self.children: dict[str, _Node] = {}

    def __repr__(self) -> str:
        return f"_Node({self.item} x {self.count})"

    def path(self) -> tuple[str, ...]:
        """From the top to this node, without it."""
        items: list[str] = []
        node = self.parent
        while node is not None and node.parent is not None:
            items.append(node.item)
            node = node.parent
        return tuple(reversed(items))


def rules(baskets: Sequence[Iterable[str]], limits: Limits) -> list[Rule]:
    """The rules of these baskets, the most telling first."""
    if not baskets:
        return []
    total = len(baskets)
    sets = frequent_sets(baskets, limits)
    found = [rule for items, count in sets.items() if len(items) > 1 for rule in _rules_of(items, count, sets, total)]
    good = [rule for rule in found if rule.confidence >= limits.confidence]
    good.sort(key=lambda rule: (-rule.lift, -rule.together, rule.when, rule.then))
    return good[: limits.rules_max]


def frequent_sets(baskets: Sequence[Iterable[str]], limits: Limits) -> dict[Items, int]:
    """Each set of items that is in enough baskets, and in how many. Smaller sets come first, up to `sets_max`."""
    least = max(ceil(limits.support * len(baskets) - 1e-9), 1)
    paths: Paths = [(tuple(sorted(set(basket))), 1) for basket in baskets]
    found: dict[Items, int] = {}
    level: list[tuple[Items, Paths]] = [(frozenset(), paths)]
    for size in range(1, limits.items_in_set_max + 1):
        following: list[tuple[Items, Paths]] = []
        for ending, its_paths in level:
            for items, count, before in _grow(ending, its_paths, least, size < limits.items_in_set_max):
                if len(found) >= limits.sets_max:
                    return found
                found[items] = count
                if before:
                    following.append((items, before))
        level = following
    return found


def _grow(ending: Items, paths: Paths, least: int, goes_on: bool) -> Iterator[tuple[Items, int, Paths]]:
    """The sets with one item more, and for each the paths that lead to it."""
    counts: Counter[str] = Counter()
    for items, weight in paths:
        for item in items:
            counts[item] += weight
    frequent = {item: count for item, count in counts.items() if count >= least}
    nodes = _tree(paths, frequent) if goes_on else {}
    for item in sorted(frequent, key=lambda each: (-frequent[each], each)):
        before = [(path, node.count) for node in nodes.get(item, ()) if (path := node.path())]
        yield ending | {item}, frequent[item], before


def _tree(paths: Paths, frequent: dict[str, int]) -> dict[str, list[_Node]]:
    """The nodes of each item in the tree of these paths."""
    top = _Node("", None)
    nodes: dict[str, list[_Node]] = {}
    for items, weight in paths:
        node = top
        for item in sorted((each for each in items if each in frequent), key=lambda each: (-frequent[each], each)):
            child = node.children.get(item)
            if child is None:
                child = node.children[item] = _Node(item, node)
                nodes.setdefault(item, []).append(child)
            child.count += weight
            node = child
    return nodes


def _rules_of(items: Items, count: int, sets: dict[Items, int], total: int) -> Iterator[Rule]:
    for then in sorted(items):
        alone = sets.get(frozenset((then,)))
        when = sets.get(items - {then})
        if alone and when:
            confidence = count / when
            yield Rule(sorted(items - {then}), then, count, count / total, confidence, confidence * total / alone)
