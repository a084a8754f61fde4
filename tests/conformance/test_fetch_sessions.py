"""Fetch sessions (KIP-227): only changes travel, and a session that is not right is refused as a whole."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from tests.conformance.peer import FETCH_BY_ID, FETCH_BY_NAME, Peer, fetch_partition, fetch_topic, fetch_topics_request
from tests.conformance.raw_batches import batch

FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR = 70, 71, 106
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
NEW, CLOSE = 0, -1


class Session:
    """The client's half of a fetch session."""

    def __init__(self, peer: Peer, version: int = FETCH_BY_NAME) -> None:
        self.peer, self.version = peer, version
        self.session_id, self.epoch = 0, NEW

    def fetch(self, topics: list[Any] | None = None, forgotten: list[Any] | None = None, wait_ms: int = 100) -> Any:
        request = fetch_topics_request(
            topics or [],
            max_wait_ms=wait_ms,
            session_id=self.session_id,
            session_epoch=self.epoch,
            forgotten=forgotten,
        )
        answer = self.peer.ask(request, self.version)
        if answer.error_code == 0:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer

    def changes(self, topics: list[Any] | None = None, forgotten: list[Any] | None = None) -> dict[Any, Any]:
        """(topic, partition) -> (error, bytes) of what an answer mentions."""
        answer = self.fetch(topics, forgotten)
        assert (answer.error_code, answer.session_id) == (0, self.session_id)
        by_name = self.version < FETCH_BY_ID
        return {
            (row.topic if by_name else row.topic_id, part.partition_index): (part.error_code, len(bytes(part.records)))
            for row in answer.responses
            for part in row.partitions
        }


@pytest.fixture
def pair(peer: Peer, topic_names: Callable[[], str]) -> tuple[str, uuid.UUID]:
    """A topic of two partitions with one batch in partition 0."""
    name = topic_names()
    topic_id = peer.create_topic(name, partitions=2)
    assert peer.produce(name, batch()).error_code == 0
    return name, topic_id


SIZE = len(batch())


def both(topic: str | uuid.UUID, first_offset: int = 0) -> list[Any]:
    return [fetch_topic(topic, [fetch_partition(0, first_offset), fetch_partition(1, 0)])]


def one(topic: str | uuid.UUID, partition: int, offset: int) -> list[Any]:
    return [fetch_topic(topic, [fetch_partition(partition, offset)])]


def test_a_new_session_answers_everything_and_then_only_changes(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    assert session.changes(both(name)) == {(name, 0): (0, SIZE), (name, 1): (0, 0)}
    assert session.session_id > 0
    assert session.changes() == {(name, 0): (0, SIZE)}, "the position did not move, so it comes again"
    assert session.changes(one(name, 0, 1)) == {}
    assert session.changes() == {}
    peer.produce(name, batch(), 1)
    assert session.changes() == {(name, 1): (0, SIZE)}


def test_a_session_by_topic_id(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, topic_id = pair
    session = Session(peer, FETCH_BY_ID)
    assert session.changes(both(topic_id)) == {(topic_id, 0): (0, SIZE), (topic_id, 1): (0, 0)}
    assert session.changes(one(topic_id, 0, 1)) == {}
    peer.produce(name, batch())
    assert session.changes() == {(topic_id, 0): (0, SIZE)}


def test_forgotten_partitions_are_no_longer_answered(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    session.changes(both(name, first_offset=1))
    forgotten = [FetchRequest.ForgottenTopic(topic=name, partitions=[1])]
    assert session.changes(forgotten=forgotten) == {}
    peer.produce(name, batch(), 1)
    assert session.changes() == {}
    peer.produce(name, batch(), 0)
    assert session.changes() == {(name, 0): (0, SIZE)}


def test_partitions_can_be_added_to_a_session(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    assert session.changes(one(name, 0, 1)) == {(name, 0): (0, 0)}
    assert session.changes(one(name, 1, 0)) == {(name, 1): (0, 0)}
    assert session.changes() == {}


def test_an_unknown_partition_is_reported_every_time(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    expected = {(name, 7): (UNKNOWN_TOPIC_OR_PARTITION, 0)}
    assert session.changes([*one(name, 0, 1), *one(name, 7, 0)]) == {(name, 0): (0, 0), **expected}
    assert session.changes() == expected
    assert session.changes() == expected


def test_an_unknown_topic_id_is_reported_every_time(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    _, topic_id = pair
    unknown = uuid.uuid4()
    session = Session(peer, FETCH_BY_ID)
    expected = {(unknown, 0): (UNKNOWN_TOPIC_ID, 0)}
    assert session.changes([*one(topic_id, 0, 1), *one(unknown, 0, 0)]) == {(topic_id, 0): (0, 0), **expected}
    assert session.changes() == expected


def test_a_wrong_epoch_answers_71_and_the_session_continues(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    session.changes(both(name, first_offset=1))
    session.epoch += 1
    answer = session.fetch()
    assert (answer.error_code, answer.session_id, answer.responses) == (INVALID_FETCH_SESSION_EPOCH, 0, [])
    session.epoch -= 1
    assert session.changes() == {}


def test_an_unknown_session_answers_70(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    session.changes(both(name))
    session.session_id += 1
    answer = session.fetch()
    assert (answer.error_code, answer.session_id, answer.responses) == (FETCH_SESSION_ID_NOT_FOUND, 0, [])


def test_an_epoch_without_a_session_answers_70(peer: Peer, topic: str) -> None:
    session = Session(peer)
    session.epoch = 5
    assert session.fetch(one(topic, 0, 0)).error_code == FETCH_SESSION_ID_NOT_FOUND


def test_a_closed_session_is_gone(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    session.changes(both(name))
    following, session.epoch = session.epoch, CLOSE
    session_id = session.session_id
    answer = session.fetch()
    assert (answer.error_code, answer.session_id) == (0, 0)
    session.session_id, session.epoch = session_id, following
    assert session.fetch().error_code == FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_that_closes_its_session_is_a_full_fetch(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    session.changes(both(name))
    session.epoch = CLOSE
    answer = session.fetch(one(name, 0, 0))
    assert answer.session_id == 0
    assert [len(bytes(row.partitions[0].records)) for row in answer.responses] == [SIZE]


def test_a_new_session_ends_the_old_one(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    session = Session(peer)
    session.changes(both(name))
    old_id, old_epoch = session.session_id, session.epoch
    session.epoch = NEW
    answer = session.fetch(one(name, 0, 0))
    assert answer.error_code == 0
    assert answer.session_id not in (0, old_id)
    session.session_id, session.epoch = old_id, old_epoch
    assert session.fetch().error_code == FETCH_SESSION_ID_NOT_FOUND


def test_a_session_belongs_to_names_or_to_ids(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, topic_id = pair
    session = Session(peer)
    session.changes(both(name))
    session.version = FETCH_BY_ID
    answer = session.fetch(one(topic_id, 0, 0))
    assert (answer.error_code, answer.session_id) == (FETCH_SESSION_TOPIC_ID_ERROR, 0)


def test_a_session_outlives_its_connection(bootstrap: str, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    with Peer(bootstrap) as first:
        session = Session(first)
        session.changes(both(name, first_offset=1))
    with Peer(bootstrap) as second:
        session.peer = second
        assert session.changes() == {}


def test_sessions_do_not_see_each_other(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    name, _ = pair
    left, right = Session(peer), Session(peer)
    left.changes(one(name, 0, 0))
    right.changes(one(name, 1, 0))
    assert left.session_id != right.session_id
    assert right.changes() == {}
    assert left.changes() == {(name, 0): (0, SIZE)}


def test_no_session_is_made_for_epoch_minus_one(peer: Peer, pair: tuple[str, uuid.UUID]) -> None:
    session = Session(peer)
    session.epoch = CLOSE
    assert session.fetch(both(pair[0])).session_id == 0
