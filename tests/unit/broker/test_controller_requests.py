"""Requests of a broker to the controller, remote and local."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.unit.broker.two_brokers import ASKER, AskingBroker, ControllerBroker, with_two_brokers

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.cluster import controller_requests
from ottla.broker.cluster.controller_requests import AlterPartitionResult
from ottla.controller.decisions.isr_changes import IsrChange, IsrChangeResult
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import PartitionImage
from ottla.protocol.messages.inter_broker import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    EnvelopeRequest,
    EnvelopeResponse,
)
from ottla.replication.leader_state import AlterPartitionProposal
from ottla.security.authorizer import Authorizer

FIRST, SECOND = UUID(int=1), UUID(int=2)


class Duties:
    """The cluster part of a controller, as a fake."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.failure: KafkaError | None = None

    async def alter_partitions(self, broker: int, epoch: int, changes: list[IsrChange]) -> list[IsrChangeResult]:
        self.asked.append((broker, epoch, changes))
        if self.failure is not None:
            raise self.failure
        return [
            IsrChangeResult(change, Error.FENCED_LEADER_EPOCH)
            if change.leader_epoch == 0
            else IsrChangeResult(change, Error.NONE, PartitionImage(2, 7, (2, 1), (1, 2), 12, leader_recovery_state=1))
            for change in changes
        ]

    async def controlled_shutdown(self, broker: int, epoch: int) -> list[TopicPartition]:
        self.asked.append((broker, epoch))
        if self.failure is not None:
            raise self.failure
        return [TopicPartition("orders", 3)]


PROPOSALS = [
    AlterPartitionProposal(FIRST, "a", 4, 7, ((2, 77), (1, -1)), 11),
    AlterPartitionProposal(SECOND, "b", 0, 0, ((2, 77),), 3),
    AlterPartitionProposal(FIRST, "a", 5, 7, ((2, 77), (1, 5)), 11, is_recovering=True),
]
REQUESTS: dict[int, tuple[Any, type[Any]]] = {
    7: (ControlledShutdownRequest(broker_id=2, broker_epoch=77), ControlledShutdownResponse),
    56: (controller_requests.alter_partition_request(PROPOSALS, 2, 77), AlterPartitionResponse),
    58: (EnvelopeRequest(request_data=b"", client_host_address=b""), EnvelopeResponse),
    67: (AllocateProducerIdsRequest(broker_id=2), AllocateProducerIdsResponse),
}
GIVEN = AlterPartitionResult(Error.NONE, 2, 7, (2, 1), 12, 1)
FENCED = AlterPartitionResult(Error.FENCED_LEADER_EPOCH)


def test_proposals_reach_the_controller_and_results_return_in_order(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.membership.controller = duties = Duties()
        assert await two.controller_requests.alter_partitions(PROPOSALS) == [GIVEN, FENCED, GIVEN]
        broker, epoch, changes = duties.asked[0]
        assert (broker, epoch) == (ASKER, 77)
        assert sorted(changes) == sorted(
            [
                IsrChange(FIRST, 4, 7, 11, ((2, 77), (1, -1)), 0),
                IsrChange(SECOND, 0, 0, 3, ((2, 77),), 0),
                IsrChange(FIRST, 5, 7, 11, ((2, 77), (1, 5)), 1),
            ]
        )
        duties.failure = KafkaError(Error.STALE_BROKER_EPOCH)
        with pytest.raises(KafkaError) as caught:
            await two.controller_requests.alter_partitions(PROPOSALS)
        assert caught.value.error is Error.STALE_BROKER_EPOCH
        assert repr(two.controller_requests).startswith("<ControllerRequests <ControllerChannel to broker 1")

    with_two_brokers(tmp_path, play)


def test_requests_of_the_controller_itself_are_local(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        two.membership.is_controller, two.membership.controller = True, Duties()
        here = controller_requests.ControllerRequests(two.node, one.controller, two.membership, two.link)
        assert await here.alter_partitions(PROPOSALS) == [GIVEN, FENCED, GIVEN]
        assert await here.controlled_shutdown(1000) == [TopicPartition("orders", 3)]
        assert len(await here.allocate_producer_ids()) == 1000
        assert (await here.create_topics([NewTopic("orders", 1)]))[0].error is Error.NONE
        assert repr(here) == "<ControllerRequests here>"
        alone = controller_requests.ControllerRequests(two.node, one.controller)
        assert await alone.controlled_shutdown(1000) == []
        assert one.seen == []

    with_two_brokers(tmp_path, play)


def test_created_topics_are_in_the_image(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        wanted = NewTopic("orders", 2, 1, configs=(("retention.ms", "5000"),))
        (made,) = await two.controller_requests.create_topics([wanted])
        assert (made.name, made.error) == ("orders", Error.NONE)
        assert len(two.image.topics["orders"].partitions) == 2
        assert one.image.topic_configs["orders"] == {"retention.ms": "5000"}
        (again,) = await two.controller_requests.create_topics([wanted])
        assert again.error is Error.TOPIC_ALREADY_EXISTS
        await two.controller_requests.auto_create(["a", "b"])
        assert {"a", "b"} <= two.image.topics.keys()
        # The image comes after the controller's response: the request waits for it, with a limit.
        late = two.image
        publish, two.images.publish = two.images.publish, lambda image: None  # type: ignore[method-assign]
        creating = asyncio.ensure_future(two.controller_requests.create_topics([NewTopic("late", 1, 1)]))
        while "late" not in one.image.topics:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert not creating.done()
        publish(late.with_topics([one.image.topics["late"]]))
        assert (await creating)[0].error is Error.NONE
        assert (await two.controller_requests.create_topics([NewTopic("never", 1, 1)]))[0].error is Error.NONE
        assert "never" not in two.image.topics

    with_two_brokers(tmp_path, play)


def test_producer_ids_come_in_blocks_and_stale_brokers_get_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_requests, "PRODUCER_IDS_TIMEOUT_MS", 150)

    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        with pytest.raises(KafkaError):  # broker 2 is not registered under this epoch
            await two.controller_requests.allocate_producer_ids()
        known = one.image.brokers[1]._replace(id=ASKER, epoch=77)
        one.controller._image = one.image.with_brokers({**one.image.brokers, ASKER: known})
        assert await two.controller_requests.allocate_producer_ids() == range(1000)
        ids = [await two.controller_requests.producer_ids.next_id() for _ in range(3)]
        assert ids == [1000, 1001, 1002]
        one.controller._is_active = False
        with pytest.raises(KafkaError) as caught:
            await two.controller_requests.allocate_producer_ids()
        assert caught.value.error is Error.NOT_CONTROLLER

    with_two_brokers(tmp_path, play)


def test_leaderships_are_moved_before_a_broker_stops(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.membership.controller = duties = Duties()
        assert await two.controller_requests.controlled_shutdown(1000) == [TopicPartition("orders", 3)]
        assert duties.asked == [(ASKER, 77)]
        duties.failure = KafkaError(Error.STALE_BROKER_EPOCH)
        with pytest.raises(KafkaError):
            await two.controller_requests.controlled_shutdown(1000)
        duties.failure = KafkaError(Error.NOT_CONTROLLER)
        with pytest.raises(KafkaError) as caught:
            await two.controller_requests.controlled_shutdown(100)
        assert caught.value.error is Error.NOT_CONTROLLER

    with_two_brokers(tmp_path, play)


@pytest.mark.parametrize("key", [7, 56, 58, 67])
def test_inter_broker_apis_are_refused_to_clients(tmp_path: Path, key: int) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.parts.authorizer = Authorizer({})
        one.membership.controller = duties = Duties()
        request, response = REQUESTS[key]
        answer = await two.peers.call(1, request, response)
        assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED
        assert duties.asked == []

    with_two_brokers(tmp_path, play)


def test_a_response_without_a_partition_has_no_result() -> None:
    assert controller_requests.parse_results(PROPOSALS, AlterPartitionResponse()) == [controller_requests.NO_RESULT] * 3
    with pytest.raises(KafkaError):
        controller_requests.parse_results(PROPOSALS, AlterPartitionResponse(error_code=77))
