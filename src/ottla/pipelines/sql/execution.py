"""Running queries, and batch queries over the records that a topic holds. Streaming queries are in changes.py.

Each query runs in its own thread and hands rows over through a queue. Ctrl-C must not interrupt a call into Java, and
a slow reader must apply back-pressure to the query instead of filling the memory.

Every record is accounted for. A record that cannot be read has no row in the result, so `Losses` has the number of
such records and an example. The caller that shows the result must show the losses, too.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from sqlglot import exp

from ottla.pipelines.expressions.query import STREAM, Query, where_of
from ottla.pipelines.model.pipeline import Pipeline, TopicSource
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.builder import Choices
from ottla.pipelines.running.failed_record import NamedError, Piece, find_failed_record, is_of_value
from ottla.pipelines.running.failures import first_cause
from ottla.pipelines.running.problem_location import plain_words
from ottla.pipelines.running.source_options import Ranges
from ottla.pipelines.running.spark_advice import with_advice
from ottla.pipelines.running.starting import find_ranges
from ottla.pipelines.running.waiting import READING, Waiting, takes_connections
from ottla.pipelines.source.data_loss import LOSS_HINT as LOSS_CURE
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.sql.documents import RESULT
from ottla.pipelines.sql.losses import HistoryBuilder, Losses, losses_of
from ottla.pipelines.sql.other_words import column_cure
from ottla.pipelines.sql.stream_limits import with_cure
from ottla.pipelines.steps.sql import Sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_AT_ONCE = 1000
WAIT_S = 0.2  # rows are shown at least this often
QUEUED_MAX = 16
POLL_S = 0.3
TASK_OPTION = "maxRecordsPerPartition"
TASK_RECORDS = 100_000
LIMITED_RECORDS = 10_000
TASKS_MAX = 500
FIRST_TASKS, FIRST_TASKS_MAX = "spark.sql.limit.initialNumPartitions", 8
COLLECTED_ROWS_MAX = 10_000
WITHOUT_ZONE = re.compile(r'([tT]ype":)"timestamp_ntz"')  # of a column or a nested field

Rows = Sequence[Sequence[Any]]


class Batch(NamedTuple):
    """Some rows, or a remark. If `is_whole`, the rows replace all earlier ones."""

    columns: Sequence[str]
    rows: Rows
    is_whole: bool = False
    is_cut: bool = False  # more rows exist
    remark: str = ""


class QueryFailedError(Exception):
    """A query failed. The message is written for the user; `problem` is Spark's error, if there is one. `is_of_text`:
    the query itself is wrong, and no record was read."""

    def __init__(self, words: str, problem: BaseException | None = None, is_of_text: bool = False) -> None:
        super().__init__(words)
        self.problem = problem
        self.is_of_text = is_of_text


class Cancelled(Exception):  # noqa: N818 (internal: never leaves this module)
    """The caller has cancelled the query."""


class RunningQuery:
    """The base of both kinds of queries: the thread, the queue and the end."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.losses = Losses()
        self.ranges: Ranges = {}  # the records that may hold the value that an expression rejected
        self.waiting = Waiting(lambda: takes_connections(pipeline.fields.bootstrap_servers))
        self._queue: queue.Queue[Batch | BaseException | None] = queue.Queue(QUEUED_MAX)
        self._is_cancelled = threading.Event()
        self._is_planned = False
        self._thread = threading.Thread(target=self._work, name="query", daemon=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'at work' if self._thread.is_alive() else 'ended'})"

    def batches(self) -> Iterator[Batch]:
        """Yield batches until the query ends. Raises QueryFailedError, PipelineError, SourceError."""
        self._thread.start()
        while True:
            try:
                found = self._queue.get(timeout=POLL_S)
            except queue.Empty:
                yield from self._idle(is_idle=True)
                continue
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield from self._idle(is_idle=False)
            yield found

    def cancel(self) -> None:
        """Cancel the query and wait for its end. The interrupt is repeated, so that a job that was just starting gets
        it, too."""
        self._is_cancelled.set()
        while self._thread.is_alive():
            self._interrupt()
            while not self._queue.empty():
                self._queue.get_nowait()
            self._thread.join(POLL_S)

    def _with_record(self, words: str, problem: BaseException) -> str:
        """Add the record whose value an expression rejected to an error message."""
        if not self.ranges or self._is_cancelled.is_set() or not is_of_value(NamedError(problem), self.pipeline):
            return words
        stream = self.pipeline.streams[RESULT]
        found = find_failed_record(self.spark, self.pipeline, stream, self.ranges, Choices())
        return words if found is None else f"{words.rstrip('.')} ({'; '.join(map(Piece.text, found.pieces))})"

    def _idle(self, is_idle: bool) -> Iterator[Batch]:  # noqa: ARG002
        """Yield remarks when the query becomes idle, and when rows arrive again."""
        return iter(())

    def _news(self, doing: str, batches: int) -> str:
        return self.waiting.news(doing, batches, time.monotonic(), datetime.now(UTC))

    @abstractmethod
    def _run(self) -> None: ...

    @abstractmethod
    def _interrupt(self) -> None: ...

    def _work(self) -> None:
        end: BaseException | None = None
        try:
            self._run()
        except Cancelled:
            pass
        except (PipelineError, SourceError, QueryFailedError) as problem:
            end = problem
        except AnalysisException as problem:
            words = column_cure(with_cure("; ".join(filter(None, plain_words(problem)))))
            end = QueryFailedError(words, problem, not self._is_planned)
        except (PySparkException, Py4JError, OSError) as problem:
            is_of_text = not self._is_planned and isinstance(problem, PySparkException | Py4JJavaError)
            words = without_checkpoints(first_cause(str(problem)))
            end = QueryFailedError(words if is_of_text else self._with_record(words, problem), problem, is_of_text)
        except Exception as problem:  # noqa: BLE001 (the thread that waits for rows must receive the error)
            end = QueryFailedError(with_advice(f"{type(problem).__name__}: {problem}"), problem)
        if self._is_cancelled.is_set():
            end = None
        self._put(end, is_last=True)

    def _put(self, found: Batch | BaseException | None, is_last: bool = False) -> None:
        while True:
            if self._is_cancelled.is_set():
                if is_last:
                    return
                raise Cancelled
            try:
                self._queue.put(found, timeout=POLL_S)
            except queue.Full:
                continue
            return

    def _hand_over(self, rows: DataFrame, rows_max: int | None = None) -> int:
        """Hand over all rows, or at most `rows_max`, in small batches and the first rows at once. Return the number of
        rows."""
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
    """A batch query over all records that exist when it begins, or over as many as it needs for `rows_max` rows."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rows_max: int | None = None) -> None:
        super().__init__(spark, pipeline)
        self.rows_max = rows_max

    def _run(self) -> None:
        stream = self.pipeline.streams[RESULT]
        self.ranges = ranges = find_ranges(self.pipeline, stream, "earliest")
        records = sum(end - start for each in ranges.values() for start, end in each.values())
        tasks = {TASK_OPTION: str(records_per_task(records, self.rows_max is not None))}
        pipeline = with_options(self.pipeline, tasks)
        choices = Choices(is_counting=self._reads_stream(), counts_filtered=False)
        builder = HistoryBuilder(self.spark, pipeline, is_streaming=False, choices=choices, ranges=ranges)
        _, rows = builder.query(RESULT)
        rows = with_zones(rows)
        self._put(Batch(rows.columns, []))
        is_collected = self.rows_max is not None and self.rows_max <= COLLECTED_ROWS_MAX
        rows = rows.limit(self.rows_max) if self.rows_max is not None and is_collected else rows
        rows._jdf.queryExecution().optimizedPlan()  # evaluates the constants in the text
        self._is_planned = True
        if is_collected:
            self.spark.conf.set(FIRST_TASKS, str(self._first_tasks(ranges)))
            found = rows.collect()  # runs task after task until it has enough rows
            self._put(Batch(rows.columns, found))
            count = len(found)
        else:
            # a LIMIT in Spark's plan would read all records before the first row
            count = self._hand_over(rows, self.rows_max)
        self.losses = losses_of(rows, builder, self._reads_twice(), self.rows_max is None or count < self.rows_max)

    def _idle(self, is_idle: bool) -> Iterator[Batch]:
        words = self._news(READING if is_idle else "", 1)
        if words:
            yield Batch((), (), remark=words)

    def _first_tasks(self, ranges: Ranges) -> int:
        """Return how many tasks run first. A query that filters reads several partitions at once."""
        partitions = sum(map(len, ranges.values()))
        return min(partitions, FIRST_TASKS_MAX) if where_of(self._query().tree) is not None else 1

    def _reads_stream(self) -> bool:
        """Return whether the query reads `stream`: not if all tables have a primary key, because those are counted by
        the step."""
        return STREAM in self._query().tables.values()

    def _reads_twice(self) -> bool:
        """Return whether Spark reads a topic more than once. A sort samples its input first. Of several tables, one is
        read for each part of another, or for each place in the query."""
        query = self._query()
        return len(query.tables) > 1 or query.tree.find(exp.Order) is not None

    @property
    def _sql(self) -> Sql:
        step = self.pipeline.streams[RESULT].steps[0].spec
        assert isinstance(step, Sql)
        return step

    def _query(self) -> Query:
        return self._sql.parsed()

    def _interrupt(self) -> None:
        self.spark.sparkContext.cancelAllJobs()


def without_checkpoints(words: str) -> str:
    """Remove Spark's advice on lost data: a query at the prompt has neither a checkpoint nor options."""
    return words.replace(f". {LOSS_CURE}", "; begin the query again")


def check_values(rows: DataFrame) -> None:
    """Have Spark evaluate the constants in the text before a stream begins. Raises PySparkException."""
    frame: Any = rows._jdf
    frame.sparkSession().sessionState().optimizer().execute(frame.queryExecution().analyzed())


def with_zones(rows: DataFrame) -> DataFrame:
    """Turn times without zone into times in UTC, the zone of the session. Python would otherwise read them in the zone
    of this machine, as it reads all times that Spark hands over."""
    text = rows.schema.json()
    if WITHOUT_ZONE.search(text) is None:
        return rows
    wanted = StructType.fromJson(json.loads(WITHOUT_ZONE.sub(r'\1"timestamp"', text)))
    return rows.select(*(rows[f"`{each.name}`"].cast(each.dataType).alias(each.name) for each in wanted))


def records_per_task(records: int, is_limited: bool) -> int:
    """Return a task size that gives the first rows soon and lets one partition use all cores, but limits the number of
    tasks for a huge topic."""
    return max(LIMITED_RECORDS if is_limited else TASK_RECORDS, -(-records // TASKS_MAX))


def with_options(pipeline: Pipeline, options: dict[str, str]) -> Pipeline:
    """Return the same pipeline with these options for its sources."""
    streams = {
        name: stream._replace(origin=replace(stream.origin, options=options))
        if isinstance(stream.origin, TopicSource)
        else stream
        for name, stream in pipeline.streams.items()
    }
    return pipeline._replace(streams=streams)
