"""Clients that delete and recreate their topic, again and again, and commit offsets all the while.

Promises: a reader of a new topic sees no offset of the one before it; what was committed for it is not forgotten with
those. Topics are named by their ids, so nothing is committed for the one that is meant to be gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock
from uuid import UUID

from tests.simulation.brokers.members import COORDINATOR_ERRORS
from tests.simulation.brokers.wire import GROUP, Client, GoneError
from tests.simulation.brokers.world import World

from ottla.base.errors import Error
from ottla.broker.coordinator_service import sweeps
from ottla.broker.offload import TimeSlice
from ottla.coordination import batch
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
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

PARTITIONS: Final = 3
GROUPS: Final = 3
NOTHING: Final = -1
NOT_YET: Final = COORDINATOR_ERRORS | {Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION}
IDS_SINCE: Final = 10


@contextmanager
def slow_forgetting(world: World) -> Iterator[None]:
    """A broker that is busy: it may take a while until the next two offsets of a deleted topic are forgotten."""

    class SlowTurn(TimeSlice):
        @property
        def is_used_up(self) -> bool:
            return True

        async def yield_to_loop(self) -> None:
            await asyncio.sleep(world.random.choice((0.0, 0.02, 0.3)))

    with mock.patch.object(sweeps, "TimeSlice", SlowTurn), mock.patch.object(batch, "RECORDS_MAX", 2):
        yield


class Renewer(Client):
    """One topic, and groups that commit for it."""

    def __init__(self, cluster: Any, name: str) -> None:
        super().__init__(cluster, name)
        self.topic = f"renewed {name}".replace(" ", "-")
        self.groups = [f"{name} {number}" for number in range(GROUPS)]
        self.offset = 0  # larger from commit to commit, so that nothing is taken for something else

    async def run(self) -> None:
        while not self.is_done:
            try:
                await self._renew()
            except GoneError:
                self.coordinators.clear()
                await self.pause()

    async def _renew(self) -> None:
        topic_id = await self._create()
        for group in self.groups:
            held = await self._commit(group, topic_id, range(1))
            await self._check(group, topic_id, held)
        await asyncio.sleep(self.world.random.choice((0.0, 0.1, 0.6)))
        for group in self.groups:
            held = await self._commit(group, topic_id, range(PARTITIONS))
            await self._check(group, topic_id, held)
        await asyncio.sleep(self.world.random.choice((0.0, 0.1, 0.6)))
        await self._delete()
        await asyncio.sleep(self.world.random.choice((0.0, 0.0, 0.1, 0.6)))

    async def _create(self) -> UUID:
        topic = CreatableTopic(name=self.topic, num_partitions=PARTITIONS, replication_factor=3)
        while True:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=2_000)
            answer = await self.call(self.any_broker(), request, CreateTopicsResponse, 7, 4.0)
            if answer.topics[0].error_code == Error.NONE:
                return answer.topics[0].topic_id
            if answer.topics[0].error_code == Error.TOPIC_ALREADY_EXISTS:  # an answer was lost
                await self._delete()
            await self.pause()

    async def _delete(self) -> None:
        request = DeleteTopicsRequest(topic_names=[self.topic], timeout_ms=2_000)
        while True:
            answer = await self.call(self.any_broker(), request, DeleteTopicsResponse, 5, 4.0)
            if answer.responses[0].error_code in (Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION):
                return
            await self.pause()

    async def _commit(self, group: str, topic_id: UUID, partitions: range) -> dict[int, int]:
        """What the group has committed then."""
        self.offset += 1
        rows = [OffsetCommitRequestPartition(partition_index=n, committed_offset=self.offset) for n in partitions]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(topic_id=topic_id, partitions=rows)],
        )
        answer = await self._ask(group, request, OffsetCommitResponse, lambda answer: answer.topics)
        told = {row.partition_index: Error(row.error_code).name for topic in answer.topics for row in topic.partitions}
        if told != dict.fromkeys(partitions, "NONE"):
            self.world.break_(f"{self.name}: what {group} commits is answered with {told}")
        return dict.fromkeys(range(PARTITIONS), NOTHING) | dict.fromkeys(partitions, self.offset)

    async def _check(self, group: str, topic_id: UUID, held: dict[int, int]) -> None:
        asked = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=list(range(PARTITIONS)))
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])])
        for pause_seconds in (0.0, self.world.random.choice((0.1, 0.7))):
            await asyncio.sleep(pause_seconds)
            answer = await self._ask(group, request, OffsetFetchResponse, lambda answer: answer.groups[0].topics)
            rows = answer.groups[0].topics[0].partitions
            found = {row.partition_index: row.committed_offset for row in rows}
            if found != held:
                self.world.break_(f"{self.name}: {group} has committed {held} of its new topic, but is told {found}")

    async def _ask(self, group: str, request: Any, response: type[Any], topics_of: Any) -> Any:
        """Until the coordinator knows the new topic."""
        while True:
            coordinator = await self.coordinator(GROUP, group)
            if coordinator >= 0:
                answer = await self.call(coordinator, request, response, IDS_SINCE, 4.0)
                errors = {row.error_code for topic in topics_of(answer) for row in topic.partitions}
                if response is OffsetFetchResponse:
                    errors.add(answer.groups[0].error_code)
                if not errors & NOT_YET:
                    return answer
                self.forget_coordinator(GROUP, group)
            await self.pause()
