"""Changes of topics under a quota, at the door of a whole broker in virtual time: `controller_mutation_rate`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from unit.broker.quota_stand import ME, Asker, play, set_quotas
from unit.broker.whole_broker import WholeBroker

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 3, 19, 20, 37
UNKNOWN = Error.UNKNOWN_TOPIC_OR_PARTITION


async def create(me: Asker, name: str, partitions: int, version: int = 7) -> tuple[int, int]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
    answer = await me.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), CREATE_TOPICS, version)
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_changes_of_topics_beyond_the_rate_are_refused(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        assert await create(me, "a", 10) == (0, 0)
        error, wait_ms = await create(me, "b", 5)  # the last one may overdraw
        assert (error, 3_000 <= wait_ms <= 4_000) == (0, True)
        refused, wait_ms = await create(Asker(broker), "c", 1)
        assert (refused, wait_ms > 0) == (Error.THROTTLING_QUOTA_EXCEEDED, True)
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=11)], timeout_ms=1000)
        answer = await Asker(broker).call(more, CREATE_PARTITIONS, 3)
        assert answer.results[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1000)
        answer = await Asker(broker).call(gone, DELETE_TOPICS, 6)
        assert answer.responses[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        error, wait_ms = await create(Asker(broker), "d", 1, version=5)  # which does not know the error
        assert (error, wait_ms > 3_000) == (0, True)
        await asyncio.sleep(10)
        assert (await create(Asker(broker), "e", 1))[0] == 0

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("key", "value", "burst"), [("controller_quota_window_num", 2, 2), ("controller_quota_window_size_seconds", 3, 33)]
)
def test_windows_of_changes_are_as_set(tmp_path: Path, key: str, value: int, burst: int) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        broker.parts.quotas.follow_settings(BrokerSettings({key.replace("_", "."): str(value)}))
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        assert await create(me, "a", burst) == (0, 0)
        assert (await create(me, "b", 1))[1] > 0

    play(tmp_path, scene)


async def look_for(me: Asker, *names: str, version: int = 12) -> tuple[dict[str | None, int], int]:
    """Errors by topic, and for how long the client is held up."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer = await me.call(MetadataRequest(topics=topics, allow_auto_topic_creation=True), METADATA, version)
    return {row.name: row.error_code for row in answer.topics}, answer.throttle_time_ms


@pytest.mark.parametrize("version", [4, 12])
def test_topics_that_come_to_be_by_asking_for_them_count_for_who_asks(tmp_path: Path, version: int) -> None:
    """As Apache Kafka 4.3: what is beyond the rate is unknown, and nobody is held up for having looked."""

    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        assert await look_for(me, "m0", version=version) == ({"m0": 0}, 0)
        first, wait_ms = await look_for(me, *(f"m{number}" for number in range(10)), version=version)
        assert (set(first.values()), wait_ms) == ({0}, 0)
        over = await look_for(me, *(f"n{number}" for number in range(5)), version=version)
        assert over == ({"n0": 0, "n1": 0, "n2": UNKNOWN, "n3": UNKNOWN, "n4": UNKNOWN}, 0), "one may overdraw"
        assert (await create(me, "c", 1))[0] == Error.THROTTLING_QUOTA_EXCEEDED, "it is the same rate"
        assert await look_for(me, "m1", "t", version=version) == ({"m1": 0, "t": 0}, 0), "what is there costs nothing"
        stranger = Asker(broker, "another")
        assert (await look_for(stranger, *(f"s{number}" for number in range(50))))[0].keys() >= {"s49"}
        assert {f"s{number}" for number in range(50)} <= broker.parts.image.topics.keys()
        await asyncio.sleep(11)
        assert await look_for(Asker(broker), "n2", version=version) == ({"n2": 0}, 0)

    play(tmp_path, scene, auto_create_topics_enable="true")


def test_in_rehearsal_topics_are_made_by_asking_whatever_the_rate(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        broker.parts.quotas.follow_settings(BrokerSettings({"ottla.quota.mode": "observe"}))
        found, wait_ms = await look_for(me, *(f"m{number}" for number in range(50)))
        assert (set(found.values()), wait_ms) == ({0}, 0)

    play(tmp_path, scene, auto_create_topics_enable="true")


def test_internal_topics_are_left_to_their_coordinators(tmp_path: Path) -> None:
    async def scene(broker: WholeBroker, me: Asker) -> None:
        await set_quotas(broker, *ME, controller_mutation_rate=1.0)
        assert await look_for(me, "__consumer_offsets", "..") == (
            {"__consumer_offsets": UNKNOWN, "..": Error.INVALID_TOPIC_EXCEPTION},
            0,
        )

    play(tmp_path, scene, auto_create_topics_enable="true")
