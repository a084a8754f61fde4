"""Creating, deleting and growing topics: codes and messages as Apache Kafka 4.3 gives them."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import Peer

Topic = CreateTopicsRequest.CreatableTopic
Assignment = Topic.CreatableReplicaAssignment
Config = Topic.CreatableTopicConfig
More = CreatePartitionsRequest.CreatePartitionsTopic
Deletion = DeleteTopicsRequest.DeleteTopicState

NEWEST_CREATE = 7
SETTLE_SECONDS_MAX = 20.0
NO_ID = uuid.UUID(int=0)
BAD_CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
UNREACHABLE_FACTOR = (
    "Unable to replicate the partition {0} time(s): The target replication factor of {0} cannot be reached because "
    "only 1 broker(s) are registered or some brokers have all their log directories cordoned."
)
Assignments = list[tuple[int, list[int]]]


def wanted(name: str, partitions: int = 1, factor: int = 1, assignments: Assignments = [], **configs: Any) -> Topic:  # noqa: B006
    """One topic of a request; `retention_ms=5` is the setting retention.ms."""
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[Assignment(partition_index=index, broker_ids=ids) for index, ids in assignments],
        configs=[Config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create(peer: Peer, *topics: Topic, version: int = NEWEST_CREATE, only: bool = False, timeout: int = 10_000) -> Any:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout, validate_only=only)
    return peer.ask(request, version).topics


def outcome(peer: Peer, topic: Topic) -> tuple[int, str | None]:
    """What a request for one topic comes to, without creating it."""
    (row,) = create(peer, topic, only=True)
    return row.error_code, row.error_message


def by_hand(peer: Peer, name: str, assignments: Assignments) -> tuple[int, str | None]:
    return outcome(peer, wanted(name, -1, -1, assignments))


def delete(peer: Peer, *topics: tuple[str | None, uuid.UUID], timeout: int = 10_000) -> list[tuple[Any, ...]]:
    rows = [Deletion(name=name, topic_id=topic_id) for name, topic_id in topics]
    answer = peer.ask(DeleteTopicsRequest(topics=rows, timeout_ms=timeout), 6)
    return sorted((row.name or "", row.topic_id, row.error_code, row.error_message) for row in answer.responses)


def delete_by_name(peer: Peer, *names: str, version: int, timeout: int = 10_000) -> dict[str, int]:
    answer = peer.ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout), version)
    return {row.name: row.error_code for row in answer.responses}


def grow(
    peer: Peer, *topics: tuple[str, int, list[list[int]] | None], version: int = 3, only: bool = False
) -> list[tuple[str, int, str | None]]:
    rows = [
        More(
            name=name,
            count=count,
            assignments=None if ids is None else [More.CreatePartitionsAssignment(broker_ids=row) for row in ids],
        )
        for name, count, ids in topics
    ]
    request = CreatePartitionsRequest(topics=rows, timeout_ms=10_000, validate_only=only)
    return sorted((row.name, row.error_code, row.error_message) for row in peer.ask(request, version).results)


def partition_count(peer: Peer, name: str) -> int:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = peer.ask(request, 9).topics
    return len(topic.partitions)


def has_partitions(peer: Peer, name: str, count: int) -> bool:
    return eventually(lambda: partition_count(peer, name) == count)


def is_gone(peer: Peer, *names: str) -> bool:
    return eventually(lambda: not set(names) & peer.topic_names())


def eventually(condition: Callable[[], bool]) -> bool:
    """Apache Kafka answers before all of its parts know: give it a moment."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def broker_id(peer: Peer) -> int:
    return int(peer.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9).brokers[0].node_id)


# ---- creating


def test_a_new_topic_is_answered_with_its_id_its_size_and_its_settings(peer: Peer, topic_name: str) -> None:
    (row,) = create(peer, wanted(topic_name, 3, retention_ms="12345"))
    assert (row.name, row.error_code, row.error_message) == (topic_name, 0, None)
    assert row.topic_id != NO_ID
    assert (row.num_partitions, row.replication_factor) == (3, 1)
    settings = {config.name: config for config in row.configs}
    assert len(settings) == 33
    assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == ("12345", 1)
    assert (settings["cleanup.policy"].value, settings["cleanup.policy"].config_source) == ("delete", 5)
    assert not any(config.read_only or config.is_sensitive for config in row.configs)
    assert has_partitions(peer, topic_name, 3)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(peer: Peer, topic_name: str, version: int) -> None:
    (row,) = create(peer, wanted(topic_name, 2), version=version)
    assert (row.name, row.error_code) == (topic_name, 0)
    assert has_partitions(peer, topic_name, 2)


@pytest.mark.parametrize("version", [2, 3, 4, 7])
def test_minus_one_stands_for_the_defaults(peer: Peer, topic_name: str, version: int) -> None:
    (row,) = create(peer, wanted(topic_name, -1, -1), version=version)
    assert row.error_code == 0
    assert has_partitions(peer, topic_name, 1)


def test_validation_creates_nothing_and_answers_as_if(peer: Peer, topic_name: str) -> None:
    (row,) = create(peer, wanted(topic_name, 3), only=True)
    assert (row.error_code, row.num_partitions, row.replication_factor, len(row.configs)) == (0, 3, 1, 33)
    assert row.topic_id != NO_ID
    assert topic_name not in peer.topic_names()


def test_a_topic_that_exists_is_not_created_again(peer: Peer, topic: str) -> None:
    assert outcome(peer, wanted(topic)) == (36, f"Topic '{topic}' already exists.")


def test_a_refused_topic_has_no_details(peer: Peer, topic: str) -> None:
    (row,) = create(peer, wanted(topic))
    assert (row.num_partitions, row.replication_factor, row.configs, row.topic_id) == (-1, -1, [], None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        ("a/b", f"Topic name is invalid: 'a/b' {BAD_CHARACTERS}"),
        ("a\0b", f"Topic name is invalid: 'a\0b' {BAD_CHARACTERS}"),
        ("ü", f"Topic name is invalid: 'ü' {BAD_CHARACTERS}"),
        (
            "x" * 250,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
    ],
)
def test_bad_names_are_refused(peer: Peer, name: str, message: str) -> None:
    assert outcome(peer, wanted(name)) == (17, message)


def test_the_longest_name_is_accepted(peer: Peer) -> None:
    assert outcome(peer, wanted("x" * 249)) == (0, None)


def test_names_that_differ_in_dot_and_underscore_collide(peer: Peer, topic_name: str) -> None:
    first, second = f"{topic_name}.a_b", f"{topic_name}_a.b"
    create(peer, wanted(first))
    assert outcome(peer, wanted(second)) == (17, f"Topic '{second}' collides with existing topic: {first}")


def test_the_metadata_log_cannot_be_created(peer: Peer) -> None:
    message = "Creation of internal topic __cluster_metadata is prohibited."
    assert outcome(peer, wanted("__cluster_metadata")) == (42, message)


@pytest.mark.parametrize("count", [0, -2, -5])
def test_a_number_of_partitions_must_be_positive(peer: Peer, topic_name: str, count: int) -> None:
    message = "Number of partitions was set to an invalid non-positive value."
    assert outcome(peer, wanted(topic_name, count)) == (37, message)


@pytest.mark.parametrize("count", [10_001, 2**31 - 1])
def test_too_many_partitions_are_against_the_policy(peer: Peer, topic_name: str, count: int) -> None:
    assert outcome(peer, wanted(topic_name, count)) == (44, "Excessively large number of partitions per request.")


def test_the_partitions_of_a_request_are_counted_together(peer: Peer, topic_name: str) -> None:
    rows = create(peer, wanted(topic_name, 9_000), wanted(f"{topic_name}-b", 2_000), wanted("..", 1), only=True)
    assert [row.error_code for row in rows] == [44, 44, 44]


@pytest.mark.parametrize("factor", [0, -2, -7])
def test_a_replication_factor_must_be_positive(peer: Peer, topic_name: str, factor: int) -> None:
    message = "Replication factor must be larger than 0, or -1 to use the default value."
    assert outcome(peer, wanted(topic_name, 1, factor)) == (38, message)
    assert outcome(peer, wanted(topic_name, 0, factor)) == (38, message)


@pytest.mark.parametrize("factor", [2, 3, 32767])
def test_a_replication_factor_needs_as_many_brokers(peer: Peer, topic_name: str, factor: int) -> None:
    assert outcome(peer, wanted(topic_name, 1, factor)) == (38, UNREACHABLE_FACTOR.format(factor))


def test_an_assignment_by_hand_is_taken(peer: Peer, topic_name: str, broker_id: int) -> None:
    (row,) = create(peer, wanted(topic_name, -1, -1, [(1, [broker_id]), (0, [broker_id])]))
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1)


def test_an_assignment_by_hand_excludes_numbers(peer: Peer, topic_name: str, broker_id: int) -> None:
    start = "A manual partition assignment was specified, but"
    row = [(0, [broker_id])]
    assert outcome(peer, wanted(topic_name, 1, -1, row)) == (42, f"{start} numPartitions was not set to -1.")
    assert outcome(peer, wanted(topic_name, -1, 1, row)) == (42, f"{start} replication factor was not set to -1.")
    assert outcome(peer, wanted(topic_name, 1, 1, row)) == (42, f"{start} replication factor was not set to -1.")


def test_bad_assignments_by_hand_are_refused(peer: Peer, topic_name: str, broker_id: int) -> None:
    good, start = [broker_id], "The manual partition assignment includes"
    gap = (39, "partitions should be a consecutive 0-based integer sequence")
    assert by_hand(peer, topic_name, [(0, good), (2, good)]) == gap
    assert by_hand(peer, topic_name, [(1, good)]) == gap
    assert by_hand(peer, topic_name, [(-1, good)]) == gap
    again = "Found multiple manual partition assignments for partition 0"
    assert by_hand(peer, topic_name, [(0, good), (0, good)]) == (39, again)
    assert by_hand(peer, topic_name, [(0, [])]) == (39, f"{start} an empty replica list.")
    twice = f"{start} the broker {broker_id} more than once."
    assert by_hand(peer, topic_name, [(0, good * 2)]) == (39, twice)
    unknown = f"{start} broker 4007, but no such broker is registered."
    assert by_hand(peer, topic_name, [(0, [4009, broker_id, 4007])]) == (39, unknown)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("foo", "1", "Unknown topic config name: foo"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
        ("min.insync.replicas", "0", "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"),
        (
            "cleanup.policy",
            "x",
            "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete",
        ),
    ],
)
def test_bad_settings_are_refused(peer: Peer, topic_name: str, key: str, value: str | None, message: str) -> None:
    assert outcome(peer, wanted(topic_name, **{key: value})) == (40, message)


def test_of_two_errors_the_settings_are_reported_first(peer: Peer, topic_name: str) -> None:
    assert outcome(peer, wanted(topic_name, 0, 0, foo="1")) == (40, "Unknown topic config name: foo")


def test_a_duplicate_name_is_refused_and_others_are_created(peer: Peer, topic_names: Callable[[], str]) -> None:
    twice, once = topic_names(), topic_names()
    rows = {row.name: row for row in create(peer, wanted(twice), wanted(twice), wanted(once))}
    assert (rows[twice].error_code, rows[twice].error_message) == (42, "Duplicate topic name.")
    assert rows[once].error_code == 0
    assert twice not in peer.topic_names()


def test_one_bad_topic_does_not_stop_the_others(peer: Peer, topic: str, topic_name: str) -> None:
    rows = {row.name: row.error_code for row in create(peer, wanted(topic), wanted(topic_name), wanted(".."))}
    assert rows == {topic: 36, topic_name: 0, "..": 17}


@pytest.mark.parametrize("timeout", [0, -1])
def test_no_time_is_too_little(peer: Peer, topic_name: str, timeout: int) -> None:
    (row,) = create(peer, wanted(topic_name), timeout=timeout)
    assert (row.error_code, row.error_message) == (7, None)


def test_an_empty_request_has_an_empty_answer(peer: Peer) -> None:
    assert create(peer) == []


# ---- deleting


def test_deleting_by_name_and_by_id(peer: Peer, new_topic: NewTopic, topic_name: str) -> None:
    name = new_topic()
    topic_id = peer.create_topic(topic_name)
    assert delete(peer, (None, topic_id)) == [(topic_name, topic_id, 0, None)]
    ((answered, _, error, message),) = delete(peer, (name, NO_ID))
    assert (answered, error, message) == (name, 0, None)
    assert is_gone(peer, name, topic_name)


def test_deleting_what_is_not_there(peer: Peer, topic_name: str) -> None:
    unknown = uuid.uuid4()
    assert delete(peer, (topic_name, NO_ID)) == [
        (topic_name, None, 3, "This server does not host this topic-partition.")
    ]
    assert delete(peer, (None, unknown)) == [("", unknown, 100, "This server does not host this topic ID.")]


def test_malformed_deletions(peer: Peer, topic: str) -> None:
    some_id = uuid.uuid4()
    assert delete(peer, (None, NO_ID)) == [("", None, 42, "Neither topic name nor id were specified.")]
    assert delete(peer, (topic, some_id)) == [(topic, some_id, 42, "You may not specify both topic name and topic id.")]
    assert delete(peer, (topic, NO_ID), (topic, NO_ID)) == [(topic, None, 42, "Duplicate topic name.")]
    assert delete(peer, (None, some_id), (None, some_id)) == [("", some_id, 42, "Duplicate topic id.")]
    assert topic in peer.topic_names()


@pytest.mark.parametrize("version", range(1, 6))
def test_old_versions_delete_by_name(peer: Peer, topic: str, topic_name: str, version: int) -> None:
    assert delete_by_name(peer, topic, topic_name, version=version) == {topic: 0, topic_name: 3}


def test_a_deletion_without_time_is_not_done(peer: Peer, topic: str) -> None:
    assert delete_by_name(peer, topic, version=5, timeout=0) == {topic: 7}
    assert topic in peer.topic_names()


def test_a_deleted_name_can_be_used_again_under_a_new_id(peer: Peer, topic_name: str) -> None:
    first = peer.create_topic(topic_name)
    delete(peer, (topic_name, NO_ID))
    assert peer.create_topic(topic_name) != first
    assert peer.end_offset(topic_name) == 0


@pytest.mark.needs_ottla
def test_deletion_can_be_switched_off(broker_factory: Any) -> None:
    broker = broker_factory(delete_topic_enable="false")
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("kept")
        assert delete_by_name(peer, "kept", version=5) == {"kept": 73}
        assert delete_by_name(peer, "kept", version=1) == {"kept": 42}
        assert "kept" in peer.topic_names()


# ---- growing


def test_a_topic_grows(peer: Peer, topic: str) -> None:
    assert grow(peer, (topic, 3, None)) == [(topic, 0, None)]
    assert has_partitions(peer, topic, 3)
    peer.wait_until_led(topic, 2)


def test_a_topic_grows_by_hand(peer: Peer, topic: str, broker_id: int) -> None:
    assert grow(peer, (topic, 3, [[broker_id], [broker_id]])) == [(topic, 0, None)]
    assert has_partitions(peer, topic, 3)


@pytest.mark.parametrize("version", range(4))
def test_every_version_grows(peer: Peer, topic: str, version: int) -> None:
    assert grow(peer, (topic, 2, None), version=version) == [(topic, 0, None)]


def test_growth_is_only_validated_on_request(peer: Peer, topic: str) -> None:
    assert grow(peer, (topic, 3, None), only=True) == [(topic, 0, None)]
    assert has_partitions(peer, topic, 1)


def test_growth_must_be_growth(peer: Peer, new_topic: NewTopic) -> None:
    name = new_topic(3)
    assert grow(peer, (name, 3, None)) == [(name, 37, "Topic already has 3 partition(s).")]
    for count in (2, 0, -1):
        message = f"The topic {name} currently has 3 partition(s); {count} would not be an increase."
        assert grow(peer, (name, count, None)) == [(name, 37, message)]


def test_growth_by_hand_must_fit(peer: Peer, topic: str, broker_id: int) -> None:
    start = "The manual partition assignment includes"
    for ids in ([], [[broker_id]], [[broker_id]] * 3):
        message = f"Attempted to add 2 additional partition(s), but only {len(ids)} assignment(s) were specified."
        assert grow(peer, (topic, 3, ids)) == [(topic, 39, message)]
    unknown = f"{start} broker 4007, but no such broker is registered."
    assert grow(peer, (topic, 3, [[broker_id], [4007]])) == [(topic, 39, unknown)]
    assert grow(peer, (topic, 3, [[broker_id], []])) == [(topic, 39, f"{start} an empty replica list.")]


def test_only_existing_topics_grow(peer: Peer, topic: str, topic_name: str) -> None:
    rows = grow(peer, (topic_name, 5, None), (topic, 2, None), ("..", 2, None))
    assert rows == sorted([(topic_name, 3, None), (topic, 0, None), ("..", 3, None)])


def test_a_topic_that_comes_twice_does_not_grow(peer: Peer, topic: str) -> None:
    assert grow(peer, (topic, 5, None), (topic, 6, None)) == [(topic, 42, "Duplicate topic name.")]
