"""Runs a test case: its input records pass through the pipeline's own steps on Spark, and the output is compared.

No broker is contacted, no checkpoint is kept, and nothing is written except below a temporary folder.

The sources are replaced by files, one file per micro-batch; everything after the source is the code of a run. Spark
reads one file of each source per batch, in the order of their times, so a case controls the arrival; a source without
records in a batch has an empty file for it. An empty batch follows each batch, as in a run, after which Spark knows
which rows are late.

Time advances with the records, as in a run. If a case sets the final watermark, one more batch brings a row of that
time to every `watermark` step only.
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

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource
from ottla.pipelines.model.problems import Path
from ottla.pipelines.running.accounting import Account
from ottla.pipelines.running.builder import SCHEMA, Builder
from ottla.pipelines.running.dead_letters import carried_letters, letters_aside, letters_of, own_streams
from ottla.pipelines.running.delivery import Delivery, route_to
from ottla.pipelines.running.failures import plain_failure
from ottla.pipelines.running.runner import output_mode
from ottla.pipelines.running.sink_checks import sink_order
from ottla.pipelines.running.source_options import reads
from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.spark.session import is_running, start_session
from ottla.pipelines.steps.event_time import Watermark, time_column
from ottla.pipelines.steps.frame import ALIVE, FATE, Frame
from ottla.pipelines.steps.lateness import late_rows, watermark_ms
from ottla.pipelines.steps.step import Step
from ottla.pipelines.trials.captures import CapturedRows, capture_sink, record_of
from ottla.pipelines.trials.cases import Case, InputRecord, place_names, place_of, topic_names
from ottla.pipelines.trials.differences import difference, matches_all_columns, matches_given_fields
from ottla.pipelines.trials.settings import ALL_SETTINGS, NAME, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


FIRST_FILE_S = 1_700_000_000  # arbitrary: the file of a batch is a second older than the next
WATERMARK_ROW = "_tick"
TICKS = "ticks"
MOMENT = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", MOMENT), ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)  # fmt: skip

IDENTITY = "trial"
LETTER_HEADERS = {"step": "ottla.step", "reason": "ottla.reason"}
WORKERS_MAX = 4
STATEFUL_PROCESSOR_STEPS = ("anomalies", "order", "pattern", "python", "stateful")
# In memory: for a few rows, opening a database would take longer than everything else.
STATE_IN_MEMORY = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
}


@dataclass
class TrialBuilder(Builder):
    """`batches` are stored as files below `records`; `watermark` is the final watermark."""

    records: FilePath = field(default_factory=FilePath)
    batches: Sequence[Sequence[InputRecord]] = ()
    watermark: datetime | None = None

    def _read(self, source: TopicSource, path: Path) -> DataFrame:
        folder = self.records / "-".join(map(str, path or ("main",)))
        if not folder.exists():
            wanted = [[each for each in batch if reads(source, each.topic)] for batch in self._input_batches()]
            write_files(folder, [_table(batch) for batch in wanted])
        return self._files(folder, SCHEMA)

    def _applied(self, step: Step, frame: Frame) -> Frame:
        if not (isinstance(step, Watermark) and self.watermark and self.is_streaming):
            return step.apply(frame)
        ticked = step.apply(_with_tick(frame, self._watermark_rows(), time_column(frame, step.time), int(step.delay)))
        # Spark pushes conditions towards the source, but not past an observation: this one stays after the watermark.
        _, rows = self.observe(ticked.rows, [F.count(WATERMARK_ROW).alias(WATERMARK_ROW)])
        return replace(ticked, rows=rows.filter(F.col(WATERMARK_ROW).isNull()).drop(WATERMARK_ROW))

    def _watermark_rows(self) -> DataFrame:
        folder = self.records / TICKS
        if not folder.exists():
            moments = [[], *([] for _ in self._input_batches()[2:]), [self.watermark]]
            write_files(folder, [pa.table({WATERMARK_ROW: pa.array(each, MOMENT)}) for each in moments])
        return self._files(folder, f"{WATERMARK_ROW} timestamp")

    def _input_batches(self) -> list[Sequence[InputRecord]]:
        """The input of each of Spark's batches."""
        steps = (step for stream in self.pipeline.streams.values() for step in stream.steps)
        is_timed = any(isinstance(step.spec, Watermark) for step in steps)
        turns = [turn for batch in self.batches for turn in ([batch, ()] if is_timed else [batch])]
        return [*(turns[:-1] if is_timed else turns), *([()] if self.watermark else [])]

    def _files(self, folder: FilePath, schema: str) -> DataFrame:
        reader = self.spark.readStream if self.is_streaming else self.spark.read
        return reader.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(folder))


def write_files(folder: FilePath, batches: Sequence[pa.Table]) -> None:
    folder.mkdir(parents=True)
    for number, table in enumerate(batches):
        file = folder / f"{number:04}.parquet"
        pq.write_table(table, file)
        os.utime(file, (FIRST_FILE_S + number, FIRST_FILE_S + number))


def _table(batch: Sequence[InputRecord]) -> pa.Table:
    rows = [
        {**each._asdict(), "timestampType": 0, "headers": [{"key": key, "value": value} for key, value in each.headers]}
        for each in batch
    ]
    return pa.Table.from_pylist(rows, COLUMNS)


def _with_tick(frame: Frame, ticks: DataFrame, name: str, delay_ms: int) -> Frame:
    """The row's time is the watermark plus its delay, which results in the wanted watermark."""
    moment = F.timestamp_millis(F.unix_millis(WATERMARK_ROW) + F.lit(delay_ms))
    tick = ticks.select(F.col(WATERMARK_ROW), moment.alias(name), F.lit(ALIVE).alias(FATE))
    rows = frame.rows.withColumn(WATERMARK_ROW, F.lit(None).cast("timestamp"))
    return replace(frame, rows=rows.unionByName(tick, allowMissingColumns=True))


@dataclass
class Outcome:
    """The result of a case. `differences` are lines of a report; `failure` is the reason if it did not run to its
    end."""

    case: Case
    kept: dict[str, CapturedRows] = field(default_factory=dict)
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
    """One Spark for all cases. A Spark that already runs in this process is used and not stopped. Raises
    SparkStartError."""
    is_ours = not is_running()
    spark = start_session(NAME, settings={**ALL_SETTINGS, **settings}, is_lean=is_lean, work="trials")
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def session_of(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session with the settings of one pipeline, on the running Spark."""
    session = spark.newSession()
    memory = {} if needs_rocksdb(pipeline) else STATE_IN_MEMORY
    for key, value in {**SETTINGS, **memory, **pipeline.fields.spark}.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def needs_rocksdb(pipeline: Pipeline) -> bool:
    """Steps with their own state (transformWithState) support no other state store."""
    steps = [step for stream in pipeline.streams.values() for step in stream.steps]
    return any(step.name in STATEFUL_PROCESSOR_STEPS or getattr(step.spec, "as_of", None) for step in steps)


def run_cases(spark: SparkSession, pipeline: Pipeline, cases: Sequence[Case]) -> Iterator[Outcome]:
    """In order, several in parallel, because Spark mostly waits. Raises PipelineError."""
    with ThreadPoolExecutor(min(WORKERS_MAX, os.cpu_count() or 1)) as workers:
        yield from workers.map(lambda case: run_case(spark, pipeline, case), cases)


def run_case(spark: SparkSession, pipeline: Pipeline, case: Case) -> Outcome:
    """Raises PipelineError for a pipeline that Spark rejects."""
    outcome = Outcome(case)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-trial-") as folder:
        trial = _TrialRun(spark, pipeline, outcome, FilePath(folder))
        try:
            trial.run()
            outcome.differences = differences(outcome, places_of_records(outcome, pipeline))
        except (PySparkException, Py4JError, SinkError, OSError) as error:
            outcome.failure = plain_failure(error, ()).text()
    outcome.seconds = time.monotonic() - started
    return outcome


def differences(outcome: Outcome, topics: Collection[str]) -> list[str]:
    """The differences from the expectation; `topics` are the targets that contain records."""
    case = outcome.case
    lines: list[str] = []
    for place, expected in case.expected.items():
        is_topic = place in topics or place not in outcome.kept  # a topic named by a column got no records
        lines += difference(
            place,
            expected.rows,
            outcome.kept.get(place, CapturedRows()).rows,
            is_ordered=expected.is_ordered,
            ignored=case.ignored,
            fits=matches_given_fields if is_topic else matches_all_columns,
        )
    lines += difference("dead letters", case.dead_letters, outcome.dead_letters, fits=matches_given_fields)
    if case.late is not None and case.late != outcome.late:
        lines.append(f"late: {case.late} expected, {outcome.late} came too late")
    if lines and outcome.watermark_ms is not None and case.watermark is None:
        moment = datetime.fromtimestamp(outcome.watermark_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
        lines.append(f"(the watermark stands at {moment}: windows that end later are open; `watermark:` moves it)")
    return lines


class _TrialRun:
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
                started.append((stream, *self._start(stream)))  # # noqa: PERF401 (must be known even if the next one cannot start)
            for stream, account, query in started:
                query.awaitTermination()  # raises the query's error
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
        return Account(frame.applied_steps), writer.trigger(availableNow=True).start()

    def _builder(self, is_streaming: bool) -> TrialBuilder:
        case = self.outcome.case
        return TrialBuilder(
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
                capture_sink(spec, self.names[place_of(spec)], self.pipeline, kept, self.folder, order),
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
        """As in a run: the input is read again as a batch, and the marked rows are kept. A row that dies after a
        merge has no source record, so it is only reported by its step."""
        own = own_streams(self.pipeline, stream)
        builder = self._builder(is_streaming=False)
        builder.frame(stream.name)
        letters = letters_of(builder.marked, self.pipeline, own)
        found = [
            dead_letter_fields(row.asDict(recursive=True)) for row in ([] if letters is None else letters.collect())
        ]
        told = {letter["step"] for letter in (*found, *self.outcome.dead_letters)}
        for count in account.steps():
            step = f"{count.stream} {count.number} {count.step}"
            if count.dead and count.stream in own and step not in told:
                found += [{"key": None, "value": None, "step": step, "reason": None}] * count.dead
        self.outcome.dead_letters += found


@dataclass(frozen=True)
class LetterCapture:
    """Captures dead letters that come with the rows."""

    kept: list[dict[str, Any]]

    def write(self, rows: DataFrame, _batch: Batch) -> None:
        self.kept.extend(dead_letter_fields(row.asDict(recursive=True)) for row in rows.collect())


def dead_letter_fields(row: dict[str, Any]) -> dict[str, Any]:
    found = record_of(row)
    told = {name: found["headers"].get(header) for name, header in LETTER_HEADERS.items()}
    return {"key": found["key"], "value": found["value"], **told}


def places_of_records(outcome: Outcome, pipeline: Pipeline) -> set[str]:
    """Topics in the file, and topics named by a column."""
    return topic_names(pipeline) | (set(outcome.kept) - set(place_names(pipeline).values()))
