"""What access rights cost a producer and a consumer: next to nothing, counted in calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.base.security import ANONYMOUS, Operation, PatternType, Permission, ResourceType
from ottla.broker.handlers.table import APIS
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.security.acls import AccessControlEntry, ResourcePattern
from ottla.security.authorizer import Authorizer
from unit.broker.whole_broker import WholeBroker, count_steps, with_whole_broker

PARTITIONS = 40
PRODUCE, FETCH = 0, 1
SHARE_MAX = 1.05
RULES = 100


def authorizer() -> Authorizer:
    """Rules about many topics, by name and by prefixes of several lengths, and two about this one."""

    def rules(operation: Operation) -> frozenset[AccessControlEntry]:
        return frozenset({AccessControlEntry(ANONYMOUS, "*", operation, Permission.ALLOW)})

    acls = {
        ResourcePattern(ResourceType.TOPIC, f"other-{number}", kind): rules(Operation.READ)
        for number in range(RULES)
        for kind in (PatternType.LITERAL, PatternType.PREFIXED)
    }
    acls[ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED)] = rules(Operation.WRITE)
    acls[ResourcePattern(ResourceType.TOPIC, "orders")] = rules(Operation.READ)
    return Authorizer(acls)


def produce(batch: bytes) -> ProduceRequest:
    row = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=[row])])


def fetch(topic_id: UUID) -> FetchRequest:
    """Without a session, as librdkafka asks."""
    rows = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(PARTITIONS)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=rows)],
    )


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_rights_cost_next_to_nothing(tmp_path: Path, kind: str) -> None:
    async def play(broker: WholeBroker) -> None:
        await broker.create_topics({"orders": PARTITIONS})
        batch = bytes(build_batch([Record(0, broker.parts.clock.now_ms(), None, b"value", ())]))
        request: Any = produce(batch) if kind == "produce" else fetch(broker.parts.image.topics["orders"].topic_id)
        key, version = (PRODUCE, 12) if kind == "produce" else (FETCH, 13)
        client = broker.connect()
        found = []
        for rights in (None, None, authorizer()):  # the first one compiles codecs
            broker.parts.authorizer = rights
            client.write(request, key, version)
            found.append((await count_steps(client.answer())).total)
        _, without, with_rights = found
        assert with_rights <= SHARE_MAX * without, f"{without} calls without rights, {with_rights} with"

    with_whole_broker(tmp_path, APIS, play)
