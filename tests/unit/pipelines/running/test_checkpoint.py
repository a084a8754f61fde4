"""Parsing of Spark's checkpoint files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipelines.running.checkpoint import Checkpoint, batch_ranges, parse_ends, parse_planned


def test_a_planned_batch() -> None:
    lines = ["v1", '{"batchWatermarkMs":1500,"batchTimestampMs":2,"conf":{}}', '{"clicks":{"0":7,"1":9}}', "-"]
    planned = parse_planned(3, lines)
    assert (planned.batch_id, planned.watermark_ms) == (3, 1500)
    assert planned.ends == [{"clicks": {0: 7, 1: 9}}, None]


@pytest.mark.parametrize("lines", [[], ["v1"], ["garbage", "{}"]])
def test_invalid_offset_files_are_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="not readable"):
        parse_planned(0, lines)


def test_offsets_of_other_sources_are_none() -> None:
    assert parse_ends("17") is None
    assert parse_ends(None) is None
    assert parse_ends('{"logOffset":3}') is None


def test_a_batch_reads_from_the_last_end_to_its_own() -> None:
    assert batch_ranges({"a": {0: 5, 1: 2}}, {"a": {0: 9, 1: 2}, "b": {0: 4}}) == {"a": {0: (5, 9)}, "b": {0: (0, 4)}}


def test_a_missing_local_checkpoint_is_found_without_spark(tmp_path: Path) -> None:
    here: Any = SimpleNamespace(conf={"spark.master": "local[2,4]"})  # it cannot read anything
    checkpoint = Checkpoint(here, str(tmp_path / "checkpoint"))
    assert checkpoint.query_id() is None
    assert (checkpoint.newest_planned(), checkpoint.committed()) == (-1, -1)
    elsewhere: Any = SimpleNamespace(conf={"spark.master": "spark://far:7077"})
    with pytest.raises(AttributeError, match="read"):
        Checkpoint(elsewhere, str(tmp_path / "checkpoint")).committed()
