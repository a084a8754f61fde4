"""Streams without a broker: one file is one micro-batch, so a test decides what arrives when."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.pipelines.frames import Around

from ottla.pipelines.steps.frame import Frame, source_frame
from ottla.pipelines.steps.lateness import late_rows, watermark_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)
ARROW = {
    "string": pa.string(), "double": pa.float64(), "bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}  # fmt: skip
END = START + timedelta(days=365)  # a row of this time moves the watermark past all others

Rows = Sequence[tuple[Any, ...]]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Ran:
    """The results of a query."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    frame: Frame | None = None

    def late(self) -> dict[str, int]:
        """Late rows by step."""
        assert self.frame is not None
        found: dict[str, int] = {}
        before = 0
        for report in self.progress:
            for late in late_rows(self.frame.applied_steps, report, before):
                assert late.is_exact
                found[late.passage.step] = found.get(late.passage.step, 0) + late.rows
            before = watermark_ms(report)
        return found

    def observed(self, name: str, figure: str) -> int:
        return sum(int(report["observedMetrics"].get(name, {}).get(figure) or 0) for report in self.progress)


def write_batches(folder: Path, schema: str, batches: Iterable[Rows]) -> None:
    """The file of each batch is a second older than the next: the order in which Spark takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = [(name, ARROW[kind]) for name, kind in (each.split() for each in schema.split(", "))]
    for number, rows in enumerate(batches):
        columns = list(zip(*rows, strict=True)) or [()] * len(fields)
        arrays = [pa.array(list(column), kind) for column, (_, kind) in zip(columns, fields, strict=True)]
        file = folder / f"{number:04}.parquet"
        pq.write_table(pa.Table.from_arrays(arrays, names=[name for name, _ in fields]), file)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def streaming(
    spark: SparkSession, folder: Path, schema: str, batches: Iterable[Rows], around: Around | None = None
) -> Frame:
    write_batches(folder, schema, batches)
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    around = around or Around(spark, is_streaming=True)
    return source_frame(rows, around)


def run(frame: Frame, folder: Path, output: str = "append") -> Ran:
    """Until all existing records are processed."""
    frame = frame.drop_marked()
    ran = Ran(frame=frame)
    spark = frame.context.spark

    def keep(rows: DataFrame, _: int) -> None:
        ran.rows += [row.asDict(recursive=True) for row in rows.collect()]

    visible = frame.rows.select(*(f"`{name}`" for name in frame.columns))
    writer = (
        visible.writeStream.foreachBatch(keep)
        .outputMode(output)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    ran.progress = [_plain(report) for report in query.recentProgress]
    assert spark is not None
    return ran


def _plain(report: Any) -> dict[str, Any]:
    observed = {
        name: row.asDict(recursive=True) if hasattr(row, "asDict") else row
        for name, row in report["observedMetrics"].items()
    }
    return {
        "batchId": report["batchId"],
        "eventTime": dict(report["eventTime"]),
        "observedMetrics": observed,
        "stateOperators": [dict(each) for each in report["stateOperators"]],
    }
