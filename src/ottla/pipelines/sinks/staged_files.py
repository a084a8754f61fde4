"""Work on each file of pinned rows: in a Spark task each, or in the driver.

A small batch is done by the driver itself: a job of Spark would take longer than the work.

On a path the task reads its file itself: 5,000,000 rows/s instead of 1,300,000 through the JVM. On other file systems
Spark reads; its settings are such that a partition is a whole file and a file is never cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.staging import Staged, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "_ottla_file"
DRIVER_BYTES_MAX = 256 << 10
DRIVER_FILES_MAX = 4
# A file "costs" as much as a partition may hold: so each partition takes one, however small or large it is.
ONE_FILE_EACH = {
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
}

Batches = Callable[[], Iterator[Any]]
Work = Callable[[int, Batches], Iterator[Any]]  # (number of the file, its rows) -> record batches of results
Result = dict[str, Any]


def run_staged(spark: SparkSession | None, staged: Staged, work: Work, schema: str, batch_rows: int) -> list[Result]:
    """Calls `work` for each file, with a function that begins to read it; for number 0 in any case, also without rows.

    An empty file with another number may be left out. The results are those that `work` yields. Without a session, all
    of it is done by the driver.
    """
    paths = [each.path for each in staged.files]
    if spark is None:
        return _run_here(paths, work, batch_rows)
    if paths and local_path(paths[0]) is None:
        results = _run_through_spark(spark, paths, work, schema)
        return results if any(each["number"] == 0 for each in results) else results + _run_here([], work, batch_rows)
    if len(paths) <= DRIVER_FILES_MAX and sum(each.size for each in staged.files) <= DRIVER_BYTES_MAX:
        return _run_here(paths, work, batch_rows)
    return _run_directly(spark, paths, work, schema, batch_rows)


def read_batches(path: str, batch_rows: int) -> Iterator[Any]:
    import pyarrow.parquet as pq  # noqa: PLC0415 (this package is imported without Arrow)

    place = local_path(path)
    assert place is not None
    with pq.ParquetFile(place, memory_map=True) as file:
        yield from file.iter_batches(batch_rows)


def _run_here(paths: list[str], work: Work, batch_rows: int) -> list[Result]:
    results: list[Result] = []
    for number in range(max(1, len(paths))):
        for batch in work(number, _reading(paths, number, batch_rows)):
            results += batch.to_pylist()
    return results


def _run_directly(spark: SparkSession, paths: list[str], work: Work, schema: str, batch_rows: int) -> list[Result]:
    count = max(1, len(paths))

    def run(numbers: Iterator[Any]) -> Iterator[Any]:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in numbers):
            yield from work(number, _reading(paths, number, batch_rows))

    return [row.asDict() for row in spark.range(0, count, 1, count).mapInArrow(run, schema).collect()]


def _reading(paths: list[str], number: int, batch_rows: int) -> Batches:
    return lambda: read_batches(paths[number], batch_rows) if paths else iter(())


def _run_through_spark(spark: SparkSession, paths: list[str], work: Work, schema: str) -> list[Result]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    numbers = {path.rpartition("/")[2]: number for number, path in enumerate(paths)}

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is not None:
            yield from work(numbers[first.column(FILE)[0].as_py()], Once(chain([first], batches)))

    before = {name: str(spark.conf.get(name)) for name in ONE_FILE_EACH}
    try:
        _set(spark, ONE_FILE_EACH)
        rows = spark.read.parquet(*paths).withColumn(FILE, F.col("_metadata.file_name"))
        return [row.asDict() for row in rows.mapInArrow(run, schema).collect()]
    finally:
        _set(spark, before)


class Once:
    """Rows that Spark hands over cannot be had twice: a second attempt needs a new task."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches: Iterator[Any] | None = batches

    def __call__(self) -> Iterator[Any]:
        if self.batches is None:
            raise SinkError("publishing failed half-way; the task must be run again")
        batches, self.batches = self.batches, None
        return batches


def _set(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)
