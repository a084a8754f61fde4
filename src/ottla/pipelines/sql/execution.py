"""Queries at work, and those over what a topic holds; what comes is in changes.py.

Each runs in a thread of its own and hands rows over through a queue: Ctrl-C must never cut through a conversation with
Java, and a reader that is slow must hold the query back, not fill the memory.

Every record is accounted for: what could not be read is no row of the result, so `Losses` tells how many there were,
and the first of them. Whoever shows the result must show that, too.
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

from ottla.pipelines.model.pipeline import Pipeline, TopicSource
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.builder import Choices
from ottla.pipelines.running.failures import first_cause
from ottla.pipelines.running.problem_location import plain_words
from ottla.pipelines.running.source_options import Ranges
from ottla.pipelines.running.spark_advice import with_advice
from ottla.pipelines.running.starting import find_ranges
from ottla.pipelines.running.waiting import READING, Waiting, takes_connections
from ottla.pipelines.source.losses import CURE as LOSS_CURE
from ottla.pipelines.source.losses import SourceError
from ottla.pipelines.sql.documents import RESULT
from ottla.pipelines.sql.losses import HistoryBuilder, Losses, losses_of
from ottla.pipelines.sql.other_words import column_cure
from ottla.pipelines.sql.stream_limits import with_cure
from ottla.pipelines.steps.sql import Sql
from ottla.pipelines.steps.sql_query import STREAM, Query, rewrite_query
from ottla.pipelines.steps.sql_where import where_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_AT_ONCE = 1000
WAIT_S = 0.2  # rows are shown at least that often
QUEUED_MAX = 16
POLL_S = 0.3
TASK_OPTION = "maxRecordsPerPartition"
TASK_RECORDS = 100_000
LIMITED_RECORDS = 10_000
TASKS_MAX = 500
FIRST_TASKS, FIRST_TASKS_MAX = "spark.sql.limit.initialNumPartitions", 8
COLLECTED_ROWS_MAX = 10_000
WITHOUT_ZONE = re.compile(r'([tT]ype":)"timestamp_ntz"')  # of a column, or of something in it

Rows = Sequence[Sequence[Any]]


class Batch(NamedTuple):
    """Some rows, or a remark instead. `is_whole`: they are all that the result holds now, instead of what was told
    before."""

    columns: Sequence[str]
    rows: Rows
    is_whole: bool = False
    is_cut: bool = False  # there are more
    remark: str = ""


class QueryFailedError(Exception):
    """The text is a sentence for a person; `problem` is what Spark said, if it did. `is_of_text`: no record was read
    yet, it is the query that is wrong."""

    def __init__(self, words: str, problem: BaseException | None = None, is_of_text: bool = False) -> None:
        super().__init__(words)
        self.problem = problem
        self.is_of_text = is_of_text


class Cancelled(Exception):  # noqa: N818 (nobody else sees it)
    """Nobody waits for rows any more."""


class RunningQuery:
    """What both kinds have in common: the thread, the queue, the end."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.losses = Losses()
        self.waiting = Waiting(lambda: takes_connections(pipeline.head.bootstrap_servers))
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
                yield from self._idle(is_idle=True)
                continue
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield from self._idle(is_idle=False)
            yield found

    def cancel(self) -> None:
        """Comes back when the query has ended. Asked again and again: what was just about to begin hears it, too."""
        self._is_cancelled.set()
        while self._thread.is_alive():
            self._interrupt()
            while not self._queue.empty():
                self._queue.get_nowait()
            self._thread.join(POLL_S)

    def _idle(self, is_idle: bool) -> Iterator[Batch]:  # noqa: ARG002
        """What is to be told while no rows come, and when some do."""
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
                raise Cancelled
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
        tasks = {TASK_OPTION: str(records_per_task(records, self.rows_max is not None))}
        pipeline = with_options(self.pipeline, tasks)
        choices = Choices(is_counting=self._reads_stream(), counts_filtered=False)
        builder = HistoryBuilder(self.spark, pipeline, is_streaming=False, choices=choices, ranges=ranges)
        _, rows = builder.query(RESULT)
        rows = with_zones(rows)
        self._put(Batch(rows.columns, []))
        is_collected = self.rows_max is not None and self.rows_max <= COLLECTED_ROWS_MAX
        rows = rows.limit(self.rows_max) if self.rows_max is not None and is_collected else rows
        rows._jdf.queryExecution().optimizedPlan()  # reckons with the values in the text
        self._is_planned = True
        if is_collected:
            self.spark.conf.set(FIRST_TASKS, str(self._first_tasks(ranges)))
            found = rows.collect()  # reads task after task until it has enough
            self._put(Batch(rows.columns, found))
            count = len(found)
        else:
            count = self._hand_over(rows, self.rows_max)  # a limit of Spark's would read all before the first row
        self.losses = losses_of(rows, builder, self._reads_twice(), self.rows_max is None or count < self.rows_max)

    def _idle(self, is_idle: bool) -> Iterator[Batch]:
        words = self._news(READING if is_idle else "", 1)
        if words:
            yield Batch((), (), remark=words)

    def _first_tasks(self, ranges: Ranges) -> int:
        """Who looks for something looks into several partitions at once."""
        partitions = sum(map(len, ranges.values()))
        return min(partitions, FIRST_TASKS_MAX) if where_of(self._sql.query) is not None else 1

    def _reads_stream(self) -> bool:
        """Not if all its tables have a primary key: those are counted by the step itself."""
        return STREAM in self._query().tables.values()

    def _reads_twice(self) -> bool:
        """What sorts is read before, too, to see how the values lie; of several tables one is read for each part of
        another, or for each place where it stands."""
        query = self._query()
        return len(query.tables) > 1 or any(piece.upper() == "ORDER" for piece in query.pieces)

    @property
    def _sql(self) -> Sql:
        step = self.pipeline.streams[RESULT].steps[0].spec
        assert isinstance(step, Sql)
        return step

    def _query(self) -> Query:
        return rewrite_query(self._sql.query, [*self._sql.streams, *self._sql.newest_of])

    def _interrupt(self) -> None:
        self.spark.sparkContext.cancelAllJobs()


def without_checkpoints(words: str) -> str:
    """Data that is gone, without the cure that is meant for programs: a query at the prompt has neither a checkpoint
    nor options."""
    return words.replace(f". {LOSS_CURE}", "; begin the query again")


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


def with_options(pipeline: Pipeline, options: dict[str, str]) -> Pipeline:
    """The same pipeline, its topics read with these options of the source."""
    streams = {
        name: stream._replace(origin=replace(stream.origin, options=options))
        if isinstance(stream.origin, TopicSource)
        else stream
        for name, stream in pipeline.streams.items()
    }
    return pipeline._replace(streams=streams)
