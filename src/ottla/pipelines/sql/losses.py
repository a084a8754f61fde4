"""Records that are in no row of a result, counted: what could not be read, and what has no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.running.accounting import dead_in
from ottla.pipelines.running.builder import Builder
from ottla.pipelines.steps.frame import ALIVE, FATE, ORIGIN, REASON, Frame


class Losses(NamedTuple):
    """Records that are in no row."""

    unreadable: int = 0
    empty: int = 0  # without value
    late: int = 0  # behind the watermark
    example: str = ""


@dataclass
class HistoryBuilder(Builder):
    """Remembers what it has made of topics, with the marks of records that are in no row."""

    of_tables: list[DataFrame] = field(default_factory=list)

    def table(self, name: str) -> Frame:
        frame = super().table(name)
        self.of_tables.append(frame.rows)
        return frame

    @property
    def of_streams(self) -> list[DataFrame]:
        return [rows for rows, _ in self.marked if {*ORIGIN[:3], REASON} <= {*rows.columns}]


def losses_of(rows: DataFrame, builder: HistoryBuilder, is_read_twice: bool, is_read_to_end: bool) -> Losses:
    """Spark counts them on the way, where it does not read twice. And it forgets what it has counted if it sees
    half-way that there will be no rows at all, and leaves out the rest of its plan."""
    observed = rows._jdf.queryExecution().observedMetrics()
    figures = [observed.get(name) for name in builder.observations]
    losses = count_losses([_figures(each) for each in figures])
    is_forgotten = any(each.isEmpty() for each in figures)
    if is_read_to_end and (is_forgotten or (any(losses[:2]) and is_read_twice)):
        losses = _counted_once(builder)
    return losses._replace(example=_example(builder)) if losses.unreadable else losses


def count_losses(observed: Sequence[Mapping[str, Any]]) -> Losses:
    """What the steps that make a table of a topic have marked: `parse` filters there records without value alone."""
    unreadable = dead_in({str(number): each for number, each in enumerate(observed)})
    empty = sum(int(count or 0) for each in observed for name, count in each.items() if name.startswith("filtered_"))
    return Losses(unreadable, empty)


def _figures(observed: Any) -> dict[str, Any]:
    """A row of Java's, or none if that part of the plan was never run."""
    if observed.isEmpty():
        return {}
    row = observed.get()
    return {name: row.getAs(name) for name in row.schema().fieldNames()}


def _counted_once(builder: HistoryBuilder) -> Losses:
    """Each record of a topic once, however often the query has read it. A tombstone in a table takes a row away, as it
    should."""
    lost = [rows.filter(F.col(FATE) != ALIVE) for rows in builder.of_streams]
    lost += [rows.filter(F.col(FATE) < ALIVE) for rows in builder.of_tables]
    if not lost:
        return Losses()
    told = [rows.select(*ORIGIN[:3], (F.col(FATE) < ALIVE).alias("is_dead")) for rows in lost]
    once = reduce(DataFrame.unionByName, told).dropDuplicates(list(ORIGIN[:3]))
    counts = {row["is_dead"]: row["count"] for row in once.groupBy("is_dead").count().collect()}
    return Losses(counts.get(True, 0), counts.get(False, 0))


def _example(builder: HistoryBuilder) -> str:
    """The first record that could not be read: where it is, and why."""
    for rows in (*builder.of_streams, *builder.of_tables):
        dead = rows.filter(F.col(FATE) < ALIVE).select(*ORIGIN[:3], REASON).take(1)
        if dead:
            return f"{dead[0][0]}-{dead[0][1]} at offset {dead[0][2]}: {dead[0][3]}"
    return ""
