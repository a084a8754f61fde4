"""Consumer groups as administrators see them: list, describe, delete, and the offsets that they have committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.coordinators import Answers, KeyType, ask_coordinator, ask_coordinators
from ottla.client.errors import RefusedError, refusal
from ottla.client.offsets import by_topic
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages import consumer_groups, group_admin, group_offsets
from ottla.protocol.messages.consumer_protocol import CONSUMER, Assignment, read_versioned

DEAD = "Dead"
CLASSIC_TYPE, CONSUMER_TYPE = "Classic", "Consumer"
NAMES_VERSION = 9  # the last version of OffsetCommit and OffsetFetch that names topics; later ones have ids
STATES_VERSION, TYPES_VERSION = 4, 5  # of ListGroups
MANY_GROUPS_VERSION = 8  # of OffsetFetch
GROUPS_PER_REQUEST = 50  # so that no answer becomes very long
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1  # member types of ConsumerGroupDescribe
NO_EPOCH = -1
Fetched = group_offsets.OffsetFetchResponsePartition | group_offsets.OffsetFetchResponsePartitions
NOBODY = -1  # as a generation: an administrator commits, not a member


class Listing(NamedTuple):
    """One group of a list; state and type are empty where an old broker does not tell them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class Member(NamedTuple):
    """One member; what only the new protocol has is None for members of the classic one."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: list[TopicPartition]
    target: list[TopicPartition] | None = None
    epoch: int | None = None
    is_upgraded: bool | None = None  # speaks the new protocol


class Group(NamedTuple):
    """One group with its members; its coordinator is a broker id."""

    group_id: str
    state: str
    assignor: str
    coordinator: int
    members: list[Member]
    epoch: int | None = None
    assignment_epoch: int | None = None


class Committed(NamedTuple):
    """A committed offset; the leader epoch is None where the client sent none."""

    offset: int
    leader_epoch: int | None
    metadata: str


Offsets = dict[TopicPartition, Committed]


def list_groups(client: Client, states: Collection[str] = (), types: Collection[str] = ()) -> list[Listing]:
    """The groups of all brokers, on request only those in some states or of some types (case does not matter)."""
    version = client.version_of(group_admin.ListGroupsRequest)
    if (states and version < STATES_VERSION) or (types and version < TYPES_VERSION):
        raise refusal(Error.UNSUPPORTED_VERSION, "The broker does not know states or types of groups.")
    request = group_admin.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    found: dict[str, Listing] = {}
    for broker in client.cluster().brokers:
        answer = client.call_broker(broker.node_id, request, group_admin.ListGroupsResponse, _check_listed)
        for item in answer.groups:
            kind = item.group_type.capitalize()  # brokers write it small
            found[item.group_id] = Listing(item.group_id, item.protocol_type, item.group_state, kind)
    return list(found.values())


def describe_groups(client: Client, group_ids: Iterable[str]) -> Answers[Group]:
    """Groups of both protocols; a group that does not exist is GROUP_ID_NOT_FOUND, or Dead on an old broker."""
    wanted = list(dict.fromkeys(group_ids))
    new: Answers[Group] = {}
    if client.supports(consumer_groups.ConsumerGroupDescribeRequest):
        new = ask_coordinators(client, KeyType.GROUP, wanted, _ask_new(client))
    classic = [group_id for group_id in wanted if _may_be_classic(new.get(group_id))]
    return new | ask_coordinators(client, KeyType.GROUP, classic, _ask_classic(client))


def delete_groups(client: Client, group_ids: Iterable[str]) -> Answers[None]:
    """Delete groups that have no members."""

    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, RefusedError | None]]:
        request = group_admin.DeleteGroupsRequest(groups_names=list(led))
        for item in client.call_broker(broker, request, group_admin.DeleteGroupsResponse).results:
            yield item.group_id, refusal(item.error_code) if item.error_code else None

    return ask_coordinators(client, KeyType.GROUP, group_ids, ask)


def committed_offsets(client: Client, group_id: str) -> Offsets:
    """All that a group has committed."""
    answer = committed_offsets_of(client, [group_id])[group_id]
    if isinstance(answer, RefusedError):
        raise answer
    return answer


def committed_offsets_of(
    client: Client, group_ids: Iterable[str], per_request: int = GROUPS_PER_REQUEST
) -> Answers[Offsets]:
    """The same of many groups at once, where the brokers can (KIP-709)."""
    count = per_request if client.version_of(group_offsets.OffsetFetchRequest) >= MANY_GROUPS_VERSION else 1

    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, Offsets | RefusedError]]:
        for start in range(0, len(led), count):
            yield from _ask_offsets(client, broker, led[start : start + count])

    return ask_coordinators(client, KeyType.GROUP, group_ids, ask)


def _ask_offsets(client: Client, broker: int, group_ids: Sequence[str]) -> Iterator[tuple[str, Offsets | RefusedError]]:
    """In the last version with names of topics, since a deleted topic has no id."""
    groups = [group_offsets.OffsetFetchRequestGroup(group_id=group_id) for group_id in group_ids]
    request = group_offsets.OffsetFetchRequest(group_id=group_ids[0], topics=None, groups=groups)
    answer = client.call_broker(broker, request, group_offsets.OffsetFetchResponse, version_max=NAMES_VERSION)
    if not answer.groups:
        items: list[tuple[str, Fetched]] = [(topic.name, item) for topic in answer.topics for item in topic.partitions]
        yield group_ids[0], _offsets(answer.error_code, items)
    for group in answer.groups:
        items = [(topic.name, item) for topic in group.topics for item in topic.partitions]
        yield group.group_id, _offsets(group.error_code, items)


def _offsets(error_code: int, items: Sequence[tuple[str, Fetched]]) -> Offsets | RefusedError:
    code = next((code for code in (error_code, *(item.error_code for _, item in items)) if code), 0)
    if code:
        return refusal(code)
    return {
        TopicPartition(name, item.partition_index): _committed(item)
        for name, item in items
        if item.committed_offset >= 0
    }


def commit_offsets(client: Client, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the place of a group that has no members."""
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
        group_id=group_id, generation_id_or_member_epoch=NOBODY, member_id="", topics=topics
    )

    def ask(broker: int) -> None:
        answer = client.call_broker(broker, request, group_offsets.OffsetCommitResponse, version_max=NAMES_VERSION)
        _raise_first(item.error_code for topic in answer.topics for item in topic.partitions)

    if topics:
        ask_coordinator(client, KeyType.GROUP, group_id, ask)


def delete_offsets(
    client: Client, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, RefusedError | None]:
    """Forget what a group has committed for some partitions; raises what the group as a whole is refused for."""
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
        _raise_first([answer.error_code])
        return answer

    answer = ask_coordinator(client, KeyType.GROUP, group_id, ask)
    return {
        TopicPartition(topic.name, item.partition_index): refusal(item.error_code) if item.error_code else None
        for topic in answer.topics
        for item in topic.partitions
    }


def _committed(item: Fetched) -> Committed:
    epoch = None if item.committed_leader_epoch == NO_EPOCH else item.committed_leader_epoch
    return Committed(item.committed_offset, epoch, item.metadata or "")


def _ask_new(client: Client) -> Callable[[int, Sequence[str]], Iterator[tuple[str, Group | RefusedError]]]:
    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, Group | RefusedError]]:
        request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=list(led), include_authorized_operations=False)
        for item in client.call_broker(broker, request, consumer_groups.ConsumerGroupDescribeResponse).groups:
            refused = refusal(item.error_code, item.error_message) if item.error_code else None
            yield item.group_id, refused or _new_group(item, broker)

    return ask


def _ask_classic(client: Client) -> Callable[[int, Sequence[str]], Iterator[tuple[str, Group | RefusedError]]]:
    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, Group | RefusedError]]:
        request = group_admin.DescribeGroupsRequest(groups=list(led))
        for item in client.call_broker(broker, request, group_admin.DescribeGroupsResponse).groups:
            refused = refusal(item.error_code, item.error_message) if item.error_code else None
            yield item.group_id, refused or _classic_group(item, broker)

    return ask


def _may_be_classic(answer: Group | RefusedError | None) -> bool:
    if isinstance(answer, RefusedError):
        return answer.error in (Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION)
    return answer is None


def _new_group(item: consumer_groups.DescribedConsumerGroup, broker: int) -> Group:
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


def _classic_group(item: group_admin.DescribedGroup, broker: int) -> Group | RefusedError:
    """A group of consumers; others, such as those of Connect workers, do not have partitions."""
    if item.protocol_type not in (CONSUMER, ""):
        words = f"GroupId {item.group_id} is not a consumer group ({item.protocol_type})."
        return refusal(Error.INCONSISTENT_GROUP_PROTOCOL, words)
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned(member.member_assignment),
        )
        for member in item.members
    ]
    return Group(item.group_id, item.group_state, item.protocol_data, broker, members)


def _assigned(data: bytes) -> list[TopicPartition]:
    """Clients write this themselves: what makes no sense counts as nothing."""
    if not data:
        return []
    try:
        assignment = read_versioned(Assignment, data)
    except ProtocolError:
        return []
    return [TopicPartition(item.topic, number) for item in assignment.assigned_partitions for number in item.partitions]


def _check_listed(answer: group_admin.ListGroupsResponse) -> None:
    _raise_first([answer.error_code])


def _raise_first(codes: Iterable[int]) -> None:
    for code in codes:
        if code:
            raise refusal(code)
