"""Finds the record that ended a query: Spark reports the offending value, but not its record.

The batch is read again as a batch job, in halves, until one record is left with which the query still fails; then it
passes through the steps one by one. This costs about twice the work of the batch, and at most SEARCH_SECONDS_MAX
between two clock checks. If no single record is the cause (an overflowing sum, for example), or the time is over, the
rest of the batch is reported instead.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import Problem
from ottla.pipelines.running.builder import Choices
from ottla.pipelines.running.checkpoint import Checkpoint, CheckpointError, Ends, batch_ranges
from ottla.pipelines.running.preview import PreviewBuilder
from ottla.pipelines.running.source_options import Ranges
from ottla.pipelines.sinks.batch import run_plan
from ottla.pipelines.source.data_loss import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEARCH_SECONDS_MAX = 60.0
# Error classes of Spark and PySpark (without the first word) that concern a value.
OF_VALUES = re.compile(
    r"(?:NumberFormat|DateTime|Arithmetic|ArrayIndexOutOfBounds|Runtime|IllegalArgument|NoSuchElement|Upgrade"
    r"|UnsupportedOperation)Exception: \[(?!CANNOT_LOAD_STATE|STATE_STORE|STREAM)[A-Z]"
)
OF_PYTHON = re.compile(r"PythonException: ")
OF_OTHERS = ("SinkError", "SourceError", "ClientError", "DataLossError", "CheckpointError")
TRY = "try_cast and its like give NULL"


class Piece(NamedTuple):
    """Records of one partition, from the first to before the end."""

    topic: str
    partition: int
    first: int
    end: int

    def text(self) -> str:
        offsets = f"offset {self.first}" if self.end - self.first == 1 else f"offsets {self.first} to {self.end - 1}"
        return f"topic {self.topic}, partition {self.partition}, {offsets}"


class FailedRecord(NamedTuple):
    """`step` is empty if unknown. One piece of one record, or the rest of the batch."""

    stream: str
    step: str
    pieces: Sequence[Piece]

    @property
    def is_one(self) -> bool:
        return len(self.pieces) == 1 and self.pieces[0].end - self.pieces[0].first == 1

    def text(self) -> str:
        step = f", {self.step}" if self.step else ""
        return f"stream {self.stream}{step}, {'; '.join(piece.text() for piece in self.pieces)}"

    def named_in(self, problem: Problem) -> Problem:
        return problem._replace(cause=f"{problem.cause.rstrip('.')} ({self.text()})", cure=self._cure())

    def _cure(self) -> str:
        """How to continue with a changed file."""
        leave_out = ""
        if self.is_one:
            topic, partition, offset, _ = self.pieces[0]
            where = f"topic = '{topic}' AND partition = {partition} AND offset = {offset}"
            leave_out = f', or leave this record out with the first step `filter: "NOT ({where})"`'
        return f"change the expression ({TRY}){leave_out}, and run it again: it goes on with this batch"


def is_of_value(error: BaseException, pipeline: Pipeline) -> bool:
    """Whether the error concerns a value in a record, judging by its text."""
    text = str(error)
    if any(name in text for name in OF_OTHERS):
        return False
    if OF_VALUES.search(text) is not None:
        return True
    asks = any(step.name == "enrich" for stream in pipeline.streams.values() for step in stream.steps)
    return OF_PYTHON.search(text) is not None and not asks  # a lookup step, whose error has its own message


def ranges_of_batch(checkpoint: Checkpoint, start: Ends | None) -> Ranges:
    """The ranges of the interrupted batch; `start` is the start of the first batch, if known. Raises
    CheckpointError."""
    number = checkpoint.newest_planned()
    planned = checkpoint.planned(number)
    if planned is None or number <= checkpoint.committed():
        return {}
    before = checkpoint.planned(number - 1)
    if before is None and (start is None or number > 0):
        return {}
    starts = [start] * len(planned.ends) if before is None else before.ends
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for begin, end in zip(starts, planned.ends, strict=True):
        found |= batch_ranges(begin or {}, end or {})
    return found


def find_failed_record(
    spark: SparkSession,
    pipeline: Pipeline,
    stream: Stream,
    ranges: Ranges,
    choices: Choices,
    seconds: Callable[[], float] = time.monotonic,
) -> FailedRecord | None:
    """None if the batch cannot be read again, or is empty."""
    pieces = [
        Piece(topic, partition, first, end)
        for topic, partitions in ranges.items()
        for partition, (first, end) in sorted(partitions.items())
        if end > first
    ]
    search = _Search(spark, pipeline, stream, choices, seconds() + SEARCH_SECONDS_MAX, seconds)
    try:
        return search.record(pieces) if pieces else None
    except (PySparkException, Py4JError, SourceError, CheckpointError, OSError):
        return None  # the failure itself is reported in any case


class _Search:
    """Runs parts of a batch through the steps of a query."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        stream: Stream,
        choices: Choices,
        deadline: float,
        seconds: Callable[[], float],
    ) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.stream = stream
        self.choices = replace(choices, is_counting=False)
        self.deadline = deadline
        self.seconds = seconds

    def __repr__(self) -> str:
        return f"_Search({self.pipeline.name}.{self.stream.name})"

    def record(self, pieces: Sequence[Piece]) -> FailedRecord:
        left = list(pieces)
        while _count(left) > 1 and self.seconds() < self.deadline:
            first, second = halves(left)
            left = first if self._fails(first) else second
        if _count(left) > 1:
            return FailedRecord(self.stream.name, "", left)
        step = self._step(left)
        return FailedRecord(self.stream.name, "", pieces) if step is None else FailedRecord(*step, left)

    def _fails(self, pieces: Sequence[Piece]) -> bool:
        builder = self._builder(pieces)
        try:
            _, rows = builder.query(self.stream.name)
            return self._is_refused(lambda: run_plan(rows))
        finally:
            builder.close()

    def _step(self, pieces: Sequence[Piece]) -> tuple[str, str] | None:
        """The stream and the first step that fails with these records; None if they pass all steps."""
        builder = self._builder(pieces)
        try:
            _, rows = builder.query(self.stream.name)
            for (stream, number), frame in builder.frames.items():
                if self._is_refused(lambda frame=frame: run_plan(frame.rows)):  # type: ignore[misc]
                    return stream, f"step {number} ({self.pipeline.streams[stream].steps[number - 1].name})"
            return (self.stream.name, "") if self._is_refused(lambda: run_plan(rows)) else None
        finally:
            builder.close()

    def _is_refused(self, run: Callable[[], None]) -> bool:
        try:
            run()
        except (PySparkException, Py4JError) as error:
            if not is_of_value(NamedError(error), self.pipeline):
                raise
            return True
        return False

    def _builder(self, pieces: Sequence[Piece]) -> PreviewBuilder:
        ranges: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, partition, first, end in pieces:
            ranges.setdefault(topic, {})[partition] = (first, end)
        return PreviewBuilder(
            self.spark,
            self.pipeline,
            is_streaming=False,
            looks_again=True,
            choices=self.choices,
            ranges=ranges,
            forgives_loss=True,
        )


class NamedError(Exception):
    """Prefixed with its class name, as in the error text of an ended query."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")


def _count(pieces: Sequence[Piece]) -> int:
    return sum(piece.end - piece.first for piece in pieces)


def halves(pieces: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    """By the number of records."""
    wanted = _count(pieces) // 2
    first: list[Piece] = []
    for at, piece in enumerate(pieces):
        length = piece.end - piece.first
        if length > wanted:
            middle = piece.first + wanted
            first += [piece._replace(end=middle)] if wanted else []
            return first, [piece._replace(first=middle), *pieces[at + 1 :]]
        first.append(piece)
        wanted -= length
    return first, []
