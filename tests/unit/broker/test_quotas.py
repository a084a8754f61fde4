"""Quotas at the door of a whole broker, in virtual time: who is held up, for how long, who is refused, who goes on."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

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
from ottla.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaEntity,
)
from ottla.protocol.messages.client_quotas import QuotaAlteration as WireAlteration
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import Record
from unit.broker.handler_stand import Broker, with_broker
from unit.broker.handler_stand import Client as Stranger
from unit.broker.quota_stand import ME, PRODUCE, Asker, play, set_quotas
from unit.broker.whole_broker import WholeBroker

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
    await broker.parts.publisher.settled()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_producer_over_its_rate_is_told_so_and_not_read_for_so_long(tmp_path: Path) -> None:
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


def test_acks_0_is_held_up_too(tmp_path: Path) -> None:
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
        assert me.connection.throttled is not None

    play(tmp_path, scene)


def test_a_fetch_over_its_share_gets_an_empty_answer_at_once(tmp_path: Path) -> None:
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


def test_who_is_held_up_goes_on_at_once_when_the_rule_goes(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        for change in (None, 1e9):
            await set_quotas(broker, *ME, producer_byte_rate=1000.0)
            assert (await me.produce(50_000)).throttle_time_ms > 10_000
            began = now()
            me.write(MetadataRequest(topics=[]), METADATA, 1)
            waiting = asyncio.ensure_future(me.answer())
            await asyncio.sleep(1)
            assert not waiting.done()
            await set_quotas(broker, ("user", "somebody else"), producer_byte_rate=5.0)
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
        again = await me.fetch()  # the same records count again: they are sent again
        assert again.throttle_time_ms > 5_000

    play(tmp_path, scene)


def test_a_topic_s_quota_throttles_whoever_writes_to_it(tmp_path: Path) -> None:
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
def test_a_topic_that_rejects_stores_nothing_and_takes_more_later(tmp_path: Path, key: str) -> None:
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
def test_a_topic_s_quota_for_readers(tmp_path: Path, key: str) -> None:
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
def test_the_quota_of_a_whole_broker(tmp_path: Path, key: str, action: str) -> None:
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
def test_the_quota_of_a_whole_broker_for_readers(tmp_path: Path, key: str) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        for _ in range(20):
            await me.produce(1_000, count=10)
        await set_settings(broker, ConfigResourceType.BROKER, "", **{key: 1_000 if "bytes" in key else 10})
        waits = [(await me.fetch()).throttle_time_ms for _ in range(3)]
        assert max(waits) > 0

    play(tmp_path, scene)


def test_in_rehearsal_everybody_is_measured_and_nobody_held_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_settings(broker, ConfigResourceType.BROKER, "", ottla_quota_mode="observe")
        assert (await me.produce(5_000)).throttle_time_ms == 0
        shares = [share for share in broker.parts.quotas.book if share.meter.total]
        assert {(share.rule.key, share.rule.user, share.rule.client_id) for share in shares} == {
            ("producer_byte_rate", "ANONYMOUS", "long"),
            ("producer_message_rate", "ANONYMOUS", "long"),
        }
        await set_quotas(broker, *ME, producer_byte_rate=100.0)
        for _ in range(3):
            assert (await me.produce(5_000)).throttle_time_ms == 0
        held = [share.meter.held_count for share in broker.parts.quotas.book if share.rule.bound == 100]
        assert held == [3]
        await set_settings(broker, ConfigResourceType.BROKER, "", ottla_quota_mode="enforce")
        assert (await me.produce(5_000)).throttle_time_ms > 0

    with caplog.at_level(logging.INFO, "ottla.broker.quota_gate"):
        play(tmp_path, scene)
    lines = [record.getMessage() for record in caplog.records]
    assert "client id long would be held up for" in lines[0]
    assert "by the quota producer_byte_rate=100 of client-id=long" in lines[0]


def test_the_log_says_who_is_held_up_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, ("user", None), producer_byte_rate=1000.0)
        for _ in range(90):
            await me.produce(2_000)

    with caplog.at_level(logging.INFO, "ottla.broker.quota_gate"):
        play(tmp_path, scene)
    lines = [record.getMessage() for record in caplog.records]
    assert 2 <= len(lines) <= 4
    assert all(line.startswith("user ANONYMOUS is held up for") for line in lines)
    assert all("producer_byte_rate=1000 of user=<default>" in line for line in lines)


@pytest.mark.parametrize(
    ("key", "value", "burst"), [("quota_window_num", 3, 3_000), ("quota_window_size_seconds", 2, 22_000)]
)
def test_windows_are_as_many_and_as_long_as_they_are_set(tmp_path: Path, key: str, value: int, burst: int) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, producer_byte_rate=1000.0)
        broker.parts.quotas.follow_settings(BrokerSettings({key.replace("_", "."): str(value)}))
        assert (await me.produce(burst - 500)).throttle_time_ms == 0
        assert (await me.produce(1_000)).throttle_time_ms > 0

    play(tmp_path, scene)


def test_a_share_of_the_broker_s_time(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, request_percentage=1e-7)
        waits = [(await me.call(MetadataRequest(topics=[]), METADATA, 3)).throttle_time_ms for _ in range(2)]
        assert max(waits) == 1_000  # never longer than a window, so that members keep their sessions
        assert (await me.produce(10)).throttle_time_ms == 1_000

    play(tmp_path, scene)


def test_an_address_that_connects_too_often_waits_and_is_closed(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, _: Asker) -> None:
        gate = broker.parts.quotas
        assert gate.seconds_to_refuse("10.0.0.1", "PLAINTEXT") == 0
        await set_quotas(broker, ("ip", "10.0.0.1"), connection_creation_rate=1.0)
        waits = [gate.seconds_to_refuse("10.0.0.1", "PLAINTEXT") for _ in range(13)]
        assert (waits[:12], waits[12]) == ([0.0] * 12, 1.0)
        assert gate.seconds_to_refuse("10.0.0.2", "PLAINTEXT") == 0
        gate.brokers_listener = "INTERNAL"
        assert gate.seconds_to_refuse("10.0.0.1", "INTERNAL") == 0
        await set_quotas(broker, ("ip", "10.0.0.1"), connection_creation_rate=None)
        assert gate.seconds_to_refuse("10.0.0.1", "PLAINTEXT") == 0

    play(tmp_path, scene)


def test_a_broker_that_stops_answers_what_it_holds_back(tmp_path: Path) -> None:
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


def test_followers_are_never_measured(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        for _ in range(20):
            await me.produce(1_000)
        await set_quotas(broker, *ME, consumer_byte_rate=1.0, consumer_message_rate=1.0, request_percentage=1e-9)
        answers = [await me.fetch(replica_id=7) for _ in range(3)]
        assert [answer.throttle_time_ms for answer in answers] == [0, 0, 0]
        assert (await me.fetch()).throttle_time_ms > 0

    play(tmp_path, scene)


def test_rules_are_changed_and_shown_only_to_who_may(tmp_path: Path) -> None:
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


def test_a_setting_that_is_not_about_quotas_lets_nobody_go(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, producer_byte_rate=1000.0)
        told_ms = (await me.produce(20_000)).throttle_time_ms
        await set_settings(broker, ConfigResourceType.BROKER, "", log_retention_ms=1_000_000)
        began = now()
        await Asker(broker).produce(10)
        assert now() - began > told_ms / 1000 - 1

    play(tmp_path, scene)
