"""Damaged indexes: those of large segments are rebuilt by a worker, and the read is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.index import load_offset_index
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log
from ottla.storage.segment import IndexRebuild, RebuildNeededError

NOW_MS = 1_700_000_000_000
BATCHES = 40
BATCH_BYTES = 64_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """2.5 MB in one segment, whose index is reloaded from its file at the next use."""
    made = create_log(
        TopicPartition("topic", 0), str(tmp_path / "topic-0"), TopicSettings(), DescriptorPool(), None, NOW_MS, 1000
    )
    append(made, BATCHES)
    made.active.last_append_offset = -1
    assert made.active.close_if_unused()
    return made


def append(log: Log, count: int) -> None:
    for number in range(count):
        record = Record(-1, NOW_MS + number, None, b"v" * BATCH_BYTES)
        log.append(memoryview(build_batch([record])), 0, NOW_MS)


def damage_index(log: Log) -> None:
    """Entries that rise, but point into the middle of batches."""
    entries = b"".join(number.to_bytes(4, "big") + (number * 777).to_bytes(4, "big") for number in range(1, BATCHES))
    Path(log.active.path(".index")).write_bytes(entries)


def read(log: Log, offset: int) -> int:
    """Position of the batch with this offset."""
    file_range = log.read(offset, 100, log.end_offset, True)
    assert file_range is not None
    file_range.release()
    return file_range.position


def test_a_reader_has_to_read_again(log: Log) -> None:
    right = read(log, 30)
    log.active.close_if_unused()
    damage_index(log)

    with pytest.raises(RebuildNeededError) as needed:
        log.read(30, 100, log.end_offset, True)
    rebuild = IndexRebuild(needed.value.segment, needed.value.why)
    rebuild.run()
    rebuild.install()

    assert read(log, 30) == right
    assert len(load_offset_index(log.active.path(".index")).entries) == BATCHES - 1
    assert log.active.range_count == 0


def test_an_index_that_points_past_the_log_is_rebuilt_too(log: Log) -> None:
    right = read(log, 12)
    log.active.close_if_unused()
    Path(log.active.path(".index")).write_bytes((5).to_bytes(4, "big") + (2**31 - 5).to_bytes(4, "big"))

    with pytest.raises(RebuildNeededError) as needed:
        log.read(12, 100, log.end_offset, True)
    with pytest.raises(RebuildNeededError):  # the damaged one was not kept
        log.read(12, 100, log.end_offset, True)
    rebuild = IndexRebuild(needed.value.segment, needed.value.why)
    rebuild.run()
    rebuild.install()

    assert read(log, 12) == right


def test_what_is_appended_meanwhile_stays_known(log: Log) -> None:
    log.active.close_if_unused()
    damage_index(log)
    with pytest.raises(RebuildNeededError) as needed:
        log.read(30, 100, log.end_offset, True)
    rebuild = IndexRebuild(needed.value.segment, needed.value.why)
    rebuild.run()
    append(log, 3)
    rebuild.install()
    append(log, 3)

    assert [read(log, offset) for offset in range(BATCHES + 6)] == sorted({read(log, o) for o in range(BATCHES + 6)})
    assert log.offset_of_max_timestamp() == (BATCHES - 1, NOW_MS + BATCHES - 1, 0)


def test_the_second_of_two_rebuilds_is_forgotten(log: Log) -> None:
    first, second = IndexRebuild(log.active, "a test"), IndexRebuild(log.active, "a test")
    for rebuild in (first, second):
        rebuild.run()
        rebuild.install()

    assert log.active.index_rebuilds == 1
    assert log.active.range_count == 0


def test_writers_do_not_wait(log: Log) -> None:
    damage_index(log)
    Path(log.active.path(".timeindex")).write_bytes(b"\1" * 12)

    append(log, 2)

    assert log.end_offset == BATCHES + 2


def test_the_zeros_of_a_killed_kafka_are_no_entries(log: Log) -> None:
    path = Path(log.active.path(".index"))
    sound = path.read_bytes()
    path.write_bytes(sound + bytes(4096))

    assert load_offset_index(str(path)).entries[-1] == int.from_bytes(sound[-8:], "big")
    assert path.read_bytes() == sound
