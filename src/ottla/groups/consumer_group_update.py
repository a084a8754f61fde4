"""The effects of one heartbeat on a consumer group: regular expression, group epoch, target assignment, reconciliation.

The group itself does not change here, only when the records are replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import UUID

from ottla.coordination.machine import Record
from ottla.groups.assignors import ASSIGNORS, Subscriber
from ottla.groups.consumer_group import (
    STATES_AT_TARGET_EPOCH,
    Assignment,
    ConsumerGroup,
    ConsumerGroupMember,
    MemberState,
    TopicCatalog,
)
from ottla.groups.consumer_group_records import (
    current_assignment_record,
    group_epoch_record,
    regex_tombstone,
    target_assignment_epoch_record,
    target_assignment_record,
)
from ottla.groups.reconciliation import CurrentAssignment, OwnedPartitions, current_assignment, next_assignment

ValidateRegex = Callable[[str], object]
"""Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""


class ConsumerGroupUpdate:
    """The update of a group by one member's heartbeat.

    `previous` is the member before the heartbeat and `member` after it; `replaced_member_id` is the static member that
    it replaces.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        previous: ConsumerGroupMember,
        member: ConsumerGroupMember,
        replaced_member_id: str | None,
        catalog: TopicCatalog,
        records: list[Record],
        now_ms: int,
    ) -> None:
        self.records = records
        self._group = group
        self._previous = previous
        self._member = member
        self._replaced_member_id = replaced_member_id
        self._catalog = catalog
        self._now_ms = now_ms
        self._epoch = group.group_epoch
        self._target_epoch = group.assignment_epoch
        self._target: Assignment = group.target_assignment.get(replaced_member_id or member.member_id, {})
        self._topic_ids_by_names: dict[frozenset[str], frozenset[UUID]] = {}  # topic ids by names
        self._removed_regex = ""  # the regular expression that no member subscribes to any longer
        self._has_subscription_changed = previous.subscribed_topic_names != member.subscribed_topic_names

    def update_regex(self, check_pattern: ValidateRegex) -> None:
        """Handle a change of the member's regular expression.

        A new expression is resolved later (topic_regexes.py) and has no topics until then. So the epoch is raised only
        if the expression is resolved already, or if the member no longer has one.
        """
        was, pattern = self._previous.subscribed_topic_regex, self._member.subscribed_topic_regex
        if was == pattern:
            return
        members = self._group.regex_subscriber_counts
        if pattern and pattern not in members:
            check_pattern(pattern)
        if not pattern or (pattern in members and pattern in self._group.resolved_regexes):
            self._has_subscription_changed = True
        if was in self._group.resolved_regexes and members[was] == 1:
            self._removed_regex = was
            self.records.append(regex_tombstone(self._group.group_id, was))

    def bump_group_epoch(self) -> None:
        """Raise the group epoch if a subscription or a topic has changed."""
        if not self._has_subscription_changed and self._group.last_checked_generation == self._catalog.generation:
            return
        metadata_hash = self._group.metadata_hash_after(self._subscriber_count_changes(), self._catalog)
        if self._has_subscription_changed or metadata_hash != self._group.metadata_hash:
            self._epoch += 1
            self.records.append(group_epoch_record(self._group.group_id, self._epoch, metadata_hash))
        if not self.records:  # an append may be rejected, and then the next heartbeat must find the change again
            self._group.last_checked_generation = self._catalog.generation

    def _subscriber_count_changes(self) -> dict[str, int]:
        """Return the changes of the subscriber counts of topics."""
        counted = self._group.members.get(self._replaced_member_id or self._member.member_id)
        changes = Counter(self._member.subscribed_topic_names)
        changes.subtract(counted.subscribed_topic_names if counted is not None else ())
        changes.subtract(self._group.resolved_regexes[self._removed_regex] if self._removed_regex else ())
        return changes

    def update_target_assignment(self, assignors: tuple[str, ...], interval_ms: int) -> None:
        """Compute a new target if the group epoch was raised, but not more often than the interval (KIP-1263)."""
        # A time in the future is that of a clock that was set back since.
        is_early = 0 <= self._now_ms - self._group.assignment_timestamp_ms < interval_ms
        if self._epoch <= self._target_epoch or is_early:
            return
        group_id = self._group.group_id
        members = self._members()
        counts = {}
        subscriptions = {self._group.topics_of_member(member) for member in members}  # usually equal for all members
        for name in sorted(frozenset().union(*subscriptions)):
            facts = self._catalog.topic(name)
            if facts is not None:
                counts[facts.topic_id] = facts.partition_count
        assignor = ASSIGNORS[preferred_server_assignor(self._group, assignors, self._member)]
        targets = assignor([self._subscriber(member) for member in members], counts)
        for member_id, assignment in targets.items():
            if assignment != self._group.target_assignment.get(member_id):
                self.records.append(target_assignment_record(group_id, member_id, assignment))
        self.records.append(target_assignment_epoch_record(group_id, self._epoch, self._now_ms))
        self._target_epoch = self._epoch
        self._target = targets[self._member.member_id]

    @property
    def is_target_outdated(self) -> bool:
        """Whether the target is older than the group: it may contain topics that a member does not subscribe to."""
        return self._epoch > self._target_epoch

    def reconcile(self, owned: OwnedPartitions) -> CurrentAssignment:
        """Reconcile the member with its target; adds a record if its assignment changes."""
        mine = {self._member.member_id, self._replaced_member_id}
        owners = self._group.partition_owners
        # A target older than the group or the subscription may contain topics that the member does not subscribe to.
        member = self._member
        is_moving = member.state is not MemberState.STABLE or member.member_epoch != self._target_epoch
        is_old = self.is_target_outdated or self._has_subscription_changed
        is_old = (
            is_old
            or member.subscribed_topic_regex != self._previous.subscribed_topic_regex
            or (is_moving and member.subscribed_topic_regex != "")
        )
        step = next_assignment(
            self._member,
            self._target_epoch,
            self._target,
            self._topic_ids(self._member) if is_old else None,
            owned,
            lambda topic_id, partition: owners.get((topic_id, partition)) in (None, *mine),
        )
        if step != current_assignment(self._member):
            epoch = self._target_epoch if step.state in STATES_AT_TARGET_EPOCH else self._member.member_epoch
            assert self._member.member_epoch <= step.member_epoch == epoch, (
                f"{self._member} cannot go to epoch {step.member_epoch}"
            )
            assert bool(step.partitions_pending_revocation) == (step.state not in STATES_AT_TARGET_EPOCH), step
            self.records.append(current_assignment_record(self._group.group_id, self._member.member_id, step))
        return step

    def _members(self) -> list[ConsumerGroupMember]:
        others = [each for each in self._group.members.values() if each.member_id != self._member.member_id]
        return [*(each for each in others if each.member_id != self._replaced_member_id), self._member]

    def _topic_ids(self, member: ConsumerGroupMember) -> frozenset[UUID]:
        names = self._group.topics_of_member(member)
        found = self._topic_ids_by_names.get(names)
        if found is None:
            facts = (self._catalog.topic(name) for name in names)
            found = self._topic_ids_by_names[names] = frozenset(each.topic_id for each in facts if each is not None)
        return found

    def _subscriber(self, member: ConsumerGroupMember) -> Subscriber:
        current = self._target if member is self._member else self._group.target_assignment.get(member.member_id, {})
        return Subscriber(member.member_id, member.instance_id, self._topic_ids(member), current)


def preferred_server_assignor(
    group: ConsumerGroup, assignors: tuple[str, ...], heartbeating_member: ConsumerGroupMember | None = None
) -> str:
    """Return the assignor that most members prefer; without a preference the first of the broker's list."""
    votes: dict[str, int] = {}
    members = {
        **group.members,
        **({heartbeating_member.member_id: heartbeating_member} if heartbeating_member is not None else {}),
    }
    for member in members.values():
        if member.server_assignor_name is not None:
            votes[member.server_assignor_name] = votes.get(member.server_assignor_name, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else assignors[0]
