"""The records of consumer groups (KIP-848) in `__consumer_offsets`."""

from __future__ import annotations

from ottla.coordination.machine import Record
from ottla.groups.consumer_group import (
    Assignment,
    AssignmentEpochs,
    ConsumerGroup,
    ConsumerGroupMember,
    topic_id_sort_key,
)
from ottla.groups.coordinator_records import encode_record
from ottla.groups.reconciliation import CurrentAssignment
from ottla.protocol.messages.coordinator_records import (
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

CONSUMER_GROUP_METADATA = 3
CONSUMER_GROUP_PARTITION_METADATA = 4  # written by Kafka before 4.1; only tombstones are written now
CONSUMER_GROUP_MEMBER_METADATA = 5
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
CONSUMER_GROUP_REGULAR_EXPRESSION = 16


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return encode_record(CONSUMER_GROUP_METADATA, ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ConsumerGroupMember) -> Record:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor_name,
        classic_member_metadata=member.classic_metadata,
    )
    return encode_record(
        CONSUMER_GROUP_MEMBER_METADATA,
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        value,
    )


def target_assignment_epoch_record(group_id: str, epoch: int, now_ms: int) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return encode_record(
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value
    )


def target_assignment_record(group_id: str, member_id: str, assignment: Assignment) -> Record:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assignment.items(), key=topic_id_sort_key)
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_record(CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key, value)


def current_assignment_record(group_id: str, member_id: str, step: CurrentAssignment) -> Record:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=step.member_epoch,
        previous_member_epoch=step.previous_member_epoch,
        state=int(step.state),
        assigned_partitions=_current_partitions(step.assigned_partitions, step.assignment_epochs),
        partitions_pending_revocation=_current_partitions(step.partitions_pending_revocation, step.assignment_epochs),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return encode_record(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, value)


def regex_record(group_id: str, pattern: str, topics: frozenset[str], version: int, now_ms: int) -> Record:
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=now_ms)
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    return encode_record(CONSUMER_GROUP_REGULAR_EXPRESSION, key, value)


def regex_tombstone(group_id: str, pattern: str) -> Record:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    return encode_record(CONSUMER_GROUP_REGULAR_EXPRESSION, key, None)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Return tombstones in the order of replay: current assignment, target assignment, then the member itself."""
    current = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    target = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    member = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return [
        encode_record(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, current, None),
        encode_record(CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, target, None),
        encode_record(CONSUMER_GROUP_MEMBER_METADATA, member, None),
    ]


def consumer_group_tombstones(group: ConsumerGroup) -> list[Record]:
    records = [record for member_id in group.members for record in member_tombstones(group.group_id, member_id)]
    records += [regex_tombstone(group.group_id, pattern) for pattern in group.resolved_regexes]
    return [
        *records,
        encode_record(
            CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            None,
        ),
        encode_record(
            CONSUMER_GROUP_PARTITION_METADATA, ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None
        ),
        encode_record(CONSUMER_GROUP_METADATA, ConsumerGroupMetadataKey(group_id=group.group_id), None),
    ]


def _current_partitions(assignment: Assignment, since: AssignmentEpochs) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[since.get((topic_id, partition), 0) for partition in sorted(partitions)],
        )
        for topic_id, partitions in sorted(assignment.items(), key=topic_id_sort_key)
    ]
