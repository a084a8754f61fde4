"""The group coordinator's state machine: all groups and offsets of one partition of `__consumer_offsets`.

It follows the contract of coordination/machine.py. Requests arrive as protocol messages; the handlers have authorized
them, and have resolved topic ids to names.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain
from typing import Any

from ottla.base.errors import Error
from ottla.coordination.batch import RECORDS_MAX
from ottla.coordination.machine import Decision, Record, Reply, ReplyTo, TransactionalProducer
from ottla.groups.classic_group import ClassicGroup, ClassicGroupState, RequestClient, leave_response
from ottla.groups.classic_rebalance import ClassicGroups, ConsumerGroupDowngraded, LeaderAssignment
from ottla.groups.consumer_group import (
    JOIN_GROUP_MEMBER_EPOCH,
    ClassicMemberJoined,
    ConsumerGroup,
    ConsumerGroupMember,
    TopicCatalog,
)
from ottla.groups.consumer_group_records import consumer_group_tombstones
from ottla.groups.consumer_group_update import ValidateRegex
from ottla.groups.consumer_heartbeat import ConsumerGroups
from ottla.groups.coordinator_records import (
    ALL_PARTITIONS,
    GROUP_METADATA,
    OFFSET_COMMIT,
    OffsetCommitRecord,
    decode_plain_commit,
    decode_record,
    group_tombstone,
    restore_group,
    to_offset_commit,
)
from ottla.groups.group_memory import GroupMemory
from ottla.groups.group_migration import ConsumerGroupClassicMembers, can_downgrade, downgrade, upgrade, upgrade_problem
from ottla.groups.offset_expiration import DeletedTopicCleanup, OffsetExpiration
from ottla.groups.offset_manager import OffsetManager
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.consumer_groups import (
    CONSUMER,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListedGroup,
    SyncGroupRequest,
)

LEGACY_OFFSET_COMMIT = 0
CLASSIC_GROUP_TYPE = "classic"


class GroupCoordinator:
    """The groups of one partition: members of both protocols and their offsets."""

    def __init__(
        self, settings: GroupSettings, check_pattern: ValidateRegex, catalog: Callable[[], TopicCatalog]
    ) -> None:
        self._catalog = catalog  # returns the current topics
        self.groups: dict[str, ClassicGroup] = {}
        self.memory = GroupMemory()
        self.classic = ClassicGroups(self.groups, settings, self.memory)
        self.consumer = ConsumerGroups(settings, check_pattern, self.memory)
        self.offset_manager = OffsetManager(self.classic, self.consumer, catalog)
        self.offsets = self.offset_manager.offsets
        self.topic_change_count = (
            0  # the number of topic changes before this machine was created, as counted by the driver
        )
        self._classic_members = ConsumerGroupClassicMembers(self.consumer)
        self.consumer.downgrade = self._maybe_downgrade
        self._sweep_due_ms: int | None = None

    @property
    def settings(self) -> GroupSettings:
        return self.classic.settings

    def change_settings(self, settings: GroupSettings) -> None:
        self.classic.settings = settings
        self.consumer.settings = settings

    # ---- membership

    def join(
        self, request: JoinGroupRequest, client: RequestClient, new_member_id: str, reply_to: ReplyTo, now_ms: int
    ) -> Decision:
        former = self.consumer.groups.get(request.group_id)
        if former is not None and former.members:
            return self._classic_members.join(former, request, client, new_member_id, self._catalog(), reply_to, now_ms)
        decision = self.classic.join(request, client, new_member_id, reply_to, now_ms)
        if former is not None and request.group_id in self.groups:  # even after an append that was rejected
            decision.records[:0] = consumer_group_tombstones(former)
        return decision

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: RequestClient,
        catalog: TopicCatalog,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """Handle a heartbeat.

        A classic group becomes a consumer group when the first member with the consumer protocol joins.
        """
        former = self.groups.get(request.group_id)
        if former is None:
            return self.consumer.heartbeat(request, client.client_id, client.host, catalog, reply_to, now_ms)
        if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
            return _group_not_found(f"Group {request.group_id} is not a consumer group.", reply_to)
        upgraded, records = None, [group_tombstone(request.group_id)]
        if former.members:
            settings = self.settings
            problem = upgrade_problem(former, settings.consumer_size_max, settings.migration_policy)
            if problem is not None:
                sentence = f"Cannot upgrade classic group {request.group_id} to consumer group because {problem}."
                return _group_not_found(sentence, reply_to)
            upgraded, records = upgrade(former, catalog)
        decision = self.consumer.heartbeat(request, client.client_id, client.host, catalog, reply_to, now_ms, upgraded)
        if decision.records:
            decision.records[:0] = records
            decision.replies += self.classic.fail_requests_for_upgrade(former)
            for member in upgraded.members.values() if upgraded is not None else ():
                self.consumer.schedule_session_timeout(request.group_id, member, now_ms)
        return decision

    def _maybe_downgrade(self, group: ConsumerGroup, stay: list[ConsumerGroupMember], now_ms: int) -> Decision | None:
        if not can_downgrade(len(stay), self.settings):
            return None
        targets = [(member, group.target_assignment.get(member.member_id, {})) for member in stay]
        return downgrade(group, targets, self._catalog(), now_ms, must_rebalance=True)

    def sync(self, request: SyncGroupRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        group = self.consumer.groups.get(request.group_id)
        if group is not None:
            return self._classic_members.sync(group, request, self._catalog(), reply_to, now_ms)
        return self.classic.sync(request, reply_to, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        group = self.consumer.groups.get(request.group_id)
        if group is not None:
            return self._classic_members.heartbeat(group, request, now_ms)
        return self.classic.heartbeat(request, now_ms)

    def leave(self, request: LeaveGroupRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        consumer_group = self.consumer.groups.get(request.group_id)
        if consumer_group is None:
            return self.classic.leave(request, reply_to, now_ms)
        errors, decision = self.consumer.remove_members(consumer_group, request.members, now_ms)
        decision.replies.append(Reply(reply_to, leave_response(request.members, errors)))
        return decision

    # ---- administration

    def delete_group(self, group_id: str) -> tuple[list[Record], Error, bool]:
        """Return records, error, and whether they delete the whole group: many offsets need several calls."""
        group = self.groups.get(group_id)
        consumer_group = self.consumer.groups.get(group_id)
        if group is None and consumer_group is None:
            return [], Error.GROUP_ID_NOT_FOUND, True
        if (group is not None and group.state is not ClassicGroupState.EMPTY) or (
            consumer_group and consumer_group.members
        ):
            return [], Error.NON_EMPTY_GROUP, True
        records, is_all = self.offset_manager.some_tombstones(group_id, RECORDS_MAX)
        if not is_all:
            return records, Error.NONE, False
        if consumer_group is not None:
            return [*records, *consumer_group_tombstones(consumer_group)], Error.NONE, True
        return [*records, group_tombstone(group_id)], Error.NONE, True

    def describe(self, group_id: str) -> DescribedGroup | None:
        group = self.groups.get(group_id)
        if group is None:
            return None
        is_stable = group.state is ClassicGroupState.STABLE
        members = [
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.protocol_metadata(group.protocol_name or "") if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=members,
        )

    def list_groups(self) -> Iterable[ListedGroup]:
        for group in self.groups.values():
            yield ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC_GROUP_TYPE,
            )
        for consumer_group in self.consumer.groups.values():
            yield ListedGroup(
                group_id=consumer_group.group_id,
                protocol_type=CONSUMER,
                group_state=consumer_group.state,
                group_type=CONSUMER,
            )

    # ---- the log

    def replay(self, key: bytes, value: bytes | None, stamp: TransactionalProducer | None) -> None:
        usual = decode_plain_commit(key, value) if value is not None else None
        if usual is not None:
            self._apply_commit(usual, stamp)
            return
        found = decode_record(key, value)
        if found is None:
            return
        kind, key_message, value_message = found
        if kind in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT):
            if value_message is None:
                self._apply_offset_tombstone(key_message.group, key_message.topic, key_message.partition)
            else:
                self._apply_commit(to_offset_commit(key_message, value_message), stamp)
        elif kind == GROUP_METADATA:
            self._apply_group(key_message.group, value_message)
        else:
            self.consumer.replay(kind, key_message, value_message)
            if value_message is not None:
                self._remove_classic_group(key_message.group_id)  # a classic group, or a group that only has offsets

    def _apply_commit(self, found: OffsetCommitRecord, stamp: TransactionalProducer | None) -> None:
        if stamp is not None:
            self.offsets.commit_pending(stamp.producer_id, found)
        else:
            self.offsets.commit(found)
        group = found.group
        if group not in self.groups and group not in self.consumer.groups:
            self.groups[group] = ClassicGroup(group, found.commit_ms)

    def _apply_offset_tombstone(self, group: str, topic: str, partition: int) -> None:
        if partition == ALL_PARTITIONS:
            self.offsets.mark_topic_deleted(topic)
        else:
            self.offsets.remove(group, topic, partition)

    def _apply_group(self, group_id: str, value: Any | None) -> None:
        """Restore a group during the load; afterwards the state in memory is ahead of the records."""
        if value is None:
            self._remove_classic_group(group_id)
        elif self._is_loading or group_id not in self.groups:
            self._remove_classic_group(group_id)
            group = self.groups[group_id] = restore_group(group_id, value)
            for member in group.members.values():
                self.memory.update(member)

    def _remove_classic_group(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            self.memory.remove_all(group.members.values())

    def replay_end_transaction_marker(self, stamp: TransactionalProducer, is_commit: bool) -> None:
        self.offsets.end_transaction(stamp.producer_id, is_commit)

    _is_loading = True

    def on_loaded(self, now_ms: int) -> list[Decision]:
        """Start the sessions of the loaded members, and the timer of the next sweep."""
        self._is_loading = False
        self._sweep_due_ms = now_ms + self.settings.offsets_check_interval_ms
        self.renew_sessions(now_ms)
        return []

    def on_clock_step(self, step_ms: int) -> None:
        self.classic.deadlines.shift(step_ms)
        self.consumer.deadlines.shift(step_ms)
        if self._sweep_due_ms is not None:
            self._sweep_due_ms += step_ms

    def renew_sessions(self, now_ms: int) -> None:
        for group in self.groups.values():
            self.classic.start_sessions(group, now_ms)
        self.consumer.start_sessions(now_ms)

    def on_write_completed(self, event: Any, error: Error, now_ms: int) -> list[Decision]:
        if isinstance(event, ClassicMemberJoined) and error is Error.NONE:
            self.consumer.on_classic_member_joined(event, now_ms)
        if isinstance(event, ConsumerGroupDowngraded) and error is Error.NONE:
            return [self.classic.on_downgraded(event, now_ms)]
        return (
            [self.classic.on_leader_assignment_written(event, error, now_ms)]
            if isinstance(event, LeaderAssignment)
            else []
        )

    def on_unloaded(self) -> list[Reply]:
        return self.classic.fail_requests_for_unload()

    # ---- time

    def next_wakeup_ms(self) -> int | None:
        """Return a lower bound, because this runs after every request: the deadline of a renewed session is corrected
        when it expires.
        """
        soonest_ms = self._sweep_due_ms
        for at_ms in (self.classic.deadlines.lower_bound_ms(), self.consumer.deadlines.lower_bound_ms()):
            if at_ms is not None and (soonest_ms is None or at_ms < soonest_ms):
                soonest_ms = at_ms
        return soonest_ms

    def tick(self, now_ms: int) -> list[Decision]:
        return self.classic.tick(now_ms) + self.consumer.tick(now_ms)

    def sweep(self, now_ms: int, bytes_max: int) -> Iterator[Decision] | None:
        """Expire offsets, and remove those of deleted topics whose tombstones could not be written before."""
        if self._sweep_due_ms is None or self._sweep_due_ms > now_ms:
            return None
        self._sweep_due_ms = now_ms + self.settings.offsets_check_interval_ms
        left_over = self.delete_topic_offsets((), bytes_max) if self.offsets.deleted_topics else iter(())
        return chain(left_over, OffsetExpiration(self.offset_manager, now_ms, bytes_max).decisions())

    def delete_topic_offsets(self, names: Container[str], bytes_max: int) -> Iterator[Decision]:
        """Remove the offsets of deleted topics, as a sweep: a new topic with the same name must not inherit them."""
        return DeletedTopicCleanup(self.offsets, names, bytes_max).decisions()

    def __repr__(self) -> str:
        return f"<GroupCoordinator {len(self.groups) + len(self.consumer.groups)} groups, {self.offsets!r}>"


def _group_not_found(problem: str, reply_to: ReplyTo) -> Decision:
    response = ConsumerGroupHeartbeatResponse(error_code=Error.GROUP_ID_NOT_FOUND, error_message=problem)
    return Decision(replies=[Reply(reply_to, response)])
