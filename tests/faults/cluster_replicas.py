"""The logs of all replicas, read from their files: they must be equal, batch for batch and byte for byte.

Segments may begin at other offsets on other brokers, so it is the row of batches that is compared, from the highest
start of all of them up to the high watermark. Every checksum is computed again.
"""

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c
from tests.faults.history import Place

HEAD = struct.Struct(">qiibIh")  # base offset, length, leader epoch, magic, crc, attributes
LAST_DELTA = struct.Struct(">i")
LAST_DELTA_AT = 23
HEADER_BYTES = 61
CRC_FROM = 21


class StoredBatch(NamedTuple):
    """A batch as it lies in a file."""

    base_offset: int
    last_offset: int
    epoch: int
    is_sound: bool
    data: bytes


def read_replica(folder: Path) -> list[StoredBatch]:
    """All batches of a log, in the order of its segments."""
    found: list[StoredBatch] = []
    for path in sorted(folder.glob("*.log")):
        found += read_segment(path.read_bytes())
    return found


def read_segment(data: bytes) -> Iterator[StoredBatch]:
    position = 0
    while position + HEADER_BYTES <= len(data):
        base_offset, length, epoch, _, crc, _ = HEAD.unpack_from(data, position)
        end = position + 12 + length
        if length < HEADER_BYTES - 12 or end > len(data):
            return  # the tail of a broker that was killed
        last_offset = base_offset + LAST_DELTA.unpack_from(data, position + LAST_DELTA_AT)[0]
        is_sound = crc32c(data[position + CRC_FROM : end]) == crc
        yield StoredBatch(base_offset, last_offset, epoch, is_sound, data[position:end])
        position = end


def compare_replicas(place: Place, replicas: dict[int, list[StoredBatch]], high_watermark: int) -> list[str]:
    """What is wrong with the replicas of a partition, by broker id."""
    found = []
    starts = {broker: batches[0].base_offset if batches else 0 for broker, batches in replicas.items()}
    start = max(starts.values(), default=0)
    for broker, batches in replicas.items():
        found += check_one(place, broker, batches, high_watermark)
    common = {
        broker: [batch for batch in batches if batch.base_offset >= start and batch.last_offset < high_watermark]
        for broker, batches in replicas.items()
    }
    brokers = sorted(common)
    for other in brokers[1:]:
        found += compare_two(place, brokers[0], common[brokers[0]], other, common[other])
    return found


def check_one(place: Place, broker: int, batches: list[StoredBatch], high_watermark: int) -> list[str]:
    """A replica alone: whole up to the high watermark, offsets and epochs rise."""
    who = f"{place[0]}-{place[1]} on broker {broker}"
    end = batches[-1].last_offset + 1 if batches else 0
    found = [] if end >= high_watermark else [f"C: {who} ends at {end}, below the high watermark {high_watermark}"]
    damaged = [batch.base_offset for batch in batches if not batch.is_sound and batch.base_offset < high_watermark]
    found += [f"C: {who} has a damaged batch at {offset}" for offset in damaged]
    for one, other in itertools.pairwise(batches):
        if other.base_offset <= one.last_offset or other.epoch < one.epoch:
            found.append(
                f"C: {who} has offset {other.base_offset} of epoch {other.epoch} "
                f"behind offset {one.last_offset} of epoch {one.epoch}"
            )
    return found


def compare_two(place: Place, one: int, these: list[StoredBatch], other: int, those: list[StoredBatch]) -> list[str]:
    who = f"{place[0]}-{place[1]} on brokers {one} and {other}"
    for this, that in zip(these, those, strict=False):
        if this.data != that.data:
            return [f"C: {who} differ: {told(this)} against {told(that)}"]
    if len(these) != len(those):
        return [f"C: {who} have {len(these)} and {len(those)} batches below the high watermark"]
    return []


def told(batch: StoredBatch) -> str:
    return f"{batch.base_offset}..{batch.last_offset} of epoch {batch.epoch} with {len(batch.data)} B"
