"""Quotas of a whole broker in virtual time: throttling, refusals, and resumed clients."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.handler_stand import Broker, with_broker
from tests.unit.broker.handler_stand import Client as Stranger
from tests.unit.broker.quota_stand import ME, PRODUCE, Asker, play, set_quotas
from tests.unit.broker.whole_broker import WholeBroker

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers import alter_client_quotas, describe_client_quotas
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    decide_config_changes,
)
from ottla.protocol.batches import build_batch
from ottla.protocol.messages.configs import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaEntity,
)
from ottla.protocol.messages.configs import QuotaAlteration as WireAlteration
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.records import Record

METADATA = 3


def stored_bytes(answer: Any) -> int:
    return sum(len(row.records or b"") for topic in answer.responses for row in topic.partitions)


async def set_settings(broker: WholeBroker, kind: ConfigResourceType, name: str, **values: object) -> None:
    operations = tuple(
        ConfigOperation(
            OperationType.SET if value is not None else OperationType.DELETE, key.replace("_", "."), str(value)
        )
        for key, value in values.items()
    )
    change = ConfigResourceChange(kind, name, operations)
    results = await broker.parts.controller.change(
        lambda image: decide_config_changes(image, [change], broker.settings)
    )
    assert results[0].error is Error.NONE, results
    await broker.parts.publisher.wait_until_applied()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_producer_over_its_rate_is_throttled_and_muted(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        assert not broker.parts.quotas.is_on
        await set_quotas(broker, *ME, producer_byte_rate=1000.0)
        assert (await me.produce(10_500)).throttle_time_ms == 0
        told_ms = (await me.produce(1_000)).throttle_time_ms
        assert 11_400 <= told_ms <= 12_000
        began = now()
        assert (await me.produce(100)).throttle_time_ms < 1_000
        assert now() - began >= told_ms / 1000 - 0.1

    play(tmp_path, scene)


def test_another_connection_of_the_same_client_gets_no_more(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, producer_byte_rate=1000.0)
        told_ms = (await me.produce(12_000)).throttle_time_ms
        began = now()
        await Asker(broker).produce(100)
        assert now() - began >= told_ms / 1000 - 0.1
        stranger = Asker(broker)
        stranger.connection.client.principal = "User:bob"
        await set_quotas(broker, ("user", "bob"), ("client-id", "long"), producer_byte_rate=1e9)
        began = now()
        await stranger.produce(100)
        assert now() - began < 0.1

    play(tmp_path, scene)


def test_acks_0_is_throttled_too(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, producer_byte_rate=1000.0)
        batch = build_batch([Record(-1, 1_000_000, None, b"x" * 12_000)])
        rows = [PartitionProduceData(index=0, records=memoryview(batch))]
        me.write(
            ProduceRequest(
                transactional_id=None,
                acks=0,
                timeout_ms=1,
                topic_data=[TopicProduceData(name="t", partition_data=rows)],
            ),
            PRODUCE,
            9,
        )
        me.connection.on_readable()
        assert me.connection.throttle_timer is not None

    play(tmp_path, scene)


def test_a_fetch_over_its_share_gets_an_empty_response_at_once(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        for _ in range(20):
            await me.produce(1_000)
        await set_quotas(broker, *ME, consumer_byte_rate=1000.0)
        first = await me.fetch()
        assert 10_000 <= stored_bytes(first) <= 11_000  # not more than its share
        second = await me.fetch(10)
        assert (stored_bytes(second) > 0, second.throttle_time_ms > 0) == (True, True)
        began = now()
        third = await Asker(broker).fetch(10)
        assert (third.responses, third.session_id, third.throttle_time_ms > 0) == ([], 0, True)
        assert now() - began < 0.1

    play(tmp_path, scene)


def test_throttled_clients_continue_at_once_when_the_rule_is_removed(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        for change in (None, 1e9):
            await set_quotas(broker, *ME, producer_byte_rate=1000.0)
            assert (await me.produce(50_000)).throttle_time_ms > 10_000
            began = now()
            me.write(MetadataRequest(topics=[]), METADATA, 1)
            waiting = asyncio.ensure_future(me.answer())
            await asyncio.sleep(1)
            assert not waiting.done()
            await set_quotas(broker, ("user", "other"), producer_byte_rate=5.0)
            await asyncio.sleep(1)
            assert not waiting.done()
            await set_quotas(broker, *ME, producer_byte_rate=change)
            await waiting
            assert now() - began < 2.5
            me.next_answer(METADATA, 1)

    play(tmp_path, scene)


def test_records_are_counted_from_the_headers_of_batches(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, producer_message_rate=10.0, consumer_message_rate=10.0)
        assert (await me.produce(100, count=100)).throttle_time_ms == 0
        assert 10_500 < (await me.produce(11, count=11)).throttle_time_ms < 11_500
        first = await me.fetch()
        assert first.throttle_time_ms == 0
        assert first.responses[0].partitions[0].records is not None
        again = await me.fetch()  # the same records are charged again because they are sent again
        assert again.throttle_time_ms > 5_000

    play(tmp_path, scene)


def test_a_topic_quota_throttles_all_its_producers(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_settings(broker, ConfigResourceType.TOPIC, "t", ottla_quota_produce_bytes=1000)
        assert not broker.parts.quotas.is_on
        assert (await me.produce(5_000)).throttle_time_ms == 0
        assert (await me.produce(50_000, "u")).throttle_time_ms == 0
        assert (await me.produce(7_000)).throttle_time_ms > 10_000
        waiting = asyncio.ensure_future(me.fetch())
        await asyncio.sleep(1)
        assert not waiting.done()
        await set_settings(broker, ConfigResourceType.TOPIC, "t", ottla_quota_produce_bytes=None)
        await asyncio.wait([waiting], timeout=1)
        assert waiting.done()

    play(tmp_path, scene)


@pytest.mark.parametrize("key", ["ottla_quota_produce_messages", "ottla_quota_partition_produce_messages"])
def test_a_topic_that_rejects_stores_nothing_and_accepts_later_batches(tmp_path: Path, key: str) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_settings(broker, ConfigResourceType.TOPIC, "t", ottla_quota_action="reject", **{key: 10})
        answers = [await me.produce(30, count=30) for _ in range(5)]
        rows = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [row.error_code for row in rows] == [0, 0, 0, 0, Error.POLICY_VIOLATION]
        assert "producer_message_rate=10 of topic=t" in rows[4].error_message
        assert [answer.throttle_time_ms for answer in answers] == [0] * 5
        partition = broker.parts.replicas.get("t", 0)
        assert partition is not None
        assert partition.log.end_offset == 120
        await asyncio.sleep(13)
        assert (await me.produce(1)).responses[0].partition_responses[0].error_code == 0

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "key",
    [
        "ottla_quota_fetch_bytes",
        "ottla_quota_partition_fetch_bytes",
        "ottla_quota_fetch_messages",
        "ottla_quota_partition_fetch_messages",
    ],
)
def test_a_topic_quota_throttles_consumers(tmp_path: Path, key: str) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        size = 1_000 if "bytes" in key else 100
        for _ in range(30):
            await me.produce(size, count=1 if "bytes" in key else 100)
            await me.produce(1_000, "u")
        await set_settings(broker, ConfigResourceType.TOPIC, "t", **{key: 1000})
        total = stored_bytes(await me.fetch())
        assert total > 0
        answer = await me.fetch(1)
        for _ in range(5):
            if answer.throttle_time_ms:
                break
            answer = await me.fetch(1)
        assert 0 < answer.throttle_time_ms <= 1_000
        assert stored_bytes(answer) == 0
        assert stored_bytes(await Asker(broker).fetch(0, "u")) > 20_000

    play(tmp_path, scene)


@pytest.mark.parametrize("action", ["throttle", "reject"])
@pytest.mark.parametrize("key", ["ottla_quota_produce_bytes", "ottla_quota_produce_messages"])
def test_a_broker_quota_throttles_producers(tmp_path: Path, key: str, action: str) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        amount = 1000 if "bytes" in key else 10
        await set_settings(broker, ConfigResourceType.BROKER, "", ottla_quota_action=action, **{key: amount})
        assert (await me.produce(6_000, count=60)).throttle_time_ms == 0
        second = await me.produce(8_000, "u", count=80)
        assert (second.throttle_time_ms > 5_000) == (action == "throttle")
        if action == "reject":
            answer = await Asker(broker).produce(100)
            assert answer.responses[0].partition_responses[0].error_code == Error.POLICY_VIOLATION

    play(tmp_path, scene)


@pytest.mark.parametrize("key", ["ottla_quota_fetch_bytes", "ottla_quota_fetch_messages"])
def test_a_broker_quota_throttles_consumers(tmp_path: Path, key: str) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        for _ in range(20):
            await me.produce(1_000, count=10)
        await set_settings(broker, ConfigResourceType.BROKER, "", **{key: 1_000 if "bytes" in key else 10})
        waits = [(await me.fetch()).throttle_time_ms for _ in range(3)]
        assert max(waits) > 0

    play(tmp_path, scene)


def test_observe_mode_charges_all_clients_and_throttles_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_settings(broker, ConfigResourceType.BROKER, "", ottla_quota_mode="observe")
        assert (await me.produce(5_000)).throttle_time_ms == 0
        shares = [share for share in broker.parts.quotas.shares if share.meter.total]
        assert {(share.rule.key, share.rule.user, share.rule.client_id) for share in shares} == {
            ("producer_byte_rate", "ANONYMOUS", "long"),
            ("producer_message_rate", "ANONYMOUS", "long"),
        }
        await set_quotas(broker, *ME, producer_byte_rate=100.0)
        for _ in range(3):
            assert (await me.produce(5_000)).throttle_time_ms == 0
        held = [share.meter.throttle_count for share in broker.parts.quotas.shares if share.rule.bound == 100]
        assert held == [3]
        await set_settings(broker, ConfigResourceType.BROKER, "", ottla_quota_mode="enforce")
        assert (await me.produce(5_000)).throttle_time_ms > 0

    with caplog.at_level(logging.INFO, "ottla.broker.quota_manager"):
        play(tmp_path, scene)
    lines = [record.getMessage() for record in caplog.records]
    assert "client id long would be throttled for" in lines[0]
    assert "by the quota producer_byte_rate=100 of client-id=long" in lines[0]


def test_throttling_is_logged_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, ("user", None), producer_byte_rate=1000.0)
        for _ in range(90):
            await me.produce(2_000)

    with caplog.at_level(logging.INFO, "ottla.broker.quota_manager"):
        play(tmp_path, scene)
    lines = [record.getMessage() for record in caplog.records]
    assert 2 <= len(lines) <= 4
    assert all(line.startswith("user ANONYMOUS is throttled for") for line in lines)
    assert all("producer_byte_rate=1000 of user=<default>" in line for line in lines)


@pytest.mark.parametrize(
    ("key", "value", "burst"), [("quota_window_num", 3, 3_000), ("quota_window_size_seconds", 2, 22_000)]
)
def test_the_window_settings_are_used(tmp_path: Path, key: str, value: int, burst: int) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, producer_byte_rate=1000.0)
        broker.parts.quotas.apply_settings(BrokerSettings({key.replace("_", "."): str(value)}))
        assert (await me.produce(burst - 500)).throttle_time_ms == 0
        assert (await me.produce(1_000)).throttle_time_ms > 0

    play(tmp_path, scene)


def test_a_share_of_the_request_time_is_throttled(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, request_percentage=1e-7)
        waits = [(await me.call(MetadataRequest(topics=[]), METADATA, 3)).throttle_time_ms for _ in range(2)]
        assert max(waits) == 1_000  # never longer than a window: members must keep their sessions
        assert (await me.produce(10)).throttle_time_ms == 1_000

    play(tmp_path, scene)


def test_an_address_that_connects_too_often_is_delayed_and_closed(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, _: Asker) -> None:
        gate = broker.parts.quotas
        assert gate.connection_delay_seconds("10.0.0.1", "PLAINTEXT") == 0
        await set_quotas(broker, ("ip", "10.0.0.1"), connection_creation_rate=1.0)
        waits = [gate.connection_delay_seconds("10.0.0.1", "PLAINTEXT") for _ in range(13)]
        assert (waits[:12], waits[12]) == ([0.0] * 12, 1.0)
        assert gate.connection_delay_seconds("10.0.0.2", "PLAINTEXT") == 0
        gate.inter_broker_listener = "INTERNAL"
        assert gate.connection_delay_seconds("10.0.0.1", "INTERNAL") == 0
        await set_quotas(broker, ("ip", "10.0.0.1"), connection_creation_rate=None)
        assert gate.connection_delay_seconds("10.0.0.1", "PLAINTEXT") == 0

    play(tmp_path, scene)


def test_a_stopping_broker_answers_delayed_requests(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, producer_byte_rate=1000.0)
        await me.produce(20_000)
        other = Asker(broker)
        broker.parts.quotas.connections = [me.connection, other.connection]
        waiting = asyncio.ensure_future(other.produce(100))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert not other.connection.is_idle
        broker.parts.quotas.stop()
        await asyncio.wait([waiting], timeout=1)
        assert waiting.done()
        assert other.connection.is_idle

    play(tmp_path, scene)


def test_followers_are_never_charged(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        for _ in range(20):
            await me.produce(1_000)
        await set_quotas(broker, *ME, consumer_byte_rate=1.0, consumer_message_rate=1.0, request_percentage=1e-9)
        answers = [await me.fetch(replica_id=7) for _ in range(3)]
        assert [answer.throttle_time_ms for answer in answers] == [0, 0, 0]
        assert (await me.fetch()).throttle_time_ms > 0

    play(tmp_path, scene)


def test_rules_are_changed_and_described_by_authorized_clients_only(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        entity = [QuotaEntity(entity_type="user", entity_name="a")]
        alteration = AlterClientQuotasRequest(entries=[WireAlteration(entity=entity)])
        refused = Stranger(broker, (Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME))
        answer = await refused.ask(alter_client_quotas.handle, alteration, 1)
        assert [row.error_code for row in answer.entries] == [Error.CLUSTER_AUTHORIZATION_FAILED]
        answer = await Stranger(broker).ask(alter_client_quotas.handle, alteration, 1)
        assert [(row.error_code, row.entity) for row in answer.entries] == [(0, entity)]
        refused = Stranger(broker, (Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME))
        answer = await refused.ask(describe_client_quotas.handle, DescribeClientQuotasRequest(), 1)
        assert (answer.error_code, answer.entries) == (Error.CLUSTER_AUTHORIZATION_FAILED, None)

    with_broker(tmp_path, scene)


def test_an_unrelated_setting_ends_no_throttling(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, producer_byte_rate=1000.0)
        told_ms = (await me.produce(20_000)).throttle_time_ms
        await set_settings(broker, ConfigResourceType.BROKER, "", log_retention_ms=1_000_000)
        began = now()
        await Asker(broker).produce(10)
        assert now() - began > told_ms / 1000 - 1

    play(tmp_path, scene)


# ---- topic mutations of a whole broker in virtual time: `controller_mutation_rate`

TOPIC_METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 3, 19, 20, 37
UNKNOWN = Error.UNKNOWN_TOPIC_OR_PARTITION


async def create(me: Asker, name: str, partitions: int, version: int = 7) -> tuple[int, int]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
    answer = await me.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), CREATE_TOPICS, version)
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_topic_changes_above_the_rate_are_refused(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        assert await create(me, "a", 10) == (0, 0)
        error, wait_ms = await create(me, "b", 5)  # the last change may exceed the quota
        assert (error, 3_000 <= wait_ms <= 4_000) == (0, True)
        refused, wait_ms = await create(Asker(broker), "c", 1)
        assert (refused, wait_ms > 0) == (Error.THROTTLING_QUOTA_EXCEEDED, True)
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=11)], timeout_ms=1000)
        answer = await Asker(broker).call(more, CREATE_PARTITIONS, 3)
        assert answer.results[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1000)
        answer = await Asker(broker).call(gone, DELETE_TOPICS, 6)
        assert answer.responses[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        error, wait_ms = await create(Asker(broker), "d", 1, version=5)  # this version does not know the error
        assert (error, wait_ms > 3_000) == (0, True)
        await asyncio.sleep(10)
        assert (await create(Asker(broker), "e", 1))[0] == 0

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("key", "value", "burst"), [("controller_quota_window_num", 2, 2), ("controller_quota_window_size_seconds", 3, 33)]
)
def test_the_window_settings_apply_to_mutations(tmp_path: Path, key: str, value: int, burst: int) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        broker.parts.quotas.apply_settings(BrokerSettings({key.replace("_", "."): str(value)}))
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        assert await create(me, "a", burst) == (0, 0)
        assert (await create(me, "b", 1))[1] > 0

    play(tmp_path, scene)


async def look_for(me: Asker, *names: str, version: int = 12) -> tuple[dict[str | None, int], int]:
    """Errors by topic, and the throttle time."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer = await me.call(MetadataRequest(topics=topics, allow_auto_topic_creation=True), TOPIC_METADATA, version)
    return {row.name: row.error_code for row in answer.topics}, answer.throttle_time_ms


@pytest.mark.parametrize("version", [4, 12])
def test_automatically_created_topics_are_charged_to_the_client(tmp_path: Path, version: int) -> None:
    """As in Apache Kafka 4.3: topics above the rate are unknown, and a Metadata request is not throttled."""

    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        assert await look_for(me, "m0", version=version) == ({"m0": 0}, 0)
        first, wait_ms = await look_for(me, *(f"m{number}" for number in range(10)), version=version)
        assert (set(first.values()), wait_ms) == ({0}, 0)
        over = await look_for(me, *(f"n{number}" for number in range(5)), version=version)
        assert over == ({"n0": 0, "n1": 0, "n2": UNKNOWN, "n3": UNKNOWN, "n4": UNKNOWN}, 0), (
            "one topic may exceed the quota"
        )
        assert (await create(me, "c", 1))[0] == Error.THROTTLING_QUOTA_EXCEEDED, "it is the same rate"
        assert await look_for(me, "m1", "t", version=version) == ({"m1": 0, "t": 0}, 0), "existing topics are free"
        stranger = Asker(broker, "another")
        assert (await look_for(stranger, *(f"s{number}" for number in range(50))))[0].keys() >= {"s49"}
        assert {f"s{number}" for number in range(50)} <= broker.parts.image.topics.keys()
        await asyncio.sleep(11)
        assert await look_for(Asker(broker), "n2", version=version) == ({"n2": 0}, 0)

    play(tmp_path, scene, auto_create_topics_enable="true")


def test_observe_mode_creates_topics_at_any_rate(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        broker.parts.quotas.apply_settings(BrokerSettings({"ottla.quota.mode": "observe"}))
        found, wait_ms = await look_for(me, *(f"m{number}" for number in range(50)))
        assert (set(found.values()), wait_ms) == ({0}, 0)

    play(tmp_path, scene, auto_create_topics_enable="true")


def test_internal_topics_are_not_auto_created(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        assert await look_for(me, "__consumer_offsets", "..") == (
            {"__consumer_offsets": UNKNOWN, "..": Error.INVALID_TOPIC_EXCEPTION},
            0,
        )

    play(tmp_path, scene, auto_create_topics_enable="true")
