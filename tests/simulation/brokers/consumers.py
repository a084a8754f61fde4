"""Consumers that read partitions from their beginning, again and again, and tell the ledger what they see."""

from __future__ import annotations

import asyncio

from tests.simulation.brokers.ledger import Ledger, Place
from tests.simulation.brokers.wire import Client, GoneError

from ottla.base.errors import Error
from ottla.protocol.batches import read_batch_header, read_records
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FETCH_VERSION = 12
FETCH_BYTES = 64 * 1024


class Batches:
    """What a fetch brought, record by record; knows which transactions were aborted."""

    def __init__(self, data: PartitionData) -> None:
        self.records: list[tuple[int, str]] = []
        self.next_offset = -1
        aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
        dead: set[int] = set()
        raw = bytes(data.records or b"")
        position = 0
        while len(raw) - position >= 61:
            header = read_batch_header(raw, position)
            if position + header.batch_bytes > len(raw):
                break
            while aborted and aborted[0][0] <= header.last_offset:
                dead.add(aborted.pop(0)[1])
            if header.is_control:
                dead.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dead):
                batch = raw[position : position + header.batch_bytes]
                self.records += [(record.offset, (record.value or b"").decode()) for record in read_records(batch)]
            self.next_offset = header.next_offset
            position += header.batch_bytes


class Consumer(Client):
    """Follows one partition; starts again at the beginning now and then."""

    def __init__(self, cluster: object, name: str, ledger: Ledger, place: Place, *, is_committed: bool) -> None:
        super().__init__(cluster, name)  # type: ignore[arg-type]
        self.ledger = ledger
        self.place = place
        self.is_committed = is_committed
        self.offset = 0
        self.fetched = 0
        self.high_watermark = -1

    async def run(self) -> None:
        while not self.is_done:
            try:
                await self.fetch()
            except GoneError:
                self.forget_leader(*self.place)
                await self.pause()
            await asyncio.sleep(self.world.random.choice((0.0, 0.2, 0.5)))
            if self.world.chance(0.02):
                self.offset = 0

    async def fetch(self, wait_ms: int = 300) -> dict[int, str] | None:
        """Ask once; None: not this time."""
        leader = await self.leader(*self.place)
        if leader < 0:
            await self.pause()
            return None
        asked = FetchPartition(
            partition=self.place[1],
            current_leader_epoch=self.epochs[self.place],
            fetch_offset=self.offset,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=int(self.is_committed),
            topics=[FetchTopic(topic=self.place[0], partitions=[asked])],
        )
        answer = await self.call(leader, request, FetchResponse, FETCH_VERSION)
        if answer.error_code != Error.NONE or not answer.responses:
            await self.pause()
            return None
        data = answer.responses[0].partitions[0]
        if data.error_code != Error.NONE:
            self.on_error(Error(data.error_code))
            self.forget_leader(*self.place)
            await self.pause()
            return None
        self.high_watermark = data.last_stable_offset if self.is_committed else data.high_watermark
        found = Batches(data)
        news = {offset: value for offset, value in found.records if offset >= self.offset}
        for offset, value in news.items():
            self.ledger.note_seen(self.name, self.place, offset, value, is_committed=self.is_committed)
        self.fetched += len(news)
        self.offset = max(self.offset, found.next_offset)
        return news

    def on_error(self, error: Error) -> None:
        if error == Error.OFFSET_OUT_OF_RANGE and self.offset > 0:
            self.world.break_(
                f"{self.name}: offset {self.offset} of {self.place} is out of range, and it was read before"
            )


class FinalReader(Consumer):
    """Reads a partition to its end when all is quiet. A leader that was elected just now may tell an older end."""

    def __init__(
        self, cluster: object, name: str, ledger: Ledger, place: Place, end_offset: int, *, is_committed: bool
    ) -> None:
        super().__init__(cluster, name, ledger, place, is_committed=is_committed)
        self.end_offset = end_offset
        self.log: dict[int, str] = {}
        self.has_ended = False

    async def run(self) -> None:
        while self.offset < self.end_offset:
            try:
                self.log |= await self.fetch(0) or {}
            except GoneError:
                self.forget_leader(*self.place)
                await self.pause()
        self.has_ended = True
