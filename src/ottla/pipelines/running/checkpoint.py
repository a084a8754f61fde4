"""Reading what Spark keeps in a checkpoint, on any file system that Spark can read.

`metadata` holds the id of the query: a new checkpoint is a new query, also when its name is the same. `offsets/N` is
written before batch N runs: a version, the batch's metadata with its watermark, then one line per source. `commits/N`
says that batch N is done.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_OFFSET = "-"

Ends = dict[str, dict[int, int]]  # topic -> partition -> offset


class PlannedBatch(NamedTuple):
    """What `offsets/N` says."""

    batch_id: int
    watermark_ms: int
    ends: list[Ends | None]  # per source


class Checkpoint:
    """One query's checkpoint."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.spark = spark
        self.folder = folder

    def __repr__(self) -> str:
        return f"Checkpoint({self.folder})"

    def query_id(self) -> str | None:
        """None before the query was started for the first time."""
        lines = self._lines("metadata")
        return str(json.loads("".join(lines))["id"]) if lines else None

    def committed(self) -> int:
        """The newest batch that is done, -1 if none."""
        return max(self._numbers("commits"), default=-1)

    def planned(self, batch_id: int) -> PlannedBatch | None:
        lines = self._lines(f"offsets/{batch_id}")
        return parse_planned(batch_id, lines) if lines else None

    def _numbers(self, name: str) -> list[int]:
        try:
            found = self.spark.read.format("binaryFile").load(f"{self.folder}/{name}").select("path").collect()
        except AnalysisException:
            return []
        names = [str(row.path).rpartition("/")[2] for row in found]
        return [int(each) for each in names if each.isdigit()]

    def _lines(self, name: str) -> list[str]:
        try:
            found = self.spark.read.text(f"{self.folder}/{name}", wholetext=True).collect()
        except AnalysisException:
            return []
        return [line for row in found for line in str(row.value).splitlines()]


def parse_planned(batch_id: int, lines: list[str]) -> PlannedBatch:
    """Raises ValueError for what no Spark wrote."""
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise ValueError(f"offsets of batch {batch_id} are not readable: {lines[:1]}")
    metadata = json.loads(lines[1])
    return PlannedBatch(batch_id, int(metadata.get("batchWatermarkMs", 0)), [parse_ends(line) for line in lines[2:]])


def parse_ends(text: object) -> Ends | None:
    """{"topic":{"0":12}}, as both connectors write it; None for sources of another kind."""
    if text is None or text == NO_OFFSET:
        return None
    value = json.loads(text) if isinstance(text, str) else text
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return None
    return {topic: {int(number): int(at) for number, at in each.items()} for topic, each in value.items()}


def batch_ranges(starts: Ends, ends: Ends) -> dict[str, dict[int, tuple[int, int]]]:
    """What a batch read; partitions that were new in it start at 0, as with the sources."""
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in ends.items():
        for number, end in partitions.items():
            start = starts.get(topic, {}).get(number, 0)
            if end > start:
                ranges.setdefault(topic, {})[number] = (start, end)
    return ranges
