"""Spark reading a topic as a batch: with our own data source and with the official connector, in one session.

Two queries each: one that throws the rows away untouched, and one that looks into every column of every row. The first
shows the sources, the second what a query sees of them.
"""

import json
import time
from typing import TYPE_CHECKING

from bench.errors import BenchError
from bench.figures import Figures
from bench.meter import Meter
from bench.raw_client import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {"ottla": "ottla", "jvm": "kafka"}
USED = (
    "sum(length(value)) AS value_bytes",
    "sum(hash(value)) AS values",
    "count(key) AS keys",
    "max(topic) AS topic",
    "sum(partition) AS partitions",
    "sum(offset) AS offsets",
    "max(timestamp) AS newest",
    "max(timestampType) AS kind",
)
WARM_UPS = 1


def read(target: Target, topic: str, record_bytes: int, records: int, rounds: int) -> dict[str, Figures]:
    """The best of some rounds of each query; the sources take turns. Both must give the same answer."""
    from ottla.pipelines.source import register  # noqa: PLC0415 (other sections run without Spark)
    from ottla.pipelines.spark.session import start_session  # noqa: PLC0415

    started = time.perf_counter()
    spark = start_session("bench", "local[*]", connector="jvm", settings={"spark.ui.enabled": "false"})
    figures: dict[str, Figures] = {"session": {"seconds": time.perf_counter() - started}}
    register(spark)
    answers = {}
    for round_index in range(WARM_UPS + rounds):
        for name, kind in FORMATS.items():
            rows = _rows(spark, kind, target, topic)
            for query in ("thrown", "used"):
                with Meter(target.pid) as meter:
                    answers[name, query] = _thrown(rows) if query == "thrown" else _used(rows)
                measured = meter.figures(payload_bytes=records * record_bytes, records=records)
                if round_index >= WARM_UPS:
                    _keep_better(figures, f"{name}_{query}", measured)
    spark.stop()
    if answers["ottla", "used"] != answers["jvm", "used"] or answers["jvm", "used"][0] != records * record_bytes:
        raise BenchError(f"the sources disagree: {answers}")
    return figures


def read_slice(target: Target, topic: str, first: int, end: int) -> Figures:
    """Rows of partition 0 from one offset to another, by our source: all of them, each once."""
    from ottla.pipelines.source import register  # noqa: PLC0415 (other parts run without Spark)
    from ottla.pipelines.spark.session import start_session  # noqa: PLC0415

    spark = start_session("bench", "local[*]", settings={"spark.ui.enabled": "false"})
    register(spark)
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", target.bootstrap).option("subscribe", topic)
    for option, offset in (("startingOffsets", first), ("endingOffsets", end)):
        reader = reader.option(option, json.dumps({topic: {"0": offset}}))
    with Meter(target.pid) as meter:
        found = tuple(reader.load().selectExpr("count(DISTINCT offset)", "min(offset)", "max(offset)").collect()[0])
    spark.stop()
    if found != (end - first, first, end - 1):
        raise BenchError(f"Spark found {found} between {first} and {end}")
    return meter.figures(records=end - first)


def _rows(spark: "SparkSession", kind: str, target: Target, topic: str) -> "DataFrame":
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", target.bootstrap)
    return reader.option("subscribe", topic).load()


def _thrown(rows: "DataFrame") -> tuple[object, ...]:
    rows.write.format("noop").mode("overwrite").save()
    return ()


def _used(rows: "DataFrame") -> tuple[object, ...]:
    return tuple(rows.selectExpr(*USED).collect()[0])


def _keep_better(figures: dict[str, Figures], name: str, measured: Figures) -> None:
    known = figures.get(name)
    if known is None or measured["records_per_s"] > known["records_per_s"]:
        figures[name] = measured
