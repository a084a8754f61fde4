"""`associations`: items that occur together: FP-growth over the baskets of each window.

    associations: {basket: order, item: product, size: 1 hour, support: 0.02, confidence: 0.5}

When the watermark has passed a window, its baskets are mined, and each rule becomes a row: `when` (list of items),
`then` (item), `together` (baskets with all of them), `baskets` (all of the window), support, confidence, lift. Rows
without basket or item are filtered. A window with more than `baskets_max` baskets is sampled by the hash of their ids;
`sampled` is the number of baskets in the sample.

FP-growth (Han, Pei, Yin 2000) is pure Python here, for the baskets of one window. A tree holds every basket as a path,
items ordered from frequent to rare, so baskets share prefixes. The itemsets that end in an item are found in the
smaller tree of the paths to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.model.row_order import RowOrder, unique_by
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.event_time import WINDOW_END, WINDOW_START
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.step import StepKind
from ottla.pipelines.steps.window import WINDOW, span_problems, window_span, with_window_columns

BASKETS_MAX = 100_000  # the limit of Spark's min_by
ITEMS_IN_SET_MAX = 8
RULES = (
    "array<struct<when: array<string>, then: string, together: bigint, "
    "support: double, confidence: double, lift: double>>"
)
BASKET, ITEMS, CHOSEN, FOUND = "_basket", "_items", "_chosen", "_found"

Items = frozenset[str]
ConditionalPatterns = list[tuple[tuple[str, ...], int]]  # items from frequent to rare, and the number of baskets


@dataclass(frozen=True, kw_only=True)
class Associations:
    """Find what goes together in the baskets of each window."""

    basket: str = field(metadata={"doc": "column that identifies the basket: order, session, user"})
    item: str = field(metadata={"doc": "column with the item"})
    size: Duration = field(metadata={"doc": "length of a window, e.g. 1 hour"})
    slide: Duration | None = field(default=None, metadata={"doc": "time from one window's start to the next's (size)"})
    support: float = field(default=0.01, metadata={"doc": "minimum share of the baskets with a set of items"})
    confidence: float = field(default=0.5, metadata={"doc": "minimum share of the cases in which a rule holds"})
    items_in_set_max: int = field(default=4, metadata={"doc": "most items in a rule, both sides together"})
    items_max: int = field(
        default=100, metadata={"doc": "most items of one basket; further ones, by name, are left out"}
    )
    baskets_max: int = field(default=50_000, metadata={"doc": "most baskets of one window; of more a sample is taken"})
    rules_max: int = field(default=1_000, metadata={"doc": "most rules of one window, best lift first"})
    KIND: ClassVar[StepKind] = "merges"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        yield from span_problems(self.size, self.slide)
        for name in ("support", "confidence"):
            if not 0 < getattr(self, name) <= 1:
                yield name, "must be above 0 and at most 1", "0.05 means 5 %"
        bounds = {
            "items_in_set_max": ITEMS_IN_SET_MAX,
            "items_max": 10_000,
            "baskets_max": BASKETS_MAX,
            "rules_max": 100_000,
        }
        for name, most in bounds.items():
            if not 1 <= getattr(self, name) <= most:
                yield name, f"must be from 1 to {most}", ""

    def apply(self, frame: Frame) -> Frame:
        frame = frame.filter_counted(F.col(self.basket).isNotNull() & F.col(self.item).isNotNull())
        frame, span = window_span(frame, self.size, self.slide)
        item = F.col(self.item).cast("string")
        items = F.slice(F.array_sort(F.collect_set(item)), 1, self.items_max)
        baskets = frame.rows.groupBy(span.alias(WINDOW), F.col(self.basket).alias(BASKET)).agg(items.alias(ITEMS))
        frame = with_window_columns(frame.stateful(2), baskets, [BASKET])
        chosen = F.min_by(ITEMS, F.struct(F.xxhash64(BASKET), F.col(BASKET)), self.baskets_max)
        counted = frame.rows.groupBy(WINDOW_START, WINDOW_END).agg(
            F.count(F.lit(1)).alias("baskets"), chosen.alias(CHOSEN)
        )
        limits = self._limits()
        mine = F.udf(lambda baskets: mined_rules(baskets, limits), RULES)
        mined = counted.withColumn(FOUND, F.explode(mine(CHOSEN)))
        columns = (WINDOW_START, WINDOW_END, f"{FOUND}.*", "baskets", F.size(CHOSEN).alias("sampled"))
        return frame.merged(mined.select(*columns), WINDOW_END)

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        return unique_by([WINDOW_START, "when", "then"], [WINDOW_END, "when", "then"])

    def _limits(self) -> MiningLimits:
        return MiningLimits(self.support, self.confidence, self.items_in_set_max, rules_max=self.rules_max)


def mined_rules(baskets: list[list[str]] | None, limits: MiningLimits) -> list[tuple[object, ...]]:
    """Runs in Spark's Python workers."""
    return [tuple(rule) for rule in mine_rules(baskets or [], limits)]


class AssociationRule(NamedTuple):
    """Baskets with all of `when` also have `then`, in `confidence` of all cases; lift 1 means independence."""

    when: list[str]
    then: str
    together: int
    support: float
    confidence: float
    lift: float


class MiningLimits(NamedTuple):
    """Thresholds and bounds of the search."""

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
        """The items from the root to this node, exclusive."""
        items: list[str] = []
        node = self.parent
        while node is not None and node.parent is not None:
            items.append(node.item)
            node = node.parent
        return tuple(reversed(items))


def mine_rules(baskets: Sequence[Iterable[str]], limits: MiningLimits) -> list[AssociationRule]:
    """The rules of these baskets, highest lift first."""
    if not baskets:
        return []
    total = len(baskets)
    sets = frequent_sets(baskets, limits)
    found = [rule for items, count in sets.items() if len(items) > 1 for rule in _rules_of(items, count, sets, total)]
    good = [rule for rule in found if rule.confidence >= limits.confidence]
    good.sort(key=lambda rule: (-rule.lift, -rule.together, rule.when, rule.then))
    return good[: limits.rules_max]


def frequent_sets(baskets: Sequence[Iterable[str]], limits: MiningLimits) -> dict[Items, int]:
    """Each frequent itemset with its number of baskets. Smaller sets come first, up to `sets_max`."""
    least = max(ceil(limits.support * len(baskets) - 1e-9), 1)
    paths: ConditionalPatterns = [(tuple(sorted(set(basket))), 1) for basket in baskets]
    found: dict[Items, int] = {}
    level: list[tuple[Items, ConditionalPatterns]] = [(frozenset(), paths)]
    for size in range(1, limits.items_in_set_max + 1):
        following: list[tuple[Items, ConditionalPatterns]] = []
        for ending, its_paths in level:
            for items, count, before in _extend_itemsets(ending, its_paths, least, size < limits.items_in_set_max):
                if len(found) >= limits.sets_max:
                    return found
                found[items] = count
                if before:
                    following.append((items, before))
        level = following
    return found


def _extend_itemsets(
    ending: Items, paths: ConditionalPatterns, least: int, goes_on: bool
) -> Iterator[tuple[Items, int, ConditionalPatterns]]:
    """The sets with one more item, each with its conditional paths."""
    counts: Counter[str] = Counter()
    for items, weight in paths:
        for item in items:
            counts[item] += weight
    frequent = {item: count for item, count in counts.items() if count >= least}
    nodes = _fp_tree(paths, frequent) if goes_on else {}
    for item in sorted(frequent, key=lambda each: (-frequent[each], each)):
        before = [(path, node.count) for node in nodes.get(item, ()) if (path := node.path())]
        yield ending | {item}, frequent[item], before


def _fp_tree(paths: ConditionalPatterns, frequent: dict[str, int]) -> dict[str, list[_Node]]:
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


def _rules_of(items: Items, count: int, sets: dict[Items, int], total: int) -> Iterator[AssociationRule]:
    for then in sorted(items):
        alone = sets.get(frozenset((then,)))
        when = sets.get(items - {then})
        if alone and when:
            confidence = count / when
            yield AssociationRule(
                sorted(items - {then}), then, count, count / total, confidence, confidence * total / alone
            )
