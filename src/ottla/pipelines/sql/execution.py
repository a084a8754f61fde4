"""Queries at work: over what a topic holds, or over what comes.

Each runs in a thread of its own and hands rows over through a queue: Ctrl-C must never cut through a conversation with
Java, and a reader that is slow must hold the query back, not fill the memory.

Every record is accounted for: what could not be read is no row of the result, so `Losses` tells how many there were,
and the first of them. Whoever shows the result must show that, too.
"""

from __future__ import annotations

import json
import queue
import re
import tempfile
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ottla.pipelines.model.pipeline import Pipeline, TopicSource
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.failures import first_cause
from ottla.pipelines.running.problem_location import plain_words
from ottla.pipelines.running.progress import is_batch
from ottla.pipelines.running.spark_advice import with_advice
from ottla.pipelines.running.starting import find_ranges
from ottla.pipelines.source.losses import CURE as LOSS_CURE
from ottla.pipelines.source.losses import SourceError
from ottla.pipelines.sql.documents import RESULT
from ottla.pipelines.sql.losses import HistoryBuilder, Losses, count_losses, losses_of
from ottla.pipelines.steps.sql import Sql
from ottla.pipelines.steps.sql_query import STREAM, Query, rewrite_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_AT_ONCE = 1000
WAIT_S = 0.2  # rows are shown at least that often
QUEUED_MAX = 16
TABLE_ROWS_MAX = 1000  # of a table that is shown as a whole
POLL_S = 0.3
BATCH_END_S_MAX = 5.0  # for the batch at work, whose losses are to be told
TASK_OPTION = "maxRecordsPerPartition"
TASK_RECORDS = 100_000
LIMITED_RECORDS = 10_000
TASKS_MAX = 500
COLLECTED_ROWS_MAX = 10_000
WITHOUT_ZONE = re.compile(r'([tT]ype":)"timestamp_ntz"')  # of a column, or of something in it

CURES = {  # for what Spark cannot do over what comes
    "Window function is not supported": "leave EMIT CHANGES out, or use the step top of a pipeline",
    "Streaming query is not allowed in subquery": "join the tables instead, or leave EMIT CHANGES out",
    "Sorting is not supported": "leave ORDER BY or EMIT CHANGES out",
    "Distinct aggregations": "write size(collect_set(column)), or leave EMIT CHANGES out",
    "without watermark on streaming": (
        "declare event_time in the table and group by a window of it, or leave EMIT CHANGES out"
    ),
    "without a watermark in the join keys": (
        "declare event_time in both tables and bound one time by the other in ON, or leave EMIT CHANGES out"
    ),
    "Except on a streaming": "leave EMIT CHANGES out",
    "Intersect of streaming": "leave EMIT CHANGES out",
}
OTHER_WAY = re.compile(r", or leave EMIT CHANGES out| or EMIT CHANGES|leave EMIT CHANGES out(, or )?")
ABOUT_MODES = ("Invalid streaming output mode", "only in Append output mode")

Rows = Sequence[Sequence[Any]]


class Batch(NamedTuple):
    """Some rows. `is_whole`: they are all that the result holds now, instead of what was told before."""

    columns: Sequence[str]
    rows: Rows
    is_whole: bool = False
    is_cut: bool = False  # there are more


class QueryFailedError(Exception):
    """The text is a sentence for a person; `problem` is what Spark said, if it did. `is_of_text`: no record was read
    yet, it is the query that is wrong."""

    def __init__(self, words: str, problem: BaseException | None = None, is_of_text: bool = False) -> None:
        super().__init__(words)
        self.problem = problem
        self.is_of_text = is_of_text


class _Cancelled(Exception):  # noqa: N818 (nobody else sees it)
    """Nobody waits for rows any more."""


class RunningQuery:
    """What both kinds have in common: the thread, the queue, the end."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.losses = Losses()
        self._queue: queue.Queue[Batch | BaseException | None] = queue.Queue(QUEUED_MAX)
        self._is_cancelled = threading.Event()
        self._is_planned = False
        self._thread = threading.Thread(target=self._work, name="query", daemon=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'at work' if self._thread.is_alive() else 'ended'})"

    def batches(self) -> Iterator[Batch]:
        """To the end. Raises QueryFailedError, PipelineError, SourceError."""
        self._thread.start()
        while True:
            try:
                found = self._queue.get(timeout=POLL_S)
            except queue.Empty:
                continue
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield found

    def cancel(self) -> None:
        """Comes back when the query has ended. Asked again and again: what was just about to begin hears it, too."""
        self._is_cancelled.set()
        while self._thread.is_alive():
            self._interrupt()
            while not self._queue.empty():
                self._queue.get_nowait()
            self._thread.join(POLL_S)

    @abstractmethod
    def _run(self) -> None: ...

    @abstractmethod
    def _interrupt(self) -> None: ...

    def _work(self) -> None:
        end: BaseException | None = None
        try:
            self._run()
        except _Cancelled:
            pass
        except (PipelineError, SourceError, QueryFailedError) as problem:
            end = problem
        except AnalysisException as problem:
            words = with_cure("; ".join(filter(None, plain_words(problem))))
            end = QueryFailedError(words, problem, not self._is_planned)
        except (PySparkException, Py4JError, OSError) as problem:
            is_of_text = not self._is_planned and isinstance(problem, PySparkException | Py4JJavaError)
            end = QueryFailedError(without_checkpoints(first_cause(str(problem))), problem, is_of_text)
        except Exception as problem:  # noqa: BLE001 (whoever waits for rows must hear of it)
            end = QueryFailedError(with_advice(f"{type(problem).__name__}: {problem}"), problem)
        if self._is_cancelled.is_set():
            end = None
        self._put(end, is_last=True)

    def _put(self, found: Batch | BaseException | None, is_last: bool = False) -> None:
        while True:
            if self._is_cancelled.is_set():
                if is_last:
                    return
                raise _Cancelled
            try:
                self._queue.put(found, timeout=POLL_S)
            except queue.Full:
                continue
            return

    def _hand_over(self, rows: DataFrame, rows_max: int | None = None) -> int:
        """All rows or so many, a few at a time, the first ones at once. How many there were."""
        columns, some, since, count = rows.columns, list[Any](), time.monotonic(), 0
        for row in islice(rows.toLocalIterator(prefetchPartitions=True), rows_max):
            some.append(row)
            count += 1
            if len(some) == ROWS_AT_ONCE or time.monotonic() - since > WAIT_S:
                self._put(Batch(columns, some))
                some, since = [], time.monotonic()
        if some:
            self._put(Batch(columns, some))
        return count


class HistoryQuery(RunningQuery):
    """Over all that the topics hold when it begins, or as much of it as gives `rows_max` rows."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rows_max: int | None = None) -> None:
        super().__init__(spark, pipeline)
        self.rows_max = rows_max

    def _run(self) -> None:
        stream = self.pipeline.streams[RESULT]
        ranges = find_ranges(self.pipeline, stream, "earliest")
        records = sum(end - start for each in ranges.values() for start, end in each.values())
        pipeline = with_tasks_of(self.pipeline, records_per_task(records, self.rows_max is not None))
        choices = Choices(is_counting=self._reads_stream())
        builder = HistoryBuilder(self.spark, pipeline, is_streaming=False, choices=choices, ranges=ranges)
        _, rows = builder.query(RESULT)
        rows = with_zones(rows)
        self._put(Batch(rows.columns, []))
        is_collected = self.rows_max is not None and self.rows_max <= COLLECTED_ROWS_MAX
        rows = rows.limit(self.rows_max) if self.rows_max is not None and is_collected else rows
        rows._jdf.queryExecution().optimizedPlan()  # reckons with the values in the text
        self._is_planned = True
        if is_collected:
            found = rows.collect()  # reads task after task until it has enough
            self._put(Batch(rows.columns, found))
            count = len(found)
        else:
            count = self._hand_over(rows, self.rows_max)  # a limit of Spark's would read all before the first row
        self.losses = losses_of(rows, builder, self._reads_twice(), self.rows_max is None or count < self.rows_max)

    def _reads_stream(self) -> bool:
        """Not if all its tables have a primary key: those are counted by the step itself."""
        return STREAM in self._query().tables.values()

    def _reads_twice(self) -> bool:
        """What sorts is read before, too, to see how the values lie; of several tables one is read for each part of
        another, or for each place where it stands."""
        query = self._query()
        return len(query.tables) > 1 or any(piece.upper() == "ORDER" for piece in query.pieces)

    def _query(self) -> Query:
        step = self.pipeline.streams[RESULT].steps[0].spec
        assert isinstance(step, Sql)
        return rewrite_query(step.query, [*step.streams, *step.newest_of])

    def _interrupt(self) -> None:
        self.spark.sparkContext.cancelAllJobs()


class ChangesQuery(RunningQuery):
    """Over what comes. As one table that is told as a whole at each change, where the query is such that it can be."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, is_whole: bool) -> None:
        super().__init__(spark, pipeline)
        self.modes = ("complete", "append", "update") if is_whole else ("update", "append")
        self.query: StreamingQuery | None = None
        self.shown = -1  # the newest batch that gave rows
        self.told = -1  # the newest one whose figures were counted

    def _run(self) -> None:
        builder = Builder(self.spark, self.pipeline, choices=Choices())
        _, rows = builder.query(RESULT)
        check_values(rows)
        self._put(Batch(rows.columns, []))
        with tempfile.TemporaryDirectory(prefix="ottla-sql-", ignore_cleanup_errors=True) as folder:
            self.query = self._started(rows, folder)
            self._is_planned = True
            try:
                while not self.query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                    self._count(self.query)
                    if self._is_cancelled.is_set():
                        self._await_figures(self.query)
                        break
                self._count(self.query)
            finally:
                self.query.stop()

    def _started(self, rows: DataFrame, folder: str) -> StreamingQuery:
        """Which kinds of output a query can have only Spark knows: the first that it takes. If there is none, what is
        wrong in any of them tells more than that one does not fit; of these, what append lacks."""
        problems: dict[str, AnalysisException] = {}
        for mode in self.modes:

            def show(batch: DataFrame, number: int, is_whole: bool = mode == "complete") -> None:
                self.shown = number
                try:
                    self._show(batch, is_whole)
                except _Cancelled:
                    return

            writer = rows.writeStream.outputMode(mode).foreachBatch(show)
            try:
                return writer.option("checkpointLocation", f"{folder}/{mode}").start()
            except AnalysisException as refused:
                problems[mode] = refused
        telling = (each for each in problems.values() if not any(words in str(each) for words in ABOUT_MODES))
        raise next(telling, problems["append"])

    def _show(self, batch: DataFrame, is_whole: bool) -> None:
        batch = with_zones(batch)
        if not is_whole:
            self._hand_over(batch)
            return
        rows = batch.limit(TABLE_ROWS_MAX + 1).collect()
        self._put(Batch(batch.columns, rows[:TABLE_ROWS_MAX], True, len(rows) > TABLE_ROWS_MAX))

    def _await_figures(self, query: StreamingQuery) -> None:
        """Rows of a batch are here before Spark tells what else became of its records."""
        deadline = time.monotonic() + BATCH_END_S_MAX
        while self.told < self.shown and time.monotonic() < deadline:
            if query.awaitTermination(POLL_S / 3):  # type: ignore[arg-type]
                return
            self._count(query)

    def _count(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            # Spark also reports that there was nothing to do, with the number of the batch to come.
            if progress["batchId"] <= self.told or not is_batch(progress):
                continue
            self.told = progress["batchId"]
            found = count_losses([dict(row.asDict()) for row in progress["observedMetrics"].values()])
            late = sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
            self.losses = Losses(
                self.losses.unreadable + found.unreadable, self.losses.empty + found.empty, self.losses.late + late
            )

    def _interrupt(self) -> None:
        """It looks itself, and stops behind the batch at work."""


def without_checkpoints(words: str) -> str:
    """Data that is gone, without the cure that is meant for programs: a query at the prompt has neither a checkpoint
    nor options."""
    return words.replace(f". {LOSS_CURE}", "; begin the query again")


def with_cure(words: str, is_pipeline: bool = False) -> str:
    """What Spark says of a query over what comes, and what can be done; a pipeline has no EMIT CHANGES to leave out."""
    cure = next((cure for text, cure in CURES.items() if text in words), "")
    cure = OTHER_WAY.sub("", cure) if is_pipeline else cure
    return f"{words}: {cure}" if cure else words


def output_mode(rows: DataFrame, wanted: str) -> str:
    """As wanted, or how Spark can tell the changes of this query at all. Raises AnalysisException, with what is wrong
    in any of them rather than that one does not fit."""
    java: Any = rows.sparkSession._jvm
    check = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming
    modes = java.org.apache.spark.sql.streaming.OutputMode
    problems: list[AnalysisException] = []
    for name in dict.fromkeys((wanted, "append", "update")):
        try:
            check(rows._jdf.queryExecution().analyzed(), modes.Append() if name == "append" else modes.Update())
        except AnalysisException as refused:
            problems.append(refused)
        else:
            return name
    raise next((each for each in problems if not any(words in str(each) for words in ABOUT_MODES)), problems[0])


def check_values(rows: DataFrame) -> None:
    """Have Spark reckon with the values in the text, before a stream begins. Raises PySparkException."""
    frame: Any = rows._jdf
    frame.sparkSession().sessionState().optimizer().execute(frame.queryExecution().analyzed())


def with_zones(rows: DataFrame) -> DataFrame:
    """Python cannot tell a time without zone from one in the zone of this machine, as which Spark hands over
    all others: those without are UTC, the zone of the session."""
    text = rows.schema.json()
    if WITHOUT_ZONE.search(text) is None:
        return rows
    wanted = StructType.fromJson(json.loads(WITHOUT_ZONE.sub(r'\1"timestamp"', text)))
    return rows.select(*(rows[f"`{each.name}`"].cast(each.dataType).alias(each.name) for each in wanted))


def records_per_task(records: int, is_limited: bool) -> int:
    """Small enough that the first rows come soon and one partition keeps all cores busy; but a huge topic has no more
    tasks than Spark can bear."""
    return max(LIMITED_RECORDS if is_limited else TASK_RECORDS, -(-records // TASKS_MAX))


def with_tasks_of(pipeline: Pipeline, records: int) -> Pipeline:
    """The same pipeline, its topics read in tasks of so many records."""
    streams = {
        name: stream._replace(origin=replace(stream.origin, options={TASK_OPTION: str(records)}))
        if isinstance(stream.origin, TopicSource)
        else stream
        for name, stream in pipeline.streams.items()
    }
    return pipeline._replace(streams=streams)
