"""How ConsumerGroupDescribe shows a group of the new protocol."""

from __future__ import annotations

from ottla.groups.catalog import Catalog
from ottla.groups.consumer_group import Assignment, ConsumerGroup, ConsumerMember
from ottla.groups.consumer_plan import chosen_assignor
from ottla.protocol.messages.consumer_groups import (
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)

CLASSIC_MEMBER, NEW_MEMBER = 0, 1  # member types

NONE: frozenset[int] = frozenset()


def describe_group(group: ConsumerGroup, assignors: tuple[str, ...], catalog: Catalog) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=chosen_assignor(group, assignors),
        members=[_describe_member(group, member, catalog) for member in group.members.values()],
    )


def _describe_member(group: ConsumerGroup, member: ConsumerMember, catalog: Catalog) -> DescribedConsumer:
    """What a member has still to give up is shown as its own."""
    pending = member.pending_revocation
    held = {
        topic_id: member.assigned.get(topic_id, NONE) | pending.get(topic_id, NONE)
        for topic_id in {**member.assigned, **pending}
    }
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_describe(held, catalog),
        target_assignment=_describe(group.target.get(member.member_id, {}), catalog),
        member_type=CLASSIC_MEMBER if member.classic is not None else NEW_MEMBER,
    )


def _describe(assignment: Assignment, catalog: Catalog) -> DescribedAssignment:
    rows = []
    for topic_id, partitions in sorted(assignment.items()):
        facts = catalog.topic_by_id(topic_id)
        if facts is not None:
            rows.append(
                DescribedTopicPartitions(topic_id=topic_id, topic_name=facts.name, partitions=sorted(partitions))
            )
    return DescribedAssignment(topic_partitions=rows)
