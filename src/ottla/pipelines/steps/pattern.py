"""`pattern`: "A, then B within t", "A and no B within t", for each key.

    pattern: {by: [user], first: "action = 'cart'", then: "action = 'buy'", within: 10 minutes}
    pattern: {by: [user], first: "action = 'cart'", then: "action = 'buy'", within: 10 minutes, emit: timed_out}
    pattern: {by: [card], first: "amount < 1", then: ["amount < 1", "amount > 500"], within: 1 hour, without: "by_pin"}

Rows are processed in time order after the watermark has passed them: the order of arrival does not matter.
sequence_matcher.py defines sequences and their end. Rows that match no condition are dropped, as are rows with null
keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.expressions.texts import check_condition, column_of_sql
from ottla.pipelines.model.row_order import TIME_MICROS, RowOrder
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.columns import require_columns
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.keyed_frame import MADE, KeyedProgram, result_time_column, unpack_struct
from ottla.pipelines.steps.lateness import track_late_rows
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.sequence_matcher import OUTCOME, Emit, SequenceMatcher, Several
from ottla.pipelines.steps.step import StepError, StepKind

CONDITIONS_MAX = 20
OPEN_MAX = 100_000


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Find rows of a key that follow each other within a time, or do not."""

    by: list[str] = field(metadata={"doc": "key columns"})
    first: str = field(metadata={"doc": "SQL condition on the row that begins it"})
    then: list[str] = field(metadata={"doc": "SQL condition on the row that follows, or a list: one after the other"})
    within: Duration = field(metadata={"doc": "time from the first row to the last one"})
    without: str | None = field(default=None, metadata={"doc": "SQL condition: such a row in between ends it"})
    emit: Emit = field(default="matched", metadata={"doc": "matched, timed_out, both"})
    several: Several = field(
        default="each", metadata={"doc": "of several first rows before the next: each, first, newest"}
    )
    prefixes: list[str] = field(
        default_factory=list, metadata={"doc": "before the columns of each row (first_, then_; then_1_, then_2_, …)"}
    )
    open_max: int = field(default=1000, metadata={"doc": "first rows of a key that wait at a time; more end the run"})
    KIND: ClassVar[StepKind] = "merges"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not self.by:
            yield "by", "names no column", ""
        if not 1 <= len(self.then) < CONDITIONS_MAX:
            yield "then", f"names from 1 to {CONDITIONS_MAX - 1} conditions", ""
        for name, text in self.conditions:
            problem = check_condition(text)
            if problem:
                yield name, f"{text!r} {problem}", ""
        if self.within < 1:
            yield "within", "must be at least a millisecond", ""
        if not 1 <= self.open_max <= OPEN_MAX:
            yield "open_max", f"must be from 1 to {OPEN_MAX}", ""
        if self.prefixes and len(self.prefixes) != len(self.then) + 1:
            yield "prefixes", f"there are {len(self.then) + 1} rows and {len(self.prefixes)} prefixes", ""
        if len(set(self.prefixes)) < len(self.prefixes):
            yield "prefixes", "two prefixes are equal", ""

    @property
    def row_prefixes(self) -> list[str]:
        if self.prefixes:
            return list(self.prefixes)
        following = ["then_"] if len(self.then) == 1 else [f"then_{at}_" for at in range(1, len(self.then) + 1)]
        return ["first_", *following]

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.by, "by")
        time = result_time_column(frame, self.by)
        conditions = [column_of_sql(text) for _, text in self.conditions]
        known = reduce(Column.__and__, (F.col(quoted(name)).isNotNull() for name in self.by))
        wanted = reduce(Column.__or__, (F.coalesce(each, F.lit(False)) for each in conditions))
        frame = track_late_rows(frame.filter_counted(known & wanted))
        schema = self._schema(frame, time)
        rows = KeyedProgram(self._program(frame), self.by, time, conditions).apply(frame)
        made = rows.withColumn(MADE, unpack_struct(F.col(MADE), schema))
        chosen = made.select(
            *(F.col(MADE).getField(name).alias(name) for name in schema.names), quoted(time), quoted(TIME_MICROS)
        )
        return frame.stateful(1).merged(chosen, time, (TIME_MICROS,))

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        return RowOrder((TIME_MICROS,))  # time order, also across batches

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """Pairs of field name and condition."""
        named = [("first", self.first), *(("then", text) for text in self.then)]
        return named if self.without is None else [*named, ("without", self.without)]

    def _program(self, frame: Frame) -> SequenceMatcher:
        step = frame.applied_steps[-1]
        label = f"{step.stream}, step {step.number}, {step.step}"
        prefixes = tuple(self.row_prefixes)
        within = int(self.within) * 1000
        return SequenceMatcher(tuple(self.by), prefixes, within, self.several, self.emit, self.open_max, label)

    def _schema(self, frame: Frame, time: str) -> T.StructType:
        fields = [T.StructField(OUTCOME, T.StringType()), *(frame.rows.schema[name] for name in self.by)]
        for prefix in self.row_prefixes:
            # The time comes last: its position differs between batch and stream.
            names = sorted((name for name in frame.columns if name not in self.by), key=lambda name: name == time)
            own = [frame.rows.schema[name] for name in names]
            fields += [T.StructField(f"{prefix}{each.name}", each.dataType) for each in own]
        names = [each.name.lower() for each in fields] + [time.lower()]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise StepError(f"there would be two columns {twice!r}", "give other prefixes", "prefixes")
        return T.StructType([T.StructField(each.name, each.dataType) for each in fields])
