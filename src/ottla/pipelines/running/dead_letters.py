"""Sends unusable records to a dead-letter topic, exactly once, with the reason and their origin.

The query itself only counts them. If committed batches had dead rows, exactly their offsets are read again as a batch
job, and the marked rows are published with the last batch's number as marker. A note in the stream's folder stores the
progress and the attempt in progress, which is repeated first under the same number after a restart or failure.
Committed batches of earlier runs without dead letters sent are processed at the start.

A dead letter has the key, value and headers of the record, and headers that start with `ottla.`: pipeline, stream,
step, reason, topic, partition, offset and timestamp. The dead letters of a shared stream are sent by its first query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.running.accounting import dead_in
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.checkpoint import FRESH, Checkpoint, CheckpointError, Ends, batch_ranges, parse_ends
from ottla.pipelines.running.laid_aside import LaidAside, Place
from ottla.pipelines.running.letters import ORIGIN, letters_from
from ottla.pipelines.running.notes import read_note, write_note
from ottla.pipelines.running.query_state import Progress
from ottla.pipelines.running.starting import noted_start
from ottla.pipelines.sinks.batch import Batch, Sink, SinkError
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.sinks.topic import ExactlyOnceTopic
from ottla.pipelines.steps.frame import ALIVE, FATE, REASON, SOURCE_RECORD, AppliedStep, Frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE = "swept"
NOTHING = "[-1, -1]"  # the initial note
FOLDER = "dead-letters"

Marked = tuple[DataFrame, list[AppliedStep]]
Bounds = list[tuple[Ends | None, Ends | None]]


class DeadLetters:
    """The dead letters of one query. Batches that were committed in quick succession are processed together."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        stream: Stream,
        folder: str,
        choices: Choices,
        checkpoint: Checkpoint,
        committed: int,
    ) -> None:
        """`folder` is the query's; `committed` is the newest batch of earlier runs."""
        self.spark = spark
        self.pipeline = pipeline
        self.stream = stream
        self.folder = folder
        self.choices = choices
        self.checkpoint = checkpoint
        self.own_streams = own_streams(pipeline, stream)
        self.sink = dead_letter_sink(pipeline)
        self.committed = committed
        self.is_made_up = False
        self.pending: list[Progress] = []

    def __repr__(self) -> str:
        return f"DeadLetters({self.pipeline.name}.{self.stream.name} -> {self.pipeline.dead_letter_topic})"

    def after_batches(self, batches: Sequence[Progress]) -> None:
        """Called with committed batches, in order. Failed ones are retried with the next call."""
        if self.sink is None:
            return
        self.pending += batches
        if not self.pending and self.is_made_up:
            return
        done = self._make_up(int(self.pending[0]["batchId"]) - 1 if self.pending else self.committed)
        self.pending = [each for each in self.pending if int(each["batchId"]) > done]
        if not self.pending:
            return
        last = int(self.pending[-1]["batchId"])
        dead = [each for each in self.pending if dead_in(each.get("observedMetrics") or {})]
        if dead:
            self._sweep(int(dead[0]["batchId"]), int(dead[-1]["batchId"]), _bounds(dead[0], dead[-1]))
        self._note(last, last)
        self.pending = []

    def _make_up(self, newest: int) -> int:
        """Repeat the interrupted attempt with the same number, then process the remaining committed batches; return
        the last one."""
        done, begun = noted(self.folder)
        # the note may be older than the topic, for example from a backup
        if not self.is_made_up and self.committed > done:
            done = max(done, self._sent())
        if begun > done:
            self._sweep_from_checkpoint(done + 1, begun)
            done = begun
        if newest > done:
            self._sweep_from_checkpoint(done + 1, newest)
            done = newest
        self.is_made_up = True
        return done

    def _sent(self) -> int:
        """The last batch whose dead letters are in the topic, according to its markers."""
        assert self.sink is not None
        recorded = self.sink.last_batches().get(self._query())
        return -1 if recorded is None else recorded.batch_id

    def _query(self) -> str:
        return f"{self.pipeline.name}.{self.stream.name}.dead-letters.{self.checkpoint.query_id()}"

    def _sweep_from_checkpoint(self, first: int, last: int) -> None:
        before, planned = self.checkpoint.planned(first - 1), self.checkpoint.planned(last)
        is_known = planned is not None and (before is not None or first == 0)
        if is_known and planned is not None:
            starts = before.ends if before is not None else [None] * len(planned.ends)
            self._sweep(first, last, list(zip(starts, planned.ends, strict=True)))
        self._note(last, last)
        if not is_known:
            raise SinkError(
                f"dead letters of batches {first} to {last} are not sent: the checkpoint no longer has them"
            )

    def _sweep(self, first: int, last: int, bounds: Bounds) -> None:
        """Process batches from first to last. The note makes a repetition use the same batches and number."""
        assert self.sink is not None
        self._note(first - 1, last)
        start = noted_start(self.folder)
        ranges = {
            topic: each
            for starts, ends in bounds
            for topic, each in batch_ranges(start if starts is None else starts, ends or {}).items()
        }
        builder = Builder(
            self.spark,
            self.pipeline,
            is_streaming=False,
            looks_again=True,
            choices=self.choices,
            ranges=ranges,
            loss_folder=loss_folder(self.folder),
            forgives_loss=True,  # the query has read them; data loss since then is reported and does not stop
        )
        builder.frame(self.stream.name)
        letters = letters_of(builder.marked, self.pipeline, self.own_streams)
        if letters is not None:
            self.sink.write(letters, Batch(self._query(), last, f"{self.folder}/{FOLDER}"))

    def _note(self, done: int, begun: int) -> None:
        write_note(self.folder, NOTE, json.dumps([done, begun]))


@dataclass(frozen=True)
class CarriedLetters:
    """Dead letters of rows that died after a step that is not repeatable: they come with the rows of the batch and
    are published the same way."""

    sink: Sink
    pipeline: str
    steps: tuple[AppliedStep, ...]

    def write(self, rows: DataFrame, batch: Batch) -> None:
        dead = rows.filter(F.col(FATE) < ALIVE).select(f"{SOURCE_RECORD}.*", FATE, REASON)
        named = dead.withColumn("_timestamp", F.timestamp_micros("_timestamp"))
        once = letters_from(named, self.steps, self.pipeline).dropDuplicates(ORIGIN)  # of an exploded record
        self.sink.write(once.select("key", "value", "headers"), batch)


def carried_letters(sink: Sink | None, pipeline: Pipeline, stream: Stream, frame: Frame) -> CarriedLetters | None:
    if sink is None or SOURCE_RECORD not in frame.rows.columns:
        return None
    steps = _killing(frame.applied_steps, own_streams(pipeline, stream))
    return CarriedLetters(sink, pipeline.name, steps) if steps else None


def letters_aside(
    sink: Sink | None, pipeline: Pipeline, stream: Stream, folder: str, places: Sequence[Place]
) -> LaidAside | None:
    """`places` are those of the query's builder."""
    own = own_streams(pipeline, stream)
    known = [(number, _killing(passages, own)) for number, passages in places]
    wanted = tuple((number, steps) for number, steps in known if steps)
    return LaidAside("letters-aside", sink, pipeline.name, folder, wanted) if sink is not None and wanted else None


def _killing(passages: Iterable[AppliedStep], streams: set[str]) -> tuple[AppliedStep, ...]:
    """Each side of a union counts its steps from 1. Dead rows before the union were settled; after it a shared
    number means the later step."""
    found = {each.mark: each for each in passages if each.marks_rows or each.kills}
    return tuple(each for each in found.values() if each.stream in streams)


def living(rows: DataFrame) -> DataFrame:
    """The living rows of a query, without the columns for dead letters."""
    return (
        rows.filter(F.col(FATE) == ALIVE).drop(SOURCE_RECORD, FATE, REASON) if SOURCE_RECORD in rows.columns else rows
    )


def noted(folder: str) -> tuple[int, int]:
    """The last processed batch, and the last batch of an attempt. Raises CheckpointError."""
    try:
        done, begun = json.loads(read_note(folder, NOTE) or "")
        return int(done), int(begun)
    except (ValueError, TypeError):
        raise CheckpointError(f"{folder}/{NOTE} is damaged; {FRESH}") from None


def own_streams(pipeline: Pipeline, stream: Stream) -> set[str]:
    """The streams that lead to this one and to no earlier query."""
    taken: set[str] = set()
    for query in pipeline.queries():
        ancestry = {each.name for each in pipeline.ancestry(query)}
        if query.name == stream.name:
            return ancestry - taken
        taken |= ancestry
    return set()


def letters_of(marked: list[Marked], pipeline: Pipeline, streams: set[str]) -> DataFrame | None:
    """The dead rows in steps of these streams, as records for the dead-letter topic; None if no row can die there."""
    letters: list[DataFrame] = []
    for rows, marking in marked:
        own = [passage for passage in marking if passage.stream in streams]
        if own and "_offset" in rows.columns and SOURCE_RECORD not in rows.columns:
            letters.append(letters_from(rows, own, pipeline.name))
    if not letters:
        return None
    once = reduce(DataFrame.unionByName, letters).dropDuplicates(ORIGIN)  # a stream may be used twice in one query
    return once.select("key", "value", "headers")


def loss_folder(folder: str) -> str:
    """The folder in which the sources of a query report data loss; empty on other file systems."""
    local = local_path(folder)
    return "" if local is None else str(local / "losses")


def dead_letter_sink(pipeline: Pipeline) -> ExactlyOnceTopic | None:
    topic = pipeline.dead_letter_topic
    if topic is None:
        return None
    return ExactlyOnceTopic(
        topic, pipeline.fields.bootstrap_servers, options=pipeline.fields.client, needs_marker=False
    )


def _bounds(first: Progress, last: Progress) -> Bounds:
    """Per source, from the start of the first batch to the end of the last."""
    pairs = zip(first["sources"], last["sources"], strict=True)
    return [(parse_ends(begin["startOffset"]), parse_ends(end["endOffset"])) for begin, end in pairs]
