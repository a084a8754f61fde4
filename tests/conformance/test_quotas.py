"""Quotas, seen from outside: rules over the wire, and real clients that are held up by them and go on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest
from tests.conformance.config_requests import SET, TOPIC, change
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import Peer
from tests.conformance.waiting import eventually

VERSIONS = (0, 1)
SLOW = 20_000.0  # bytes a second: eleven seconds' worth is little
MESSAGE_BYTES = 10_000
POLICY_VIOLATION = 44

Entity = list[tuple[str, str | None]]


def alter(
    peer: Peer, entity: Entity, values: dict[str, float | None], version: int = 1, is_trial: bool = False
) -> list[Any]:
    """Error and message of each entity of the answer."""
    entry = AlterClientQuotasRequest.EntryData
    rows = [
        entry(
            entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[
                entry.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in values.items()
            ],
        )
    ]
    answer = peer.ask(AlterClientQuotasRequest(entries=rows, validate_only=is_trial), version)
    return [(row.error_code, row.error_message) for row in answer.entries]


def describe(peer: Peer, components: list[tuple[str, int, str | None]], version: int = 1) -> list[dict[str, float]]:
    rows = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    answer = peer.ask(DescribeClientQuotasRequest(components=rows, strict=True), version)
    assert answer.error_code == 0, answer.error_message
    return [{each.key: each.value for each in row.values} for row in answer.entries]


@pytest.mark.parametrize("version", VERSIONS)
def test_rules_are_set_shown_and_taken_away(peer: Peer, version: int) -> None:
    user, client = (f"jörg-{uuid.uuid4().hex[:8]}" for _ in range(2))
    entity: Entity = [("user", user), ("client-id", client)]
    wanted = [("user", 0, user), ("client-id", 0, client)]
    assert alter(peer, entity, {"producer_byte_rate": 5.0}, version, is_trial=True) == [(0, None)]
    assert describe(peer, wanted, version) == []
    assert alter(peer, entity, {"producer_byte_rate": 5.0, "request_percentage": 12.5}, version) == [(0, None)]
    assert eventually(
        lambda: describe(peer, wanted, version) == [{"producer_byte_rate": 5.0, "request_percentage": 12.5}]
    )
    assert alter(peer, entity, {"producer_byte_rate": -5.0}, version) == [
        (42, "Quota producer_byte_rate must be greater than 0")
    ]
    assert alter(peer, entity, {"producer_byte_rate": None, "request_percentage": None}, version) == [(0, None)]
    assert eventually(lambda: describe(peer, wanted, version) == [])


class Greedy:
    """Settings of a client with its own quota, and the throttle times that it gets."""

    def __init__(self, bootstrap: str, peer: Peer, key: str) -> None:
        self.name = f"greedy-{uuid.uuid4().hex[:8]}"
        self.throttles: list[float] = []
        self.settings = {"bootstrap.servers": bootstrap, "client.id": self.name, "throttle_cb": self.note}
        self._peer = peer
        self._key = key
        assert alter(peer, [("client-id", self.name)], {key: SLOW}) == [(0, None)]
        assert eventually(lambda: describe(peer, [("client-id", 0, self.name)]) != [])

    def note(self, event: Any) -> None:
        self.throttles.append(event.throttle_time)

    def let_go(self) -> None:
        assert alter(self._peer, [("client-id", self.name)], {self._key: None}) == [(0, None)]


def test_a_producer_is_throttled(bootstrap: str, peer: Peer, topic: str) -> None:
    greedy = Greedy(bootstrap, peer, "producer_byte_rate")
    producer = Producer({**greedy.settings, "linger.ms": 0, "batch.num.messages": 1})
    for _ in range(40):
        producer.produce(topic, b"x" * MESSAGE_BYTES)
    assert eventually(lambda: producer.poll(0.1) >= 0 and len(greedy.throttles) > 0)
    assert len(producer) > 0
    greedy.let_go()
    assert producer.flush(60) == 0


@pytest.mark.needs_ottla  # Kafka keeps a throttled client muted for the whole announced time
def test_a_consumer_is_throttled_until_the_rule_is_deleted(bootstrap: str, peer: Peer, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for _ in range(40):
        producer.produce(topic, b"x" * MESSAGE_BYTES)
    assert producer.flush(60) == 0
    greedy = Greedy(bootstrap, peer, "consumer_byte_rate")
    consumer = Consumer({**greedy.settings, "group.id": greedy.name, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0

    def is_held_up() -> bool:
        nonlocal found
        found += len(consumer.consume(10, 0.1))
        return len(greedy.throttles) > 0

    assert eventually(is_held_up)
    assert found < 40
    greedy.let_go()
    began = time.monotonic()
    while found < 40:
        found += len(consumer.consume(10, 0.1))
        assert time.monotonic() - began < 60
    consumer.close()


@pytest.mark.needs_ottla
def test_an_idempotent_producer_continues_after_a_topic_has_refused_its_records(
    bootstrap: str, peer: Peer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    keys = {"ottla.quota.produce.messages": "1", "ottla.quota.action": "reject"}
    assert change(peer, (TOPIC, topic, [(key, SET, value) for key, value in keys.items()]))[0][0] == 0
    outcomes: list[int | None] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1}
    )

    def note(error: Any, _: Any) -> None:
        outcomes.append(None if error is None else error.code())

    for number in range(20):
        producer.produce(topic, str(number).encode(), on_delivery=note)
        producer.flush(30)
    assert set(outcomes) == {None, POLICY_VIOLATION}
    refused = outcomes.count(POLICY_VIOLATION)
    assert change(peer, (TOPIC, topic, [("ottla.quota.produce.messages", SET, "1000000")]))[0][0] == 0

    def is_taken() -> bool:
        producer.produce(topic, b"again", on_delivery=note)
        producer.flush(30)
        return outcomes[-1] is None

    assert eventually(is_taken)
    stored = peer.list_offset(topic, -1).offset
    assert stored == outcomes.count(None), (stored, refused)


def test_auto_created_topics_count_for_the_client_that_requested_them(
    bootstrap: str, peer: Peer, topic_names: Callable[[], str]
) -> None:
    """Eleven seconds' worth of them at once, and then one a second, as Apache Kafka: the others stay unknown."""
    client_id = f"asks-{uuid.uuid4().hex[:8]}"
    entity: Entity = [("client-id", client_id)]
    names = [topic_names() for _ in range(40)]

    def made() -> int:
        return len(peer.topic_names().intersection(names))

    assert alter(peer, entity, {"controller_mutation_rate": 1.0}) == [(0, None)]
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id})
    for name in names:
        producer.list_topics(name, 10)
    assert eventually(lambda: made() >= 11)
    assert made() < len(names)
    assert alter(peer, entity, {"controller_mutation_rate": None}) == [(0, None)]
    for name in names:
        producer.list_topics(name, 10)
    assert eventually(lambda: made() == len(names))
