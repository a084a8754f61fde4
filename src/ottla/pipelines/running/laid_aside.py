"""Dead letters of rows that die between a step that is not repeatable and one that merges rows.

They can neither be found by reading the batch again nor stay with the rows. So the tasks that drop them write their
records to files, one per task, below the folder of the query: `laid-aside/<batch>/<place>-<task>.parquet`. A repeated
task overwrites its file. When the sinks have the batch, its files become dead letters, exactly once under its number;
the files are deleted with the next batch that has some. Requires a path that driver and tasks share.

The same applies to rows that are late after such a step (`late-aside`). They stay among the rows, because Spark drops
and counts them; the watermark for that is in the checkpoint, in the previous batch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.running.checkpoint import Checkpoint, CheckpointError
from ottla.pipelines.running.letters import ORIGIN, letters_from
from ottla.pipelines.sinks.batch import Batch, Sink
from ottla.pipelines.sinks.staging import LocalStaging, local_path
from ottla.pipelines.steps.frame import ALIVE, FATE, REASON, SOURCE_RECORD, AppliedStep
from ottla.pipelines.steps.lateness import END, late_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "laid-aside"
LATE_FOLDER = "late-aside"
BATCH_PROPERTY = "streaming.sql.batchId"  # Spark's local property; missing in a batch query, which is number 0

Place = tuple[int, tuple[AppliedStep, ...]]  # its number in the query, and the steps before it
Pieces = Iterator[pa.Array]


def lay_aside(rows: DataFrame, folder: Path, place: int) -> DataFrame:
    """The living rows; dead rows with a source record are written to files on the way."""
    function = F.arrow_udf(_writing(str(folder), place), "boolean")  # type: ignore[attr-defined]
    is_alive: Callable[[Column], Column] = function.asNondeterministic()  # so that Spark neither moves nor repeats it
    return rows.filter(is_alive(F.struct(FATE, REASON, SOURCE_RECORD)))


def lay_late_aside(rows: DataFrame, end_ms: Column, folder: Path, place: Place, checkpoint: Path) -> DataFrame:
    """All rows; rows whose end (lateness.py) is not after the watermark are written to files, as dead of the only
    step of that place."""
    number, (step,) = place
    function = F.arrow_udf(_writing_late(str(folder), number, step.mark, str(checkpoint)), "boolean")  # type: ignore[attr-defined]
    passes: Callable[[Column], Column] = function.asNondeterministic()
    return rows.filter(passes(F.struct(end_ms.cast("bigint").alias(END), SOURCE_RECORD)))


def _writing_late(folder: str, place: int, mark: int, checkpoint: str) -> Callable[[Pieces], Pieces]:
    def passes(pieces: Pieces) -> Pieces:
        number = int(_batch_number())
        before = Checkpoint(None, checkpoint).planned(number - 1)
        if before is None and number:  # otherwise late rows would be lost silently
            raise CheckpointError(f"{checkpoint} is not seen by Spark's tasks, or no longer has batch {number - 1}")
        watermark_ms = before.watermark_ms if before is not None else 0
        if not watermark_ms:
            yield from (pa.array([True] * len(piece)) for piece in pieces)
            return
        reason = late_reason(watermark_ms)

        def marked(piece: pa.Array) -> pa.Array:
            is_late = pc.fill_null(pc.less_equal(piece.field(END), watermark_ms), False)
            fates = pc.if_else(is_late, pa.scalar(-mark, pa.int32()), pa.scalar(ALIVE, pa.int32()))
            reasons = pa.array([reason] * len(piece), pa.string())
            return pa.StructArray.from_arrays(
                [fates, reasons, piece.field(SOURCE_RECORD)], [FATE, REASON, SOURCE_RECORD]
            )

        for each in _writing(folder, place)(map(marked, pieces)):
            yield pa.array([True] * len(each))

    return passes


def _batch_number() -> str:
    task = TaskContext.get()
    assert task is not None
    return task.getLocalProperty(BATCH_PROPERTY) or "0"


def _writing(folder: str, place: int) -> Callable[[Pieces], Pieces]:
    def alive(pieces: Pieces) -> Pieces:
        task = TaskContext.get()
        assert task is not None
        file = Path(folder, _batch_number(), f"{place}-{task.partitionId()}.parquet")
        unfinished = file.with_name(f".{file.name}.{task.taskAttemptId()}")
        writer: pq.ParquetWriter | None = None
        for piece in pieces:
            fates = piece.field(FATE)
            is_dead = pc.and_(pc.less(fates, ALIVE), pc.is_valid(piece.field(SOURCE_RECORD)))
            dead = pa.Table.from_batches([pa.RecordBatch.from_struct_array(piece.filter(is_dead))])
            if len(dead):
                if writer is None:
                    unfinished.parent.mkdir(parents=True, exist_ok=True)
                    writer = pq.ParquetWriter(unfinished, dead.schema)
                writer.write_table(dead)
            yield pc.equal(fates, ALIVE)
        if writer is None:
            file.unlink(missing_ok=True)  # of an earlier attempt
        else:
            writer.close()
            os.replace(unfinished, file)

    return alive


@dataclass(frozen=True)
class LaidAside:
    """The stored dead letters of a query and their topic, published exactly once under this name. Picklable, like
    the delivery."""

    name: str
    sink: Sink
    pipeline: str
    folder: str
    places: tuple[Place, ...]

    def write(self, spark: SparkSession, batch: Batch) -> None:
        """Called after the plan of the batch has run."""
        folder = Path(self.folder)
        LocalStaging(folder).check_shared(spark)
        found = [self._letters(spark, folder / str(batch.batch_id), place) for place in self.places]
        letters = [each for each in found if each is not None]
        if letters:
            once = reduce(DataFrame.unionByName, letters).dropDuplicates(ORIGIN)
            self.sink.write(once.select("key", "value", "headers"), batch)
        for old in folder.iterdir():
            if old.is_dir() and old.name != str(batch.batch_id):
                shutil.rmtree(old)

    def _letters(self, spark: SparkSession, folder: Path, place: Place) -> DataFrame | None:
        number, steps = place
        files = sorted(map(str, folder.glob(f"{number}-*.parquet")))
        if not files:
            return None
        rows = spark.read.parquet(*files).select(f"{SOURCE_RECORD}.*", FATE, REASON)
        return letters_from(rows.withColumn("_timestamp", F.timestamp_micros("_timestamp")), steps, self.pipeline)


def aside_folder(folder: str, name: str = FOLDER) -> str:
    """Below the folder of a query; empty on remote file systems, where such dead rows are only counted."""
    local = local_path(folder)
    return "" if local is None else str(local / name)
