"""A delayed produce whose records are replicated between the append and the registration of the wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.unit.broker.whole_broker import WholeBroker, with_whole_broker

from ottla.broker.delayed_produce import DelayedProduce, UnreplicatedBatch
from ottla.broker.handlers.table import APIS
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse


class Asking:
    """A fake context and responder that keep the response."""

    def __init__(self) -> None:
        self.api_version = 12
        self.answers: list[Any] = []

    @property
    def responder(self) -> Asking:
        return self

    def defer(self) -> Asking:
        return self

    def cancel_on_disconnect(self, _: object) -> None: ...

    def keep_on_disconnect(self, _: object) -> None: ...

    def answer(self, response: Any) -> None:
        self.answers.append(response)


def test_records_replicated_before_the_wait_are_acknowledged_at_once(tmp_path: Path) -> None:
    async def play(broker: WholeBroker) -> None:
        await broker.create_topics({"t": 1})
        partition = broker.parts.replicas.get("t", 0)
        assert partition is not None
        batch = build_batch([Record(0, broker.parts.clock.now_ms(), None, b"value", ())])
        appended = partition.append(memoryview(batch), True, broker.parts.clock.now_ms())
        assert partition.is_replicated(appended.last_offset)
        row = PartitionProduceResponse(index=0, base_offset=0)
        response, asking = ProduceResponse(responses=[]), Asking()
        context: Any = asking
        item = UnreplicatedBatch(partition, appended.last_offset, row)
        DelayedProduce(context, response, [item], timeout_ms=30_000, is_acks_all=True).begin()
        await asyncio.sleep(0)
        assert asking.answers == [response]
        assert row.error_code == 0

    with_whole_broker(tmp_path, APIS, play)
