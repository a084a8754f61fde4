"""Members of groups, of the classic and of the new protocol (KIP-848), that come, go and die.

Their work is to raise the committed offset of what they own, one by one. Promises: in one generation a partition
belongs to one member; what was committed does not go back. A member that does not know what became of a commit gives
its place up before it goes on: a commit that comes late is then one of a member that is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

from tests.simulation.brokers.ledger import Ledger
from tests.simulation.brokers.wire import GROUP, Client, GoneError

from ottla.base.errors import Error
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
    Subscription,
    write_versioned,
)
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SESSION_MS: Final = 1_500
REBALANCE_MS: Final = 2_000
LARGE_BYTES: Final = 100 * 1024
METADATA_BYTES_MAX: Final = 4_000
COORDINATOR_ERRORS: Final = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.REQUEST_TIMED_OUT,
        Error.UNSTABLE_OFFSET_COMMIT,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.UNKNOWN_SERVER_ERROR,
        Error.KAFKA_STORAGE_ERROR,
    }
)


class LostPlaceError(Exception):
    """The member is none any more."""


class Member(Client):
    """What both kinds have in common."""

    def __init__(self, cluster: Any, name: str, ledger: Ledger, group: str, topic: str, partitions: int) -> None:
        super().__init__(cluster, name)
        self.ledger = ledger
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.is_large = self.world.chance(0.3)  # sends requests of more than 64 KiB
        self.member_id = ""
        self.generation = -1  # or the member's epoch
        self.owned: dict[int, int] = {}  # partition -> the offset committed last
        self.committed_at = 0.0
        self.placed_at = 0.0  # when it was last answered as a member, with partitions or without

    async def run(self) -> None:
        while not self.is_done:
            try:
                await self.live()
            except LostPlaceError:
                await self.pause()
            except GoneError:
                self.coordinators.clear()
                await self.pause()
            self.forget_place()

    def forget_place(self) -> None:
        self.owned.clear()

    async def live(self) -> None:
        raise NotImplementedError

    async def ask(self, request: Any, response: type[Any], version: int, seconds: float = 4.0) -> Any:
        while not self.is_done:
            coordinator = await self.coordinator(GROUP, self.group)
            if coordinator >= 0:
                answer = await self.call(coordinator, request, response, version, seconds)
                if error_of(answer) not in COORDINATOR_ERRORS:
                    return answer
                self.forget_coordinator(GROUP, self.group)
            await self.pause()
        raise LostPlaceError

    async def take(self, partitions: list[int]) -> None:
        """Become the owner of these, from the committed offset on."""
        asked = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation if isinstance(self, ConsumerMember) else -1,
            topics=[OffsetFetchRequestTopics(name=self.topic, partition_indexes=partitions)],
        )
        if not isinstance(self, ConsumerMember):
            asked.member_id = None
        floors = {index: self.ledger.floor(self.group, (self.topic, index)) for index in partitions}
        answer = await self.ask(OffsetFetchRequest(groups=[asked], require_stable=True), OffsetFetchResponse, 9)
        if error_of(answer) is not Error.NONE:
            raise LostPlaceError
        for each in answer.groups[0].topics[0].partitions:
            place = (self.topic, each.partition_index)
            offset = max(each.committed_offset, 0)
            self.ledger.note_fetched_offset(self.group, place, offset, floors[each.partition_index])
            self.owned[each.partition_index] = offset

    async def commit(self) -> bool:
        """One step further with everything that is owned. False: the place is lost, or about to be."""
        if not self.owned:
            return True
        padding = "x" * METADATA_BYTES_MAX if self.is_large and self.world.chance(0.3) else None
        parts = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset + 1, committed_metadata=padding)
            for index, offset in self.owned.items()
        ]
        if padding is not None:  # of partitions that do not exist, so that the request is large
            parts += [
                OffsetCommitRequestPartition(
                    partition_index=1000 + index, committed_offset=1, committed_metadata=padding
                )
                for index in range(20)
            ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=parts)],
        )
        coordinator = await self.coordinator(GROUP, self.group)
        if coordinator < 0:
            raise GoneError("no coordinator")
        answer = await self.call(coordinator, request, OffsetCommitResponse, 9)
        told = {each.partition_index: each.error_code for topic in answer.topics for each in topic.partitions}
        if len(told) != len(parts):
            self.world.break_(f"{self.name}: {len(parts)} offsets were committed and {len(told)} are answered")
        errors = {told[index] for index in self.owned}
        if errors == {Error.NONE}:
            for index in self.owned:
                self.owned[index] += 1
                self.ledger.note_commit(self.group, (self.topic, index), self.owned[index])
            self.committed_at = self.world.now
            return True
        if errors <= {Error.REBALANCE_IN_PROGRESS}:
            return False
        if errors & {Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.UNKNOWN_SERVER_ERROR}:
            raise GoneError("the outcome is unknown")
        if errors <= COORDINATOR_ERRORS:
            self.forget_coordinator(GROUP, self.group)
            await self.pause()
            return True
        raise LostPlaceError


class ClassicMember(Member):
    """Joins, syncs, works until a rebalance."""

    async def live(self) -> None:
        joined = await self._join()
        assignment = await self._sync(joined)
        mine = [int(text) for text in assignment.split(b",") if text]
        for index in mine:
            self.ledger.note_owner(self.group, self.generation, index, self.name)
        if mine:
            await self.take(mine)
        while not self.is_done:
            await asyncio.sleep(self.world.random.choice((0.2, 0.6)))
            if self.cluster.is_in_trouble and self.world.chance(0.02):
                await asyncio.sleep(2 * SESSION_MS / 1000)  # too busy to say that it lives
            if not await self.commit():
                return
            request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
            error = error_of(await self.ask(request, HeartbeatResponse, 3))
            if error is Error.REBALANCE_IN_PROGRESS:
                return
            if error is not Error.NONE:
                self.member_id = ""
                raise LostPlaceError
            self.placed_at = self.world.now
            if self.world.chance(0.02):
                await self._leave()
                return

    def forget_place(self) -> None:
        """Partitions go with every rebalance; the id stays, so that the group waits for this member and not longer."""
        self.owned.clear()

    async def _join(self) -> JoinGroupResponse:
        size = LARGE_BYTES if self.is_large else 10
        subscription = Subscription(topics=[self.topic], user_data=b"x" * size)
        metadata = write_versioned(subscription, 0)
        while not self.is_done:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="own", metadata=metadata)],
            )
            answer: JoinGroupResponse = await self.ask(request, JoinGroupResponse, 7)
            error = error_of(answer)
            if error is Error.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            elif error is Error.NONE:
                self.member_id, self.generation = answer.member_id, answer.generation_id
                return answer
            else:
                self.member_id = ""
                await self.pause()
        raise LostPlaceError

    async def _sync(self, joined: JoinGroupResponse) -> bytes:
        assignments = []
        if joined.leader == self.member_id:
            ids = sorted(member.member_id for member in joined.members)
            for place, member_id in enumerate(ids):
                indexes = [str(index) for index in range(self.partitions) if index % len(ids) == place]
                padding = b"," * LARGE_BYTES if self.is_large else b""
                data = ",".join(indexes).encode() + padding
                assignments.append(SyncGroupRequestAssignment(member_id=member_id, assignment=data))
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="own",
            assignments=assignments,
        )
        answer: SyncGroupResponse = await self.ask(request, SyncGroupResponse, 5)
        error = error_of(answer)
        if error is not Error.NONE:
            if error is not Error.REBALANCE_IN_PROGRESS:
                self.member_id = ""
            raise LostPlaceError
        return bytes(answer.assignment)

    async def _leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        self.member_id = ""
        await self.ask(request, LeaveGroupResponse, 4)


class ConsumerMember(Member):
    """Of the new protocol: one request, the heartbeat, tells everything."""

    async def live(self) -> None:
        self.member_id = str(UUID(int=self.world.random.getrandbits(128), version=4))
        self.generation = 0
        answer = await self._beat(is_first=True)
        topic_id = None
        while not self.is_done:
            if answer.assignment is not None:
                target = {index: None for topic in answer.assignment.topic_partitions for index in topic.partitions}
                for topic in answer.assignment.topic_partitions:
                    topic_id = topic.topic_id
                for index in list(self.owned):
                    if index not in target:
                        del self.owned[index]
                news = [index for index in target if index not in self.owned]
                if news:
                    await self.take(news)
                answer = await self._beat(topic_id=topic_id, tells_owned=True)
                continue
            await asyncio.sleep(self.world.random.choice((0.2, 0.5)))
            if self.world.chance(0.01):
                await asyncio.sleep(3.0)
            if not await self.commit():
                raise LostPlaceError
            answer = await self._beat()

    async def _beat(
        self, *, is_first: bool = False, topic_id: UUID | None = None, tells_owned: bool = False
    ) -> ConsumerGroupHeartbeatResponse:
        owned: list[HeartbeatTopicPartitions] | None = None
        if is_first or tells_owned:
            owned = []
            if topic_id is not None and self.owned:
                owned = [HeartbeatTopicPartitions(topic_id=topic_id, partitions=list(self.owned))]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=REBALANCE_MS if is_first else -1,
            subscribed_topic_names=[self.topic] if is_first else None,
            topic_partitions=owned,
        )
        answer: ConsumerGroupHeartbeatResponse = await self.ask(request, ConsumerGroupHeartbeatResponse, 1)
        if error_of(answer) is not Error.NONE:
            raise LostPlaceError
        self.generation = answer.member_epoch
        self.placed_at = self.world.now
        return answer


def error_of(answer: Any) -> Error:
    match answer:
        case OffsetFetchResponse():
            group = answer.groups[0]
            codes = [group.error_code, *(each.error_code for topic in group.topics for each in topic.partitions)]
            return Error(next((code for code in codes if code), 0))
        case _:
            return Error(answer.error_code)
