"""Streaming queries: `SELECT … EMIT CHANGES`. If a broker becomes unreachable, the query reports it and waits."""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame

from ottla.client.errors import ClientError
from ottla.pipelines.model.pipeline import Pipeline, TopicSource
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.checkpoint import Checkpoint, CheckpointError
from ottla.pipelines.running.failed_record import ranges_of_batch
from ottla.pipelines.running.progress import is_batch
from ottla.pipelines.running.progress_reports import NOTHING_SEEN, new_reports, place_of
from ottla.pipelines.running.source_options import Ranges
from ottla.pipelines.running.starting import find_start
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.sql.documents import RESULT
from ottla.pipelines.sql.execution import POLL_S, Batch, Cancelled, RunningQuery, check_values, with_options, with_zones
from ottla.pipelines.sql.losses import Losses, count_losses
from ottla.pipelines.sql.stream_limits import ABOUT_MODES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TABLE_ROWS_MAX = 1000  # when each change shows the whole table
RETRIES_OPTION, RETRIES = "fetchOffset.numRetries", "1000000"  # only the user ends the wait for a broker
BATCH_END_S_MAX = 5.0  # the running batch may finish, so that its losses are reported


class ChangesQuery(RunningQuery):
    """A streaming query. Where the query allows it, the result is a table that is shown as a whole at each change."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, is_whole: bool) -> None:
        super().__init__(spark, with_options(pipeline, {RETRIES_OPTION: RETRIES}))
        self.modes = ("complete", "append", "update") if is_whole else ("update", "append")
        self.query: StreamingQuery | None = None
        self.shown = -1  # the newest batch that returned rows
        self.told = -1  # the newest batch whose figures were counted
        self.last_seen = NOTHING_SEEN
        self.mode = ""  # the output mode

    def _run(self) -> None:
        builder = Builder(self.spark, self.pipeline, choices=Choices(counts_filtered=False))
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
                    words = self._news(self.query.status["message"], self.told + 1)
                    if words:
                        self._put(Batch((), (), remark=words))
                self._count(self.query)
            except StreamingQueryException:
                self.ranges = self._failed_ranges(folder)
                raise
            finally:
                self.query.stop()

    def _failed_ranges(self, folder: str) -> Ranges:
        """Return the ranges of the batch that failed, while the checkpoint still exists."""
        noted = {
            each.origin.starting for each in self.pipeline.streams.values() if isinstance(each.origin, TopicSource)
        }
        is_whole = noted == {"earliest"}  # otherwise the start of the first batch is unknown
        try:
            start = find_start(self.pipeline, self.pipeline.streams[RESULT], "earliest") if is_whole else None
            return ranges_of_batch(Checkpoint(None, f"{folder}/{self.mode}"), start)
        except (CheckpointError, SourceError, ClientError):
            return {}

    def _started(self, rows: DataFrame, folder: str) -> StreamingQuery:
        """Start the query in the first output mode that Spark accepts; only Spark knows which modes a query allows.

        If none fits, report an error that concerns the query itself rather than the mode, and prefer the one of
        append."""
        problems: dict[str, AnalysisException] = {}
        for mode in self.modes:

            def show(batch: DataFrame, number: int, is_whole: bool = mode == "complete") -> None:
                self.shown = number
                try:
                    self._show(batch, is_whole)
                except Cancelled:
                    return

            writer = rows.writeStream.outputMode(mode).foreachBatch(show)
            self.mode = mode
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
        """Wait for a batch's progress report: the rows of a batch arrive before it."""
        deadline = time.monotonic() + BATCH_END_S_MAX
        while self.told < self.shown and time.monotonic() < deadline:
            if query.awaitTermination(POLL_S / 3):  # type: ignore[arg-type]
                return
            self._count(query)

    def _count(self, query: StreamingQuery) -> None:
        for report in new_reports(query, self.last_seen):
            self.last_seen = place_of(report)
            if not is_batch(report):  # Spark also reports idle triggers, with the number of the next batch
                continue
            self.told = report["batchId"]
            found = count_losses(list((report.get("observedMetrics") or {}).values()))
            late = sum(each["numRowsDroppedByWatermark"] for each in report.get("stateOperators") or ())
            self.losses = Losses(
                self.losses.unreadable + found.unreadable, self.losses.empty + found.empty, self.losses.late + late
            )

    def _interrupt(self) -> None:
        """Stop the query after the running batch. The query polls for the interrupt itself."""
