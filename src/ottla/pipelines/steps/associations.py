"""`associations`: what goes together: FP-growth over the baskets of each window.

    associations: {basket: order, item: product, size: 1 hour, support: 0.02, confidence: 0.5}

When the watermark has passed a window its baskets are mined, and each rule becomes a row: `when` (list of items),
`then` (item), `together` (baskets with all of them), `baskets` (all of the window), support, confidence, lift. Rows
without basket or item are filtered. A window with more than `baskets_max` baskets is judged by a sample, chosen by
the hash of their ids; `sampled` says how many were looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.fields import Duration
from ottla.pipelines.model.row_order import RowOrder, one_row_for_each
from ottla.pipelines.steps.event_time import WINDOW_END, WINDOW_START
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.itemsets import Limits, rules
from ottla.pipelines.steps.step import Kind
from ottla.pipelines.steps.window import SPAN, span_problems, spanned, window_span

BASKETS_MAX = 100_000  # what Spark's min_by keeps at most
ITEMS_IN_SET_MAX = 8
RULES = (
    "array<struct<when: array<string>, then: string, together: bigint, "
    "support: double, confidence: double, lift: double>>"
)
BASKET, ITEMS, CHOSEN, FOUND = "_basket", "_items", "_chosen", "_found"


@dataclass(frozen=True, kw_only=True)
class Associations:
    """Find what goes together in the baskets of each window."""

    basket: str = field(metadata={"doc": "column that tells the basket: order, session, user"})
    item: str = field(metadata={"doc": "column with what lies in it"})
    size: Duration = field(metadata={"doc": "length of a window, e.g. 1 hour"})
    slide: Duration | None = field(default=None, metadata={"doc": "time from one window's start to the next's (size)"})
    support: float = field(default=0.01, metadata={"doc": "share of the baskets in which a set of items must be"})
    confidence: float = field(default=0.5, metadata={"doc": "share of the cases in which a rule must hold"})
    items_in_set_max: int = field(default=4, metadata={"doc": "most items in a rule, both sides together"})
    items_max: int = field(
        default=100, metadata={"doc": "most items of one basket; further ones, by name, are left out"}
    )
    baskets_max: int = field(default=50_000, metadata={"doc": "most baskets of one window; of more a sample is taken"})
    rules_max: int = field(default=1_000, metadata={"doc": "most rules of one window, best lift first"})
    KIND: ClassVar[Kind] = "merges"

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
        frame = frame.taking_part(F.col(self.basket).isNotNull() & F.col(self.item).isNotNull())
        frame, span = window_span(frame, self.size, self.slide)
        item = F.col(self.item).cast("string")
        items = F.slice(F.array_sort(F.collect_set(item)), 1, self.items_max)
        baskets = frame.rows.groupBy(span.alias(SPAN), F.col(self.basket).alias(BASKET)).agg(items.alias(ITEMS))
        frame = spanned(frame.stateful(2), baskets, [BASKET])
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
        return one_row_for_each([WINDOW_START, "when", "then"], [WINDOW_END, "when", "then"])

    def _limits(self) -> Limits:
        return Limits(self.support, self.confidence, self.items_in_set_max, rules_max=self.rules_max)


def mined_rules(baskets: list[list[str]] | None, limits: Limits) -> list[tuple[object, ...]]:
    """Runs in Spark's Python processes."""
    return [tuple(rule) for rule in rules(baskets or [], limits)]
