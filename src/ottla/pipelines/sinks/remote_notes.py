"""Which batches lie in a folder on a file system that only Spark reaches (HDFS, S3), noted in the folder itself.

    <path>/ottla_batch=7/part-*.parquet
    <path>/_ottla/slot-1/part-*.json       {"query": …, "batch": 7, "identity": …}; readers leave it out

A note is written after its batch, into the slot that the batch before did not use: whoever dies while writing leaves
the older one. The first note of a query comes before its first batch: from then on the folder is the query's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.ledger import Recorded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = "_ottla"
SCHEMA = "query string, batch long, identity string"
CLAIM = -1  # stands for the batch before the first
SLOTS = 2
ROWS_MAX = 100
NOT_THERE = "PATH_NOT_FOUND"


def read_notes(spark: SparkSession, path: str) -> dict[str, Recorded]:
    """The newest batch of each query that has written there. Raises SinkError."""
    rows = _found(spark.read.schema(SCHEMA).format("json"), f"{path}/{NOTES}/slot-*")
    noted = sorted((int(row.batch), str(row.query), str(row.identity)) for row in rows if row.identity is not None)
    return {query: Recorded(number, identity) for number, query, identity in noted}


def write_note(spark: SparkSession, path: str, query: str, recorded: Recorded) -> None:
    note: DataFrame = spark.createDataFrame([(query, *recorded)], SCHEMA).coalesce(1)
    note.write.mode("overwrite").json(f"{path}/{NOTES}/slot-{recorded.batch_id % SLOTS}")


def claim(spark: SparkSession, path: str, query: str, identity: str, batches: str) -> Recorded:
    """For a query that begins there. `batches`: a pattern of what it will write. Raises SinkError if some are there."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    if _found(reader, f"{path}/{batches}", "path"):
        raise SinkError(f"{path} has batches of which nothing is remembered: choose another folder, or remove them")
    claimed = Recorded(CLAIM, identity)
    write_note(spark, path, query, claimed)
    return claimed


def _found(reader: Any, path: str, *columns: str) -> list[Any]:
    """Some rows of what matches; none if nothing does."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 (this package is imported without Spark)

    try:
        rows = reader.load(path)
        found: list[Any] = (rows.select(*columns) if columns else rows).limit(ROWS_MAX).collect()
    except AnalysisException as problem:
        if problem.getCondition() == NOT_THERE:
            return []
        raise
    return found
