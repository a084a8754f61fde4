"""Administration of consumer groups: list, describe, delete, and committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.coordinators import Answers, KeyType, call_coordinator, call_coordinators
from ottla.client.errors import BrokerError, error_from_code, raise_for_error
from ottla.client.offsets import by_topic
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages import consumer_groups, group_offsets, groups
from ottla.protocol.messages.consumer_groups import CONSUMER, Assignment, read_versioned

DEAD = "Dead"
CLASSIC_TYPE, CONSUMER_TYPE = "Classic", "Consumer"
NAMES_VERSION = 9  # the last version of OffsetCommit and OffsetFetch with topic names; later ones have ids
STATES_VERSION, TYPES_VERSION = 4, 5  # of ListGroups
MANY_GROUPS_VERSION = 8  # of OffsetFetch
GROUPS_PER_REQUEST = 50  # keeps responses short
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1  # member types of ConsumerGroupDescribe
NO_EPOCH = -1
Fetched = group_offsets.OffsetFetchResponsePartition | group_offsets.OffsetFetchResponsePartitions
NO_GENERATION = -1  # as a generation id: the commit is not a member's


class GroupListing(NamedTuple):
    """One listed group; state and type are empty if an old broker does not return them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class Member(NamedTuple):
    """One member; fields of the new protocol are None for members of the classic one."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: list[TopicPartition]
    target: list[TopicPartition] | None = None
    epoch: int | None = None
    is_upgraded: bool | None = None  # uses the new protocol


class Group(NamedTuple):
    """One group with its members; its coordinator is a broker id."""

    group_id: str
    state: str
    assignor: str
    coordinator: int
    members: list[Member]
    epoch: int | None = None
    assignment_epoch: int | None = None


class CommittedOffset(NamedTuple):
    """A committed offset; the leader epoch is None if the client sent none."""

    offset: int
    leader_epoch: int | None
    metadata: str


Offsets = dict[TopicPartition, CommittedOffset]


def list_groups(client: Client, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
    """The groups of all brokers, optionally by state or type (ignoring case)."""
    version = client.version_of(groups.ListGroupsRequest)
    if (states and version < STATES_VERSION) or (types and version < TYPES_VERSION):
        raise error_from_code(Error.UNSUPPORTED_VERSION, "The broker does not know states or types of groups.")
    request = groups.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    found: dict[str, GroupListing] = {}
    for broker in client.cluster().brokers:
        answer = client.call_broker(
            broker.node_id, request, groups.ListGroupsResponse, lambda answer: raise_for_error(answer.error_code)
        )
        for item in answer.groups:
            kind = item.group_type.capitalize()  # brokers write it in lower case
            found[item.group_id] = GroupListing(item.group_id, item.protocol_type, item.group_state, kind)
    return list(found.values())


def describe_groups(client: Client, group_ids: Iterable[str]) -> Answers[Group]:
    """Groups of both protocols; a group that does not exist is GROUP_ID_NOT_FOUND, or Dead on an old broker."""
    wanted = list(dict.fromkeys(group_ids))
    new: Answers[Group] = {}
    if client.supports(consumer_groups.ConsumerGroupDescribeRequest):
        new = call_coordinators(client, KeyType.GROUP, wanted, _describe_consumer_groups(client))
    classic = [group_id for group_id in wanted if _may_be_classic(new.get(group_id))]
    return new | call_coordinators(client, KeyType.GROUP, classic, _describe_classic_groups(client))


def delete_groups(client: Client, group_ids: Iterable[str]) -> Answers[None]:
    """Delete groups that have no members."""

    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, BrokerError | None]]:
        request = groups.DeleteGroupsRequest(groups_names=list(led))
        for item in client.call_broker(broker, request, groups.DeleteGroupsResponse).results:
            yield item.group_id, error_from_code(item.error_code) if item.error_code else None

    return call_coordinators(client, KeyType.GROUP, group_ids, ask)


def committed_offsets(client: Client, group_id: str) -> Offsets:
    """All committed offsets of a group."""
    answer = committed_offsets_of(client, [group_id])[group_id]
    if isinstance(answer, BrokerError):
        raise answer
    return answer


def committed_offsets_of(
    client: Client, group_ids: Iterable[str], per_request: int = GROUPS_PER_REQUEST
) -> Answers[Offsets]:
    """The committed offsets of several groups, in one request per coordinator if the brokers can (KIP-709)."""
    count = per_request if client.version_of(group_offsets.OffsetFetchRequest) >= MANY_GROUPS_VERSION else 1

    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, Offsets | BrokerError]]:
        for start in range(0, len(led), count):
            yield from _fetch_offsets(client, broker, led[start : start + count])

    return call_coordinators(client, KeyType.GROUP, group_ids, ask)


def _fetch_offsets(
    client: Client, broker: int, group_ids: Sequence[str]
) -> Iterator[tuple[str, Offsets | BrokerError]]:
    """Uses the last version with topic names, because a deleted topic has no id."""
    groups = [group_offsets.OffsetFetchRequestGroup(group_id=group_id) for group_id in group_ids]
    request = group_offsets.OffsetFetchRequest(group_id=group_ids[0], topics=None, groups=groups)
    answer = client.call_broker(broker, request, group_offsets.OffsetFetchResponse, version_max=NAMES_VERSION)
    if not answer.groups:
        items: list[tuple[str, Fetched]] = [(topic.name, item) for topic in answer.topics for item in topic.partitions]
        yield group_ids[0], _offsets(answer.error_code, items)
    for group in answer.groups:
        items = [(topic.name, item) for topic in group.topics for item in topic.partitions]
        yield group.group_id, _offsets(group.error_code, items)


def _offsets(error_code: int, items: Sequence[tuple[str, Fetched]]) -> Offsets | BrokerError:
    code = next((code for code in (error_code, *(item.error_code for _, item in items)) if code), 0)
    if code:
        return error_from_code(code)
    return {
        TopicPartition(name, item.partition_index): _committed(item)
        for name, item in items
        if item.committed_offset >= 0
    }


def commit_offsets(client: Client, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the committed offsets of a group without members."""
    topics = [
        group_offsets.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                group_offsets.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(topic, number)],
                    committed_metadata="",
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(offsets).items()
    ]
    request = group_offsets.OffsetCommitRequest(
        group_id=group_id, generation_id_or_member_epoch=NO_GENERATION, member_id="", topics=topics
    )

    def ask(broker: int) -> None:
        answer = client.call_broker(broker, request, group_offsets.OffsetCommitResponse, version_max=NAMES_VERSION)
        for topic in answer.topics:
            for item in topic.partitions:
                raise_for_error(item.error_code)

    if topics:
        call_coordinator(client, KeyType.GROUP, group_id, ask)


def delete_offsets(
    client: Client, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, BrokerError | None]:
    """Delete a group's committed offsets of some partitions; raises errors of the group as a whole."""
    topics = [
        group_offsets.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[group_offsets.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
        )
        for topic, numbers in by_topic(partitions).items()
    ]
    request = group_offsets.OffsetDeleteRequest(group_id=group_id, topics=topics)

    def ask(broker: int) -> group_offsets.OffsetDeleteResponse:
        answer = client.call_broker(broker, request, group_offsets.OffsetDeleteResponse)
        raise_for_error(answer.error_code)
        return answer

    answer = call_coordinator(client, KeyType.GROUP, group_id, ask)
    return {
        TopicPartition(topic.name, item.partition_index): error_from_code(item.error_code) if item.error_code else None
        for topic in answer.topics
        for item in topic.partitions
    }


def _committed(item: Fetched) -> CommittedOffset:
    epoch = None if item.committed_leader_epoch == NO_EPOCH else item.committed_leader_epoch
    return CommittedOffset(item.committed_offset, epoch, item.metadata or "")


def _describe_consumer_groups(
    client: Client,
) -> Callable[[int, Sequence[str]], Iterator[tuple[str, Group | BrokerError]]]:
    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, Group | BrokerError]]:
        request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=list(led), include_authorized_operations=False)
        for item in client.call_broker(broker, request, consumer_groups.ConsumerGroupDescribeResponse).groups:
            refused = error_from_code(item.error_code, item.error_message) if item.error_code else None
            yield item.group_id, refused or _consumer_group(item, broker)

    return ask


def _describe_classic_groups(
    client: Client,
) -> Callable[[int, Sequence[str]], Iterator[tuple[str, Group | BrokerError]]]:
    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, Group | BrokerError]]:
        request = groups.DescribeGroupsRequest(groups=list(led))
        for item in client.call_broker(broker, request, groups.DescribeGroupsResponse).groups:
            refused = error_from_code(item.error_code, item.error_message) if item.error_code else None
            yield item.group_id, refused or _classic_group(item, broker)

    return ask


def _may_be_classic(answer: Group | BrokerError | None) -> bool:
    if isinstance(answer, BrokerError):
        return answer.error in (Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION)
    return answer is None


def _consumer_group(item: consumer_groups.DescribedConsumerGroup, broker: int) -> Group:
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            _partitions(member.target_assignment),
            member.member_epoch,
            {CLASSIC_MEMBER: False, CONSUMER_MEMBER: True}.get(member.member_type),
        )
        for member in item.members
    ]
    return Group(
        item.group_id, item.group_state, item.assignor_name, broker, members, item.group_epoch, item.assignment_epoch
    )


def _partitions(assignment: consumer_groups.DescribedAssignment) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    ]


def _classic_group(item: groups.DescribedGroup, broker: int) -> Group | BrokerError:
    """A group of consumers; other classic groups, such as those of Connect workers, have no partitions."""
    if item.protocol_type not in (CONSUMER, ""):
        words = f"GroupId {item.group_id} is not a consumer group ({item.protocol_type})."
        return error_from_code(Error.INCONSISTENT_GROUP_PROTOCOL, words)
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            assigned_partitions(member.member_assignment),
        )
        for member in item.members
    ]
    return Group(item.group_id, item.group_state, item.protocol_data, broker, members)


def assigned_partitions(data: bytes) -> list[TopicPartition]:
    """Clients write these bytes themselves: invalid ones count as empty."""
    if not data:
        return []
    try:
        assignment = read_versioned(Assignment, data)
    except ProtocolError:
        return []
    return [TopicPartition(item.topic, number) for item in assignment.assigned_partitions for number in item.partitions]
