"""Requests about groups and transactions: their coordinators, retries and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
from ottla.client.groups import (
    GROUPS_PER_REQUEST,
    NAMES_VERSION,
    Group,
    commit_offsets,
    committed_offsets,
    committed_offsets_of,
    delete_groups,
    delete_offsets,
    describe_groups,
    list_groups,
)
from ottla.client.transactions import describe_transactions
from ottla.protocol.messages import consumer_groups, group_offsets, groups, metadata, transactions
from ottla.protocol.messages.consumer_groups import Assignment, OwnedPartitions, write_versioned

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class FakeClient:
    """A cluster of brokers 1 and 2; keys that begin with `b` are coordinated by broker 2."""

    timeout_ms = 1000

    def __init__(self) -> None:
        self.versions: dict[type, int] = {}
        self.moving = 0  # failed lookups of a coordinator
        self.asked: list[tuple[int, Any]] = []
        self.versions_max: list[int | None] = []
        self.answer: Callable[[int, Any], Any] = lambda _broker, _request: None

    def cluster(self) -> metadata.MetadataResponse:
        brokers = [metadata.MetadataResponseBroker(node_id=number, host="h", port=number) for number in (1, 2)]
        return metadata.MetadataResponse(brokers=brokers, topics=[])

    def version_of(self, request: type) -> int:
        return self.versions.get(request, 6)

    def supports(self, request: type) -> bool:
        return self.version_of(request) >= 0

    def call(self, request: Any, _response: object) -> groups.FindCoordinatorResponse:
        code = Error.COORDINATOR_NOT_AVAILABLE if self.moving > 0 else Error.NONE
        self.moving -= 1
        found = [
            groups.Coordinator(key=key, node_id=2 if key[:1] == "b" else 1, host="h", port=1, error_code=code)
            for key in request.coordinator_keys
        ]
        first = 2 if request.key[:1] == "b" else 1
        return groups.FindCoordinatorResponse(coordinators=found, node_id=first, error_code=code if not found else 0)

    def call_broker(
        self, broker: int, request: Any, _response: object, check: Any = None, version_max: int | None = None
    ) -> Any:
        self.asked.append((broker, request))
        self.versions_max.append(version_max)
        answer = self.answer(broker, request)
        if check is not None:
            check(answer)
        return answer

    def retry(self, attempt: Callable[[], Any]) -> Any:
        for _ in range(3):
            try:
                return attempt()
            except ClientError as problem:
                if not problem.is_retriable:
                    raise
        return attempt()


@pytest.fixture
def cluster() -> FakeClient:
    return FakeClient()


def client_of(cluster: FakeClient) -> Client:
    return cluster  # type: ignore[return-value]


def deleted(_broker: int, request: Any) -> groups.DeleteGroupsResponse:
    results = [groups.DeletableGroupResult(group_id=name) for name in request.groups_names]
    return groups.DeleteGroupsResponse(results=results)


def test_each_coordinator_is_asked_about_its_own_groups(cluster: FakeClient) -> None:
    cluster.answer = deleted
    assert delete_groups(client_of(cluster), ["a1", "b1", "a2"]) == {"a1": None, "a2": None, "b1": None}
    assert [(broker, request.groups_names) for broker, request in cluster.asked] == [(1, ["a1", "a2"]), (2, ["b1"])]


def test_an_old_broker_is_asked_for_one_coordinator_at_a_time(cluster: FakeClient) -> None:
    cluster.answer = deleted
    cluster.versions[groups.FindCoordinatorRequest] = 3
    assert delete_groups(client_of(cluster), ["a1", "b1"]) == {"a1": None, "b1": None}
    assert [broker for broker, _ in cluster.asked] == [1, 2]


def test_a_coordinator_that_is_not_there_yet_is_looked_for_again(cluster: FakeClient) -> None:
    cluster.answer = deleted
    cluster.moving = 2
    assert delete_groups(client_of(cluster), ["a1"]) == {"a1": None}


def test_only_what_may_pass_is_asked_again(cluster: FakeClient) -> None:
    codes = {"a1": [Error.NOT_COORDINATOR, Error.NONE], "a2": [Error.NON_EMPTY_GROUP], "a3": [Error.NONE]}

    def answer(_broker: int, request: Any) -> groups.DeleteGroupsResponse:
        results = [
            groups.DeletableGroupResult(group_id=name, error_code=codes[name].pop(0)) for name in request.groups_names
        ]
        return groups.DeleteGroupsResponse(results=results)

    cluster.answer = answer
    found = delete_groups(client_of(cluster), codes)
    assert [request.groups_names for _, request in cluster.asked] == [["a1", "a2", "a3"], ["a1"]]
    assert (found["a1"], found["a3"]) == (None, None)
    assert isinstance(found["a2"], BrokerError)
    assert found["a2"].error is Error.NON_EMPTY_GROUP


def described(_broker: int, request: Any) -> Any:
    """`new` is a group of the new protocol, `old` a classic one, `connect` one of workers; others do not exist."""
    if isinstance(request, consumer_groups.ConsumerGroupDescribeRequest):
        return consumer_groups.ConsumerGroupDescribeResponse(groups=[new_group(name) for name in request.group_ids])
    return groups.DescribeGroupsResponse(groups=[classic_group(name) for name in request.groups])


def new_group(name: str) -> consumer_groups.DescribedConsumerGroup:
    topic = consumer_groups.DescribedTopicPartitions(topic_id=None, topic_name="a", partitions=[0, 1])  # type: ignore[arg-type]
    assignment = consumer_groups.DescribedAssignment(topic_partitions=[topic])
    member = consumer_groups.DescribedConsumer(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["a"],
        assignment=assignment,
        target_assignment=assignment,
        member_type=1,
    )
    return consumer_groups.DescribedConsumerGroup(
        error_code=Error.NONE if name == "new" else Error.GROUP_ID_NOT_FOUND,
        group_id=name,
        group_state="Stable",
        group_epoch=3,
        assignment_epoch=3,
        assignor_name="uniform",
        members=[member],
    )


def classic_group(name: str) -> groups.DescribedGroup:
    owned = Assignment(assigned_partitions=[OwnedPartitions(topic="a", partitions=[1])])
    members = [
        groups.DescribedGroupMember(
            member_id=member, client_id="c", client_host="/h", member_metadata=b"", member_assignment=data
        )
        for member, data in (("m", write_versioned(owned, 1)), ("garbage", b"\x00"), ("joining", b""))
    ]
    is_there = name in ("old", "connect")
    return groups.DescribedGroup(
        error_code=Error.NONE if is_there else Error.GROUP_ID_NOT_FOUND,
        error_message=None if is_there else f"Group {name} not found.",
        group_id=name,
        group_state="Stable",
        protocol_type="connect" if name == "connect" else "consumer",
        protocol_data="range",
        members=members,
    )


def test_groups_of_both_protocols_are_described(cluster: FakeClient) -> None:
    cluster.answer = described
    found = describe_groups(client_of(cluster), ["new", "old", "connect", "nope"])
    new, old, connect, nope = (found[name] for name in ("new", "old", "connect", "nope"))
    assert isinstance(new, Group)
    assert isinstance(old, Group)
    assert (new.epoch, new.members[0].assigned, new.members[0].is_upgraded) == (3, [A0, A1], True)
    assert [member.assigned for member in old.members] == [[A1], [], []]
    assert (old.assignor, old.epoch, old.members[0].target) == ("range", None, None)
    assert isinstance(connect, BrokerError)
    assert connect.broker_message == "GroupId connect is not a consumer group (connect)."
    assert isinstance(nope, BrokerError)
    assert nope.broker_message == "Group nope not found."


def test_a_broker_without_the_new_protocol_is_not_asked_for_it(cluster: FakeClient) -> None:
    cluster.answer = described
    cluster.versions[consumer_groups.ConsumerGroupDescribeRequest] = -1
    assert isinstance(describe_groups(client_of(cluster), ["old"])["old"], Group)
    assert len(cluster.asked) == 1


def test_all_brokers_are_asked_for_their_groups(cluster: FakeClient) -> None:
    listed = [groups.ListedGroup(group_id="g", protocol_type="", group_state="Empty", group_type="classic")]
    cluster.answer = lambda _broker, _request: groups.ListGroupsResponse(groups=listed)
    assert list_groups(client_of(cluster)) == [("g", "", "Empty", "Classic")]
    assert [broker for broker, _ in cluster.asked] == [1, 2]
    cluster.versions[groups.ListGroupsRequest] = 3
    with pytest.raises(BrokerError, match="does not know states"):
        list_groups(client_of(cluster), states=["Empty"])


def test_committed_offsets_are_read_by_the_names_of_topics(cluster: FakeClient) -> None:
    """A deleted topic has no ID, so versions with topic IDs are not used."""
    partitions = [
        group_offsets.OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, committed_leader_epoch=2),
        group_offsets.OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
    ]
    topic = group_offsets.OffsetFetchResponseTopics(name="a", partitions=partitions)
    group = group_offsets.OffsetFetchResponseGroup(group_id="g", topics=[topic])
    cluster.answer = lambda _broker, _request: group_offsets.OffsetFetchResponse(groups=[group])
    assert committed_offsets(client_of(cluster), "g") == {A0: (5, 2, "")}
    assert cluster.versions_max == [NAMES_VERSION]


def test_many_groups_are_asked_for_at_once_where_the_brokers_can(cluster: FakeClient) -> None:
    def answer(_broker: int, request: Any) -> group_offsets.OffsetFetchResponse:
        codes = {"a2": Error.GROUP_AUTHORIZATION_FAILED}
        return group_offsets.OffsetFetchResponse(
            groups=[
                group_offsets.OffsetFetchResponseGroup(group_id=item.group_id, error_code=codes.get(item.group_id, 0))
                for item in request.groups
            ]
        )

    cluster.answer = answer
    cluster.versions[group_offsets.OffsetFetchRequest] = 8
    names = [f"a{number}" for number in range(GROUPS_PER_REQUEST + 1)]
    found = committed_offsets_of(client_of(cluster), ["b1", *names])
    assert [name for name, told in found.items() if told != {}] == ["a2"], "the other groups are returned nevertheless"
    assert sorted(len(request.groups) for _, request in cluster.asked) == [1, 1, GROUPS_PER_REQUEST]


def test_an_old_broker_is_asked_for_one_group_at_a_time(cluster: FakeClient) -> None:
    cluster.versions[group_offsets.OffsetFetchRequest] = 7
    partition = group_offsets.OffsetFetchResponsePartition(partition_index=0, committed_offset=5)
    topic = group_offsets.OffsetFetchResponseTopic(name="a", partitions=[partition])
    cluster.answer = lambda _broker, _request: group_offsets.OffsetFetchResponse(topics=[topic])
    told = {A0: (5, None, "")}
    assert committed_offsets_of(client_of(cluster), ["a1", "a2"]) == {"a1": told, "a2": told}
    assert [request.group_id for _, request in cluster.asked] == ["a1", "a2"]


def test_offsets_are_committed_and_forgotten(cluster: FakeClient) -> None:
    codes = [Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NONE, Error.UNKNOWN_MEMBER_ID]

    def answer(_broker: int, _request: Any) -> group_offsets.OffsetCommitResponse:
        partition = group_offsets.OffsetCommitResponsePartition(partition_index=0, error_code=codes.pop(0))
        topic = group_offsets.OffsetCommitResponseTopic(name="a", partitions=[partition])
        return group_offsets.OffsetCommitResponse(topics=[topic])

    cluster.answer = answer
    commit_offsets(client_of(cluster), "g", {A0: 7})
    assert cluster.asked[-1][1].topics[0].partitions[0].committed_offset == 7
    with pytest.raises(BrokerError, match="stop its consumers"):
        commit_offsets(client_of(cluster), "g", {A0: 7})
    commit_offsets(client_of(cluster), "g", {})  # nothing to commit: no request is sent
    assert len(cluster.asked) == 3
    cluster.answer = lambda _broker, _request: group_offsets.OffsetDeleteResponse(error_code=Error.GROUP_ID_NOT_FOUND)
    with pytest.raises(BrokerError, match="does not exist"):
        delete_offsets(client_of(cluster), "g", [A0])


def test_transactions_are_described_by_their_coordinators(cluster: FakeClient) -> None:
    def answer(_broker: int, request: Any) -> transactions.DescribeTransactionsResponse:
        states = [
            transactions.DescribedTransaction(
                error_code=Error.NONE if name == "a" else Error.TRANSACTIONAL_ID_NOT_FOUND,
                transactional_id=name,
                transaction_state="Empty",
                transaction_timeout_ms=1,
                transaction_start_time_ms=-1,
                producer_id=4,
                producer_epoch=0,
                topics=[],
            )
            for name in request.transactional_ids
        ]
        return transactions.DescribeTransactionsResponse(transaction_states=states)

    cluster.answer = answer
    found = describe_transactions(client_of(cluster), ["a", "b"])
    assert found["a"] == (1, "a", 4, 0, "Empty", 1, None, [])
    assert isinstance(found["b"], BrokerError)
