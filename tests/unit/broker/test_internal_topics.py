"""Internal topics are created once, when the first client needs them."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from tests import virtual_time
from tests.unit.broker.nodes import node

from ottla.base.errors import Error, KafkaError
from ottla.broker.coordinator_service.internal_topics import OFFSETS_TOPIC, InternalTopicCreator
from ottla.controller.decisions.topic_changes import NewTopic, TopicResult
from ottla.controller.image import BrokerImage, MetadataImage, TopicImage


class Stand:
    """A broker of three, and a slow controller with configured responses."""

    def __init__(self, is_alone: bool = False, answer: Error | KafkaError = Error.NONE) -> None:
        brokers = {id_: BrokerImage(id_, {}, None, 0) for id_ in (1, 2, 3)}
        self.node = node(image=MetadataImage(brokers=brokers))
        self.topics = InternalTopicCreator(self.node, self._create, self._settled, is_alone)
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

    async def _settled(self, _timeout_ms: int | None = None) -> None:
        self.settled += 1


def test_concurrent_callers_create_it_once_and_wait_for_its_roles() -> None:
    async def whole() -> None:
        stand = Stand()
        await asyncio.gather(*(stand.topics.ensure(stand.topics.offsets()) for _ in range(5)))
        assert [(topic.name, topic.replication_factor) for topic in stand.created] == [(OFFSETS_TOPIC, 3)]
        assert stand.settled == 5

    virtual_time.run(whole())


@pytest.mark.parametrize("answer", [Error.INVALID_REPLICATION_FACTOR, KafkaError(Error.NOT_CONTROLLER, "because")])
def test_controller_errors_are_hidden_from_clients_of_the_coordinator(answer: Error | KafkaError) -> None:
    async def whole() -> None:
        stand = Stand(answer=answer)
        with pytest.raises(KafkaError) as refused:
            await stand.topics.ensure(stand.topics.transactions())
        assert (refused.value.error, refused.value.message) == (Error.COORDINATOR_NOT_AVAILABLE, "because")

    virtual_time.run(whole())


def test_another_broker_may_have_created_it() -> None:
    virtual_time.run(Stand(answer=Error.TOPIC_ALREADY_EXISTS).topics.ensure(Stand().topics.offsets()))


def test_a_standalone_broker_needs_one_replica_and_a_cluster_the_configured_number() -> None:
    for is_alone, replicas in ((True, 1), (False, 3)):
        topics = Stand(is_alone).topics
        assert [topics.offsets().replication_factor, topics.transactions().replication_factor] == [replicas, replicas]
