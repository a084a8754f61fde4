"""Which of two rows is the later one? Asked before rows with the same key overwrite each other.

Rows come in the order of their partition, and hidden columns carry that place from step to step, through any shuffle.
Where a step makes new rows of many, or holds rows back, the place is gone. Then rows may still need no order: of what
is grouped by some columns, a batch has one row for each of their values, and a later batch knows more.

A step says what becomes of the order: `row_order(before)`. One without that method keeps the order if it only marks
rows, and loses it otherwise; what it does to columns is not known, so grouping before it tells nothing any more.

Rule: no Spark, so that a file is refused before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.pipelines.model.pipeline import Stream

SOURCE_ORDER = ("_topic", "_partition", "_offset")
POSITION = "_position"  # of an exploded element in its record: a list, for elements may be exploded, too
INSTANT = "_instant"  # microseconds since 1970: a datetime would depend on the time zone of Spark's processes


class RowOrder(NamedTuple):
    """`columns`: hidden ones that tell the later row, none where that is lost. `keys`: sets of columns; no two rows of
    one batch agree in all columns of such a set."""

    columns: tuple[str, ...] = ()
    keys: tuple[frozenset[str], ...] = ()
    lost_at: str = ""  # the step behind which rows have no order

    def is_enough_for(self, key: Collection[str]) -> bool:
        return bool(self.columns) or any(each <= set(key) for each in self.keys)

    def without(self, names: Iterable[str]) -> RowOrder:
        """These columns are gone, or made anew. Spark does not tell capitals from small letters in names."""
        gone = {name.lower() for name in names}
        return self.renamed(lambda name: None if name.lower() in gone else name)

    def renamed(self, new_name: Callable[[str], str | None]) -> RowOrder:
        """Columns under other names; None for one that is no longer what it was."""
        named = [{new_name(name) for name in key} for key in self.keys]
        keys = tuple(frozenset(name for name in key if name) for key in named if None not in key)
        return self._replace(keys=keys, lost_at=self.lost_at if len(keys) == len(self.keys) else "")


def one_row_for_each(*keys: Iterable[str]) -> RowOrder:
    """After grouping: any of these sets of columns tells the rows of a batch apart."""
    return RowOrder(keys=tuple(map(frozenset, keys)))


def order_of(streams: Mapping[str, Stream], stream: Stream) -> RowOrder:
    """Of the rows that come out of the last step."""
    order = order_of(streams, streams[stream.origin]) if isinstance(stream.origin, str) else RowOrder(SOURCE_ORDER)
    for number, (name, spec) in enumerate(stream.steps, start=1):
        order = _after(spec, order)
        if not order.columns and not order.lost_at:
            order = order._replace(lost_at=f"step {number}, {name}, of stream {stream.name}")
    return order


def _after(spec: object, before: RowOrder) -> RowOrder:
    if hasattr(spec, "row_order"):
        after: RowOrder = spec.row_order(before)
        return after
    if getattr(spec, "KIND", "") == "marks":
        return before.renamed(lambda _: None)
    return RowOrder()
