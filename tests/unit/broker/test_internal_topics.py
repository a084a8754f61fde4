"""The topics of coordinators are made when the first client asks, and once."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

import virtual_time
from ottla.base.errors import Error, KafkaError
from ottla.broker.coordinators.internal_topics import OFFSETS_TOPIC, InternalTopics
from ottla.controller.decisions.machine import NewTopic, TopicResult
from ottla.controller.image import BrokerImage, MetadataImage, TopicImage
from unit.broker.nodes import node


class Stand:
    """A broker among three, and a controller that takes its time and answers as the test says."""

    def __init__(self, is_alone: bool = False, answer: Error | KafkaError = Error.NONE) -> None:
        brokers = {id_: BrokerImage(id_, {}, None, 0) for id_ in (1, 2, 3)}
        self.node = node(image=MetadataImage(brokers=brokers))
        self.topics = InternalTopics(self.node, self._create, self._settled, is_alone)
        self.created: list[NewTopic] = []
        self.settled = 0
        self._answer = answer

    async def _create(self, wanted: Sequence[NewTopic]) -> list[TopicResult]:
        self.created += wanted
        await asyncio.sleep(0.1)
        if isinstance(self._answer, KafkaError):
            raise self._answer
        if self._answer is Error.NONE:
            made = [TopicImage(topic.name, UUID(int=1), ()) for topic in wanted]
            self.node.images.publish(self.node.image.with_topics(made))
        return [TopicResult(topic.name, self._answer, "because") for topic in wanted]

    async def _settled(self) -> None:
        self.settled += 1


def test_however_many_ask_it_is_made_once_and_all_wait_for_its_roles() -> None:
    async def whole() -> None:
        stand = Stand()
        await asyncio.gather(*(stand.topics.ensure(stand.topics.offsets()) for _ in range(5)))
        assert [(topic.name, topic.replication_factor) for topic in stand.created] == [(OFFSETS_TOPIC, 3)]
        assert stand.settled == 5

    virtual_time.run(whole())


@pytest.mark.parametrize("answer", [Error.INVALID_REPLICATION_FACTOR, KafkaError(Error.NOT_CONTROLLER, "because")])
def test_a_client_of_a_coordinator_hears_nothing_of_the_controllers_troubles(answer: Error | KafkaError) -> None:
    async def whole() -> None:
        stand = Stand(answer=answer)
        with pytest.raises(KafkaError) as refused:
            await stand.topics.ensure(stand.topics.transactions())
        assert (refused.value.error, refused.value.message) == (Error.COORDINATOR_NOT_AVAILABLE, "because")

    virtual_time.run(whole())


def test_somebody_else_may_have_been_quicker() -> None:
    virtual_time.run(Stand(answer=Error.TOPIC_ALREADY_EXISTS).topics.ensure(Stand().topics.offsets()))


def test_a_broker_alone_wants_one_replica_and_one_of_a_cluster_those_of_the_settings() -> None:
    for is_alone, replicas in ((True, 1), (False, 3)):
        topics = Stand(is_alone).topics
        assert [topics.offsets().replication_factor, topics.transactions().replication_factor] == [replicas, replicas]
