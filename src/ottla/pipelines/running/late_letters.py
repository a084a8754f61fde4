"""Sends late rows to a topic, exactly once, if a pipeline has `late_rows: TOPIC`.

The query itself only counts them. If a committed batch had late rows, exactly its offsets are read again as a batch
job, and its rows are compared with the watermark that Spark used: that of the previous batch, from the checkpoint. So
each batch is processed separately, under its own number, and a repetition finds the same rows, or finds them published.
A note in the stream's folder stores the progress. For unprocessed batches of an earlier run the late rows are unknown:
they are checked at the next start. After a step that is not repeatable, late rows are stored while the batch runs
instead (laid_aside.py).

A late letter has the form of a dead letter (dead_letters.py): the record unchanged, and headers with step and reason.
Queries that share a step have different late rows, so each sends its own.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.running.builder import Builder
from ottla.pipelines.running.checkpoint import FRESH, CheckpointError, batch_ranges
from ottla.pipelines.running.dead_letters import DeadLetters, letters_of, loss_folder
from ottla.pipelines.running.laid_aside import LaidAside
from ottla.pipelines.running.notes import read_note, write_note
from ottla.pipelines.running.starting import noted_start
from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.topic import ExactlyOnceTopic

NOTE = "late-swept"


class LateLetters:
    """The late rows of the query with these dead letters."""

    def __init__(self, dead: DeadLetters) -> None:
        self.spark = dead.spark
        self.pipeline = dead.pipeline
        self.stream = dead.stream
        self.folder = dead.folder
        self.choices = dead.choices
        self.checkpoint = dead.checkpoint
        self.committed = dead.committed

    def __repr__(self) -> str:
        return f"LateLetters({self.pipeline.name}.{self.stream.name} -> {self.pipeline.fields.late_rows})"

    def check(self) -> None:
        """Called before anything runs. After late_rows was added, only new batches are sent."""
        if self.pipeline.fields.late_rows is not None and noted(self.folder) is None:
            self._note(self.committed)

    def after_batches(self, last: int, late: Collection[int]) -> None:
        """All batches up to `last` are committed, and these of them had late rows. Called again with them after a
        failure."""
        done = noted(self.folder)
        if self.pipeline.fields.late_rows is None or done is None:
            return
        for number in range(done + 1, last + 1):
            if number in late or number <= self.committed:  # unknown for batches of earlier runs
                self._sweep(number)
                self._note(number)
        if last > done:
            self._note(last)

    def _sweep(self, number: int) -> None:
        if self.stream.output == "complete":
            return  # complete mode: all groups are emitted in every batch, so nothing is late
        before, planned = self.checkpoint.planned(number - 1), self.checkpoint.planned(number)
        if number == 0 or (before is not None and before.watermark_ms == 0):
            return
        if before is None or planned is None:
            self._note(number)
            raise SinkError(f"late rows of batch {number} are not sent: the checkpoint no longer has it")
        start = noted_start(self.folder)
        ranges = {
            topic: each
            for starts, ends in zip(before.ends, planned.ends, strict=True)
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
            forgives_loss=True,
            late_before_ms=before.watermark_ms,
        )
        builder.frame(self.stream.name)
        letters = letters_of(builder.late, self.pipeline, set(self.pipeline.streams))
        if letters is not None:
            query = f"{self.pipeline.name}.{self.stream.name}.late-rows.{self.checkpoint.query_id()}"
            late_sink(self.pipeline).write(letters, Batch(query, number, f"{self.folder}/late-rows"))

    def _note(self, number: int) -> None:
        write_note(self.folder, NOTE, str(number))


def late_sink(pipeline: Pipeline) -> ExactlyOnceTopic:
    """The sink of a pipeline with late_rows."""
    head = pipeline.fields
    assert head.late_rows is not None
    return ExactlyOnceTopic(head.late_rows, head.bootstrap_servers, options=head.client, needs_marker=False)


def late_rows_aside(pipeline: Pipeline, builder: Builder) -> LaidAside | None:
    places = tuple(builder.late_aside)
    if not places:
        return None
    return LaidAside("late-rows-aside", late_sink(pipeline), pipeline.name, builder.late_folder, places)


def noted(folder: str) -> int | None:
    """The last batch whose late rows are sent, None without late_rows. Raises CheckpointError."""
    text = read_note(folder, NOTE)
    try:
        return None if text is None else int(text)
    except ValueError:
        raise CheckpointError(f"{folder}/{NOTE} is damaged; {FRESH}") from None
