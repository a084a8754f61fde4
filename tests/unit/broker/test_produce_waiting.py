"""A produce that waits for its replicas, when others had their turn between its append and its wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ottla.broker.handlers.table import APIS
from ottla.broker.produce_waiting import ReplicationWait, Unreplicated
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from unit.broker.whole_broker import WholeBroker, with_whole_broker


class Asking:
    """A context and its responder: it keeps the answer."""

    def __init__(self) -> None:
        self.api_version = 12
        self.answers: list[Any] = []

    @property
    def responder(self) -> Asking:
        return self

    def keep(self) -> Asking:
        return self

    def wait(self, _: object) -> None: ...

    def stop_waiting(self, _: object) -> None: ...

    def answer(self, response: Any) -> None:
        self.answers.append(response)


def test_what_is_replicated_before_it_waits_is_answered_at_once(tmp_path: Path) -> None:
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
        item = Unreplicated(partition, appended.last_offset, row)
        ReplicationWait(context, response, [item], timeout_ms=30_000, is_acks_all=True).begin()
        await asyncio.sleep(0)
        assert asking.answers == [response]
        assert row.error_code == 0

    with_whole_broker(tmp_path, APIS, play)
