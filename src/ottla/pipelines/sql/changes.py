"""A query over what comes: `SELECT … EMIT CHANGES`. A broker that goes away is told, and waited for."""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.progress import is_batch
from ottla.pipelines.sql.documents import RESULT
from ottla.pipelines.sql.execution import POLL_S, Batch, Cancelled, RunningQuery, check_values, with_options, with_zones
from ottla.pipelines.sql.losses import Losses, count_losses
from ottla.pipelines.sql.stream_limits import ABOUT_MODES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TABLE_ROWS_MAX = 1000  # of a table that is shown as a whole
RETRIES_OPTION, RETRIES = "fetchOffset.numRetries", "1000000"  # a person ends the wait for a broker
BATCH_END_S_MAX = 5.0  # for the batch at work, whose losses are to be told


class ChangesQuery(RunningQuery):
    """Over what comes. As one table that is told as a whole at each change, where the query is such that it can be."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, is_whole: bool) -> None:
        super().__init__(spark, with_options(pipeline, {RETRIES_OPTION: RETRIES}))
        self.modes = ("complete", "append", "update") if is_whole else ("update", "append")
        self.query: StreamingQuery | None = None
        self.shown = -1  # the newest batch that gave rows
        self.told = -1  # the newest one whose figures were counted

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
                except Cancelled:
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
