"""Letters of rows that die between a step that would not give the same again and one that merges rows.

They can neither be found by reading the batch again nor go with its rows to the end. So the tasks that drop them write
their records to files, one for each task, below the folder of the query: `laid-aside/<batch>/<place>-<task>.parquet`.
A task that is done again writes its file again. When the sinks have the batch its files become letters, exactly once
under its number, and the files go with the next batch that has some. Works where driver and tasks see the same path.
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
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.running.letters import ORIGIN, letters_from
from ottla.pipelines.sinks.batch import Batch, Sink
from ottla.pipelines.sinks.staging import LocalStaging, local_path
from ottla.pipelines.steps.frame import ALIVE, FATE, LETTER, REASON, Passage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "laid-aside"
BATCH_PROPERTY = "streaming.sql.batchId"  # Spark's; not there in a batch query, which is number 0

Place = tuple[int, tuple[Passage, ...]]  # its number within the query, and the steps that lead to it


def lay_aside(rows: DataFrame, folder: Path, place: int) -> DataFrame:
    """Those that live; the dead that have a letter are written down on the way."""
    function = F.arrow_udf(_writing(str(folder), place), "boolean")  # type: ignore[attr-defined]
    is_alive: Callable[[Column], Column] = function.asNondeterministic()  # so that it is not moved, nor done twice
    return rows.filter(is_alive(F.struct(FATE, REASON, LETTER)))


def _writing(folder: str, place: int) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    def alive(pieces: Iterator[pa.Array]) -> Iterator[pa.Array]:
        task = TaskContext.get()
        assert task is not None
        number = task.getLocalProperty(BATCH_PROPERTY) or "0"
        file = Path(folder, number, f"{place}-{task.partitionId()}.parquet")
        unfinished = file.with_name(f".{file.name}.{task.taskAttemptId()}")
        writer: pq.ParquetWriter | None = None
        for piece in pieces:
            fates = piece.field(FATE)
            is_dead = pc.and_(pc.less(fates, ALIVE), pc.is_valid(piece.field(LETTER)))
            dead = pa.Table.from_batches([pa.RecordBatch.from_struct_array(piece.filter(is_dead))])
            if len(dead):
                if writer is None:
                    unfinished.parent.mkdir(parents=True, exist_ok=True)
                    writer = pq.ParquetWriter(unfinished, dead.schema)
                writer.write_table(dead)
            yield pc.equal(fates, ALIVE)
        if writer is None:
            file.unlink(missing_ok=True)  # of an earlier try
        else:
            writer.close()
            os.replace(unfinished, file)

    return alive


@dataclass(frozen=True)
class LaidAside:
    """What a query has laid aside, and where it goes. Picklable, like the delivery."""

    sink: Sink
    pipeline: str
    folder: str
    places: tuple[Place, ...]

    def write(self, spark: SparkSession, batch: Batch) -> None:
        """Called when the plan of the batch has run."""
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
        rows = spark.read.parquet(*files).select(f"{LETTER}.*", FATE, REASON)
        return letters_from(rows.withColumn("_timestamp", F.timestamp_micros("_timestamp")), steps, self.pipeline)


def aside_folder(folder: str) -> str:
    """Below the folder of a query; nowhere on other file systems: there such letters are only counted."""
    local = local_path(folder)
    return "" if local is None else str(local / FOLDER)
