"""What one heartbeat of the new protocol leads to, step by step; the group itself stays as it is until the records of
the plan are applied."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.coordination.machine import Record
from ottla.groups.assignors import ASSIGNORS, Subscriber
from ottla.groups.catalog import Catalog, fingerprint
from ottla.groups.consumer_group import HAS_TARGET_EPOCH, Assignment, ConsumerGroup, ConsumerMember
from ottla.groups.consumer_records import (
    current_record,
    epoch_record,
    forget_regex,
    regex_record,
    target_epoch_record,
    target_record,
)
from ottla.groups.reconciliation import Owned, Step, next_step, where_it_stands

FindTopics = Callable[[str, Catalog], frozenset[str]]
"""The topics that a regular expression matches; raises KafkaError(INVALID_REGULAR_EXPRESSION)."""


class Plan:
    """One member's heartbeat in its group; `member` is as it will be, with `former_id` whose place it takes."""

    def __init__(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        former_id: str | None,
        catalog: Catalog,
        find_topics: FindTopics,
        records: list[Record],
        now_ms: int,
    ) -> None:
        self.records = records
        self._group = group
        self._member = member
        self._former_id = former_id
        self._catalog = catalog
        self._find_topics = find_topics
        self._now_ms = now_ms
        self._epoch = group.epoch
        self._target_epoch = group.target_epoch
        self._target: Assignment = group.target.get(former_id or member.member_id, {})
        self._resolved = group.resolved

    def resolve_patterns(self, was_pattern: str) -> None:
        """Look at all topics again when a pattern is new or topics have changed; forget one that nobody uses."""
        is_stale = self._group.seen_generation != self._catalog.generation
        if not is_stale and was_pattern == self._member.topic_regex:
            return
        patterns = {each.topic_regex for each in self._members() if each.topic_regex}
        self._resolved = dict(self._group.resolved)
        for pattern in sorted(patterns):
            if pattern not in self._resolved or is_stale:
                topics = self._find_topics(pattern, self._catalog)
                if self._resolved.get(pattern) != topics:
                    self._resolved[pattern] = topics
                    version = self._catalog.generation
                    self.records.append(regex_record(self._group.group_id, pattern, topics, version, self._now_ms))
        if was_pattern and was_pattern not in patterns and was_pattern in self._resolved:
            self.records.append(forget_regex(self._group.group_id, was_pattern))

    def raise_epoch_if(self, has_changed: bool) -> None:
        """A member came or subscribes to something else, or a topic changed."""
        if not has_changed and self._group.seen_generation == self._catalog.generation:
            return
        names = {name for member in self._members() for name in self._topics_of(member)}
        metadata_hash = fingerprint(self._catalog, names)
        if has_changed or metadata_hash != self._group.metadata_hash:
            self._epoch += 1
            self.records.append(epoch_record(self._group.group_id, self._epoch, metadata_hash))
        if not self.records:  # what is to be written may be refused: then the next heartbeat must find it, too
            self._group.seen_generation = self._catalog.generation

    def assign(self, assignors: tuple[str, ...], interval_ms: int) -> None:
        """A new target for everybody when the group has changed since the last one, but not too often (KIP-1263)."""
        if self._epoch <= self._target_epoch or self._now_ms - self._group.assigned_ms < interval_ms:
            return
        group_id = self._group.group_id
        members = self._members()
        counts = {}
        for name in sorted({name for member in members for name in self._topics_of(member)}):
            facts = self._catalog.topic(name)
            if facts is not None:
                counts[facts.topic_id] = facts.partition_count
        assignor = ASSIGNORS[chosen_assignor(self._group, assignors, self._member)]
        targets = assignor([self._subscriber(member) for member in members], counts)
        for member_id, assignment in targets.items():
            if assignment != self._group.target.get(member_id):
                self.records.append(target_record(group_id, member_id, assignment))
        self.records.append(target_epoch_record(group_id, self._epoch, self._now_ms))
        self._target_epoch = self._epoch
        self._target = targets[self._member.member_id]

    def move(self, owned: Owned) -> Step:
        """The member's own step; written if it leads anywhere."""
        mine = {self._member.member_id, self._former_id}
        owners = self._group.owners
        # A target that is older than the group may hold what its member does not read any more.
        is_old = self._epoch > self._target_epoch
        step = next_step(
            self._member,
            self._target_epoch,
            self._target,
            self._topic_ids(self._member) if is_old else None,
            owned,
            lambda topic_id, partition: owners.get((topic_id, partition)) in (None, *mine),
        )
        if step != where_it_stands(self._member):
            epoch = self._target_epoch if step.state in HAS_TARGET_EPOCH else self._member.epoch
            assert self._member.epoch <= step.epoch == epoch, f"{self._member} cannot go to epoch {step.epoch}"
            assert bool(step.pending_revocation) == (step.state not in HAS_TARGET_EPOCH), step
            self.records.append(current_record(self._group.group_id, self._member.member_id, step))
        return step

    def _members(self) -> list[ConsumerMember]:
        others = [each for each in self._group.members.values() if each.member_id != self._member.member_id]
        return [*(each for each in others if each.member_id != self._former_id), self._member]

    def _topics_of(self, member: ConsumerMember) -> frozenset[str]:
        if not member.topic_regex:
            return member.topic_names
        return member.topic_names | self._resolved.get(member.topic_regex, frozenset())

    def _topic_ids(self, member: ConsumerMember) -> frozenset[UUID]:
        facts = (self._catalog.topic(name) for name in self._topics_of(member))
        return frozenset(each.topic_id for each in facts if each is not None)

    def _subscriber(self, member: ConsumerMember) -> Subscriber:
        current = self._target if member is self._member else self._group.target.get(member.member_id, {})
        return Subscriber(member.member_id, member.instance_id, self._topic_ids(member), current)


def chosen_assignor(group: ConsumerGroup, assignors: tuple[str, ...], speaker: ConsumerMember | None = None) -> str:
    """The one that most members ask for; without a wish the first of the broker's list."""
    votes: dict[str, int] = {}
    members = {**group.members, **({speaker.member_id: speaker} if speaker is not None else {})}
    for member in members.values():
        if member.server_assignor is not None:
            votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else assignors[0]
