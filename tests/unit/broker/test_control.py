"""What a broker wants of the controller, on another broker or here."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.cluster import control
from ottla.broker.cluster.control import IsrVerdict
from ottla.controller.decisions.isr import IsrAnswer, IsrChange
from ottla.controller.decisions.machine import NewTopic
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
from ottla.replication.leading import IsrProposal
from ottla.security.authorizer import Authorizer
from unit.broker.two_brokers import ASKER, AskingBroker, ControllerBroker, with_two_brokers

FIRST, SECOND = UUID(int=1), UUID(int=2)


class Duties:
    """The part of the controller that only a cluster has, made up."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.failure: KafkaError | None = None

    async def alter_partitions(self, broker: int, epoch: int, changes: list[IsrChange]) -> list[IsrAnswer]:
        self.asked.append((broker, epoch, changes))
        if self.failure is not None:
            raise self.failure
        return [
            IsrAnswer(change, Error.FENCED_LEADER_EPOCH)
            if change.leader_epoch == 0
            else IsrAnswer(change, Error.NONE, PartitionImage(2, 7, (2, 1), (1, 2), 12, leader_recovery_state=1))
            for change in changes
        ]

    async def controlled_shutdown(self, broker: int, epoch: int) -> list[TopicPartition]:
        self.asked.append((broker, epoch))
        if self.failure is not None:
            raise self.failure
        return [TopicPartition("orders", 3)]


PROPOSALS = [
    IsrProposal(FIRST, "a", 4, 7, ((2, 77), (1, -1)), 11),
    IsrProposal(SECOND, "b", 0, 0, ((2, 77),), 3),
    IsrProposal(FIRST, "a", 5, 7, ((2, 77), (1, 5)), 11, is_recovering=True),
]
REQUESTS: dict[int, tuple[Any, type[Any]]] = {
    7: (ControlledShutdownRequest(broker_id=2, broker_epoch=77), ControlledShutdownResponse),
    56: (control.alter_partition_request(PROPOSALS, 2, 77), AlterPartitionResponse),
    58: (EnvelopeRequest(request_data=b"", client_host_address=b""), EnvelopeResponse),
    67: (AllocateProducerIdsRequest(broker_id=2), AllocateProducerIdsResponse),
}
GIVEN = IsrVerdict(Error.NONE, 2, 7, (2, 1), 12, 1)
FENCED = IsrVerdict(Error.FENCED_LEADER_EPOCH)


def test_proposals_reach_the_controller_and_the_verdicts_come_back_in_order(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.cluster.controller = duties = Duties()
        assert await two.control.alter_partitions(PROPOSALS) == [GIVEN, FENCED, GIVEN]
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
            await two.control.alter_partitions(PROPOSALS)
        assert caught.value.error is Error.STALE_BROKER_EPOCH
        assert repr(two.control).startswith("<Control <ControllerLink to broker 1")

    with_two_brokers(tmp_path, play)


def test_what_the_controller_itself_wants_takes_no_journey(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        two.cluster.is_controller, two.cluster.controller = True, Duties()
        here = control.Control(two.node, one.controller, two.cluster, two.link)
        assert await here.alter_partitions(PROPOSALS) == [GIVEN, FENCED, GIVEN]
        assert await here.controlled_shutdown(1000) == [TopicPartition("orders", 3)]
        assert len(await here.allocate_producer_ids()) == 1000
        assert (await here.create_topics([NewTopic("orders", 1)]))[0].error is Error.NONE
        assert repr(here) == "<Control here>"
        alone = control.Control(two.node, one.controller)
        assert await alone.controlled_shutdown(1000) == []
        assert one.seen == []

    with_two_brokers(tmp_path, play)


def test_topics_are_in_the_image_when_they_are_made(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        wanted = NewTopic("orders", 2, 1, configs=(("retention.ms", "5000"),))
        (made,) = await two.control.create_topics([wanted])
        assert (made.name, made.error) == ("orders", Error.NONE)
        assert len(two.image.topics["orders"].partitions) == 2
        assert one.image.topic_configs["orders"] == {"retention.ms": "5000"}
        (again,) = await two.control.create_topics([wanted])
        assert again.error is Error.TOPIC_ALREADY_EXISTS
        await two.control.auto_create(["a", "b"])
        assert {"a", "b"} <= two.image.topics.keys()
        # The news comes after the controller's answer: it is waited for, but not for ever.
        late = two.image
        publish, two.images.publish = two.images.publish, lambda image: None  # type: ignore[method-assign]
        creating = asyncio.ensure_future(two.control.create_topics([NewTopic("late", 1, 1)]))
        while "late" not in one.image.topics:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert not creating.done()
        publish(late.with_topics([one.image.topics["late"]]))
        assert (await creating)[0].error is Error.NONE
        assert (await two.control.create_topics([NewTopic("never", 1, 1)]))[0].error is Error.NONE
        assert "never" not in two.image.topics

    with_two_brokers(tmp_path, play)


def test_producer_ids_come_in_blocks_and_stale_brokers_get_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "IDS_MS_MAX", 150)

    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        with pytest.raises(KafkaError):  # broker 2 is not registered under this epoch
            await two.control.allocate_producer_ids()
        known = one.image.brokers[1]._replace(id=ASKER, epoch=77)
        one.controller._image = one.image.with_brokers({**one.image.brokers, ASKER: known})
        assert await two.control.allocate_producer_ids() == range(1000)
        ids = [await two.control.producer_ids.next_id() for _ in range(3)]
        assert ids == [1000, 1001, 1002]
        one.controller._is_active = False
        with pytest.raises(KafkaError) as caught:
            await two.control.allocate_producer_ids()
        assert caught.value.error is Error.NOT_CONTROLLER

    with_two_brokers(tmp_path, play)


def test_leaderships_are_moved_before_a_broker_stops(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.cluster.controller = duties = Duties()
        assert await two.control.controlled_shutdown(1000) == [TopicPartition("orders", 3)]
        assert duties.asked == [(ASKER, 77)]
        duties.failure = KafkaError(Error.STALE_BROKER_EPOCH)
        with pytest.raises(KafkaError):
            await two.control.controlled_shutdown(1000)
        duties.failure = KafkaError(Error.NOT_CONTROLLER)
        with pytest.raises(KafkaError) as caught:
            await two.control.controlled_shutdown(100)
        assert caught.value.error is Error.NOT_CONTROLLER

    with_two_brokers(tmp_path, play)


@pytest.mark.parametrize("key", [7, 56, 58, 67])
def test_what_only_brokers_use_is_refused_to_others(tmp_path: Path, key: int) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.parts.authorizer = Authorizer({})
        one.cluster.controller = duties = Duties()
        request, response = REQUESTS[key]
        answer = await two.peers.call(1, request, response)
        assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED
        assert duties.asked == []

    with_two_brokers(tmp_path, play)


def test_an_answer_that_leaves_a_partition_out_is_no_verdict() -> None:
    assert control.verdicts_of(PROPOSALS, AlterPartitionResponse()) == [control.NOT_ANSWERED] * 3
    with pytest.raises(KafkaError):
        control.verdicts_of(PROPOSALS, AlterPartitionResponse(error_code=77))
