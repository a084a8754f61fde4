"""One consumer group (KIP-848): members, target assignment and current assignments.

Only records change this state: ConsumerGroups decides, and `apply_*` replays the committed records.

Rule: a partition has at most one owner. A member owns it from the record that assigns it until the record in which the
member has revoked it, including the time in which the revocation is pending.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.base.errors import Error
from ottla.groups.group_memory import names_bytes, protocols_bytes
from ottla.protocol.messages.coordinator_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionValue,
    CurrentPartitions,
    TargetPartitions,
)

JOIN_GROUP_MEMBER_EPOCH = 0
LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2  # a static member that leaves temporarily
MEMBER_EPOCH_VERSION_MIN = 9  # the first OffsetCommit version with member epochs
INITIAL_EPOCH = 1  # of a group without an assignment: members that join before the first one get this epoch


class TopicInfo(NamedTuple):
    """The properties of a topic that groups depend on."""

    name: str
    topic_id: UUID
    partition_count: int


class TopicCatalog(Protocol):
    """The topics at one moment; `generation` changes whenever a topic may have changed."""

    @property
    def generation(self) -> int: ...

    @property
    def new_topics_generation(self) -> int:
        """Return the generation in which the last topic was created."""

    def topic(self, name: str) -> TopicInfo | None: ...

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None: ...


def compute_metadata_hash(catalog: TopicCatalog, names: Iterable[str]) -> int:
    """Return a signed 64-bit hash that changes when one of these topics is created, deleted or gets more partitions."""
    facts = [catalog.topic(name) for name in sorted(names)]
    text = ";".join(f"{fact.name}:{fact.topic_id}:{fact.partition_count}" for fact in facts if fact is not None)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True) if text else 0


Assignment = dict[UUID, frozenset[int]]
AssignmentEpochs = dict[tuple[UUID, int], int]
"""The member epoch in which each partition was assigned (KIP-1251): commits with any later epoch are accepted."""


def topic_id_sort_key(item: tuple[UUID, object]) -> int:
    """Return a sort key: UUIDs are compared in Python code, which takes milliseconds for thousands of topics."""
    return item[0].int


class MemberState(IntEnum):
    """The state of a member, with the numbers of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has partitions to revoke
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that other members have not revoked


# Any state may follow any other, because a new target may change every assignment. The states differ in the epoch.
STATES_AT_TARGET_EPOCH = {
    MemberState.STABLE,
    MemberState.UNRELEASED_PARTITIONS,
}  # a member that must revoke keeps its epoch


class ClassicMemberJoined(NamedTuple):
    """Event: the join of a classic member was written, and the member must send SyncGroup."""

    group_id: str
    member_id: str
    sync_timeout_ms: int


class ConsumerGroupMember:
    """One member: its subscription and current assignment."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = -1
        self.subscribed_topic_names: frozenset[str] = frozenset()
        self.subscribed_topic_regex = ""  # empty: none
        self.server_assignor_name: str | None = None
        self.classic_metadata: ClassicMemberMetadata | None = None  # of a member that uses the classic protocol
        self.counted_bytes = 0  # its current share of the memory count
        self.member_epoch = 0
        self.previous_member_epoch = -1
        self.state = MemberState.STABLE
        self.assigned_partitions: Assignment = {}
        self.partitions_pending_revocation: Assignment = {}
        self.assignment_epochs: AssignmentEpochs = {}

    def metadata_bytes(self) -> int:
        protocols = self.classic_metadata.supported_protocols if self.classic_metadata is not None else ()
        return names_bytes(self.subscribed_topic_names) + len(self.subscribed_topic_regex) + protocols_bytes(protocols)

    def __repr__(self) -> str:
        return f"<ConsumerGroupMember {self.member_id} epoch {self.member_epoch} {self.state.name}>"


class ConsumerGroup:
    """The members of a group and the owners of its partitions."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0  # when the target was computed
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.target_assignment: dict[str, Assignment] = {}
        self.resolved_regexes: dict[str, frozenset[str]] = {}  # regular expression -> topics
        self.regexes_resolved_ms: int | None = None  # time of the resolution
        self.regexes_resolved_generation = -1  # and its generation of the catalog
        self.regex_failure_ms: int | None = None  # soft state: when the write of a resolution last failed
        self.regex_subscriber_counts: Counter[str] = Counter()  # regular expression -> number of members
        # topic -> number of members that subscribe to it by name, and of expressions that match it
        self.subscriber_counts: Counter[str] = Counter()
        self._subscription_generation = 0  # changes with the set of subscribed topics
        self._cached_metadata_hash: tuple[int, int, int] = (-1, -1, 0)  # soft state: catalog generation, topics, hash
        self.partition_owners: dict[tuple[UUID, int], str] = {}
        self.last_checked_generation = -1  # soft state: the last generation of the catalog that was checked for changes

    @property
    def state(self) -> str:
        """The name that Kafka's tools show."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        is_settled = all(
            member.state is MemberState.STABLE and member.member_epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return "Stable" if is_settled else "Reconciling"

    def topics_of_member(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Return the topics of a member: by name, and by its regular expression if that is resolved."""
        if not member.subscribed_topic_regex:
            return member.subscribed_topic_names
        matched = self.resolved_regexes.get(member.subscribed_topic_regex, frozenset())
        return member.subscribed_topic_names | matched if member.subscribed_topic_names else matched

    def subscribed_topics(self) -> set[str]:
        return set(self.subscriber_counts)

    def metadata_hash_after(self, changes: Mapping[str, int], catalog: TopicCatalog) -> int:
        """Return the metadata hash of the subscribed topics after these changes of their subscriber counts."""
        readers = self.subscriber_counts
        appear = {name for name, more in changes.items() if more > 0 and name not in readers}
        go = {name for name, more in changes.items() if more < 0 and readers[name] + more <= 0}
        if appear or go:
            return compute_metadata_hash(catalog, (readers.keys() | appear) - go)
        generation, topics_generation, metadata_hash = self._cached_metadata_hash
        if (generation, topics_generation) != (catalog.generation, self._subscription_generation):
            metadata_hash = compute_metadata_hash(catalog, readers)
            self._cached_metadata_hash = catalog.generation, self._subscription_generation, metadata_hash
        return metadata_hash

    # ---- offsets

    def validate_offset_commit(self, member_id: str, epoch: int, partitions: Iterable[tuple[UUID, int]]) -> Error:
        """Return the error of an offset commit by this member for these partitions.

        KIP-1251: an older epoch is accepted if the member has owned all partitions since then, because its commit may
        arrive after a heartbeat that raised the epoch.
        """
        if epoch < 0 and not self.members:
            return Error.NONE
        member = self.members.get(member_id)
        if member is None:
            return Error.UNKNOWN_MEMBER_ID
        if epoch == member.member_epoch:
            return Error.NONE
        is_late = 0 <= epoch < member.member_epoch
        may = is_late and all(member.assignment_epochs.get(place, member.member_epoch) <= epoch for place in partitions)
        return Error.NONE if may else _stale_epoch_error(member)

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> Error:
        """Return the error of an offset fetch.

        A client without member id may fetch, a member needs the current epoch.
        """
        if member_id is None and epoch < 0:
            return Error.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return Error.UNKNOWN_MEMBER_ID
        return Error.NONE if member.member_epoch == epoch else _stale_epoch_error(member)

    # ---- replay of records

    def apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            self._remove_member(member_id)
            return
        member = self.members.setdefault(member_id, ConsumerGroupMember(member_id))
        self._unsubscribe(member)
        member.instance_id, member.rack_id = value.instance_id, value.rack_id
        member.client_id, member.client_host = value.client_id, value.client_host
        member.rebalance_timeout_ms = value.rebalance_timeout_ms
        member.subscribed_topic_names = frozenset(value.subscribed_topic_names)
        member.subscribed_topic_regex = value.subscribed_topic_regex or ""
        self._count_subscribers(member.subscribed_topic_names, 1)
        if member.subscribed_topic_regex:
            self.regex_subscriber_counts[member.subscribed_topic_regex] += 1
        member.server_assignor_name = value.server_assignor
        member.classic_metadata = value.classic_member_metadata
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def _remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release_partitions(member)
            self._unsubscribe(member)
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]

    def _unsubscribe(self, member: ConsumerGroupMember) -> None:
        self._count_subscribers(member.subscribed_topic_names, -1)
        if member.subscribed_topic_regex:
            self.regex_subscriber_counts[member.subscribed_topic_regex] -= 1
            if not self.regex_subscriber_counts[member.subscribed_topic_regex]:
                del self.regex_subscriber_counts[member.subscribed_topic_regex]

    def _count_subscribers(self, names: Iterable[str], more: int) -> None:
        readers = self.subscriber_counts
        for name in names:
            count = readers[name] + more
            if count <= 0:
                del readers[name]
            else:
                readers[name] = count
            if count <= 0 or count == more:
                self._subscription_generation += 1

    def apply_regex(self, pattern: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        self._count_subscribers(self.resolved_regexes.pop(pattern, ()), -1)
        if value is not None:
            self.resolved_regexes[pattern] = frozenset(value.topics)
            self.regexes_resolved_ms, self.regexes_resolved_generation = value.timestamp, value.version
            self._count_subscribers(self.resolved_regexes[pattern], 1)
        elif not self.resolved_regexes:
            self.regexes_resolved_ms = None

    def apply_target_assignment(self, member_id: str, partitions: list[TargetPartitions] | None) -> None:
        if partitions is None:
            self.target_assignment.pop(member_id, None)
        else:
            self.target_assignment[member_id] = {each.topic_id: frozenset(each.partitions) for each in partitions}

    def apply_current_assignment(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        self._release_partitions(member)
        if value is None:
            member.member_epoch, member.previous_member_epoch, member.state, member.assignment_epochs = (
                0,
                -1,
                MemberState.STABLE,
                {},
            )
            return
        member.member_epoch, member.previous_member_epoch = value.member_epoch, value.previous_member_epoch
        member.state = MemberState(value.state)
        member.assigned_partitions = _to_assignment(value.assigned_partitions)
        member.partitions_pending_revocation = _to_assignment(value.partitions_pending_revocation)
        member.assignment_epochs = _assignment_epochs(value)
        for assignment in (member.assigned_partitions, member.partitions_pending_revocation):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    self.partition_owners[topic_id, partition] = member_id

    def _release_partitions(self, member: ConsumerGroupMember) -> None:
        for assignment in (member.assigned_partitions, member.partitions_pending_revocation):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    if self.partition_owners.get((topic_id, partition)) == member.member_id:
                        del self.partition_owners[topic_id, partition]
        member.assigned_partitions, member.partitions_pending_revocation = {}, {}

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id} {self.state} epoch {self.group_epoch}, {len(self.members)} members>"


def _stale_epoch_error(member: ConsumerGroupMember) -> Error:
    """Return the error of a stale epoch: members of the classic protocol have generations instead of epochs."""
    return Error.STALE_MEMBER_EPOCH if member.classic_metadata is None else Error.ILLEGAL_GENERATION


def _assignment_epochs(value: ConsumerGroupCurrentMemberAssignmentValue) -> AssignmentEpochs:
    """Return the assignment epochs. Records of Kafka before 4.3 have none: the member epoch is used."""
    return {
        (row.topic_id, partition): epoch
        for row in (*value.assigned_partitions, *value.partitions_pending_revocation)
        for partition, epoch in zip(
            row.partitions, row.assignment_epochs or [value.member_epoch] * len(row.partitions), strict=False
        )
    }


def _to_assignment(topics: list[CurrentPartitions]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in topics}
