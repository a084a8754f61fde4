"""Records that are given instead of read: a builder whose sources are files, one file a micro-batch.

Everything behind the source is what `run` uses. Spark takes one file of each source a batch, in the order of their
times, so a case decides what comes when; a source that gets nothing in a batch has an empty file for it. Between
batches time passes: an empty one follows each, as it does in a run, after which Spark knows what is late.

Time goes on with the records, as it does in a run. Where a case says where the watermark stands in the end, one more
batch brings a row of that time to every `watermark` step, and to no step behind it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.pipeline import TopicSource
from ottla.pipelines.model.problems import Path
from ottla.pipelines.running.builder import SCHEMA, Builder
from ottla.pipelines.running.source_options import reads
from ottla.pipelines.steps.event_time import time_column
from ottla.pipelines.steps.frame import ALIVE, FATE, Frame
from ottla.pipelines.steps.step import Step
from ottla.pipelines.steps.watermark import Watermark
from ottla.pipelines.trials.cases import Given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST_FILE_S = 1_700_000_000  # any time: the file of a batch is a second older than the next
TICK = "_tick"
TICKS = "ticks"
MOMENT = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", MOMENT), ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)  # fmt: skip


@dataclass
class GivenBuilder(Builder):
    """`batches` are kept as files below `records`; `watermark` is where time stands in the end."""

    records: FilePath = field(default_factory=FilePath)
    batches: Sequence[Sequence[Given]] = ()
    watermark: datetime | None = None

    def _read(self, source: TopicSource, path: Path) -> DataFrame:
        folder = self.records / "-".join(map(str, path or ("main",)))
        if not folder.exists():
            wanted = [[each for each in batch if reads(source, each.topic)] for batch in self._turns()]
            write_files(folder, [_table(batch) for batch in wanted])
        return self._files(folder, SCHEMA)

    def _applied(self, step: Step, frame: Frame) -> Frame:
        if not (isinstance(step, Watermark) and self.watermark and self.is_streaming):
            return step.apply(frame)
        ticked = step.apply(_with_tick(frame, self._ticks(), time_column(frame, step.time), int(step.delay)))
        # Spark moves conditions towards the source, but not past an observation: this one stays behind the watermark.
        _, rows = self.observe(ticked.rows, [F.count(TICK).alias(TICK)])
        return replace(ticked, rows=rows.filter(F.col(TICK).isNull()).drop(TICK))

    def _ticks(self) -> DataFrame:
        folder = self.records / TICKS
        if not folder.exists():
            moments = [[], *([] for _ in self._turns()[2:]), [self.watermark]]
            write_files(folder, [pa.table({TICK: pa.array(each, MOMENT)}) for each in moments])
        return self._files(folder, f"{TICK} timestamp")

    def _turns(self) -> list[Sequence[Given]]:
        """What comes in each of Spark's batches."""
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


def _table(batch: Sequence[Given]) -> pa.Table:
    rows = [
        {**each._asdict(), "timestampType": 0, "headers": [{"key": key, "value": value} for key, value in each.headers]}
        for each in batch
    ]
    return pa.Table.from_pylist(rows, COLUMNS)


def _with_tick(frame: Frame, ticks: DataFrame, name: str, delay_ms: int) -> Frame:
    """The row's time is that of the watermark and its delay: the watermark is then where it shall be."""
    moment = F.timestamp_millis(F.unix_millis(TICK) + F.lit(delay_ms))
    tick = ticks.select(F.col(TICK), moment.alias(name), F.lit(ALIVE).alias(FATE))
    rows = frame.rows.withColumn(TICK, F.lit(None).cast("timestamp"))
    return replace(frame, rows=rows.unionByName(tick, allowMissingColumns=True))
