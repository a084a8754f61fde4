"""The data that passes from step to step: rows, their origin, and their fate.

Every row has hidden columns with reserved names. `_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, `_value`,
`_headers` hold its origin until a step merges rows; `_position` and `_instant` hold its order where the origin does not
(model/row_order.py). `_fate` is 0 while the row lives, k if step k filtered it, and -k if it died there for `_reason`.
`_letter` is the source record of a row after a step that is not repeatable. Rows that die there stay with the others
until the end of the query, or are set aside before a step that merges rows, and become dead letters during delivery.

Rules:
1. A stateless step never drops rows: it marks them (`keep`, `mark_dead`), and later steps ignore them. `settle` counts
   the marks in one observation and drops marked rows: one pass for any number of steps, and every row is accounted for.
2. Settle before steps that merge rows or run user code.
3. Frames are values: each method returns a new one.
4. No expression may fail on data: a failed computation is null or a reason to die (`try_cast` and similar, and
   failing_values.py for SQL of the user).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.operations.schema_registry.client_config import RegistryAddress
from ottla.pipelines.model.row_order import ELEMENT_POSITION, TIME_MICROS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ottla.pipelines.model.specs import OnError

FATE = "_fate"
REASON = "_reason"
ORIGIN_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_value", "_headers")
SOURCE_RECORD = "_letter"
HIDDEN_COLUMNS = (*ORIGIN_COLUMNS, ELEMENT_POSITION, TIME_MICROS, FATE, REASON, SOURCE_RECORD)
ALIVE = 0


class StepContext(Protocol):
    """The interface of the pipeline to its steps."""

    spark: SparkSession
    is_streaming: bool

    @property
    def folder(self) -> str:
        """The base of relative paths in the pipeline."""

    @property
    def registry(self) -> RegistryAddress | None:
        """The registry with the writers' schemas."""

    @property
    def on_error(self) -> OnError:
        """For steps that do not choose."""

    @property
    def is_counting(self) -> bool:
        """False in realtime mode, which has no observations."""

    @property
    def counts_filtered(self) -> bool:
        """Whether rows that the WHERE of a query removes are counted."""

    @property
    def has_watermark(self) -> bool:
        """True for rows of a stream, and for batches of it that are read again; False in a batch run."""

    def stream(self, name: str) -> Frame:
        """Another stream of the pipeline, for joins."""

    def table(self, name: str) -> Frame:
        """All records of a stream's topic as a batch, not settled. Raises KeyError."""

    def observe(self, rows: DataFrame, figures: list[Column]) -> tuple[str, DataFrame]:
        """Count the rows as they pass; return the name of the observation and the rows."""

    @property
    def sends_late(self) -> bool:
        """Whether late rows go to a topic."""

    def collect_late(self, rows: DataFrame, end_ms: Column, passage: AppliedStep) -> DataFrame:
        """Called with the input of steps that drop late rows (lateness.py); return the rows that are not late."""

    def lay_aside(self, rows: DataFrame, passages: tuple[AppliedStep, ...]) -> DataFrame:
        """Called before a step that merges rows, with dead rows that have a source record: they are stored
        separately."""

    def collect_marked(self, rows: DataFrame, marking: list[AppliedStep]) -> None:
        """Called by settle with all rows, including those that these steps marked, before they are dropped."""


@dataclass(frozen=True)
class AppliedStep:
    """One step that the rows have passed, and the observations with its counts."""

    stream: str
    number: int  # within its stream, from 1
    step: str
    mark: int  # its number among all steps before and including it: the value of `_fate`
    kind: str  # a Kind of steps/step.py
    observation: str = ""  # the observation that counts its marked rows, or (merges, opaque) its output
    input_observations: tuple[str, ...] = ()  # the observations that count its input, except for "marks"
    operators: int = 0  # number of Spark's stateful operators in it
    has_state: bool = False  # an external query in which Spark keeps state as well
    window_end_observation: str = ""  # the observation for counting late rows, see lateness.py
    filter_observations: tuple[str, ...] = ()  # the observations that count rows removed by a WHERE inside it
    kills: bool = False  # creates new rows, and marks some of them as dead

    @property
    def marks_rows(self) -> bool:
        """Whether it keeps every row and marks some."""
        return self.kind in ("marks", "asks")

    @property
    def keeps_state(self) -> bool:
        return self.operators > 0 or self.has_state


@dataclass(frozen=True)
class Frame:
    """The last passage is the current step."""

    rows: DataFrame
    context: StepContext
    has_origin: bool = True
    event_time: str | None = None
    watermark_ms: int | None = None
    applied_steps: tuple[AppliedStep, ...] = ()
    observations: tuple[str, ...] = ()  # the last observations: one, or one per side of a join
    needs_count: bool = True  # the rows were not counted yet
    source: str = ""  # the stream that reads the topic
    sources: tuple[tuple[str, str], ...] = ()  # source streams, and the observations that count their rows

    def __repr__(self) -> str:
        at = f"{self.applied_steps[-1].stream} {self.applied_steps[-1].step}" if self.applied_steps else "source"
        return f"Frame({at}, {', '.join(self.columns)})"

    @property
    def columns(self) -> list[str]:
        """The visible column names."""
        return [name for name in self.rows.columns if name not in HIDDEN_COLUMNS]

    @property
    def mark(self) -> int:
        return self.applied_steps[-1].mark

    @property
    def hidden(self) -> list[str]:
        return [name for name in self.rows.columns if name in HIDDEN_COLUMNS]

    @property
    def is_streaming(self) -> bool:
        return self.rows.isStreaming

    # Marking

    def if_alive(self, value: Column) -> Column:
        """The value for living rows, null for others: dead rows cost nothing."""
        return F.when(F.col(FATE) == ALIVE, value)

    def mark_filtered_unless(self, condition: Column) -> Frame:
        """Mark rows as filtered if the condition is not true."""
        filtered = (F.col(FATE) == ALIVE) & ~F.coalesce(condition, F.lit(False))
        return self._with_marks({FATE: F.when(filtered, F.lit(self.mark)).otherwise(F.col(FATE))})

    def mark_dead(self, condition: Column, reason: Column | str, others: Mapping[str, Column] | None = None) -> Frame:
        """Mark rows as dead if the condition is true; null counts as false. `others` are columns to add, computed for
        the rows that stay alive: one projection is faster than two."""
        text = F.lit(reason) if isinstance(reason, str) else reason
        is_true = F.coalesce(condition, F.lit(False))
        dies, lives = (F.col(FATE) == ALIVE) & is_true, (F.col(FATE) == ALIVE) & ~is_true
        return self._with_marks(
            {
                **{name: F.when(lives, value) for name, value in (others or {}).items()},
                REASON: F.when(dies, text).otherwise(F.col(REASON)),
                FATE: F.when(dies, F.lit(-self.mark)).otherwise(F.col(FATE)),
            }
        )

    def with_columns(self, columns: Mapping[str, Column]) -> Frame:
        """Add columns, computed for living rows only."""
        rows = self.rows.withColumns({name: self.if_alive(value) for name, value in columns.items()})
        return self._with_rows(rows)

    def select(self, columns: Mapping[str, Column]) -> Frame:
        """Replace the visible columns."""
        chosen = [self.if_alive(value).alias(name) for name, value in columns.items()]
        return self._with_rows(self.rows.select(*chosen, *self.hidden))

    def without_column(self, name: str) -> Frame:
        return self._with_rows(self.rows.drop(name))

    def _with_marks(self, columns: dict[str, Column]) -> Frame:
        return self._with_rows(self.rows.withColumns(columns))  # all expressions see the unchanged row

    def _with_rows(self, rows: DataFrame) -> Frame:
        return replace(self, rows=rows)

    # From step to step

    def begin(self, stream: str, number: int, step: str, kind: str) -> Frame:
        """Called for each step before it is applied."""
        passage = AppliedStep(stream, number, step, len(self.applied_steps) + 1, kind)
        return replace(self, applied_steps=(*self.applied_steps, passage))

    def drop_marked(self, keeps_letters: bool = False) -> Frame:
        """Count and drop marked rows. With `keeps_letters`, dead rows with a source record stay: used at the end of
        a query."""
        if not self.context.is_counting:
            # Without this observation Spark would filter by the parse result first, and so parse every record twice.
            rows = self.rows.observe(f"parsed-{uuid4().hex}", F.count(F.lit(1)).alias("in"))
            return self._without_marked(rows, keeps_letters)
        marking = [each for each in self.applied_steps if (each.marks_rows or each.kills) and not each.observation]
        if not marking and not self.needs_count:
            return self
        figures = [F.count(F.lit(1)).alias("in"), _count_of(ALIVE).alias("out")]
        for passage in marking:
            figures.append(_count_of(passage.mark).alias(f"filtered_{passage.mark}"))
            figures.append(_count_of(-passage.mark).alias(f"dead_{passage.mark}"))
        self.context.collect_marked(self.rows, marking)
        name, rows = self.context.observe(self.rows, figures)
        passages = tuple(_with_observation(passage, name, self.observations) for passage in self.applied_steps)
        counted = replace(self, applied_steps=passages, observations=(name,), needs_count=False)
        if not self.observations:
            counted = replace(counted, sources=((self.source, name),))
        return counted._without_marked(rows, keeps_letters)

    def stateful(self, operators: int) -> Frame:
        """The current step uses this many of Spark's stateful operators."""
        if not self.is_streaming:
            return self
        last = replace(self.applied_steps[-1], operators=operators)
        return replace(self, applied_steps=(*self.applied_steps[:-1], last))

    def filter_counted(self, condition: Column) -> Frame:
        """Count rows as filtered, and remove them, if the condition is not true; for steps that create new rows."""
        wanted = F.coalesce(condition, F.lit(False))
        if not (self.context.is_counting or self.is_streaming):
            return self._with_rows(self.rows.filter(wanted))
        # The observation also prevents Spark from filtering before the watermark, which then would not advance.
        name, rows = self.context.observe(self.rows, [F.count_if(~wanted).alias("filtered")])
        return replace(self, rows=rows.filter(wanted))._with_filter_observations((name,))

    def filter_counted_with(self, other: Frame, condition: Column) -> tuple[Frame, Frame]:
        """The same for the rows of another stream that the current step joins."""
        fewer = other.filter_counted(condition)
        known = len(other.applied_steps[-1].filter_observations)
        return self._with_filter_observations(fewer.applied_steps[-1].filter_observations[known:]), replace(
            fewer, applied_steps=other.applied_steps
        )

    def _with_filter_observations(self, names: tuple[str, ...]) -> Frame:
        last = self.applied_steps[-1]
        return replace(
            self,
            applied_steps=(
                *self.applied_steps[:-1],
                replace(last, filter_observations=(*last.filter_observations, *names)),
            ),
        )

    def merged(self, rows: DataFrame, event_time: str | None = None, carried: tuple[str, ...] = ()) -> Frame:
        """The frame after a step that created new rows: no origin, no marks. `carried`: hidden columns that the step
        has set."""
        kept = [F.col(f"`{name}`") for name in rows.columns if name not in HIDDEN_COLUMNS or name in carried]
        made = rows.select(*kept, *(value.alias(name) for name, value in _alive_marks().items()))
        return replace(self, rows=made, has_origin=False, event_time=event_time, needs_count=True)

    def joined(
        self, other: Frame, rows: DataFrame, event_time: str | None = None, carried: tuple[str, ...] = ()
    ) -> Frame:
        """Like merged, with the passages of the other side."""
        both = self.merged(rows, event_time, carried)
        return replace(
            both,
            applied_steps=(*both.applied_steps[:-1], *other.applied_steps, both.applied_steps[-1]),
            observations=(*self.observations, *other.observations),
            sources=(*self.sources, *other.sources),
        )

    def with_source_record(self) -> Frame:
        """From here on, rows keep their source record, if known, so that dead rows can become dead letters."""
        if "_offset" not in self.rows.columns or SOURCE_RECORD in self.rows.columns:
            return self
        there = [name for name in ORIGIN_COLUMNS if name in self.rows.columns]
        # As a number: Python would convert a time to the zone of its process.
        kept = [F.unix_micros(name).alias(name) if name == "_timestamp" else F.col(name) for name in there]
        return replace(self, rows=self.rows.withColumn(SOURCE_RECORD, F.struct(*kept)))

    def marking_new_rows_dead(self) -> Frame:
        """The current step creates new rows, and marks some of them as dead."""
        return replace(self, applied_steps=(*self.applied_steps[:-1], replace(self.applied_steps[-1], kills=True)))

    def _without_marked(self, rows: DataFrame, keeps_letters: bool = False) -> Frame:
        if keeps_letters and SOURCE_RECORD in rows.columns:
            has_letter = (F.col(FATE) < ALIVE) & F.col(SOURCE_RECORD).isNotNull()
            return replace(self, rows=rows.filter((F.col(FATE) == ALIVE) | has_letter))
        if SOURCE_RECORD in rows.columns:
            rows = self.context.lay_aside(rows, self.applied_steps)
        return replace(self, rows=rows.filter(F.col(FATE) == ALIVE).withColumns(_alive_marks()))


def source_frame(rows: DataFrame, around: StepContext, stream: str = "") -> Frame:
    """A frame from the columns of a Kafka source, which stay visible and are kept as origin."""
    there = set(rows.columns)
    origin = {name: F.col(name.removeprefix("_")) for name in ORIGIN_COLUMNS if name.removeprefix("_") in there}
    # One call for all columns: Spark analyzes the whole plan on every call.
    return Frame(rows.withColumns(origin | _alive_marks()), around, source=stream)


def _count_of(fate: int) -> Column:
    """With `count_if`, Spark would add a column for the comparison to every row."""
    return F.count(F.when(F.col(FATE) == fate, F.lit(True)))


def _alive_marks() -> dict[str, Column]:
    """The marks of a living row."""
    return {FATE: F.lit(ALIVE), REASON: F.lit(None).cast("string")}


def _with_observation(passage: AppliedStep, name: str, before: tuple[str, ...]) -> AppliedStep:
    if passage.observation:
        return passage
    return replace(passage, observation=name, input_observations=before)
