"""Reads Spark's checkpoint, on any file system that Spark can read.

`metadata` holds the id of the query: a new checkpoint is a new query, even under the same name. `offsets/N` is written
before batch N runs: a version, the batch's metadata with its watermark, then one line per source. `commits/N` marks
batch N as complete. `state` is the state of the steps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import AnalysisException

from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.spark.masters import runs_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_OFFSET = "-"
STATE = "state"

FRESH = "restore the folder, or start again with --fresh"

Ends = dict[str, dict[int, int]]  # topic -> partition -> offset


class CheckpointError(SourceError):
    """A checkpoint, or a note beside it, is unreadable: nothing is guessed."""


class PlannedBatch(NamedTuple):
    """The contents of `offsets/N`."""

    batch_id: int
    watermark_ms: int
    ends: list[Ends | None]  # per source


class Checkpoint:
    """The checkpoint of one query; without Spark only local paths can be read."""

    def __init__(self, spark: SparkSession | None, folder: str) -> None:
        self.spark = spark
        self.folder = folder

    def __repr__(self) -> str:
        return f"Checkpoint({self.folder})"

    def query_id(self) -> str | None:
        """None before the first start of the query. Raises CheckpointError."""
        lines = self._lines("metadata")
        if lines is None:
            return None
        try:
            return str(json.loads("".join(lines))["id"])
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{self.folder}/metadata is damaged; {FRESH}") from None

    def check(self) -> None:
        """The newest entries of both logs, and the previous one, where a batch starts, must be complete. Raises
        CheckpointError. Spark would detect this only after other queries have started."""
        newest = self.newest_planned()
        if newest >= 0:
            self.planned(newest)
            if self.query_id() is None:
                raise CheckpointError(f"{self.folder}/metadata is missing; {FRESH}")
        done = self.committed()
        if done >= 0 and not is_commit(self._lines(f"commits/{done}") or []):
            raise CheckpointError(f"{self.folder}/commits/{done} is damaged; {FRESH}")
        if done > newest:
            raise CheckpointError(f"{self.folder}/offsets ends before batch {done}, which was done; {FRESH}")
        if newest > 0 and self.planned(newest - 1) is None:
            raise CheckpointError(f"{self.folder}/offsets/{newest - 1} is missing; {FRESH}")

    def newest_planned(self) -> int:
        """The newest batch that was started, -1 if none."""
        return max(self._numbers("offsets"), default=-1)

    def committed(self) -> int:
        """The newest complete batch, -1 if none."""
        return max(self._numbers("commits"), default=-1)

    def planned(self, batch_id: int) -> PlannedBatch | None:
        """None if the file does not exist. Raises CheckpointError."""
        lines = self._lines(f"offsets/{batch_id}")
        try:
            return None if lines is None else parse_planned(batch_id, lines)
        except (ValueError, TypeError, AttributeError):
            raise CheckpointError(f"{self.folder}/offsets/{batch_id} is damaged; {FRESH}") from None

    def _numbers(self, name: str) -> list[int]:
        local = self._local(name)
        if local is not None:
            return [int(each.name) for each in local.glob("*") if each.name.isdigit()]
        if self.spark is None:
            return []
        try:
            found = self.spark.read.format("binaryFile").load(f"{self.folder}/{name}").select("path").collect()
        except AnalysisException:
            return []
        names = [str(row.path).rpartition("/")[2] for row in found]
        return [int(each) for each in names if each.isdigit()]

    def _lines(self, name: str) -> list[str] | None:
        local = self._local(name)
        if local is not None:
            return local.read_text(encoding="utf-8", errors="replace").splitlines() if local.exists() else None
        if self.spark is None:
            return None
        try:
            found = self.spark.read.text(f"{self.folder}/{name}", wholetext=True).collect()
        except AnalysisException:
            return None
        return [line for row in found for line in str(row.value).splitlines()]

    def _local(self, name: str) -> Path | None:
        """The file of a local checkpoint: Spark would need a job to read it."""
        folder = local_path(self.folder)
        is_here = folder is not None and (self.spark is None or runs_here(self.spark) or folder.exists())
        return folder / name if folder is not None and is_here else None


def is_commit(lines: list[str]) -> bool:
    """A version line, and JSON."""
    try:
        json.loads("".join(lines[1:]))
    except ValueError:
        return False
    return lines[0].startswith("v")


def parse_planned(batch_id: int, lines: list[str]) -> PlannedBatch:
    """Raises ValueError for files that Spark did not write."""
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise ValueError(f"offsets of batch {batch_id} are not readable: {lines[:1]}")
    metadata = json.loads(lines[1])
    return PlannedBatch(batch_id, int(metadata.get("batchWatermarkMs", 0)), [parse_ends(line) for line in lines[2:]])


def parse_ends(text: object) -> Ends | None:
    """{"topic":{"0":12}}, as both connectors write it; None for other sources."""
    if text is None or text == NO_OFFSET:
        return None
    value = json.loads(text) if isinstance(text, str) else text
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return None
    return {topic: {int(number): int(at) for number, at in each.items()} for topic, each in value.items()}


def batch_ranges(starts: Ends, ends: Ends) -> dict[str, dict[int, tuple[int, int]]]:
    """The ranges that a batch read; new partitions start at 0, as in the sources."""
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partitions in ends.items():
        for number, end in partitions.items():
            start = starts.get(topic, {}).get(number, 0)
            if end > start:
                ranges.setdefault(topic, {})[number] = (start, end)
    return ranges
