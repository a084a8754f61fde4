"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: what a single broker answers."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tests.conformance.peer import Peer

PREFERRED, UNCLEAN, NONSENSE = 0, 1, 7
UNKNOWN, INVALID_ASSIGNMENT, INVALID_REQUEST, NOT_NEEDED, NO_MOVE = 3, 39, 42, 84, 85
NOT_NEEDED_ROW = (NOT_NEEDED, "Leader election not needed for topic partition.")


@pytest.fixture
def peer(bootstrap: str) -> Iterator[Peer]:
    with Peer(bootstrap) as peer:
        yield peer


def elect(peer: Peer, kind: int, version: int, *wanted: tuple[str, list[int]]) -> Any:
    rows = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=numbers) for name, numbers in wanted]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=10_000)
    return peer.ask(request, version)


def elected(answer: Any) -> list[tuple[str, int, tuple[int, str | None]]]:
    return [
        (topic.topic, row.partition_id, (row.error_code, row.error_message))
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_no_other_replica_can_lead(peer: Peer, topic: str, version: int, kind: int) -> None:
    answer = elect(peer, kind, version, (topic, [9, 0, 0]), ("not-there", [0]))
    assert answer.error_code == 0
    assert elected(answer) == [
        (topic, 9, (UNKNOWN, f"No such partition as {topic}-9")),
        (topic, 0, NOT_NEEDED_ROW),
        (topic, 0, NOT_NEEDED_ROW),
        ("not-there", 0, (UNKNOWN, "No such topic as not-there")),
    ]
    assert elect(peer, kind, version).replica_election_results == []


def test_an_election_of_all_partitions_reports_only_changed_ones(peer: Peer, topic: str) -> None:
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=10_000)
    answer = peer.ask(request, 2)
    assert topic in [row.topic for row in answer.replica_election_results]
    assert elected(answer) == []


def test_an_election_of_an_unknown_kind_is_refused(peer: Peer, topic: str) -> None:
    answer = elect(peer, NONSENSE, 2, (topic, [0]))
    assert answer.error_code == INVALID_REQUEST
    assert elected(answer) == [(topic, 0, (INVALID_REQUEST, "Unknown election type 7"))]


def alter(peer: Peer, version: int, *wanted: tuple[str, int, list[int] | None]) -> Any:
    topic_class = AlterPartitionReassignmentsRequest.ReassignableTopic
    rows = [
        topic_class(
            name=name, partitions=[topic_class.ReassignablePartition(partition_index=number, replicas=replicas)]
        )
        for name, number, replicas in wanted
    ]
    request = AlterPartitionReassignmentsRequest(timeout_ms=10_000, allow_replication_factor_change=True, topics=rows)
    return peer.ask(request, version)


@pytest.mark.parametrize("version", [0, 1])
def test_moves_that_cannot_be(peer: Peer, topic: str, version: int) -> None:
    manual = "The manual partition assignment includes"
    expected = {
        (topic, 0, None): (NO_MOVE, None),
        (topic, 0, ()): (INVALID_ASSIGNMENT, f"{manual} an empty replica list."),
        (topic, 0, (99,)): (INVALID_ASSIGNMENT, f"{manual} broker 99, but no such broker is registered."),
        (topic, 0, (-1,)): (INVALID_ASSIGNMENT, f"{manual} broker -1, but no such broker is registered."),
        (topic, 0, (1, 1)): (INVALID_ASSIGNMENT, f"{manual} the broker 1 more than once."),
        (topic, 7, (1,)): (UNKNOWN, f"Unable to find partition {topic}:7."),
        ("not-there", 0, (1,)): (UNKNOWN, "Unable to find a topic named not-there."),
        (topic, 0, (1,)): (0, None),
    }
    wanted = [(name, number, None if row is None else list(row)) for name, number, row in expected]
    answer = alter(peer, version, *wanted)
    assert (answer.error_code, answer.error_message) == (0, None)
    rows = [(row.error_code, row.error_message) for found in answer.responses for row in found.partitions]
    assert rows == list(expected.values())
    empty = alter(peer, version)
    assert (empty.error_code, empty.error_message, empty.responses) == (0, "", [])


def test_nothing_is_under_way(peer: Peer, topic: str) -> None:
    row = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    wanted = [row(name=topic, partition_indexes=[0, 9]), row(name="not-there", partition_indexes=[0])]
    for topics in (None, wanted, []):
        answer = peer.ask(ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics), 0)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
