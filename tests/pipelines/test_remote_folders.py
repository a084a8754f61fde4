"""Folders on file systems that only Spark reads, simulated by a view of a local folder."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.files import FilesSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def view(spark: SparkSession, tmp_path: Path) -> str:
    """The address of a file system that has the folder `data` of tmp_path."""
    name = f"v{uuid.uuid4().hex[:8]}"
    (tmp_path / "data").mkdir()
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    settings.set(f"fs.viewfs.mounttable.{name}.link./data", f"file://{tmp_path}/data")
    return f"viewfs://{name}/data"


def batch(query: str, number: int, identity: str = "one") -> Batch:
    return Batch(query, number, "", identity)


def numbers(spark: SparkSession, place: str) -> list[tuple[int, int]]:
    return sorted((row.id, row.ottla_batch) for row in spark.read.parquet(place).collect())


def test_a_batch_is_there_once_and_a_new_query_overwrites_nothing(spark: SparkSession, view: str) -> None:
    sink = FilesSink(f"{view}/out")
    assert sink.last_batches() == {}
    for number in (0, 1, 1, 2):
        sink.write(spark.range(number + 1), batch("q", number))
    assert numbers(spark, sink.path) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    assert {query: each.batch_id for query, each in sink.last_batches().items()} == {"q": 2}
    with pytest.raises(SinkError, match="out belongs to query 'q': choose another folder"):
        sink.write(spark.range(9), batch("other", 0))
    with pytest.raises(SinkError, match="marker was lost"):
        sink.write(spark.range(9), batch("q", 7))
    assert len(numbers(spark, sink.path)) == 6


def test_what_was_cut_off_is_written_anew_and_what_others_wrote_stays(spark: SparkSession, view: str) -> None:
    sink = FilesSink(f"{view}/out")
    sink.write(spark.range(1), batch("q", 0))
    spark.range(5).write.parquet(f"{sink.path}/ottla_batch=1")  # then it died
    sink.write(spark.range(2), batch("q", 1))
    assert numbers(spark, sink.path) == [(0, 0), (0, 1), (1, 1)]
    spark.range(5).write.parquet(f"{view}/foreign/ottla_batch=0")
    with pytest.raises(SinkError, match="foreign has batches without a note"):
        FilesSink(f"{view}/foreign").write(spark.range(1), batch("q", 0))
