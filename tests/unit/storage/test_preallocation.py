"""`preallocate`: a new segment gets its room on disk at once and gives back what it did not need."""

import os
import uuid
from pathlib import Path

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log, create_log

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 1 << 20


def new_log(directory: Path, *, preallocate: bool) -> Log:
    settings = TopicSettings(preallocate=preallocate, segment_bytes=SEGMENT_BYTES)
    place = str(directory / "topic-0")
    return create_log(TopicPartition("topic", 0), place, settings, DescriptorPool(), uuid.UUID(int=1), NOW_MS, NOW_MS)


def on_disk(log: Log) -> list[tuple[int, int]]:
    """Length and reserved bytes of each log file."""
    found = [os.stat(path) for path in sorted(Path(log.directory).glob("*.log"))]
    return [(status.st_size, status.st_blocks * 512) for status in found]


def test_room_is_reserved_and_given_back(tmp_path: Path) -> None:
    log = new_log(tmp_path, preallocate=True)
    batch = build_batch([Record(-1, NOW_MS, b"k", b"v" * 5000)])
    log.append(memoryview(batch), 0, NOW_MS)
    ((length, reserved),) = on_disk(log)
    assert length == len(batch), "a reader sees only what was written"
    assert reserved >= SEGMENT_BYTES
    log.roll(NOW_MS)
    (_, old_reserved), (new_length, new_reserved) = on_disk(log)
    assert old_reserved < 64 * 1024
    assert (new_length, new_reserved >= SEGMENT_BYTES) == (0, True)


def test_without_it_files_grow_with_what_is_written(tmp_path: Path) -> None:
    log = new_log(tmp_path, preallocate=False)
    log.append(memoryview(build_batch([Record(-1, NOW_MS, b"k", b"v")])), 0, NOW_MS)
    ((_, reserved),) = on_disk(log)
    assert reserved < 64 * 1024
