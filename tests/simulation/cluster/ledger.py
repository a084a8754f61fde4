"""What the cluster has promised so far, and whether it still holds (the invariants D, U, O, C, M and Z).

C  one batch for each offset: whatever was below a high watermark anywhere stays, byte for byte, on every replica.
D  what was acknowledged with acks=all is in the log of every later leader.
U  no value occurs twice in a log.   O  a producer's values are stored in the order in which it sent them.
Z  per leader epoch one broker takes acks=all writes.   M  a reader sees every offset once, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from tests.simulation.cluster.disk import MemoryLog, MemorySegment
from tests.simulation.world import World

from ottla.protocol.batches import read_batch_header, read_records
from ottla.replication.partition import Partition


class Place(NamedTuple):
    """A partition of one topic; a topic of the same name that is made later is another one."""

    topic_id: UUID
    index: int


class Written(NamedTuple):
    """A value in a log."""

    offset: int
    producer: str
    number: int


class BrokenPromiseError(AssertionError):
    """An invariant does not hold; the message names it first."""


class Ledger:
    """Knows everything that was ever committed, acknowledged or read."""

    def __init__(self, world: World, *, is_clean: bool) -> None:
        self._world = world
        self.is_clean = is_clean  # no unclean elections: nothing committed may be lost
        self.committed: dict[Place, MemorySegment] = {}
        self.acknowledged: dict[Place, dict[int, bytes]] = {}  # by offset
        self.appended: dict[Place, set[bytes]] = {}
        self._writers: dict[tuple[Place, int], int] = {}
        self.is_current: Callable[[UUID], bool] = lambda topic_id: True  # whether a topic still exists
        self.ack_count = 0
        self.read_count = 0

    def break_(self, what: str) -> None:
        raise BrokenPromiseError(f"{what}\n{self._world.report()}")

    # ---- while it runs

    def on_append(self, place: Place, epoch: int, broker: int, value: bytes, is_acks_all: bool) -> None:
        self.appended.setdefault(place, set()).add(value)
        if is_acks_all and self._writers.setdefault((place, epoch), broker) != broker:
            self.break_(f"Z: brokers {self._writers[place, epoch]} and {broker} both take writes in epoch {epoch}")

    def on_acknowledged(self, place: Place, offset: int, value: bytes) -> None:
        self.ack_count += 1
        if self.acknowledged.setdefault(place, {}).setdefault(offset, value) != value and self.is_clean:
            self.break_(f"C: offset {offset} was acknowledged as {self.acknowledged[place][offset]!r} and {value!r}")

    def on_high_watermark(self, broker: int, partition: Partition, start: int) -> None:
        """The high watermark of a replica has come from `start` to where it is now."""
        if not self.is_clean:
            return
        place = Place(partition.topic_id, partition.name.partition)
        log = partition.log
        assert isinstance(log, MemoryLog)
        known = self.committed.get(place)
        if known is None:
            known = self.committed[place] = MemorySegment(0)
        first, last = log.bytes.find(start)[0], log.bytes.find(partition.high_watermark)[0]
        theirs = log.bytes.data[first:last]
        ours = known.data[first:last]
        if theirs[: len(ours)] != ours:
            self.break_(f"C: broker {broker} has other records than were committed below {partition!r}")
        if len(theirs) > len(ours):
            if not partition.is_leader:
                self.break_(f"C: follower {broker} believes in a high watermark that no leader has had: {partition!r}")
            for batch in log.bytes.batches(len(known.bases)):
                header = read_batch_header(batch)
                if header.base_offset < partition.high_watermark:
                    known.append(batch, header.base_offset, header.last_offset, 0, 0)

    def on_leader(self, broker: int, partition: Partition) -> None:
        """A broker has begun to lead: nothing that was committed may be missing."""
        known = self.committed.get(Place(partition.topic_id, partition.name.partition))
        if known is None or not self.is_clean:
            return
        log = partition.log
        assert isinstance(log, MemoryLog)
        if log.bytes.data[: known.size] != known.data:
            self.break_(f"D: broker {broker} leads without records that were committed: {partition!r}")

    def on_read(self, reader: str, place: Place, wanted: int, batch: memoryview) -> int:
        """A reader got this batch when it asked for an offset; the offset to ask for next."""
        header = read_batch_header(batch)
        if not header.base_offset <= wanted <= header.last_offset:
            self.break_(f"M: {reader} asked for {wanted} and got {header.base_offset}-{header.last_offset}")
        self.read_count += 1
        known = self.committed.get(place)
        if self.is_clean and (known is None or known.data[known.find(wanted)[0] :][: len(batch)] != batch):
            self.break_(f"C: {reader} saw something at {wanted} that is not what was committed")
        return header.last_offset + 1

    # ---- at the end

    def check_log(self, place: Place, log: MemoryLog) -> None:
        """The log of the last leader, when all is over."""
        found = values(log)
        by_offset = {each.offset: each for each in found}
        if self.is_clean:
            for offset, value in self.acknowledged.get(place, {}).items():
                there = by_offset.get(offset)
                if there is None or encode_value(there.producer, there.number) != value:
                    self.break_(f"D: {value!r} was acknowledged at {offset} of {place}, but there is {there}")
        last: dict[str, int] = {}
        for each in found:
            before = last.get(each.producer, -1)
            if each.number == before:
                self.break_(f"U: {each} is there twice in {place}")
            if each.number < before:
                self.break_(f"O: {each} comes after {before} in {place}")
            last[each.producer] = each.number
            if encode_value(each.producer, each.number) not in self.appended.get(place, ()):
                self.break_(f"C: {each} was never written to {place}: it is another topic's")


def encode_value(producer: str, number: int) -> bytes:
    return f"{producer}:{number}".encode()


def values(log: MemoryLog) -> list[Written]:
    found = []
    for batch in log.bytes.batches():
        for record in read_records(batch):
            producer, _, number = (record.value or b"").decode().partition(":")
            found.append(Written(record.offset, producer, int(number)))
    return found
