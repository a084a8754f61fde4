"""One group of the new protocol (KIP-848): members, the assignment they should have, and what each has now.

Everything here is written by records only: ConsumerGroups decides, the log keeps, `apply_*` takes it in.

Rule: a partition has at most one owner. It is owned by a member from the record that assigns it to the record in which
the member has given it back, which includes the time in which it is only asked to.
"""

from __future__ import annotations

from enum import IntEnum
from uuid import UUID

from ottla.protocol.messages.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentPartitions,
    TargetPartitions,
)

Assignment = dict[UUID, frozenset[int]]
Since = dict[tuple[UUID, int], int]
"""The epoch in which a member was given each of its partitions (KIP-1251): it may commit those with any epoch since."""

JOINING = 0
LEFT = -1
LEFT_FOR_A_WHILE = -2  # a static member that says it will be back
FIRST_EPOCH = 1  # of a group without any assignment: whoever joins before the first one gets this epoch


class MemberState(IntEnum):
    """The numbers are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it was asked to give something up and has not done so
    UNRELEASED_PARTITIONS = 2  # it waits for what others have not given up


# Any state may follow any, because a new target may ask anything of anybody. What differs is the epoch.
HAS_TARGET_EPOCH = {MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS}  # who has yet to give up keeps its epoch


class ConsumerMember:
    """One member: what it subscribes to, and where it stands."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = -1
        self.topic_names: frozenset[str] = frozenset()
        self.topic_regex = ""  # none
        self.server_assignor: str | None = None
        self.classic: ClassicMemberMetadata | None = None  # of a member that still speaks the classic protocol
        self.epoch = 0
        self.previous_epoch = -1
        self.state = MemberState.STABLE
        self.assigned: Assignment = {}
        self.pending_revocation: Assignment = {}
        self.since: Since = {}

    def __repr__(self) -> str:
        return f"<ConsumerMember {self.member_id} epoch {self.epoch} {self.state.name}>"


class ConsumerGroup:
    """The members of a group and who owns what."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.assigned_ms = 0  # when the target was computed
        self.members: dict[str, ConsumerMember] = {}
        self.member_of_instance: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        self.resolved: dict[str, frozenset[str]] = {}  # regular expression -> topics
        self.owners: dict[tuple[UUID, int], str] = {}
        self.seen_generation = -1  # of the catalog: soft, so that topics are looked at once per change

    @property
    def state(self) -> str:
        """The name that Kafka's tools show."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        is_settled = all(
            member.state is MemberState.STABLE and member.epoch == self.target_epoch for member in self.members.values()
        )
        return "Stable" if is_settled else "Reconciling"

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """What a member reads: by name, and by its regular expression as far as it is resolved."""
        if member.topic_regex:
            return member.topic_names | self.resolved.get(member.topic_regex, frozenset())
        return member.topic_names

    def subscribed_topics(self) -> set[str]:
        return {name for member in self.members.values() for name in self.topics_of(member)}

    # ---- what records say

    def apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            self._remove(member_id)
            return
        member = self.members.setdefault(member_id, ConsumerMember(member_id))
        member.instance_id, member.rack_id = value.instance_id, value.rack_id
        member.client_id, member.client_host = value.client_id, value.client_host
        member.rebalance_timeout_ms = value.rebalance_timeout_ms
        member.topic_names = frozenset(value.subscribed_topic_names)
        member.topic_regex = value.subscribed_topic_regex or ""
        member.server_assignor = value.server_assignor
        member.classic = value.classic_member_metadata
        if member.instance_id is not None:
            self.member_of_instance[member.instance_id] = member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            if member.instance_id is not None and self.member_of_instance.get(member.instance_id) == member_id:
                del self.member_of_instance[member.instance_id]

    def apply_pattern(self, pattern: str, topics: list[str] | None) -> None:
        if topics is None:
            self.resolved.pop(pattern, None)
        else:
            self.resolved[pattern] = frozenset(topics)

    def apply_target(self, member_id: str, partitions: list[TargetPartitions] | None) -> None:
        if partitions is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = {each.topic_id: frozenset(each.partitions) for each in partitions}

    def apply_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        self._release(member)
        if value is None:
            member.epoch, member.previous_epoch, member.state, member.since = 0, -1, MemberState.STABLE, {}
            return
        member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
        member.state = MemberState(value.state)
        member.assigned = _as_assignment(value.assigned_partitions)
        member.pending_revocation = _as_assignment(value.partitions_pending_revocation)
        member.since = _since(value)
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    self.owners[topic_id, partition] = member_id

    def _release(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member.member_id:
                        del self.owners[topic_id, partition]
        member.assigned, member.pending_revocation = {}, {}

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id} {self.state} epoch {self.epoch}, {len(self.members)} members>"


def _since(value: ConsumerGroupCurrentMemberAssignmentValue) -> Since:
    """Before Kafka 4.3 records had no such epochs: then the member's own counts."""
    return {
        (row.topic_id, partition): epoch
        for row in (*value.assigned_partitions, *value.partitions_pending_revocation)
        for partition, epoch in zip(
            row.partitions, row.assignment_epochs or [value.member_epoch] * len(row.partitions), strict=False
        )
    }


def _as_assignment(topics: list[CurrentPartitions]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in topics}
