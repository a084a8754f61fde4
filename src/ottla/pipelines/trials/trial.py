"""Runs a case: the records that are given, through the pipeline's own steps on Spark, and what came of them.

No broker is asked, no checkpoint is kept, nothing is written but below a folder that is gone afterwards.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.running.accounting import Account
from ottla.pipelines.running.dead_letters import carried_letters, letters_aside, letters_of, own_streams
from ottla.pipelines.running.delivery import Delivery, route_to
from ottla.pipelines.running.failures import plain_failure
from ottla.pipelines.running.runner import output_mode
from ottla.pipelines.running.sink_checks import sink_order
from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.spark.session import is_running, start_session
from ottla.pipelines.steps.lateness import late_rows, watermark_ms
from ottla.pipelines.trials.capturing import Kept, capture, record_of
from ottla.pipelines.trials.cases import Case
from ottla.pipelines.trials.differences import difference, said_fits, same_rows
from ottla.pipelines.trials.given import GivenBuilder
from ottla.pipelines.trials.places import place_names, place_of, topic_names
from ottla.pipelines.trials.settings import NAME, SETTINGS, WHOLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

IDENTITY = "trial"
LETTER_HEADERS = {"step": "ottla.step", "reason": "ottla.reason"}
WORKERS_MAX = 4
OWN_STATE = ("anomalies", "order", "pattern", "python", "stateful")
# Of a few rows: to open a database for them takes longer than all else.
STATE_IN_MEMORY = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
}


@dataclass
class Outcome:
    """What came of a case. `differences` are lines for a person; `failure` is why it could not be run to its end."""

    case: Case
    kept: dict[str, Kept] = field(default_factory=dict)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    late: int = 0
    watermark_ms: int | None = None  # if there is one
    differences: list[str] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0

    @property
    def is_passed(self) -> bool:
        return not self.differences and not self.failure


@contextmanager
def trial_spark(settings: Mapping[str, str], is_lean: bool = False) -> Iterator[SparkSession]:
    """One Spark for all cases. One that runs already in this process is used, and left to its owner.
    Raises SparkStartError."""
    is_ours = not is_running()
    spark = start_session(NAME, settings={**WHOLE, **settings}, is_lean=is_lean, work="trials")
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def session_of(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session with the settings of one pipeline, on the Spark that runs."""
    session = spark.newSession()
    memory = {} if needs_rocksdb(pipeline) else STATE_IN_MEMORY
    for key, value in {**SETTINGS, **memory, **pipeline.head.spark}.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def needs_rocksdb(pipeline: Pipeline) -> bool:
    """Steps that keep state of their own (transformWithState) know no other place for it."""
    steps = [step for stream in pipeline.streams.values() for step in stream.steps]
    return any(step.name in OWN_STATE or getattr(step.spec, "as_of", None) for step in steps)


def run_cases(spark: SparkSession, pipeline: Pipeline, cases: Sequence[Case]) -> Iterator[Outcome]:
    """In their order, several at a time: Spark waits more than it works. Raises PipelineError."""
    with ThreadPoolExecutor(min(WORKERS_MAX, os.cpu_count() or 1)) as workers:
        yield from workers.map(lambda case: run_case(spark, pipeline, case), cases)


def run_case(spark: SparkSession, pipeline: Pipeline, case: Case) -> Outcome:
    """Raises PipelineError for a pipeline that Spark does not take."""
    outcome = Outcome(case)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-trial-") as folder:
        trial = _Trial(spark, pipeline, outcome, FilePath(folder))
        try:
            trial.run()
            outcome.differences = differences(outcome, places_of_records(outcome, pipeline))
        except (PySparkException, Py4JError, SinkError, OSError) as error:
            outcome.failure = plain_failure(error, ()).text()
    outcome.seconds = time.monotonic() - started
    return outcome


def differences(outcome: Outcome, topics: Collection[str]) -> list[str]:
    """What is not as the case expects it; `topics` are the places that hold records."""
    case = outcome.case
    lines: list[str] = []
    for place, expected in case.expected.items():
        is_topic = place in topics or place not in outcome.kept  # nothing came to a topic that a column names
        lines += difference(
            place,
            expected.rows,
            outcome.kept.get(place, Kept()).rows,
            is_ordered=expected.is_ordered,
            ignored=case.ignored,
            fits=said_fits if is_topic else same_rows,
        )
    lines += difference("dead letters", case.dead_letters, outcome.dead_letters, fits=said_fits)
    if case.late is not None and case.late != outcome.late:
        lines.append(f"late: {case.late} expected, {outcome.late} came too late")
    if lines and outcome.watermark_ms is not None and case.watermark is None:
        moment = datetime.fromtimestamp(outcome.watermark_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
        lines.append(f"(the watermark stands at {moment}: windows that end later are open; `watermark:` moves it)")
    return lines


class _Trial:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, outcome: Outcome, folder: FilePath) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.outcome = outcome
        self.folder = folder
        self.names = place_names(pipeline)

    def run(self) -> None:
        started: list[tuple[Stream, Account, StreamingQuery]] = []
        try:
            for stream in self.pipeline.queries():
                started.append((stream, *self._start(stream)))  # noqa: PERF401 (known even if the next cannot start)
            for stream, account, query in started:
                query.awaitTermination()  # raises what ended it
                self._follow(account, query)
                if any(count.dead for count in account.steps()):
                    self._collect_letters(stream, account)
        finally:
            for _, _, query in started:
                query.stop()

    def _start(self, stream: Stream) -> tuple[Account, StreamingQuery]:
        builder = self._builder(is_streaming=True)
        builder.aside_folder = str(self.folder / stream.name / "aside")
        frame, rows = builder.query(stream.name)
        letters = LetterCapture(self.outcome.dead_letters)
        carried = carried_letters(letters, self.pipeline, stream, frame)
        aside = letters_aside(letters, self.pipeline, stream, builder.aside_folder, builder.aside)
        delivery = replace(self._delivery(stream), letters=carried, aside=(aside,) if aside is not None else ())
        writer = rows.writeStream.outputMode(output_mode(stream)).foreachBatch(delivery)
        writer = writer.option("checkpointLocation", str(self.folder / stream.name / "checkpoint"))
        return Account(frame.passages), writer.trigger(availableNow=True).start()

    def _builder(self, is_streaming: bool) -> GivenBuilder:
        case = self.outcome.case
        return GivenBuilder(
            self.spark,
            self.pipeline,
            is_streaming=is_streaming,
            looks_again=not is_streaming,
            records=self.folder / "records",
            batches=case.batches,
            watermark=case.watermark,
        )

    def _delivery(self, stream: Stream) -> Delivery:
        kept, order = self.outcome.kept, sink_order(self.pipeline, stream)
        routes = [
            route_to(
                capture(spec, self.names[place_of(spec)], self.pipeline, kept, self.folder, order),
                spec,
                order,
                is_lasting=False,
            )
            for spec in stream.sinks
        ]
        return Delivery(f"{self.pipeline.name}.{stream.name}", str(self.folder / stream.name), tuple(routes), IDENTITY)

    def _follow(self, account: Account, query: StreamingQuery) -> None:
        before = 0
        for progress in [json.loads(each.json) for each in query.recentProgress]:
            late = late_rows(account.passages, progress, before)
            account.add(progress.get("observedMetrics") or {}, late)
            before = watermark_ms(progress)
            if (progress.get("eventTime") or {}).get("watermark"):
                self.outcome.watermark_ms = before
        self.outcome.late += sum(count.late for count in account.steps())

    def _collect_letters(self, stream: Stream, account: Account) -> None:
        """As a run does it: what was read is read again as a batch, and the marked rows are kept. A row that dies where
        rows were merged before has no record, so no letter: it is told by its step alone."""
        own = own_streams(self.pipeline, stream)
        builder = self._builder(is_streaming=False)
        builder.frame(stream.name)
        letters = letters_of(builder.marked, self.pipeline, own)
        found = [letter_of(row.asDict(recursive=True)) for row in ([] if letters is None else letters.collect())]
        told = {letter["step"] for letter in (*found, *self.outcome.dead_letters)}
        for count in account.steps():
            step = f"{count.stream} {count.number} {count.step}"
            if count.dead and count.stream in own and step not in told:
                found += [{"key": None, "value": None, "step": step, "reason": None}] * count.dead
        self.outcome.dead_letters += found


@dataclass(frozen=True)
class LetterCapture:
    """Letters that come with the rows."""

    kept: list[dict[str, Any]]

    def write(self, rows: DataFrame, _batch: Batch) -> None:
        self.kept.extend(letter_of(row.asDict(recursive=True)) for row in rows.collect())


def letter_of(row: dict[str, Any]) -> dict[str, Any]:
    found = record_of(row)
    told = {name: found["headers"].get(header) for name, header in LETTER_HEADERS.items()}
    return {"key": found["key"], "value": found["value"], **told}


def places_of_records(outcome: Outcome, pipeline: Pipeline) -> set[str]:
    """Topics that the file names, and those that a column named."""
    return topic_names(pipeline) | (set(outcome.kept) - set(place_names(pipeline).values()))
