from __future__ import annotations

import gc
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.unit.broker.whole_broker import WholeBroker, count_steps, with_whole_broker

from ottla.base.security import ANONYMOUS, Operation, PatternType, Permission, ResourceType
from ottla.broker.authorization import FREEZE_PATTERNS_MIN, AclFreezer
from ottla.broker.handlers.table import APIS
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.security.acls import AccessControlEntry, ResourcePattern
from ottla.security.authorizer import Authorizer
from ottla.security.denial_log import DenialLog


def test_only_very_many_acls_are_excluded_from_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    patience = AclFreezer()
    for patterns in (
        1,
        FREEZE_PATTERNS_MIN - 1,
        FREEZE_PATTERNS_MIN,
        FREEZE_PATTERNS_MIN + 1,
        2 * FREEZE_PATTERNS_MIN - 1,
        2 * FREEZE_PATTERNS_MIN,
        1,
        3 * FREEZE_PATTERNS_MIN,
    ):
        monkeypatch.setattr(gc, "freeze", lambda patterns=patterns: frozen.append(patterns))
        patience.freeze_if_grown(patterns)
    assert frozen == [FREEZE_PATTERNS_MIN, 2 * FREEZE_PATTERNS_MIN]


# ---- cost of authorization for producers and consumers: almost nothing, counted in calls

PARTITIONS = 40
PRODUCE, FETCH, METADATA = 0, 1, 3
ROUND_STEPS_MAX = 40_000  # ten milliseconds
SHARE_MAX = 1.05
RULES = 100


def authorizer() -> Authorizer:
    """ACLs for many topics, by name and by prefixes of several lengths, and two for this topic."""

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
    """Without a session, as librdkafka sends it."""
    rows = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(PARTITIONS)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=rows)],
    )


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_authorization_costs_almost_nothing(tmp_path: Path, kind: str) -> None:
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


def test_refused_names_under_nested_prefixes_cost_no_more_than_others(tmp_path: Path) -> None:
    """Regression: for every name all ACLs with a matching prefix were checked: seconds for 5,000 names."""
    others = frozenset(AccessControlEntry(f"User:{n}", "*", Operation.READ, Permission.ALLOW) for n in range(36))

    def nested(letter: str) -> Authorizer:
        prefixes = [letter * length for length in range(1, 241)]
        acls = {ResourcePattern(ResourceType.TOPIC, prefix, PatternType.PREFIXED): others for prefix in prefixes}
        return Authorizer(acls, denials=DenialLog(lambda: 0, is_permissive=False))

    async def play(broker: WholeBroker) -> None:
        client = broker.connect()
        topics = [MetadataRequestTopic(name=f"{'a' * 240}{number}") for number in range(1_000)]
        found = []
        for rights in (nested("b"), nested("b"), nested("a")):  # the first one compiles codecs
            broker.parts.authorizer = rights
            client.write(MetadataRequest(topics=topics, allow_auto_topic_creation=False), METADATA, 12)
            found.append(await count_steps(client.answer()))
        _, apart, under = found
        assert under.total <= 1.5 * apart.total, f"{apart.total} calls beside the prefixes, {under.total} under them"
        assert under.longest_round <= ROUND_STEPS_MAX

    with_whole_broker(tmp_path, APIS, play)
