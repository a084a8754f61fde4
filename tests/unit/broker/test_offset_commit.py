"""Undecoded commits: they are answered, written and counted like decoded ones."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.broker.quota_stand import ME, Asker, set_quotas
from tests.unit.broker.whole_broker import WholeBroker, with_whole_broker

from ottla.base.errors import Error
from ottla.base.security import ANONYMOUS, Operation, PatternType, Permission, ResourceType
from ottla.base.topic_settings import TopicSettings
from ottla.broker.coordinator_service.internal_topics import offsets_topic
from ottla.broker.handlers.table import APIS
from ottla.groups.commit_template import COMMITS_BETWEEN_ATTEMPTS, CommitTemplateCache
from ottla.groups.offsets import OffsetAndMetadata
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
)
from ottla.security.acls import AccessControlEntry, ResourcePattern
from ottla.security.authorizer import Authorizer

JOIN_GROUP, SYNC_GROUP, OFFSET_COMMIT = 11, 14, 8
GROUP, TOPIC = "g", "orders"


class Member:
    """The only member of its group."""

    def __init__(self, broker: WholeBroker) -> None:
        self.broker = broker
        self.client = Asker(broker)
        self.member_id = ""
        self.generation = -1

    async def join(self) -> None:
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = await self.client.call(join, JOIN_GROUP, 3)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=[])
        await self.client.call(sync, SYNC_GROUP, 2)

    def request(self, offsets: dict[int, int], metadata: str | None = None) -> OffsetCommitRequest:
        rows = [
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=offset % 5,
                committed_metadata=metadata,
            )
            for index, offset in offsets.items()
        ]
        topic_id = self.broker.parts.image.topics[TOPIC].topic_id
        return OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=rows)],
        )

    async def commit(self, offsets: dict[int, int], version: int = 9, metadata: str | None = None) -> list[int]:
        """The error codes of the partitions."""
        return await commit(self.client, self.request(offsets, metadata), version)

    @property
    def habit(self) -> CommitTemplateCache:
        habit: CommitTemplateCache = self.client.connection.client.commit_form
        return habit

    def committed(self, index: int) -> OffsetAndMetadata:
        found = self.broker.parts.coordinators.groups.shard(GROUP).machine.offsets.get(GROUP, TOPIC, index)
        assert found is not None
        return found


async def commit(client: Asker, request: OffsetCommitRequest, version: int) -> list[int]:
    response = await client.call(request, OFFSET_COMMIT, version)
    (topic,) = response.topics
    asked = request.topics[0]
    assert (topic.topic_id == asked.topic_id) if version >= 10 else (topic.name == asked.name)
    assert [row.partition_index for row in topic.partitions] == [row.partition_index for row in asked.partitions]
    return [row.error_code for row in topic.partitions]


class Crowd:
    """The poller: other requests are pending when a commit arrives, and none at the end of the iteration."""

    def __init__(self) -> None:
        self._waiting = itertools.cycle([1, 0])

    @property
    def pending_sockets(self) -> int:
        return next(self._waiting)


def with_member(tmp_path: Path, play: Callable[[Member], Awaitable[None]], crowd: Crowd | None = None) -> None:
    async def whole(broker: WholeBroker) -> None:
        await broker.create_topics({TOPIC: 4})
        await broker.parts.coordinators.ensure_topic(offsets_topic(broker.settings))
        broker.parts.coordinators.groups.pending_requests = crowd
        member = Member(broker)
        await member.join()
        await play(member)

    with_whole_broker(tmp_path, APIS, whole, {"offsets.topic.replication.factor": "1"})


def allowed(*resources: tuple[ResourceType, str]) -> Authorizer:
    rule = frozenset({AccessControlEntry(ANONYMOUS, "*", Operation.READ, Permission.ALLOW)})
    return Authorizer({ResourcePattern(kind, name, PatternType.LITERAL): rule for kind, name in resources})


@pytest.mark.parametrize("crowd", [None, Crowd()], ids=["alone", "crowded"])
@pytest.mark.parametrize("version", range(2, 11))
def test_each_commit_is_answered_written_and_counted(tmp_path: Path, version: int, crowd: Crowd | None) -> None:
    async def play(member: Member) -> None:
        errors = member.broker.parts.counters.errors
        before = errors.get((OFFSET_COMMIT, 0), 0)
        for offset in range(10, 15):
            assert await member.commit({2: offset, 0: 2**40 + offset}, version) == [0, 0]
            assert (member.committed(2).offset, member.committed(0).offset) == (offset, 2**40 + offset)
            assert member.committed(2).leader_epoch == (offset % 5 if version >= 6 else -1)
            assert member.committed(2).metadata == ""
        assert errors[OFFSET_COMMIT, 0] == before + 10
        assert member.habit.is_used == (version >= 6)

    with_member(tmp_path, play, crowd)


async def another_generation(member: Member) -> None:
    joined = Member(member.broker)
    joined.member_id = member.member_id
    await joined.join()


async def no_members(member: Member) -> None:
    machine = member.broker.parts.coordinators.groups.shard(GROUP).machine
    machine.groups[GROUP].members.clear()


async def no_topic(member: Member) -> None:
    await member.broker.parts.controller.delete_topics([(TOPIC, None)])


async def no_right_for_the_group(member: Member) -> None:
    member.broker.parts.authorizer = allowed((ResourceType.TOPIC, TOPIC))


async def no_right_for_the_topic(member: Member) -> None:
    member.broker.parts.authorizer = allowed((ResourceType.GROUP, GROUP))


async def too_few_replicas(member: Member) -> None:
    partition = member.broker.parts.coordinators.groups.shard(GROUP).partition
    partition.state = partition.state._replace(isr=())


async def too_small_a_topic(member: Member) -> None:
    shard = member.broker.parts.coordinators.groups.shard(GROUP)
    shard.partition.log.settings = TopicSettings(max_message_bytes=80)


async def no_coordinator(member: Member) -> None:
    member.broker.parts.coordinators.groups.must_check_leadership = lambda: True


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (another_generation, Error.ILLEGAL_GENERATION),
        (no_members, Error.UNKNOWN_MEMBER_ID),
        (no_topic, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (no_right_for_the_group, Error.GROUP_AUTHORIZATION_FAILED),
        (no_right_for_the_topic, Error.TOPIC_AUTHORIZATION_FAILED),
        (too_few_replicas, Error.COORDINATOR_NOT_AVAILABLE),
        (too_small_a_topic, Error.INVALID_COMMIT_OFFSET_SIZE),
        (no_coordinator, Error.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
@pytest.mark.parametrize(("version", "crowd"), [(7, None), (9, Crowd())])
def test_errors_are_the_same_as_for_decoded_commits(
    tmp_path: Path, version: int, crowd: Crowd | None, change: Callable[[Member], Awaitable[None]], error: Error
) -> None:
    async def play(member: Member) -> None:
        for offset in range(3):
            assert await member.commit({1: offset, 3: 7}, version) == [0, 0]
        assert member.habit.is_used
        request = member.request({1: 99, 3: 99})
        await change(member)
        assert await commit(member.client, request, version) == [error, error]
        other_client = Asker(member.broker)
        assert await commit(other_client, request, version) == [error, error]
        assert change is no_topic or change is no_coordinator or member.committed(1).offset == 2

    with_member(tmp_path, play, crowd)


def test_existing_permissions_suffice(tmp_path: Path) -> None:
    async def play(member: Member) -> None:
        member.broker.parts.authorizer = allowed((ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, GROUP))
        for offset in range(3):
            assert await member.commit({1: offset}) == [0]
        assert member.habit.is_used

    with_member(tmp_path, play)


def test_a_throttled_client_gets_its_throttle_time(tmp_path: Path) -> None:
    async def play(member: Member) -> None:
        for offset in range(3):
            assert await member.commit({1: offset}) == [0]
        await set_quotas(member.broker, *ME, request_percentage=1e-7)
        response = await member.client.call(member.request({1: 7}), OFFSET_COMMIT, 9)
        assert response.throttle_time_ms > 0
        assert [row.error_code for row in response.topics[0].partitions] == [0]
        assert member.committed(1).offset == 7
        assert member.habit.is_used

    with_member(tmp_path, play)


def test_a_recreated_topic_has_its_own_id(tmp_path: Path) -> None:
    async def play(member: Member) -> None:
        for offset in range(3):
            assert await member.commit({1: offset}, 9) == [0]
        old = member.habit.template
        await member.broker.parts.controller.delete_topics([(TOPIC, None)])
        await member.broker.create_topics({TOPIC: 4})
        for offset in range(20, 23):
            assert await member.commit({1: offset}, 9) == [0]
            assert member.committed(1).offset == offset
        new = member.habit.template
        assert old is not None
        assert new is not None
        assert new.topic_id == member.broker.parts.image.topics[TOPIC].topic_id != old.topic_id

    with_member(tmp_path, play)


def test_metadata_and_other_partitions_are_decoded(tmp_path: Path) -> None:
    async def play(member: Member) -> None:
        for offset in range(COMMITS_BETWEEN_ATTEMPTS * 3):
            assert await member.commit({1: offset}) == [0]
            assert await member.commit({offset % 4: offset, 1: 5}, metadata="note") in ([0, 0], [0])
            assert member.committed(1).metadata == "note"
            assert await member.commit({3: offset}) == [0]
            assert (member.committed(3).offset, member.committed(3).metadata) == (offset, "")
        assert await member.commit({1: 7}, metadata="x" * 5_000) == [Error.OFFSET_METADATA_TOO_LARGE]

    with_member(tmp_path, play)
