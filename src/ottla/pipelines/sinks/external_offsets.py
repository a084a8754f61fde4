"""Source offsets in the database that stores the rows.

Spark writes the offsets of a query to its checkpoint before a batch runs. A sink that also writes them to its database,
in the transaction of the rows, makes the database the only state to protect: without the checkpoint, a new one starts
where the rows end.

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
CONFLICTING_OFFSET = -1  # two sources of the query read the partition to different offsets

Offsets = Mapping[str, Mapping[int, int]]  # topic -> partition -> the next offset


def kept_offsets(sink: DatabaseSink, query: str) -> Offsets:
    """The end offsets of the query's rows; empty if it has written none, or the table does not exist."""
    return sink.with_retries(lambda session: session.offsets(query) if session.has_table(sink.table) else {})


def offsets_json(offsets: Offsets) -> str:
    """The form of the option startingOffsets; empty for no offsets."""
    if not offsets:
        return ""
    return json.dumps({topic: {str(number): at for number, at in each.items()} for topic, each in offsets.items()})


def batch_end_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> Offsets:
    """The end offsets of a batch, from the checkpoint's `offsets/N`. Raises SinkError."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 (this package is imported without Spark)

    if not checkpoint:
        raise SinkError("offsets are kept in the database only if the sink knows the query's checkpoint")
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        found = spark.read.text(path, wholetext=True).collect()
    except AnalysisException as problem:
        raise SinkError(f"{path} does not exist: {checkpoint} is not the checkpoint of this query") from problem
    return parse_offset_log("".join(str(row.value) for row in found))


def parse_offset_log(text: str) -> Offsets:
    """Parse a version, the batch's metadata, then one line per source; sources other than topics have other offsets. A
    stream that is used twice is two sources, and each determines the end of its topic separately."""
    offsets: dict[str, dict[int, int]] = {}
    for line in text.splitlines()[2:]:
        for topic, partitions in _parse_source_line(line).items():
            known = offsets.setdefault(topic, {})
            for number, at in partitions.items():
                known[int(number)] = int(at) if known.get(int(number), int(at)) == int(at) else CONFLICTING_OFFSET
    return offsets


def reject_different_start(subject: str, started_at: Offsets | None, kept: Offsets) -> None:
    """A new checkpoint must start where the database ends; partitions without rows may start anywhere. Raises
    SinkError."""
    started = started_at or {}
    if any(started.get(topic, {}).get(number) != at for topic, each in kept.items() for number, at in each.items()):
        raise SinkError(
            f"{subject}: the checkpoint is new, and the database has rows up to {offsets_json(kept) or 'nothing'}:"
            " start the query at these offsets (startingOffsets, and started_at of the sink)"
        )


def offsets_to_rows(query: str, offsets: Offsets) -> list[tuple[str, str, int, int]]:
    return [(query, topic, number, at) for topic, each in offsets.items() for number, at in each.items()]


def offsets_from_rows(rows: Iterable[tuple[Any, ...]]) -> Offsets:
    offsets: dict[str, dict[int, int]] = {}
    for topic, number, at in rows:
        offsets.setdefault(str(topic), {})[int(number)] = int(at)
    return offsets


def _parse_source_line(line: str) -> Mapping[str, Mapping[str, int]]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    is_topics = isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())
    return value if is_topics else {}
