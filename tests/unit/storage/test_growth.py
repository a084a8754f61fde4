"""Room that is set aside ahead of a segment that grows fast, and given back."""

from __future__ import annotations

import errno
import itertools
import os
import time
import uuid
from pathlib import Path

import pytest

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage import files, growth
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log, create_log

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 64 << 20
BATCH = build_batch([Record(-1, NOW_MS, b"k", bytes(1 << 20))])
FAST_NS = 1_000_000  # for each batch
SLOW_NS = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic_ns", lambda: found.now_ns)
    return found


@pytest.fixture
def reserved(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What was set aside: position and length."""
    found: list[tuple[int, int]] = []
    real = files.reserve

    def reserve(descriptor: int, position: int, length: int) -> None:
        found.append((position, length))
        real(descriptor, position, length)

    monkeypatch.setattr(files, "reserve", reserve)
    return found


def new_log(directory: Path) -> Log:
    settings = TopicSettings(segment_bytes=SEGMENT_BYTES, max_message_bytes=2 << 20)
    place = str(directory / "topic-0")
    return create_log(TopicPartition("topic", 0), place, settings, DescriptorPool(), uuid.UUID(int=1), NOW_MS, NOW_MS)


def write(log: Log, clock: Clock, batches: int, taken_ns: int) -> None:
    for _ in range(batches):
        log.append(memoryview(bytearray(BATCH)), 0, NOW_MS)
        clock.now_ns += taken_ns


def blocks(log: Log) -> int:
    """What the newest segment takes on the disk."""
    return os.stat(max(Path(log.directory).glob("*.log"))).st_blocks * 512


def test_a_segment_that_grows_fast_has_its_room_before_it_writes(
    tmp_path: Path, clock: Clock, reserved: list[tuple[int, int]]
) -> None:
    log = new_log(tmp_path)
    write(log, clock, 50, FAST_NS)
    assert reserved, "room was set aside"
    size = len(BATCH) * 50
    assert os.stat(max(Path(log.directory).glob("*.log"))).st_size == size, "a reader sees what was written"
    for (position, length), (following, _) in itertools.pairwise(reserved):
        assert following < position + length, "the next room begins before this one ends"
        assert length <= position // 2
    position, length = reserved[-1]
    assert size < position + length <= SEGMENT_BYTES


@pytest.mark.parametrize(("batches", "taken_ns"), [(50, SLOW_NS), (10, FAST_NS)])
def test_who_grows_slowly_or_little_has_none(
    tmp_path: Path, clock: Clock, reserved: list[tuple[int, int]], batches: int, taken_ns: int
) -> None:
    write(new_log(tmp_path), clock, batches, taken_ns)
    assert reserved == []


def test_what_was_not_needed_is_given_back(tmp_path: Path, clock: Clock) -> None:
    for number, end in enumerate((lambda log: log.roll(NOW_MS), lambda log: log.close())):
        (tmp_path / str(number)).mkdir()
        log = new_log(tmp_path / str(number))
        write(log, clock, 30, FAST_NS)
        segment = log.segments[0]
        assert growth.has_room_left(segment)
        path = Path(segment.path(files.LOG_SUFFIX))
        assert path.stat().st_blocks * 512 > segment.size + growth.TOO_LITTLE_BYTES
        end(log)
        assert path.stat().st_blocks * 512 <= segment.size + 64 * 1024
        assert path.stat().st_size == len(BATCH) * 30


def test_a_disk_that_has_no_room_to_set_aside_takes_records_all_the_same(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def reserve(*_: int) -> None:
        calls.append(1)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(files, "reserve", reserve)
    log = new_log(tmp_path)
    write(log, clock, 50, FAST_NS)
    assert len(calls) == 1, "it is not tried again"
    assert log.end_offset == 50
    assert not log.is_disk_full
