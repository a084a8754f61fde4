"""The cost of pipeline steps, without a broker: `python -m bench.pipeline_steps [state [MINUTES]|window|failing]`.

state: a window that holds 1,000,000 keys in RocksDB is updated batch after batch, for ten minutes or as many as are
given; the memory of the JVM, printed once per minute, must not grow after all keys exist.
window: JSON parsed and counted by key in windows of a minute, by our steps and by PySpark written by hand.
failing: JSON with expressions, `on_error: fail` against `dead`, without failing rows and with 1 % of them, in seconds
of processor time of the JVM.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.model.specs import Problems, read_spec
from ottla.pipelines.spark.session import start_session
from ottla.pipelines.steps.frame import Frame, source_frame
from ottla.pipelines.steps.step import Step
from ottla.pipelines.steps.step_table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KEYS = 1_000_000
ROWS_PER_BATCH = 250_000
MINUTES = 10.0
MESSAGES = 5_000_000
FILES = 10
ROUNDS = 4  # the first is for Java to get warm
SETTINGS = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}


@dataclass
class Around:
    """The context that steps need."""

    spark: SparkSession
    is_streaming: bool = True
    is_counting: bool = True
    sends_late: bool = False
    has_watermark: bool = False
    folder: str = "."
    on_error: str = "dead"
    registry: Any = None
    names: list[str] = field(default_factory=list)

    def stream(self, name: str) -> Frame:
        raise KeyError(name)

    def table(self, name: str) -> Frame:
        raise KeyError(name)

    def observe(self, rows: DataFrame, figures: list[Column]) -> tuple[str, DataFrame]:
        self.names.append(f"o{len(self.names)}")
        return self.names[-1], rows.observe(self.names[-1], *figures)

    def collect_late(self, rows: DataFrame, _end_ms: Column, _passage: Any) -> DataFrame:
        return rows

    def collect_marked(self, rows: DataFrame, marking: list[Any]) -> None:
        pass

    def lay_aside(self, rows: DataFrame, _passages: tuple[Any, ...]) -> DataFrame:
        return rows


def main() -> None:
    wanted = sys.argv[1:] or ["state", "window", "failing"]
    minutes = next((float(word) for word in wanted if word.isdecimal()), MINUTES)
    spark = start_session("bench", master="local[2]", settings=SETTINGS)
    try:
        if "state" in wanted:
            measure_state(spark, minutes)
        if "window" in wanted:
            measure_window(spark)
        if "failing" in wanted:
            measure_failing(spark)
    finally:
        spark.stop()


def measure_state(spark: SparkSession, minutes: float) -> None:
    """The resident memory of the JVM, minute by minute; all keys are there after a few batches."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=ROWS_PER_BATCH, advanceMillisPerBatch=1000, numPartitions=2)
        .load()
        .select(F.concat(F.lit("key-"), F.col("value") % KEYS).alias("key"), "timestamp")
    )
    frame = source_frame(rows, Around(spark))
    frame = applied(frame, "watermark", {"delay": "10 seconds"})
    frame = applied(frame, "window", {"size": "1 day", "by": ["key"], "count": "n"})
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    with folder() as place:
        query = frame.rows.writeStream.format("noop").option("checkpointLocation", f"{place}/checkpoint").start()
        began = time.monotonic()
        for minute in range(1, round(minutes) + 1):
            query.awaitTermination(max(0.1, began + 60 * minute - time.monotonic()))
            report = query.lastProgress
            if query.exception() or report is None:
                raise RuntimeError(query.exception() or "no batch was done")
            state = report["stateOperators"][0]
            print(
                f"minute {minute:3}  batch {report['batchId']:4}  keys {state['numRowsTotal']:9,}  "
                f"RocksDB {state['memoryUsedBytes'] >> 20:5} MiB  JVM {resident_bytes(pid) >> 20:5} MiB  "
                f"{report['processedRowsPerSecond']:9,.0f} rows/s",
                flush=True,
            )
        query.stop()


def measure_window(spark: SparkSession) -> None:
    with folder() as place:
        made = spark.range(0, MESSAGES, 1, FILES).select(
            F.to_json(
                F.struct(
                    F.concat(F.lit("page-"), F.col("id") % 1000).alias("page"),
                    F.concat(F.lit("user-"), F.xxhash64("id") % 5000).alias("user"),
                    F.timestamp_millis(F.lit(1_767_225_600_000) + F.floor(F.col("id") / 10)).alias("at"),
                )
            )
            .cast("binary")
            .alias("value")
        )
        made.write.parquet(f"{place}/in")
        for name, build in ROUNDS * (("by hand", by_hand), ("our steps", by_steps)):
            rows = spark.readStream.schema("value binary").option("maxFilesPerTrigger", 2).parquet(f"{place}/in")
            started = time.monotonic()
            target = f"{place}/{name}-{started}"
            writer = build(rows, spark).writeStream.format("noop").option("checkpointLocation", target)
            writer.trigger(availableNow=True).start().awaitTermination()
            print(f"{name:10} {MESSAGES / (time.monotonic() - started):10,.0f} messages/s", flush=True)


def measure_failing(spark: SparkSession) -> None:
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    with folder() as place:
        for share in (0, 100):
            number = F.when(F.col("id") % 100 < share / 100, F.lit("abc")).otherwise(F.col("id").cast("string"))
            record = F.struct(F.concat(F.lit("page-"), F.col("id") % 1000).alias("page"), number.alias("n"))
            made = spark.range(0, MESSAGES, 1, FILES).select(F.to_json(record).cast("binary").alias("value"))
            made.write.parquet(f"{place}/{share}")
        for name, share, on_error in ROUNDS * (("fail", 0, "fail"), ("dead", 0, "dead"), ("dead, 1 %", 100, "dead")):
            began = processor_seconds(pid)
            rows = spark.read.schema("value binary").parquet(f"{place}/{share}")
            with_expressions(rows, spark, on_error).write.format("noop").mode("overwrite").save()
            print(f"{name:10} {processor_seconds(pid) - began:6.2f} s", flush=True)


def with_expressions(rows: DataFrame, spark: SparkSession, on_error: str) -> DataFrame:
    rows = rows.select("value", F.lit("t").alias("topic"), F.lit(0).alias("partition"), F.lit(0).alias("offset"))
    frame = source_frame(rows, Around(spark, is_streaming=False))
    frame = applied(frame, "parse", {"format": "json", "schema": {"page": "string", "n": "string"}})
    columns = {"v": "cast(n as int)", "w": "v * 2 + 1", "is_large": "w > 100"}
    frame = applied(frame, "derive", {"columns": columns, "on_error": on_error})
    frame = applied(frame, "filter", {"where": "v % 10 > 0 AND page LIKE 'page-%'", "on_error": on_error}).drop_marked()
    return frame.rows.select(*frame.columns)


def processor_seconds(pid: int) -> float:
    """User and system time."""
    values = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def by_hand(rows: DataFrame, _: SparkSession) -> DataFrame:
    parsed = rows.select(
        F.from_json(F.col("value").cast("string"), "page string, user string, at timestamp").alias("r")
    )
    timed = parsed.select("r.*").withWatermark("at", "3 minutes")
    return timed.groupBy(F.window("at", "1 minute"), "page").agg(F.count("*").alias("views"))


def by_steps(rows: DataFrame, spark: SparkSession) -> DataFrame:
    frame = source_frame(rows, Around(spark))
    schema = {"page": "string", "user": "string", "at": "timestamp"}
    frame = applied(frame, "parse", {"format": "json", "schema": schema})
    frame = applied(frame, "watermark", {"time": "at", "delay": "3 minutes"})
    frame = applied(frame, "window", {"size": "1 minute", "by": ["page"], "count": "views"}).drop_marked()
    return frame.rows.select(*frame.columns)


def applied(frame: Frame, name: str, fields: dict[str, Any]) -> Frame:
    problems: Problems = []
    step: Step | None = read_spec(STEPS[name], fields, (), problems)
    if step is None:
        raise ValueError(problems)
    if step.KIND != "marks":
        frame = frame.drop_marked()
    return step.apply(frame.begin("bench", len(frame.applied_steps) + 1, name, step.KIND))


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) << 10


@contextmanager
def folder() -> Iterator[str]:
    place = tempfile.mkdtemp(prefix="ottla-bench-steps-")
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
