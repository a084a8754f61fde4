"""A client of a whole broker in virtual time, which reads responses and is throttled like a real one."""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.unit.broker.whole_broker import Client, WholeBroker, Wire, with_whole_broker

from ottla.base.errors import Error
from ottla.broker.handlers.table import APIS
from ottla.controller.decisions.quota_changes import QuotaAlteration, QuotaOperation, decide_quota_changes
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.batches import build_batch
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.headers import encode_request_header, response_header_bytes
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import Record

ME = (("client-id", "long"),)  # the client id of Client
PRODUCE, FETCH = 0, 1
LOOK_SECONDS = 0.01
HELD_LOOK_SECONDS = 0.1
ANSWER_LOOKS_MAX = 40_000


class TellingWire(Wire):
    """Keeps the responses, including records."""

    def __init__(self) -> None:
        super().__init__()
        self.from_broker = bytearray()

    def send(self, data: Any, more_follows: bool) -> int:
        self.from_broker += data
        return super().send(data, more_follows)

    def send_file(self, file_range: Any, bytes_max: int) -> int:
        size = min(file_range.length, bytes_max)
        self.from_broker += os.pread(file_range.descriptor, size, file_range.position)
        return super().send_file(file_range, bytes_max)


class Asker(Client):
    """A client that reads its responses."""

    def __init__(self, broker: WholeBroker, client_id: str = "long", user: str = "ANONYMOUS") -> None:
        super().__init__(broker)
        self.wire = TellingWire()
        self.connection = broker.connection(self.wire)
        self.connection.client.principal = f"User:{user}"
        self.client_id = client_id
        self._numbers = itertools.count(1)

    def write(self, request: Any, key: int, version: int) -> None:
        header = encode_request_header(key, version, next(self._numbers), self.client_id)
        body = bytes(encode(request, version))
        self.wire.to_broker += struct.pack(">i", len(header) + len(body)) + header + body

    async def call(self, request: Any, key: int, version: int) -> Any:
        self.write(request, key, version)
        await self.answer()
        return self.next_answer(key, version)

    async def answer(self) -> int:
        """The next response. The broker does not read from a throttled client: retries until it does."""
        loop = asyncio.get_running_loop()
        answered = self.wire.answered = loop.create_future()
        for _ in range(ANSWER_LOOKS_MAX):
            if self.wire.to_broker:
                loop.call_soon(self.connection.on_readable)  # as the poller does it: outside of any task
                await asyncio.sleep(0)
            if answered.done():
                return 0
            assert not self.connection.is_closed, self.connection.close_detail
            await asyncio.wait([answered], timeout=self._pause())
        raise AssertionError("no answer")

    def _pause(self) -> float:
        """A short pause; longer while the broker does not read."""
        return HELD_LOOK_SECONDS if self.connection.throttle_timer is not None else LOOK_SECONDS

    def next_answer(self, key: int, version: int) -> Any:
        data = self.wire.from_broker  # type: ignore[attr-defined]
        size = struct.unpack_from(">i", data, 0)[0]
        body = bytes(data[4 + response_header_bytes(key, version) : 4 + size])
        del data[: 4 + size]
        return decode_whole(ALL_APIS[key].response, version, memoryview(body))

    async def produce(self, size: int, topic: str = "t", count: int = 1, acks: int = 1) -> Any:
        batch = build_batch([Record(-1, 1_000_000, None, b"x" * (size // count)) for _ in range(count)])
        rows = [PartitionProduceData(index=0, records=memoryview(batch))]
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=rows)],
        )
        return await self.call(request, PRODUCE, 9)

    async def fetch(self, offset: int = 0, topic: str = "t", max_bytes: int = 1 << 20, replica_id: int = -1) -> Any:
        row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=-1)
        request = FetchRequest(
            replica_id=replica_id,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[row])],
        )
        request.session_epoch = 0
        return await self.call(request, FETCH, 12)


async def set_quotas(broker: WholeBroker, *parts: tuple[str, str | None], **values: float | None) -> None:
    alteration = QuotaAlteration(parts, tuple(QuotaOperation(key, value) for key, value in values.items()))
    results = await broker.parts.controller.change(lambda image: decide_quota_changes(image, [alteration]))
    assert results[0].error is Error.NONE, results


def play(directory: Path, scene: Callable[[WholeBroker, Asker], Awaitable[None]], **settings: str) -> None:
    async def whole(broker: WholeBroker) -> None:
        await broker.create_topics({"t": 1, "u": 1})
        asker = Asker(broker)
        broker.parts.quotas.connections = [asker.connection]
        await scene(broker, asker)

    with_whole_broker(directory, APIS, whole, {key.replace("_", "."): value for key, value in settings.items()})
