"""Counts of records that have no row in a result: unreadable records, and records without a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the usual name)

from ottla.pipelines.running.accounting import dead_in
from ottla.pipelines.running.builder import Builder
from ottla.pipelines.steps.frame import ALIVE, FATE, ORIGIN_COLUMNS, REASON, Frame


class Losses(NamedTuple):
    """Counts of records without a row."""

    unreadable: int = 0
    empty: int = 0  # without a value
    late: int = 0  # later than the watermark
    example: str = ""


@dataclass
class HistoryBuilder(Builder):
    """A builder that keeps the frames of topics, with the columns that mark records without a row."""

    of_tables: list[DataFrame] = field(default_factory=list)

    def table(self, name: str) -> Frame:
        frame = super().table(name)
        self.of_tables.append(frame.rows)
        return frame

    @property
    def of_streams(self) -> list[DataFrame]:
        return [rows for rows, _ in self.marked if {*ORIGIN_COLUMNS[:3], REASON} <= {*rows.columns}]


def losses_of(rows: DataFrame, builder: HistoryBuilder, is_read_twice: bool, is_read_to_end: bool) -> Losses:
    """Prepare the counts. If the query reads each topic once, Spark counts on the way.

    Spark discards these counts if it sees during the query that the result is empty, and skips the rest of its plan."""
    observed = rows._jdf.queryExecution().observedMetrics()
    figures = [observed.get(name) for name in builder.observations]
    losses = count_losses([_figures(each) for each in figures])
    is_forgotten = any(each.isEmpty() for each in figures)
    if is_read_to_end and (is_forgotten or (any(losses[:2]) and is_read_twice)):
        losses = _counted_once(builder)
    return losses._replace(example=_example(builder)) if losses.unreadable else losses


def count_losses(observed: Sequence[Mapping[str, Any]]) -> Losses:
    """Sum the counts of the steps that make a table of a topic. `parse` filters only records without a value there."""
    unreadable = dead_in({str(number): each for number, each in enumerate(observed)})
    empty = sum(int(count or 0) for each in observed for name, count in each.items() if name.startswith("filtered_"))
    return Losses(unreadable, empty)


def _figures(observed: Any) -> dict[str, Any]:
    """Convert a row of Java to a dict; empty if that part of the plan never ran."""
    if observed.isEmpty():
        return {}
    row = observed.get()
    return {name: row.getAs(name) for name in row.schema().fieldNames()}


def _counted_once(builder: HistoryBuilder) -> Losses:
    """Count each record of a topic once, however often the query has read it. A tombstone in a table deletes a row, so
    it is not counted."""
    lost = [rows.filter(F.col(FATE) != ALIVE) for rows in builder.of_streams]
    lost += [rows.filter(F.col(FATE) < ALIVE) for rows in builder.of_tables]
    if not lost:
        return Losses()
    told = [rows.select(*ORIGIN_COLUMNS[:3], (F.col(FATE) < ALIVE).alias("is_dead")) for rows in lost]
    once = reduce(DataFrame.unionByName, told).dropDuplicates(list(ORIGIN_COLUMNS[:3]))
    counts = {row["is_dead"]: row["count"] for row in once.groupBy("is_dead").count().collect()}
    return Losses(counts.get(True, 0), counts.get(False, 0))


def _example(builder: HistoryBuilder) -> str:
    """Describe the first unreadable record: its place and the reason."""
    for rows in (*builder.of_streams, *builder.of_tables):
        dead = rows.filter(F.col(FATE) < ALIVE).select(*ORIGIN_COLUMNS[:3], REASON).take(1)
        if dead:
            return f"{dead[0][0]}-{dead[0][1]} at offset {dead[0][2]}: {dead[0][3]}"
    return ""
