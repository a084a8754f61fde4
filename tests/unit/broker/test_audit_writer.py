"""The audit trail is written by whoever leads its topic, again when that failed; a whole broker notes what it does."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import virtual_time
from ottla.base.errors import Error
from ottla.base.names import AUDIT_TOPIC
from ottla.base.security import Operation
from ottla.base.topic_settings import TopicSettings
from ottla.broker.audit import trail as trails
from ottla.broker.audit import writer as writers
from ottla.broker.audit.event import Change, Who
from ottla.broker.audit.trail import AuditTrail
from ottla.broker.audit.writer import AuditWriter
from ottla.broker.coordinators.internal_topics import InternalTopics, audit_topic
from ottla.broker.handlers import write_audit
from ottla.broker.handlers.table import APIS
from ottla.controller.decisions.machine import NewTopic, TopicResult
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metrics.audit import AuditCounters
from ottla.network.peer import PeerError
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from ottla.protocol.messages.inter_broker import WriteAuditRequest, WriteAuditResponse
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from unit.broker.nodes import node
from unit.broker.whole_broker import WholeBroker, count_steps, with_whole_broker
from unit.coordination.stand import ME, NOW_MS, OTHER, Replicas, lose, replicate
from unit.storage.clean_stand import records_in

ROUND_STEPS_MAX = 40_000  # as for every long request
WHO = Who("User:alice", "10.0.0.1", "c", None, "PLAINTEXT", "CreateTopics")


def topic(*leaders: int) -> TopicImage:
    states = tuple(PartitionImage(leader, 0, (ME, OTHER), (ME, OTHER)) for leader in leaders)
    return TopicImage(AUDIT_TOPIC, UUID(int=7), states)


def written(log: Log) -> list[str]:
    return [json.loads(record.value or b"")["resource"] for record in records_in(log)]


class Stand:
    """A writer on a broker of two; the other one answers as a test says."""

    def __init__(self, folder: Path, *leaders: int, **settings: str) -> None:
        image = MetadataImage(brokers={ME: BrokerImage(ME, {}, None, 0)})
        image = image.with_topics([topic(*leaders)]) if leaders else image
        texts = {key.replace("_", "."): value for key, value in settings.items()}
        self.node = node({"ottla.audit.enable": "true", **texts}, image=image)
        self.replicas = Replicas(folder)
        self.counters = AuditCounters()
        self.trail = AuditTrail(self.node, self.counters)
        self.asked: list[tuple[int, WriteAuditRequest]] = []
        self.answers: list[WriteAuditResponse | PeerError] = []
        self.created: list[NewTopic] = []
        topics = InternalTopics(self.node, self._create, self._settled, is_alone=True)
        self.writer = AuditWriter(self.node, self.trail, self.replicas.set, topics, self._call, self.counters)

    async def _create(self, wanted: Any) -> list[TopicResult]:
        self.created += wanted
        return [TopicResult(each.name, Error.INVALID_REQUEST, "not now") for each in wanted]

    async def _settled(self) -> None: ...

    async def _call(self, broker: int, _purpose: str, request: Any, _response: type[Any]) -> Any:
        self.asked.append((broker, request))
        answer = self.answers.pop(0) if self.answers else WriteAuditResponse()
        if isinstance(answer, PeerError):
            raise answer
        return answer

    def note(self, *names: str) -> None:
        for name in names:
            self.trail._note("topic.create", WHO, Change("topic", name))

    def lead(self, index: int = 0, replicas: tuple[int, ...] = (ME,)) -> Partition:
        return self.replicas.make(AUDIT_TOPIC, index, replicas)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    virtual_time.run(scene())  # type: ignore[arg-type]


def test_events_go_into_a_partition_that_we_lead(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = Stand(tmp_path, OTHER, ME)
        partition = stand.lead(1)
        stand.note("a", "b")
        await asyncio.sleep(1)
        stand.note("c")
        await asyncio.sleep(1)
        assert written(partition.log) == ["a", "b", "c"]
        assert stand.asked == []
        assert (stand.counters.written, stand.counters.waiting) == (3, 0)

    play(scene)


def test_without_one_another_broker_is_asked_until_it_has_them(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = Stand(tmp_path, OTHER)
        stand.answers = [PeerError("gone"), WriteAuditResponse(error_code=Error.NOT_LEADER_OR_FOLLOWER)]
        stand.note("a")
        await asyncio.sleep(5)
        assert [(broker, request.partition_index) for broker, request in stand.asked] == [(OTHER, 0)] * 3
        assert (stand.counters.written, stand.counters.failed_writes) == (1, 2)

    play(scene)


def test_an_event_is_written_when_the_replicas_have_it_and_again_when_nobody_knows(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = Stand(tmp_path, ME)
        partition = stand.lead(replicas=(ME, OTHER))
        stand.note("a")
        await asyncio.sleep(1)
        assert stand.counters.written == 0
        replicate(partition)
        await asyncio.sleep(1)
        assert stand.counters.written == 1
        stand.note("b")
        await asyncio.sleep(1)
        lose(partition, 1)
        stand.node.images.publish(stand.node.image.with_topics([topic(OTHER)]))
        await asyncio.sleep(1)
        assert stand.counters.written == 2
        assert len(stand.asked) == 1

    play(scene)


def test_a_topic_without_a_leader_holds_nobody_up_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        stand = Stand(tmp_path, -1)
        partition = stand.lead()
        stand.note("a")
        await asyncio.sleep(300)
        stand.note("b")
        assert stand.counters.waiting == 2
        assert stand.counters.failed_writes > 20
        stand.node.images.publish(stand.node.image.with_topics([topic(ME)]))
        await asyncio.sleep(20)
        assert written(partition.log) == ["a", "b"]

    with caplog.at_level(logging.WARNING, "ottla.broker.audit"):
        play(scene)
    assert "1 events wait: __ottla_audit cannot be written to" in caplog.messages[0]
    assert "nobody leads it" in caplog.messages[0]
    assert len(caplog.messages) < 40


def test_a_topic_that_cannot_be_made_holds_nobody_up_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        stand = Stand(tmp_path)
        stand.note("a")
        await asyncio.sleep(1)
        assert [each.name for each in stand.created[:1]] == [AUDIT_TOPIC]
        assert stand.counters.waiting == 1
        await stand.writer.stop()
        assert (stand.counters.waiting, stand.counters.lost) == (0, 1)

    with caplog.at_level(logging.WARNING, "ottla.broker.audit"):
        play(scene)
    assert any("not now" in message for message in caplog.messages)
    assert "this broker stops" in caplog.messages[-1]


def test_a_broker_that_stops_writes_what_it_has(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = Stand(tmp_path, ME)
        partition = stand.lead()
        await stand.writer.stop()
        stand.note("a", "b")
        await stand.writer.stop()
        assert written(partition.log) == ["a", "b"]
        assert stand.counters.lost == 0

    play(scene)


def test_what_is_too_large_for_the_topic_is_lost_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "BATCH_EVENTS_MAX", 8)

    async def scene() -> None:
        stand = Stand(tmp_path, ME)
        partition = stand.lead()
        partition.log.settings = TopicSettings(max_message_bytes=1_200)
        stand.note("a", "b", "c" * 2_000, "d", "e")
        await asyncio.sleep(5)
        names = [name or "lost" for name in written(partition.log)]
        assert sorted(name[0] for name in names) == ["a", "b", "d", "e", "l"]
        assert stand.counters.lost == 1

    play(scene)


@pytest.mark.parametrize("alone", [1, None])
def test_the_topic_is_made_as_the_settings_say(alone: int | None) -> None:
    texts = {
        "ottla.audit.topic.num.partitions": "4",
        "ottla.audit.topic.replication.factor": "2",
        "ottla.audit.topic.retention.ms": "5000",
    }
    made = audit_topic(node(texts).settings, alone)
    assert (made.partition_count, made.replication_factor) == (4, alone or 2)
    assert dict(made.configs) == {"cleanup.policy": "delete", "retention.ms": "5000"}


# ---- a whole broker


def events_of(broker: WholeBroker) -> list[Any]:
    partition = broker.parts.replicas.get(AUDIT_TOPIC, 0)
    assert partition is not None
    return [json.loads(record.value or b"") for record in records_in(partition.log)]


def test_whoever_switches_it_on_and_off_is_noted(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker) -> None:
        client = broker.connect()
        delete = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000)
        for value in ("true", "false"):
            await client.ask(delete, 20, 5)
            setting = IncrementalAlterableConfig(name="ottla.audit.enable", config_operation=0, value=value)
            resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[setting])
            await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 44, 1)
        await client.ask(delete, 20, 5)
        await asyncio.sleep(2)
        on, deleted, off = events_of(broker)
        assert (on["event"], on["after"]) == ("config.alter", {"ottla.audit.enable": "true"})
        assert (deleted["event"], deleted["error"]) == ("topic.delete", "UNKNOWN_TOPIC_OR_PARTITION")
        assert (off["before"], off["after"]) == ({"ottla.audit.enable": "true"}, {"ottla.audit.enable": "false"})

    with_whole_broker(tmp_path, APIS, scene)


def test_what_a_client_changes_is_in_the_topic(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker) -> None:
        client = broker.connect()
        wanted = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
        await client.ask(CreateTopicsRequest(topics=[wanted]), 19, 7)
        await client.ask(CreateTopicsRequest(topics=[wanted]), 19, 7)
        await client.ask(CreateTopicsRequest(topics=[wanted], validate_only=True), 19, 7)
        await client.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 20, 5)
        await asyncio.sleep(2)
        events = events_of(broker)
        assert [(event["event"], event["error"]) for event in events] == [
            ("topic.create", None),
            ("topic.create", "TOPIC_ALREADY_EXISTS"),
            ("topic.delete", None),
        ]
        assert events[0]["after"]["partitions"] == events[2]["before"]["partitions"] == 2
        assert {(event["host"], event["client_id"], event["broker"]) for event in events} == {("127.0.0.1", "long", 1)}

    with_whole_broker(tmp_path, APIS, scene, {"ottla.audit.enable": "true"})


def test_a_request_of_thousands_is_noted_in_slices_and_beyond_the_queue_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trails, "EVENTS_MAX", 1_000)

    async def scene(broker: WholeBroker) -> None:
        names = [f"nothing{number}" for number in range(2_500)]

        async def delete() -> None:
            await broker.connect().ask(DeleteTopicsRequest(topic_names=names, timeout_ms=1000), 20, 5)
            await asyncio.sleep(10)

        steps = await count_steps(delete())
        assert steps.longest_round <= ROUND_STEPS_MAX
        counters = broker.parts.counters.audit
        assert counters.waiting == 0
        told = [event["count"] for event in events_of(broker) if event["event"] == "audit.lost"]
        assert sum(told) == counters.lost > 0
        assert counters.written - len(told) + counters.lost == len(names)

    with_whole_broker(tmp_path, APIS, scene, {"ottla.audit.enable": "true"})


def test_a_mistake_in_noting_harms_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(AuditTrail, "note_change", mistake)

    async def scene(broker: WholeBroker) -> None:
        wanted = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
        await broker.connect().ask(CreateTopicsRequest(topics=[wanted]), 19, 7)
        assert "orders" in broker.parts.image.topics

    with_whole_broker(tmp_path, APIS, scene, {"ottla.audit.enable": "true"})


# ---- events of other brokers


class Asker:
    """Another broker, as the handler of WriteAudit sees it."""

    def __init__(self, stand: Stand, *, is_broker: bool = True) -> None:
        self.broker = SimpleNamespace(replicas=stand.replicas.set, clock=stand.node.clock, workers=stand.node.workers)
        self._is_broker = is_broker

    def may(self, operation: Operation, *_: object) -> bool:
        return self._is_broker and operation is Operation.CLUSTER_ACTION

    async def ask(self, records: bytes, index: int = 0) -> tuple[Error, str | None]:
        context: Any = self
        answer = await write_audit.handle(WriteAuditRequest(partition_index=index, records=records), context)
        return Error(answer.error_code), answer.error_message


def test_events_of_other_brokers_are_taken_from_brokers_alone(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = Stand(tmp_path, ME, ME)
        alone, shared = stand.lead(0), stand.lead(1, (ME, OTHER))
        batch = bytes(build_batch([Record(-1, NOW_MS, b"id", b'{"resource":"a"}')]))
        assert await Asker(stand, is_broker=False).ask(batch) == (Error.CLUSTER_AUTHORIZATION_FAILED, None)
        asker = Asker(stand)
        assert await asker.ask(batch) == (Error.NONE, None)
        assert written(alone.log) == ["a"]
        assert (await asker.ask(batch, 7))[0] is Error.NOT_LEADER_OR_FOLLOWER
        assert (await asker.ask(batch[:-1] + b"x"))[0] is Error.CORRUPT_MESSAGE
        assert (await asker.ask(b""))[0] is not Error.NONE
        assert (await asker.ask(batch, 1))[0] is Error.REQUEST_TIMED_OUT, "its follower is slow"
        replicate(shared)
        assert written(shared.log) == ["a"], "whoever asked writes it again: it has an id"
        assert written(alone.log) == ["a"]

    play(scene)
