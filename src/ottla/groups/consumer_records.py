"""The records of groups of the new protocol, made from the machine's words."""

from __future__ import annotations

from ottla.coordination.machine import Record
from ottla.groups.consumer_group import Assignment, ConsumerGroup, ConsumerMember, Since
from ottla.groups.reconciliation import Step
from ottla.groups.records import make_record
from ottla.protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentPartitions,
    TargetPartitions,
)

GROUP = 3
PARTITION_METADATA = 4  # written before Kafka 4.1; only to be forgotten now
MEMBER = 5
TARGET_EPOCH = 6
TARGET_MEMBER = 7
CURRENT = 8
REGULAR_EXPRESSION = 16


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return make_record(GROUP, ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ConsumerMember) -> Record:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return make_record(MEMBER, ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return make_record(TARGET_EPOCH, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, assignment: Assignment) -> Record:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assignment.items())
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return make_record(TARGET_MEMBER, key, value)


def current_record(group_id: str, member_id: str, step: Step) -> Record:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=step.epoch,
        previous_member_epoch=step.previous_epoch,
        state=int(step.state),
        assigned_partitions=_current(step.assigned, step.since),
        partitions_pending_revocation=_current(step.pending_revocation, step.since),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return make_record(CURRENT, key, value)


def regex_record(group_id: str, pattern: str, topics: frozenset[str], version: int, now_ms: int) -> Record:
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=now_ms)
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    return make_record(REGULAR_EXPRESSION, key, value)


def forget_regex(group_id: str, pattern: str) -> Record:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    return make_record(REGULAR_EXPRESSION, key, None)


def forget_member(group_id: str, member_id: str) -> list[Record]:
    """In the order in which a reader can take them: what it has, what it should have, the member itself."""
    current = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    target = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    member = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return [
        make_record(CURRENT, current, None),
        make_record(TARGET_MEMBER, target, None),
        make_record(MEMBER, member, None),
    ]


def forget_group(group: ConsumerGroup) -> list[Record]:
    records = [record for member_id in group.members for record in forget_member(group.group_id, member_id)]
    records += [forget_regex(group.group_id, pattern) for pattern in group.resolved]
    return [
        *records,
        make_record(TARGET_EPOCH, ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), None),
        make_record(PARTITION_METADATA, ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None),
        make_record(GROUP, ConsumerGroupMetadataKey(group_id=group.group_id), None),
    ]


def _current(assignment: Assignment, since: Since) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[since.get((topic_id, partition), 0) for partition in sorted(partitions)],
        )
        for topic_id, partitions in sorted(assignment.items())
    ]
