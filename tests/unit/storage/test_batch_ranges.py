"""A read that is limited by bytes ends with a whole batch."""

from __future__ import annotations

import os
import random
import struct
import uuid
from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch, read_batch_header
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.batch_ranges import SCANNED_BATCHES_MAX, SCANNED_BYTES_MAX, position_before
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log
from ottla.storage.scan import BatchScan

NOW_MS = 1_700_000_000_000
INTERVAL = 4096


@pytest.fixture(autouse=True)
def _disk_that_syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda descriptor: None)


def log_of(directory: Path, sizes: list[int], interval: int = INTERVAL, segment_bytes: int = 1 << 30) -> Log:
    """One batch of each size, about."""
    log = create_log(
        TopicPartition("topic", 0),
        str(directory / uuid.uuid4().hex),
        TopicSettings(index_interval_bytes=interval, segment_bytes=segment_bytes),
        DescriptorPool(),
        uuid.UUID(int=1),
        NOW_MS,
        86_400_000,
    )
    for size in sizes:
        log.append(memoryview(build_batch([Record(-1, NOW_MS, None, b"v" * size)])), 0, NOW_MS)
    return log


def read(log: Log, offset: int, max_bytes: int, minimum_one: bool = True, end: int = -1) -> tuple[bytes, int]:
    """The bytes, and how many were left out."""
    file_range = log.read(offset, max_bytes, log.end_offset if end < 0 else end, minimum_one)
    if file_range is None:
        return b"", 0
    data = os.pread(file_range.descriptor, file_range.length, file_range.position)
    file_range.release()
    return data, file_range.cut_bytes


def whole(data: bytes) -> list[int]:
    """The offsets of the batches that these bytes are, one after the other, to the last byte."""
    offsets, position = [], 0
    while position < len(data):
        header = read_batch_header(data, position)
        offsets += range(header.base_offset, header.next_offset)
        position += header.batch_bytes
    assert position == len(data)
    return offsets


def test_large_batches_are_not_cut(tmp_path: Path) -> None:
    log = log_of(tmp_path, [700_000] * 5)
    size = len(read(log, 0, 1)[0])
    for max_bytes in (size, size + 1, 1 << 20, 2 * size - 1):
        data, cut_bytes = read(log, 1, max_bytes)
        assert (whole(data), cut_bytes) == ([1], max_bytes - size)
    assert whole(read(log, 1, 2 * size)[0]) == [1, 2]


def test_what_ends_with_the_log_or_the_high_watermark_is_not_shortened(tmp_path: Path) -> None:
    log = log_of(tmp_path, [10_000] * 8)
    size = len(read(log, 0, 1)[0])
    assert read(log, 0, 8 * size) == (read(log, 0, 1 << 30)[0], 0)
    for max_bytes in (5 * size, 1 << 20):
        data, cut_bytes = read(log, 0, max_bytes, end=5)
        assert (whole(data), cut_bytes) == (list(range(5)), 0)


def test_the_first_batch_is_whole_or_not_there(tmp_path: Path) -> None:
    log = log_of(tmp_path, [5000, 5000])
    size = len(read(log, 0, 1)[0])
    for max_bytes in (1, 100, size - 1):
        assert whole(read(log, 0, max_bytes)[0]) == [0]
        assert log.read(0, max_bytes, 2, False) is None
    assert whole(read(log, 0, size, minimum_one=False)[0]) == [0]


def test_small_batches_before_a_large_one_are_sent_together(tmp_path: Path) -> None:
    """The index has no entry for any of these, because they stand so close together; nor for the large one."""
    log = log_of(tmp_path, [6000, 100, *[500] * 4, 900_000, 100])
    assert position_before(log.segments[0], 900_000) == len(read(log, 0, 1)[0])
    assert whole(read(log, 2, 500_000)[0]) == [2, 3, 4, 5]
    assert whole(read(log, 1, 500_000)[0]) == [1, 2, 3, 4, 5]


def test_a_sparse_index_costs_only_a_few_steps(tmp_path: Path) -> None:
    """With very many small batches before the limit, the last one is cut, as without a search for its end."""
    log = log_of(tmp_path, [100] * (2 * SCANNED_BATCHES_MAX), interval=1 << 30)
    size = len(read(log, 0, 1)[0])
    few, many = (SCANNED_BATCHES_MAX - 10) * size + 7, (SCANNED_BATCHES_MAX + 10) * size + 7
    assert whole(read(log, 0, few)[0]) == list(range(SCANNED_BATCHES_MAX - 10))
    assert len(read(log, 0, many)[0]) == many


def test_a_damaged_index_costs_no_record(tmp_path: Path) -> None:
    """An entry that is no boundary cuts a batch, as a limit did before there was a choice; the first stays whole."""
    log = log_of(tmp_path, [20_000] * 10)
    first = len(read(log, 0, 1)[0])
    for position in (1, first - 1, first + 1, first + 999, 3 * first, 10 * first + 5):
        entries = log.segments[0].index().entries
        entries[:] = array("q", [place << 32 | position for place in range(1, len(entries) + 1)])
        offset, found = 0, []
        while offset < 10:
            data, _ = read(log, offset, 3 * first + 11)
            assert len(data) >= first
            found += whole(data[: len(data) // first * first])
            offset = found[-1] + 1
        assert found == list(range(10))


def test_a_damaged_batch_behind_the_first_does_not_hide_what_is_there(tmp_path: Path) -> None:
    log = log_of(tmp_path, [100] * 20)
    segment = log.segments[0]
    size = segment.size // 20
    os.pwrite(segment.open_descriptor(), struct.pack(">i", -5), 2 * size + 8)
    assert len(read(log, 0, 10 * size + 5)[0]) == 10 * size + 5, "the check of the range reports it"


@given(
    sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(0, 9000), st.just(60_000)), min_size=1, max_size=60),
    interval=st.sampled_from([0, 500, INTERVAL, 50_000]),
    segment_bytes=st.sampled_from([70_000, 1 << 30]),
    probe=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_limit_gives_whole_batches_and_all_of_them_in_the_end(
    tmp_path: Path, sizes: list[int], interval: int, segment_bytes: int, probe: random.Random
) -> None:
    log = log_of(tmp_path, sizes, interval, segment_bytes)
    for max_bytes in (1, probe.randint(1, 5000), probe.randint(1, 100_000), 1 << 20):
        end = probe.randint(1, log.end_offset)
        offset, found = 0, []
        while offset < end:
            data, cut_bytes = read(log, offset, max_bytes, end=end)
            offsets = whole(data)
            assert len(data) + cut_bytes <= max_bytes or offsets == [offset]
            assert read(log, offset, max_bytes, minimum_one=False, end=end)[0] in (data, b"")
            found += offsets
            offset = offsets[-1] + 1
        assert found == list(range(end))


@given(sizes=st.lists(st.integers(0, 20_000), min_size=2, max_size=40), probe=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hardly_anything_is_left_out_that_would_have_fitted(
    tmp_path: Path, sizes: list[int], probe: random.Random
) -> None:
    """At most what stands between two entries of the index, and of few bytes nothing."""
    log = log_of(tmp_path, sizes)
    segment = log.segments[0]
    scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
    ends = [0]
    while scan.advance():
        ends.append(scan.next_position)
    for _ in range(20):
        max_bytes = probe.randint(ends[1], ends[-1])
        best = max(end for end in ends if end <= max_bytes)
        left_out = best - len(read(log, 0, max_bytes)[0])
        assert 0 <= left_out <= (INTERVAL + 70 if max_bytes >= SCANNED_BYTES_MAX else 0)
