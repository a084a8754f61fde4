"""The event filter of the audit trail, its bounds, and its writer."""

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
from tests import virtual_time
from tests.unit.broker.nodes import node, parts
from tests.unit.broker.whole_broker import WholeBroker, count_steps, with_whole_broker
from tests.unit.coordination.stand import ME, NOW_MS, OTHER, Replicas, lose, replicate
from tests.unit.network.scripted import NotingPoller, ScriptedTransport
from tests.unit.storage.clean_stand import records_in

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.names import AUDIT_TOPIC
from ottla.base.security import Operation, ResourceType
from ottla.base.setting_types import BadValueError
from ottla.base.topic_settings import TopicSettings
from ottla.broker.audit import trail as trails
from ottla.broker.audit import writer as writers
from ottla.broker.audit.event import Change, ClientIdentity
from ottla.broker.audit.trail import REFUSALS_PER_SECOND_MAX, REPEAT_SECONDS, REPEATS_PER_ITERATION, AuditTrail
from ottla.broker.audit.writer import AuditWriter
from ottla.broker.context import Context
from ottla.broker.coordinator_service.internal_topics import InternalTopicCreator, audit_topic
from ottla.broker.dispatch import Dispatcher
from ottla.broker.handlers import write_audit
from ottla.broker.handlers.table import APIS
from ottla.broker.responder import RequestType, Responder
from ottla.controller.decisions.topic_changes import NewTopic, TopicResult
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metrics.counters import AuditCounters
from ottla.network.buffers import BufferPool
from ottla.network.connection import ConnectedClient, Connection
from ottla.network.peer import PeerError
from ottla.network.poller import Poller
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from ottla.protocol.messages.inter_broker import WriteAuditRequest, WriteAuditResponse
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from ottla.replication.partition import Partition
from ottla.security.authorizer import Authorizer
from ottla.storage.log import Log

ON = {"ottla.audit.enable": "true"}
CREATE_TOPICS = 19


class Stand:
    """A trail without a writer, and a client."""

    def __init__(self, **more: str) -> None:
        self.counters = AuditCounters()
        self.node = node({**ON, **{key.replace("_", "."): value for key, value in more.items()}})
        self.trail = AuditTrail(self.node, self.counters)
        self.broker = parts(self.node)
        self.broker.audit = self.trail
        self.broker.authorizer = Authorizer({})
        self._buffers, self._dispatcher = BufferPool(), Dispatcher(self.broker, [], lambda: None, Poller())

    def context(self, principal: str = "User:alice", client_id: str = "c") -> Context:
        client = ConnectedClient("10.0.0.1", 1, "OUTSIDE")
        client.principal, client.software_name, client.software_version = principal, "librdkafka", "2.5"
        return Context(self.broker, self._responder(client), client, CREATE_TOPICS, 7, 1, client_id)

    def _responder(self, client: ConnectedClient) -> Responder:
        """A responder that is never answered; compiled code accepts no fake."""
        loop, counters = asyncio.get_running_loop(), self.broker.counters
        connection = Connection(
            ScriptedTransport(), 7, NotingPoller(), loop, self._buffers, self._dispatcher, lambda _: None, client, 1000
        )
        meter = counters.meter(CREATE_TOPICS, "CreateTopics", 7)
        return Responder(connection, RequestType(CREATE_TOPICS, "CreateTopics", False, meter, counters), 7, 1, 0)

    def events(self) -> list[Any]:
        return [json.loads(line.value) for line in self.trail.peek(10**6, 10**9)]

    def names(self) -> list[str]:
        return [event["event"] for event in self.events()]


def play(scene: Callable[[], Awaitable[None]]) -> None:
    virtual_time.run(scene())  # type: ignore[arg-type]


def test_auditing_is_off_by_default_and_can_be_changed_at_run_time() -> None:
    async def scene() -> None:
        stand = Stand(ottla_audit_enable="false")
        stand.trail.record_login(stand.context(), "PLAIN", False)
        assert stand.events() == []
        settings = stand.node.settings.with_dynamic({"ottla.audit.enable": "true"}, {})
        stand.trail._apply_settings(settings)
        stand.trail.record_login(stand.context(), "PLAIN", False)
        assert stand.names() == ["login"]

    play(scene)


def test_only_the_configured_events_are_recorded() -> None:
    async def scene() -> None:
        stand = Stand(ottla_audit_events="login,topic.*")
        stand.trail.record_login(stand.context(), "PLAIN", False)
        stand.trail.record_failed_login(stand.context(), "PLAIN", 58, "wrong password")
        assert not stand.context().is_authorized(Operation.CREATE, ResourceType.TOPIC, "t")
        assert stand.names() == ["login"]
        wanted = [
            event for event in ("topic.create", "topic.delete", "acl.create") if stand.trail.is_enabled_for(event, None)
        ]
        assert wanted == ["topic.create", "topic.delete"]

    play(scene)


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(BadValueError, match=r"There is no event topics\.create"):
        BrokerSettings.keys["ottla.audit.events"].value("login,topics.create")


def test_principals_can_be_excluded() -> None:
    async def scene() -> None:
        stand = Stand(ottla_audit_exclude_principals="User:monitor; User:CN=broker,OU=x")
        for principal in ("User:monitor", "User:CN=broker,OU=x", "User:alice"):
            stand.trail.record_login(stand.context(principal), "SSL", False)
            stand.context(principal).is_authorized(Operation.CREATE, ResourceType.TOPIC, "t")
        assert [event["principal"] for event in stand.events()] == ["User:alice", "User:alice"]

    play(scene)


def test_a_login_and_its_failure_are_recorded() -> None:
    async def scene() -> None:
        stand = Stand()
        stand.trail.record_login(stand.context(), "SCRAM-SHA-256", True)
        stand.trail.record_failed_login(stand.context(), "PLAIN", 58, "wrong password, or unknown user 'eve'")
        facts = ConnectedClient("10.0.0.2", 1, "SSL")
        facts.principal = "User:CN=alice"
        stand.trail.record_certificate_login(facts)
        stand.trail.record_failed_handshake(facts, "certificate has expired")
        good, bad, certificate, handshake = stand.events()
        assert good["after"] == {"mechanism": "SCRAM-SHA-256", "is_repeated": True}
        assert (good["software"], good["listener"], good["client_id"]) == ("librdkafka 2.5", "OUTSIDE", "c")
        assert (bad["principal"], bad["error"]) == (None, "SASL_AUTHENTICATION_FAILED")
        assert "eve" in bad["message"]
        assert (certificate["principal"], certificate["host"]) == ("User:CN=alice", "10.0.0.2")
        assert (handshake["outcome"], handshake["error"], handshake["message"]) == (
            "failure",
            None,
            "certificate has expired",
        )

    play(scene)


def test_a_repeated_denial_is_reported_once_and_later_with_a_count() -> None:
    async def scene() -> None:
        stand = Stand()
        for _ in range(50):
            assert not stand.context().is_authorized(Operation.WRITE, ResourceType.TOPIC, "orders")
        assert not stand.context().is_authorized(Operation.READ, ResourceType.TOPIC, "orders")
        assert [event["count"] for event in stand.events()] == [1, 1]
        first = stand.events()[0]
        assert (first["outcome"], first["message"]) == ("denied", "DefaultDeny")
        assert (first["resource_type"], first["resource"]) == ("topic", "orders")
        assert first["requested"] == {"operation": "Write"}
        await asyncio.sleep(REPEAT_SECONDS + 1)
        assert [event["count"] for event in stand.events()] == [1, 1, 49]
        stand.context().is_authorized(Operation.WRITE, ResourceType.TOPIC, "orders")
        assert len(stand.events()) == 4

    play(scene)


def test_password_guessing_is_reported_once_a_minute_with_a_count() -> None:
    async def scene() -> None:
        stand = Stand()
        for _ in range(1000):
            stand.trail.record_failed_login(stand.context(), "PLAIN", 58, "wrong password")
        stand.trail.report_repeats()
        assert [(event["event"], event["count"]) for event in stand.events()] == [
            ("login.failed", 1),
            ("login.failed", 999),
        ]

    play(scene)


def test_many_repetitions_are_reported_in_pieces() -> None:
    async def scene() -> None:
        stand = Stand()
        for number in range(2 * REFUSALS_PER_SECOND_MAX):
            if number == REFUSALS_PER_SECOND_MAX:
                await asyncio.sleep(1)
            for _ in range(3):
                stand.context().is_authorized(Operation.WRITE, ResourceType.TOPIC, f"t{number}")
        stand.trail.report_repeats()
        assert len(stand.events()) == 2 * REFUSALS_PER_SECOND_MAX + REPEATS_PER_ITERATION
        await asyncio.sleep(1)
        told = [event["count"] for event in stand.events()]
        assert told == [1] * 2 * REFUSALS_PER_SECOND_MAX + [2] * 2 * REFUSALS_PER_SECOND_MAX

    play(scene)


def test_permissive_mode_reports_what_would_be_denied() -> None:
    async def scene() -> None:
        stand = Stand()
        stand.broker.authorizer = Authorizer({}, is_permissive=True)
        assert stand.context().is_authorized(Operation.WRITE, ResourceType.TOPIC, "orders")
        assert [event["outcome"] for event in stand.events()] == ["permitted"]

    play(scene)


def test_a_flood_of_denials_is_counted_and_reported_as_lost() -> None:
    async def scene() -> None:
        stand = Stand()
        for number in range(REFUSALS_PER_SECOND_MAX + 300):
            stand.context().is_authorized(Operation.WRITE, ResourceType.TOPIC, f"t{number}")
        assert len(stand.events()) == REFUSALS_PER_SECOND_MAX
        assert stand.counters.lost == 300
        await asyncio.sleep(1)
        stand.context().is_authorized(Operation.WRITE, ResourceType.TOPIC, "later")
        assert len(stand.events()) == REFUSALS_PER_SECOND_MAX + 1

    play(scene)


def test_a_full_queue_keeps_the_oldest_events_and_reports_lost_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trails, "EVENTS_MAX", 3)

    async def scene() -> None:
        stand = Stand()
        for number in range(10):
            stand.trail.record_change("topic.create", stand.context(), Change("topic", f"t{number}"))
        assert [event["resource"] for event in stand.events()] == ["t0", "t1", "t2"]
        assert (stand.counters.lost, stand.counters.waiting) == (7, 3)
        stand.trail.remove_written(2)
        assert stand.names() == ["topic.create", "audit.lost"]
        lost = stand.events()[-1]
        assert (lost["count"], lost["outcome"]) == (7, "failure")
        stand.trail.remove_written(2)
        assert stand.names() == []
        assert stand.counters.written == 4

    with caplog.at_level(logging.ERROR, "ottla.broker.audit"):
        play(scene)
    assert len(caplog.messages) == 1, "one line for all lost events"
    assert "are lost" in caplog.messages[0]


def test_the_bytes_of_waiting_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trails, "BYTES_MAX", 2_000)

    async def scene() -> None:
        stand = Stand()
        for _ in range(10):
            stand.trail.record_change("topic.create", stand.context(), Change("topic", "t" * 500))
        assert 0 < len(stand.events()) < 4
        stand.trail.remove_written(len(stand.events()))
        assert stand.names() == ["audit.lost"]

    play(scene)


# ---- the writer: appends to a partition led by this broker, or sends to the leader, with retries

ROUND_STEPS_MAX = 40_000  # as for every large request
WHO = ClientIdentity("User:alice", "10.0.0.1", "c", None, "PLAINTEXT", "CreateTopics")


def topic(*leaders: int) -> TopicImage:
    states = tuple(PartitionImage(leader, 0, (ME, OTHER), (ME, OTHER)) for leader in leaders)
    return TopicImage(AUDIT_TOPIC, UUID(int=7), states)


def written(log: Log) -> list[str]:
    return [json.loads(record.value or b"")["resource"] for record in records_in(log)]


class WriterStand:
    """A writer on one of two brokers; the test defines the responses of the other one."""

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
        topics = InternalTopicCreator(self.node, self._create, self._settled, is_standalone=True)
        self.writer = AuditWriter(self.node, self.trail, self.replicas.set, topics, self._call, self.counters)

    async def _create(self, wanted: Any) -> list[TopicResult]:
        self.created += wanted
        return [TopicResult(each.name, Error.INVALID_REQUEST, "not now") for each in wanted]

    async def _settled(self, _timeout_ms: int | None = None) -> None: ...

    async def _call(self, broker: int, _purpose: str, request: Any, _response: type[Any]) -> Any:
        self.asked.append((broker, request))
        answer = self.answers.pop(0) if self.answers else WriteAuditResponse()
        if isinstance(answer, PeerError):
            raise answer
        return answer

    def note(self, *names: str) -> None:
        for name in names:
            self.trail._enqueue("topic.create", WHO, Change("topic", name))

    def lead(self, index: int = 0, replicas: tuple[int, ...] = (ME,)) -> Partition:
        return self.replicas.make(AUDIT_TOPIC, index, replicas)


def test_events_are_appended_to_a_partition_of_this_broker(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = WriterStand(tmp_path, OTHER, ME)
        partition = stand.lead(1)
        stand.note("a", "b")
        await asyncio.sleep(1)
        stand.note("c")
        await asyncio.sleep(1)
        assert written(partition.log) == ["a", "b", "c"]
        assert stand.asked == []
        assert (stand.counters.written, stand.counters.waiting) == (3, 0)

    play(scene)


def test_without_an_own_partition_another_broker_gets_the_events(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = WriterStand(tmp_path, OTHER)
        stand.answers = [PeerError("gone"), WriteAuditResponse(error_code=Error.NOT_LEADER_OR_FOLLOWER)]
        stand.note("a")
        await asyncio.sleep(5)
        assert [(broker, request.partition_index) for broker, request in stand.asked] == [(OTHER, 0)] * 3
        assert (stand.counters.written, stand.counters.failed_writes) == (1, 2)

    play(scene)


def test_an_event_is_written_when_replicated_and_again_if_the_result_is_unknown(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = WriterStand(tmp_path, ME)
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


def test_a_topic_without_a_leader_delays_no_request_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        stand = WriterStand(tmp_path, -1)
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
    assert "1 events are waiting: cannot write to __ottla_audit" in caplog.messages[0]
    assert "it has no leader" in caplog.messages[0]
    assert len(caplog.messages) < 40


def test_a_topic_that_cannot_be_created_delays_no_request_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        stand = WriterStand(tmp_path)
        stand.note("a")
        await asyncio.sleep(1)
        assert [each.name for each in stand.created[:1]] == [AUDIT_TOPIC]
        assert stand.counters.waiting == 1
        await stand.writer.stop()
        assert (stand.counters.waiting, stand.counters.lost) == (0, 1)

    with caplog.at_level(logging.WARNING, "ottla.broker.audit"):
        play(scene)
    assert any("not now" in message for message in caplog.messages)
    assert "this broker is stopping" in caplog.messages[-1]


def test_a_stopping_broker_writes_its_events(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = WriterStand(tmp_path, ME)
        partition = stand.lead()
        await stand.writer.stop()
        stand.note("a", "b")
        await stand.writer.stop()
        assert written(partition.log) == ["a", "b"]
        assert stand.counters.lost == 0

    play(scene)


def test_only_the_event_that_is_too_large_for_the_topic_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "BATCH_EVENTS_MAX", 8)

    async def scene() -> None:
        stand = WriterStand(tmp_path, ME)
        partition = stand.lead()
        partition.log.settings = TopicSettings(max_message_bytes=1_200)
        stand.note("a", "b", "c" * 2_000, "d", "e")
        await asyncio.sleep(5)
        names = [name or "lost" for name in written(partition.log)]
        assert sorted(name[0] for name in names) == ["a", "b", "d", "e", "l"]
        assert stand.counters.lost == 1

    play(scene)


@pytest.mark.parametrize("alone", [1, None])
def test_the_topic_is_created_with_the_configured_settings(alone: int | None) -> None:
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


def test_turning_the_audit_trail_on_and_off_is_recorded(tmp_path: Path) -> None:
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


def test_the_changes_of_a_client_are_in_the_topic(tmp_path: Path) -> None:
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


def test_a_request_of_thousands_of_rows_is_recorded_in_slices_and_beyond_the_queue_as_lost(
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


def test_an_error_in_auditing_does_not_affect_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(AuditTrail, "record_change", mistake)

    async def scene(broker: WholeBroker) -> None:
        wanted = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
        await broker.connect().ask(CreateTopicsRequest(topics=[wanted]), 19, 7)
        assert "orders" in broker.parts.image.topics

    with_whole_broker(tmp_path, APIS, scene, {"ottla.audit.enable": "true"})


# ---- events of other brokers


class Asker:
    """Another broker, as the handler of WriteAudit sees it."""

    def __init__(self, stand: WriterStand, *, is_broker: bool = True) -> None:
        self.broker = SimpleNamespace(replicas=stand.replicas.set, clock=stand.node.clock, workers=stand.node.workers)
        self._is_broker = is_broker

    def is_authorized(self, operation: Operation, *_: object) -> bool:
        return self._is_broker and operation is Operation.CLUSTER_ACTION

    async def ask(self, records: bytes, index: int = 0) -> tuple[Error, str | None]:
        context: Any = self
        answer = await write_audit.handle(WriteAuditRequest(partition_index=index, records=records), context)
        return Error(answer.error_code), answer.error_message


def test_events_of_other_brokers_are_accepted_from_brokers_only(tmp_path: Path) -> None:
    async def scene() -> None:
        stand = WriterStand(tmp_path, ME, ME)
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
        assert written(shared.log) == ["a"], "the other broker retries: the event has an id"
        assert written(alone.log) == ["a"]

    play(scene)
