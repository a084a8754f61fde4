"""Administrators create and change the topics of the other clients; visitors disconnect before they are answered."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.brokers.transactors import IN as TOPIC
from tests.simulation.brokers.wire import Client, GoneError, WireConnection
from tests.simulation.brokers.world import World

from ottla.base.errors import Error
from ottla.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

DONE = frozenset({Error.NONE, Error.TOPIC_ALREADY_EXISTS})


class Creator(Client):
    """Creates topics until they are there."""

    def __init__(self, cluster: Any, topics: dict[str, int]) -> None:
        super().__init__(cluster, "creator")
        if cluster.accounts is not None:
            self.account = cluster.accounts.all[0]  # the account that exists before any password is set
        self._topics = topics

    async def run(self) -> None:
        left = dict(self._topics)
        while left:
            request = CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=name, num_partitions=count, replication_factor=3)
                    for name, count in left.items()
                ],
                timeout_ms=2_000,
            )
            try:
                answer = await self.call(self.any_broker(), request, CreateTopicsResponse, 5, 4.0)
            except GoneError:
                await self.pause()
                continue
            for topic in answer.topics:
                if topic.error_code in DONE:
                    left.pop(topic.name, None)
            await self.pause()


Asked = tuple[Any, type[Any], int]  # a request, the class of its answer, the version


class Visitor(Client):
    """Sends one request, ignores the answer and disconnects."""

    def __init__(self, cluster: Any, name: str, asked: Asked) -> None:
        super().__init__(cluster, name)
        self._asked = asked

    async def run(self) -> None:
        try:
            await self.call(self.any_broker(), *self._asked)
        except GoneError as gone:
            self.world.tell(f"{self.name}: {gone}")


class BusyVisitor(Visitor):
    """Sends several requests at once over one connection, and waits for all answers."""

    async def run(self) -> None:
        connection = WireConnection(self, self.any_broker())
        try:
            await connection.open()
            asked = [self._asked, *(a_question(self.world) for _ in range(3))]
            answers = [(each[0], connection.send(*each)) for each in asked]
            for request, answer in answers:
                await self.wait(connection, request, answer)
        except GoneError as gone:
            self.world.tell(f"{self.name}: {gone}")
        connection.abandon("done")


class HastyVisitor(Visitor):
    """Sends a part of its request, or all of it, and goes without waiting for the answer."""

    async def run(self) -> None:
        connection = WireConnection(self, self.any_broker())
        try:
            await connection.open()
            request, response, version = self._asked
            connection.send(request, response, version, cut_at=self.world.random.choice((2, 9, 30, 60, None)))
        except GoneError:
            return
        await asyncio.sleep(self.world.random.choice((0.0, 0.0005, 0.01, 1.0)))
        connection.abandon("gone")


def a_question(world: World) -> Asked:
    """Something that changes nothing."""
    questions: list[Asked] = [
        (MetadataRequest(topics=None), MetadataResponse, 12),
        (DescribeClusterRequest(), DescribeClusterResponse, 1),
        (ListGroupsRequest(), ListGroupsResponse, 4),
        (DescribeGroupsRequest(groups=["group m", "group n"]), DescribeGroupsResponse, 5),
        (DescribeLogDirsRequest(), DescribeLogDirsResponse, 4),
    ]
    return world.random.choice(questions)


def a_wish(world: World, partitions: int, brokers: int) -> Asked:
    """Something that the controller must do."""
    name = f"side{world.random.randrange(3)}"
    index = world.random.randrange(partitions)
    replicas = world.random.sample(range(1, brokers + 1), 3)
    moved = ReassignablePartition(partition_index=index, replicas=replicas if world.chance(0.8) else None)
    config = IncrementalAlterableConfig(
        name="flush.messages", config_operation=0, value=world.random.choice(("1", "3"))
    )
    wishes: list[Asked] = [
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=3)], timeout_ms=2_000
            ),
            CreateTopicsResponse,
            5,
        ),
        (DeleteTopicsRequest(topic_names=[name], timeout_ms=2_000), DeleteTopicsResponse, 5),
        (
            AlterPartitionReassignmentsRequest(
                timeout_ms=2_000, topics=[ReassignableTopic(name=TOPIC, partitions=[moved])]
            ),
            AlterPartitionReassignmentsResponse,
            0,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[IncrementalAlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[config])]
            ),
            IncrementalAlterConfigsResponse,
            1,
        ),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=2_000), ElectLeadersResponse, 2),
    ]
    return world.random.choice(wishes)


def a_move_of_coordinators(world: World) -> list[Asked]:
    """Another replica becomes the preferred one of a partition of the offsets topic, and then its leader."""
    moved = ReassignablePartition(
        partition_index=world.random.randrange(2), replicas=world.random.sample(range(1, 4), 3)
    )
    reassign = AlterPartitionReassignmentsRequest(
        timeout_ms=2_000, topics=[ReassignableTopic(name="__consumer_offsets", partitions=[moved])]
    )
    return [
        (reassign, AlterPartitionReassignmentsResponse, 0),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=2_000), ElectLeadersResponse, 2),
    ]
