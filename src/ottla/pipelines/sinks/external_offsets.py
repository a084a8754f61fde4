"""Offsets in the database that takes the rows.

Spark keeps the offsets of a query in its checkpoint, written before a batch runs. A sink that also writes them into its
database, in the transaction of the rows, makes the database the only thing that must not be lost: when the checkpoint
is gone, a new one begins where the rows end.

    sink = SqliteSink(Table("views"), path="views.db", keeps_offsets=True, checkpoint=CHECKPOINT)
    options = kept_offsets(sink, "views")          # {} at the first start
    rows = spark.readStream.format("ottla").option("startingOffsets", offsets_json(options) or "earliest")…
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipelines.sinks.batch import SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.sinks.database import DatabaseSink

OFFSETS_TABLE = "ottla_offsets"
DIFFERENT = -1  # two sources of the query have read a partition, and not equally far

Offsets = Mapping[str, Mapping[int, int]]  # topic -> partition -> the next offset


def kept_offsets(sink: DatabaseSink, query: str) -> Offsets:
    """Where the query's rows in the database end; empty if it has written none, or the table is gone."""
    return sink.patiently(lambda session: session.offsets(query) if session.has_table(sink.table) else {})


def offsets_json(offsets: Offsets) -> str:
    """As the option startingOffsets takes them; empty for none."""
    if not offsets:
        return ""
    return json.dumps({topic: {str(number): at for number, at in each.items()} for topic, each in offsets.items()})


def planned_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> Offsets:
    """Up to where a batch reads, from the checkpoint's `offsets/N`. Raises SinkError."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 (this package is imported without Spark)

    if not checkpoint:
        raise SinkError("offsets are kept in the database only if the sink knows the query's checkpoint")
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        found = spark.read.text(path, wholetext=True).collect()
    except AnalysisException as problem:
        raise SinkError(f"{path} is not there: {checkpoint} is not the checkpoint of this query") from problem
    return parse_planned("".join(str(row.value) for row in found))


def parse_planned(text: str) -> Offsets:
    """A version, the batch's metadata, then one line per source; sources that are not topics have other offsets. A
    stream that is used twice is two sources, and each of them asks by itself where its topic ends."""
    offsets: dict[str, dict[int, int]] = {}
    for line in text.splitlines()[2:]:
        for topic, partitions in _topics(line).items():
            known = offsets.setdefault(topic, {})
            for number, at in partitions.items():
                known[int(number)] = int(at) if known.get(int(number), int(at)) == int(at) else DIFFERENT
    return offsets


def refuse_other_start(subject: str, started_at: Offsets | None, kept: Offsets) -> None:
    """A new checkpoint must begin where the database ends; partitions of which it has no rows begin anywhere. Raises
    SinkError."""
    started = started_at or {}
    if any(started.get(topic, {}).get(number) != at for topic, each in kept.items() for number, at in each.items()):
        raise SinkError(
            f"{subject}: the checkpoint is new, and the database has rows up to {offsets_json(kept) or 'nothing'}:"
            " start the query at these offsets (startingOffsets, and started_at of the sink)"
        )


def as_rows(query: str, offsets: Offsets) -> list[tuple[str, str, int, int]]:
    return [(query, topic, number, at) for topic, each in offsets.items() for number, at in each.items()]


def from_rows(rows: Iterable[tuple[Any, ...]]) -> Offsets:
    offsets: dict[str, dict[int, int]] = {}
    for topic, number, at in rows:
        offsets.setdefault(str(topic), {})[int(number)] = int(at)
    return offsets


def _topics(line: str) -> Mapping[str, Mapping[str, int]]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    is_topics = isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())
    return value if is_topics else {}
