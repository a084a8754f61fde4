"""Offsets by time, against a plain list of records."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log

NOW_MS = 1_700_000_000_000


def new_log(directory: Path, **settings: object) -> Log:
    return create_log(
        TopicPartition("topic", 0),
        str(directory / "topic-0"),
        TopicSettings(**settings),  # type: ignore[arg-type]
        DescriptorPool(),
        None,
        NOW_MS,
        1000,
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_first_record_that_is_not_older(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    log = new_log(tmp_path, segment_bytes=4000, index_interval_bytes=300)
    timestamps: list[int] = []
    clock = NOW_MS
    for _ in range(120):
        clock += chosen.choice([0, 1, 5, 20, -40])
        batch = [clock + chosen.choice([0, 0, -3, 7]) for _ in range(chosen.randrange(1, 5))]
        codec = chosen.choice([0, 0, 1, 4])
        log.append(memoryview(build_batch([Record(-1, t, None, b"v" * 40) for t in batch], codec=codec)), 3, NOW_MS)
        timestamps += batch
    assert len(log.segments) > 2

    for asked in range(min(timestamps) - 2, max(timestamps) + 3):
        expected = next(((i, t, 3) for i, t in enumerate(timestamps) if t >= asked), None)
        assert log.offset_for_timestamp(asked) == expected, asked
    assert log.offset_of_max_timestamp() == (timestamps.index(max(timestamps)), max(timestamps), 3)


def test_records_before_the_start_of_the_log_are_not_found(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for i in range(10):
        log.append(memoryview(build_batch([Record(-1, NOW_MS + i, None, b"v")])), 0, NOW_MS)
    log.raise_log_start_offset(6)

    assert log.offset_for_timestamp(NOW_MS) == (6, NOW_MS + 6, 0)


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    log = new_log(tmp_path)

    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_with_log_append_time_all_records_of_a_batch_share_it(tmp_path: Path) -> None:
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime")
    for i in range(3):
        log.append(memoryview(build_batch([Record(-1, 5, None, b"v")] * 2)), 0, NOW_MS + i)

    assert log.offset_for_timestamp(NOW_MS + 1) == (2, NOW_MS + 1, 0)
    assert log.offset_of_max_timestamp() == (4, NOW_MS + 2, 0)
