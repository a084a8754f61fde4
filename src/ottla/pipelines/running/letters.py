"""The form of a letter: the record unchanged, and headers with the prefix `ottla.` that describe its fate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.operations.dead_letters import HEADER_SUFFIXES, PREFIX
from ottla.pipelines.steps.frame import FATE, REASON, AppliedStep

if TYPE_CHECKING:
    from pyspark.sql import Column

TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss.SSSX"
HEADERS = "array<struct<key string, value binary>>"
ORIGIN = ["_topic", "_partition", "_offset", "_step"]


def letters_from(rows: DataFrame, steps: Sequence[AppliedStep], pipeline: str) -> DataFrame:
    """Of rows with their origin, those that died in one of these steps; ORIGIN, and the columns to write."""
    names = F.create_map(*(F.lit(part) for step in steps for part in (-step.mark, _step_name(step))))
    told = {
        "pipeline": F.lit(pipeline),
        "step": names[F.col(FATE)],
        "reason": F.col(REASON),
        "topic": F.col("_topic"),
        "partition": F.col("_partition"),
        "offset": F.col("_offset"),
        "timestamp": F.date_format("_timestamp", TIMESTAMP),
    }
    added = F.array(*(_header(name, told[name]) for name in HEADER_SUFFIXES)).cast(HEADERS)
    headers = F.concat(F.coalesce(F.col("_headers"), F.array().cast(HEADERS)), added)
    # After an observation, past which Spark moves no condition. Moved to the source, the last mark would be expanded to
    # all expressions before it, doubling with every marking step; planning five of them took minutes.
    counted = rows.observe(f"letters-{uuid4().hex}", F.count(F.lit(1)).alias("in"))
    dead = counted.filter(F.col(FATE).isin([-step.mark for step in steps]))
    named = dead.withColumn("_step", told["step"])
    return named.select(*ORIGIN, F.col("_key").alias("key"), F.col("_value").alias("value"), headers.alias("headers"))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(f"{PREFIX}{name}").alias("key"), value.cast("string").cast("binary").alias("value"))


def _step_name(passage: AppliedStep) -> str:
    return f"{passage.stream} {passage.number} {passage.step}"
