"""Which of two rows is newer: needed before rows with the same key overwrite each other.

Rows arrive in the order of their partition. Hidden columns carry that position through every step and shuffle. A step
that creates rows from many, or holds rows back, loses the position. Then rows may still need no order: after grouping,
a batch has one row for each group, and a later batch is newer.

A step declares its effect with `row_order(before)`. A step without that method keeps the order if it only marks rows,
and loses it otherwise. Its effect on columns is unknown, so unique keys from grouping before it are dropped.

Rule: no Spark, so problems are found before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.pipelines.model.pipeline import Stream

SOURCE_ORDER = ("_topic", "_partition", "_offset")
ELEMENT_POSITION = (
    "_position"  # position of an exploded element in its record: a list, because elements may be exploded again
)
TIME_MICROS = "_instant"  # microseconds since 1970: a datetime would depend on the time zone of Spark's processes


class RowOrder(NamedTuple):
    """`columns`: hidden columns that determine the newer row; empty if the order is lost. `keys`: sets of columns; no
    two rows of a batch agree in all columns of a set."""

    columns: tuple[str, ...] = ()
    keys: tuple[frozenset[str], ...] = ()
    lost_at: str = ""  # the step after which rows have no order

    def determines_newest_for(self, key: Collection[str]) -> bool:
        return bool(self.columns) or any(each <= set(key) for each in self.keys)

    def without_columns(self, names: Iterable[str]) -> RowOrder:
        """These columns are removed or recomputed. Spark compares column names without regard to case."""
        gone = {name.lower() for name in names}
        return self.renamed(lambda name: None if name.lower() in gone else name)

    def renamed(self, new_name: Callable[[str], str | None]) -> RowOrder:
        """Rename columns; None for a column that has a new meaning."""
        named = [{new_name(name) for name in key} for key in self.keys]
        keys = tuple(frozenset(name for name in key if name) for key in named if None not in key)
        return self._replace(keys=keys, lost_at=self.lost_at if len(keys) == len(self.keys) else "")


def unique_by(*keys: Iterable[str]) -> RowOrder:
    """After grouping: each of these sets of columns identifies the rows of a batch."""
    return RowOrder(keys=tuple(map(frozenset, keys)))


def row_order_after(streams: Mapping[str, Stream], stream: Stream) -> RowOrder:
    """The order of the rows after the last step."""
    order = (
        row_order_after(streams, streams[stream.origin]) if isinstance(stream.origin, str) else RowOrder(SOURCE_ORDER)
    )
    for number, (name, spec) in enumerate(stream.steps, start=1):
        order = _order_after_step(spec, order)
        if not order.columns and not order.lost_at:
            order = order._replace(lost_at=f"step {number}, {name}, of stream {stream.name}")
    return order


def _order_after_step(spec: object, before: RowOrder) -> RowOrder:
    if hasattr(spec, "row_order"):
        after: RowOrder = spec.row_order(before)
        return after
    if getattr(spec, "KIND", "") == "marks":
        return before.renamed(lambda _: None)
    return RowOrder()
