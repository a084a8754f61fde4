"""What travels from step to step: rows, where each came from, and what became of it.

Every row carries hidden columns: `_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, `_value`, `_headers` tell its
origin until a step merges rows; `_position` and `_instant` its place where the origin does not (model/row_order.py);
`_fate` is 0 while the row lives, k when step k filtered it, -k when it died there of `_reason`. The names are reserved.
`_letter` is the record of a row behind a step that would not give the same if it were done again: what dies there goes
with the rows to the end of the query, or is laid aside before a step that merges rows, and becomes a dead letter in its
delivery.

Rules:
1. A stateless step never drops rows: it marks them (`keep`, `kill`) and later steps see them no more. `settle` counts
   what was marked in one observation and drops it: one pass, however many steps, and every row is accounted for.
2. What merges rows, or runs code that we do not know, settles first.
3. Frames are values: each method returns a new one.
4. No expression may fail on data: what cannot be computed is null or a reason to die (`try_cast` and its like).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.operations.schema_registry.addresses import RegistryAddress
from ottla.pipelines.model.row_order import INSTANT, POSITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FATE = "_fate"
REASON = "_reason"
ORIGIN = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_value", "_headers")
LETTER = "_letter"
HIDDEN = (*ORIGIN, POSITION, INSTANT, FATE, REASON, LETTER)
ALIVE = 0


class Surroundings(Protocol):
    """What a step may ask of the pipeline around it."""

    spark: SparkSession
    is_streaming: bool

    @property
    def folder(self) -> str:
        """Relative paths in the pipeline start here."""

    @property
    def registry(self) -> RegistryAddress | None:
        """Where writers' schemas are."""

    @property
    def is_counting(self) -> bool:
        """Realtime mode knows no observations."""

    @property
    def counts_filtered(self) -> bool:
        """Somebody wants to know how many rows the WHERE of a query has left out."""

    @property
    def has_watermark(self) -> bool:
        """Rows of a stream, or those of its batches that are looked at once more: not those of a batch run."""

    def stream(self, name: str) -> Frame:
        """Another stream of the pipeline, for joins."""

    def table(self, name: str) -> Frame:
        """The same as a batch of all that its topic holds, not settled; raises KeyError."""

    def observe(self, rows: DataFrame, figures: list[Column]) -> tuple[str, DataFrame]:
        """The rows, counted as they pass, and the name under which the figures will be found."""

    @property
    def sends_late(self) -> bool:
        """Rows that come too late go to a topic."""

    def collect_late(self, rows: DataFrame, end_ms: Column, passage: Passage) -> DataFrame:
        """Called by steps that drop late rows, with what goes in (lateness.py); the rows that are not late."""

    def lay_aside(self, rows: DataFrame, passages: tuple[Passage, ...]) -> DataFrame:
        """Called before a step that merges rows, with dead that have a letter among them: they are kept elsewhere."""

    def collect_marked(self, rows: DataFrame, marking: list[Passage]) -> None:
        """Called by settle with all rows, those that these steps marked included, before they are dropped."""


@dataclass(frozen=True)
class Passage:
    """One step on the way of the rows, and where its figures are found."""

    stream: str
    number: int  # within its stream, from 1
    step: str
    mark: int  # its number among all steps that lead here: what `_fate` says
    kind: str  # of steps/step.py
    observation: str = ""  # in which it is counted: what it marked, or (merges, opaque) what came out of it
    before: tuple[str, ...] = ()  # the observations that counted what went in, for all but "marks"
    operators: int = 0  # how many of Spark's stateful operators it is made of
    has_state: bool = False  # a query of somebody else, in which Spark keeps state, too
    ends: str = ""  # the observation from which late rows are counted, see lateness.py
    where: tuple[str, ...] = ()  # the observations that count what a WHERE inside of it leaves out
    kills: bool = False  # makes new rows, and marks some of them as dead

    @property
    def marks(self) -> bool:
        """Whether it keeps every row and marks some."""
        return self.kind in ("marks", "asks")

    @property
    def keeps_state(self) -> bool:
        return self.operators > 0 or self.has_state


@dataclass(frozen=True)
class Frame:
    """The last passage is the step at work."""

    rows: DataFrame
    around: Surroundings
    has_origin: bool = True
    event_time: str | None = None
    watermark_ms: int | None = None
    passages: tuple[Passage, ...] = ()
    observations: tuple[str, ...] = ()  # what was counted last: one, or one for each side of a join
    needs_count: bool = True  # nothing was counted since the rows came into being
    source: str = ""  # the stream that reads the topic
    sources: tuple[tuple[str, str], ...] = ()  # such streams, and the observations that counted what they read

    def __repr__(self) -> str:
        at = f"{self.passages[-1].stream} {self.passages[-1].step}" if self.passages else "source"
        return f"Frame({at}, {', '.join(self.columns)})"

    @property
    def columns(self) -> list[str]:
        """The names that the user sees."""
        return [name for name in self.rows.columns if name not in HIDDEN]

    @property
    def mark(self) -> int:
        return self.passages[-1].mark

    @property
    def hidden(self) -> list[str]:
        return [name for name in self.rows.columns if name in HIDDEN]

    @property
    def is_streaming(self) -> bool:
        return self.rows.isStreaming

    # marking

    def alive(self, value: Column) -> Column:
        """The value for living rows, null for others: dead rows cost nothing and surprise nobody."""
        return F.when(F.col(FATE) == ALIVE, value)

    def keep(self, condition: Column) -> Frame:
        """Rows for which the condition is not true are filtered by this step."""
        filtered = (F.col(FATE) == ALIVE) & ~F.coalesce(condition, F.lit(False))
        return self._marked({FATE: F.when(filtered, F.lit(self.mark)).otherwise(F.col(FATE))})

    def kill(self, condition: Column, reason: Column | str) -> Frame:
        """Rows for which the condition is true die here; a null condition lets them live."""
        text = F.lit(reason) if isinstance(reason, str) else reason
        dies = (F.col(FATE) == ALIVE) & F.coalesce(condition, F.lit(False))
        return self._marked(
            {
                REASON: F.when(dies, text).otherwise(F.col(REASON)),
                FATE: F.when(dies, F.lit(-self.mark)).otherwise(F.col(FATE)),
            }
        )

    def with_columns(self, columns: Mapping[str, Column]) -> Frame:
        """More columns, computed for living rows only."""
        rows = self.rows.withColumns({name: self.alive(value) for name, value in columns.items()})
        return self._marked_rows(rows)

    def select(self, columns: Mapping[str, Column]) -> Frame:
        """These columns instead of the visible ones."""
        chosen = [self.alive(value).alias(name) for name, value in columns.items()]
        return self._marked_rows(self.rows.select(*chosen, *self.hidden))

    def without_column(self, name: str) -> Frame:
        return self._marked_rows(self.rows.drop(name))

    def _marked(self, columns: dict[str, Column]) -> Frame:
        return self._marked_rows(self.rows.withColumns(columns))  # all of them see the row as it was before

    def _marked_rows(self, rows: DataFrame) -> Frame:
        return replace(self, rows=rows)

    # the way from step to step

    def begin(self, stream: str, number: int, step: str, kind: str) -> Frame:
        """Called for each step before it is applied."""
        passage = Passage(stream, number, step, len(self.passages) + 1, kind)
        return replace(self, passages=(*self.passages, passage))

    def settle(self, keeps_letters: bool = False) -> Frame:
        """Count what was marked, drop it, and go on with the living; at the end also with dead that have a letter."""
        if not self.around.is_counting:
            # Spark would filter first, by the mark that parsing makes, and so parse every record twice.
            rows = self.rows.observe(f"parsed-{uuid4().hex}", F.count(F.lit(1)).alias("in"))
            return self._dropped(rows, keeps_letters)
        marking = [each for each in self.passages if (each.marks or each.kills) and not each.observation]
        if not marking and not self.needs_count:
            return self
        figures = [F.count(F.lit(1)).alias("in"), _count_of(ALIVE).alias("out")]
        for passage in marking:
            figures.append(_count_of(passage.mark).alias(f"filtered_{passage.mark}"))
            figures.append(_count_of(-passage.mark).alias(f"dead_{passage.mark}"))
        self.around.collect_marked(self.rows, marking)
        name, rows = self.around.observe(self.rows, figures)
        passages = tuple(_counted(passage, name, self.observations) for passage in self.passages)
        counted = replace(self, passages=passages, observations=(name,), needs_count=False)
        if not self.observations:
            counted = replace(counted, sources=((self.source, name),))
        return counted._dropped(rows, keeps_letters)

    def stateful(self, operators: int) -> Frame:
        """The step at work is made of so many of Spark's stateful operators."""
        if not self.is_streaming:
            return self
        last = replace(self.passages[-1], operators=operators)
        return replace(self, passages=(*self.passages[:-1], last))

    def taking_part(self, condition: Column) -> Frame:
        """Rows for which the condition is not true play no part in the step at work, which makes new rows: filtered."""
        wanted = F.coalesce(condition, F.lit(False))
        if not (self.around.is_counting or self.is_streaming):
            return self._marked_rows(self.rows.filter(wanted))
        # Counting them also keeps Spark from filtering before the watermark, which would then not move with them.
        name, rows = self.around.observe(self.rows, [F.count_if(~wanted).alias("filtered")])
        return replace(self, rows=rows.filter(wanted))._leaving_out((name,))

    def taking_part_with(self, other: Frame, condition: Column) -> tuple[Frame, Frame]:
        """The same for rows of another stream, with which the step at work puts ours together."""
        fewer = other.taking_part(condition)
        known = len(other.passages[-1].where)
        return self._leaving_out(fewer.passages[-1].where[known:]), replace(fewer, passages=other.passages)

    def _leaving_out(self, names: tuple[str, ...]) -> Frame:
        last = self.passages[-1]
        return replace(self, passages=(*self.passages[:-1], replace(last, where=(*last.where, *names))))

    def merged(self, rows: DataFrame, event_time: str | None = None, carried: tuple[str, ...] = ()) -> Frame:
        """After a step that made new rows of many: origin and marks are gone, all rows live. `carried`: hidden columns
        that the step has made itself."""
        kept = [F.col(f"`{name}`") for name in rows.columns if name not in HIDDEN or name in carried]
        made = rows.select(*kept, *(value.alias(name) for name, value in _unmarked().items()))
        return replace(self, rows=made, has_origin=False, event_time=event_time, needs_count=True)

    def joined(
        self, other: Frame, rows: DataFrame, event_time: str | None = None, carried: tuple[str, ...] = ()
    ) -> Frame:
        """As merged, with the passages of the other side."""
        both = self.merged(rows, event_time, carried)
        return replace(
            both,
            passages=(*both.passages[:-1], *other.passages, both.passages[-1]),
            observations=(*self.observations, *other.observations),
            sources=(*self.sources, *other.sources),
        )

    def with_letters(self) -> Frame:
        """From here on what dies goes to the end with its record, if that is known."""
        if "_offset" not in self.rows.columns or LETTER in self.rows.columns:
            return self
        there = [name for name in ORIGIN if name in self.rows.columns]
        # Not as a time: Python would have it in the zone of its process.
        kept = [F.unix_micros(name).alias(name) if name == "_timestamp" else F.col(name) for name in there]
        return replace(self, rows=self.rows.withColumn(LETTER, F.struct(*kept)))

    def killing(self) -> Frame:
        """The step at work makes new rows, and marks some of them as dead."""
        return replace(self, passages=(*self.passages[:-1], replace(self.passages[-1], kills=True)))

    def _dropped(self, rows: DataFrame, keeps_letters: bool = False) -> Frame:
        if keeps_letters and LETTER in rows.columns:
            has_letter = (F.col(FATE) < ALIVE) & F.col(LETTER).isNotNull()
            return replace(self, rows=rows.filter((F.col(FATE) == ALIVE) | has_letter))
        if LETTER in rows.columns:
            rows = self.around.lay_aside(rows, self.passages)
        return replace(self, rows=rows.filter(F.col(FATE) == ALIVE).withColumns(_unmarked()))


def source_frame(rows: DataFrame, around: Surroundings, stream: str = "") -> Frame:
    """A frame from the columns of a Kafka source: what it said is visible, and kept as origin."""
    there = set(rows.columns)
    origin = {name: F.col(name.removeprefix("_")) for name in ORIGIN if name.removeprefix("_") in there}
    # Every call is a plan that Spark analyses anew, as long as it has become: one for all of them.
    return Frame(rows.withColumns(origin | _unmarked()), around, source=stream)


def _count_of(fate: int) -> Column:
    """For `count_if` Spark would write a column more into every row, with what the comparison gave."""
    return F.count(F.when(F.col(FATE) == fate, F.lit(True)))


def _unmarked() -> dict[str, Column]:
    """The marks of a living row."""
    return {FATE: F.lit(ALIVE), REASON: F.lit(None).cast("string")}


def _counted(passage: Passage, name: str, before: tuple[str, ...]) -> Passage:
    if passage.observation:
        return passage
    return replace(passage, observation=name, before=before)
