"""Disks in memory: the real `Log` over segments that are byte strings, with a page cache that a power cut empties.

The log's own code decides about offsets, epochs, producers and what may be read. Only its access to files
is replaced by something simpler here: a segment is a bytearray, cutting it is a slice, syncing it is a number.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from uuid import UUID

from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import read_batch_header
from ottla.storage import batch_ranges
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.flush import FlushJob
from ottla.storage.index import OffsetIndex
from ottla.storage.leader_epochs import LeaderEpochCache
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import UNKNOWN, Segment

NO_LIFE = -1
POOL = DescriptorPool(1_000)
EXPIRATION_MS = 10**12


class MemorySegment(Segment):
    """Batches one after the other; `find` needs no index."""

    __slots__ = ("bases", "data", "lasts", "positions")

    def __init__(self, base_offset: int) -> None:
        super().__init__("", base_offset, 0, POOL)
        self.data = bytearray()
        self.bases: list[int] = []
        self.lasts: list[int] = []
        self.positions: list[int] = []
        self.first_timestamp = UNKNOWN

    def append(self, batch: memoryview, base: int, last: int, max_timestamp: int, index_interval_bytes: int) -> None:
        self.bases.append(base)
        self.lasts.append(last)
        self.positions.append(self.size)
        self.data += batch
        self.size = len(self.data)

    def append_run(self, records: memoryview) -> int:
        del self.data[self.size :]
        self.data += records
        return self.size

    def index_batch(self, position: int, length: int, last: int, max_timestamp: int, index_interval_bytes: int) -> None:
        self.bases.append(int.from_bytes(self.data[position : position + 8]))
        self.lasts.append(last)
        self.positions.append(position)

    def find(self, offset: int) -> tuple[int, int]:
        """Where the batch with this offset, or the next one, starts, and how long it is."""
        place = bisect_right(self.bases, offset) - 1
        if place < 0 or self.lasts[place] < offset:
            place += 1
        if place >= len(self.positions):
            return self.size, 0
        return self.positions[place], self.end_of(place) - self.positions[place]

    def end_of(self, place: int) -> int:
        return self.positions[place + 1] if place + 1 < len(self.positions) else self.size

    def index(self) -> OffsetIndex:
        """Asked for positions only, of which it knows all."""
        return OffsetIndex(array("q", self.positions[1:]), 0)

    def cut(self, offset: int) -> None:
        """Drop the batch that holds this offset and all later ones."""
        position = self.find(offset)[0]
        count = bisect_right(self.positions, position - 1)
        del self.data[position:], self.bases[count:], self.lasts[count:], self.positions[count:]
        self.size = len(self.data)

    def is_index_full(self, _: int) -> bool:
        return False

    def make_range(self, position: int, length: int) -> FileRange:
        return FileRange(self, -1, position, length)

    def release_range(self) -> None:
        pass

    def batches(self, first: int = 0) -> list[bytes]:
        """Copies of the batches, from the one in this place on."""
        return [bytes(self.data[self.positions[n] : self.end_of(n)]) for n in range(first, len(self.positions))]


hop_over_file = batch_ranges.scan_to_limit


def hop_to_end(segment: Segment, position: int, limit: int) -> int:
    """A MemorySegment has no file with headers to hop over, and need not: its index knows all that fits."""
    return position if isinstance(segment, MemorySegment) else hop_over_file(segment, position, limit)


batch_ranges.scan_to_limit = hop_to_end


class MemoryEpochs(LeaderEpochCache):
    """No file: each batch carries its epoch, so that a start finds them all."""

    __slots__ = ()

    def write(self) -> None:
        pass


class MemoryLog(Log):
    """A log that is one segment; what lies past `recovery_point` is lost with the power."""

    __slots__ = ()

    def __init__(
        self, partition: TopicPartition, topic_id: UUID, settings: TopicSettings, start_offset: int = 0
    ) -> None:
        super().__init__(
            partition,
            "",
            settings,
            POOL,
            [MemorySegment(start_offset)],
            end_offset=start_offset,
            log_start_offset=start_offset,
            recovery_point=start_offset,
            epochs=MemoryEpochs(""),
            producer_expiration_ms=EXPIRATION_MS,
            topic_id=topic_id,
        )

    @property
    def bytes(self) -> MemorySegment:
        segment = self.segments[0]
        assert isinstance(segment, MemorySegment)
        return segment

    def upto(self, offset: int) -> bytes:
        """All bytes of the batches below an offset."""
        return bytes(self.bytes.data[: self.bytes.find(offset)[0]])

    # ---- where files would be touched

    def truncate_to(self, offset: int) -> None:
        if offset < self.bytes.base_offset:
            self.truncate_fully_and_start_at(offset)
        elif offset < self.end_offset:
            self._truncate(cut_log, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._truncate(empty_log, offset)

    def begin_flush(self, only_rolled: bool = False) -> FlushJob | None:
        return FlushJob(self.end_offset, self.truncation_count)

    def flush(self) -> None:
        self.recovery_point = self.end_offset

    def write_producer_snapshot(self) -> None:
        pass


def cut_log(log: Log, offset: int) -> None:
    assert isinstance(log, MemoryLog)
    log.bytes.cut(offset)
    log.end_offset = offset
    log.epochs.truncate_from_end(offset)
    log.producer_state.replace(ProducerStates(EXPIRATION_MS))
    for batch in log.bytes.batches():
        header = read_batch_header(batch)
        log._apply_to_producer_state(memoryview(batch), header, header.last_offset)


def empty_log(log: Log, offset: int) -> None:
    log.segments[:] = [MemorySegment(offset)]
    log.end_offset = log.log_start_offset = offset
    log.epochs.truncate_from_end(0)
    log.producer_state.replace(ProducerStates(EXPIRATION_MS))


class Disk:
    """What a broker finds when it starts again."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}  # the checkpoint file
        self.life = NO_LIFE  # the epoch of the life that wrote all its records here

    def reopen(self) -> None:
        """A new process reads everything again: epochs and producers come from the batches."""
        for name, old in self.logs.items():
            assert old.topic_id is not None
            log = self.logs[name] = MemoryLog(name, old.topic_id, old.settings, old.log_start_offset)
            log.append_as_follower(memoryview(bytes(old.bytes.data)))
            log.recovery_point = min(old.recovery_point, log.end_offset)

    def lose_power(self) -> int:
        """Forget what was not synced; how many offsets."""
        lost = 0
        self.life = NO_LIFE
        for log in self.logs.values():
            lost += log.end_offset - log.recovery_point
            log.truncate_to(log.recovery_point)
        return lost

    def wipe(self) -> None:
        self.logs.clear()
        self.high_watermarks.clear()
        self.life = NO_LIFE
