"""Controllers die in the middle of thousands of changes: what was answered is true, and every broker says the same."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from tests.faults.cluster_rounds import rounds

from ottla.base.errors import Error
from ottla.client.admin import NewTopic, create_partitions, create_topics, delete_topics
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults

TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS = Error.TOPIC_ALREADY_EXISTS, Error.INVALID_PARTITIONS
UNKNOWN_TOPIC_OR_PARTITION = Error.UNKNOWN_TOPIC_OR_PARTITION
A_REQUEST = 50
RETRY_MS = 60_000  # an election needs a session's end
PARTITIONS, GROWN = 3, 5


@contextmanager
def controllers_die(cluster: Cluster) -> Iterator[list[int]]:
    """One after the other, as soon as the one before is back; yields the brokers that have died so far."""
    died: list[int] = []
    is_over = threading.Event()

    def kill() -> None:
        while not is_over.wait(1.0):
            controller = cluster.controller()
            controller.kill()
            died.append(controller.id)
            cluster.controller(other_than=controller)
            controller.start()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield died
    finally:
        is_over.set()
        thread.join(60)
        assert not thread.is_alive()


def check(refused: Mapping[str, BrokerError], done_before: Error) -> None:
    """A broker that passes a request on asks the next controller if one dies, as Kafka's do: it may be done by then."""
    assert {problem.error for problem in refused.values()} <= {done_before}, refused


def pieces(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(names), A_REQUEST):
        yield names[begin : begin + A_REQUEST]


def test_thousands_of_changes_outlive_their_controllers(cluster_factory: Callable[..., Cluster]) -> None:
    cluster = cluster_factory()
    names = [f"topic-{number}" for number in range(rounds(4_000))]
    grown, deleted = names[::2], names[::3]
    with controllers_die(cluster) as died, Client(cluster.bootstrap, timeout_ms=RETRY_MS) as client:
        for piece in pieces(names):
            check(create_topics(client, {name: NewTopic(PARTITIONS, 2, {}) for name in piece}), TOPIC_ALREADY_EXISTS)
        for piece in pieces(grown):
            check(create_partitions(client, dict.fromkeys(piece, GROWN)), INVALID_PARTITIONS)
        for piece in pieces(deleted):
            check(delete_topics(client, piece), UNKNOWN_TOPIC_OR_PARTITION)
    assert len(died) >= 2, "too few for a test: more changes"
    cluster.wait_until_whole()
    gone = set(deleted)
    expected = {name: PARTITIONS for name in names if name not in gone}
    expected |= {name: GROWN for name in grown if name not in gone}
    for broker, answer in cluster.metadata().items():
        found = {topic.name: len(topic.partitions) for topic in answer.topics if topic.name in names}
        assert found == expected, broker
