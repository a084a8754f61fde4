"""The new group protocol (KIP-848): one heartbeat that joins, leaves, reports and gets the assignment.

The coordinator computes the assignment itself. Each heartbeat takes its member one step further: what changed about it
is written, the group's epoch goes up if that matters to others, the target assignment follows the epoch, and the member
moves from what it has towards its target (reconciliation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.coordination.deadlines import Deadlines
from ottla.coordination.machine import Decision, Record, Reply, ReplyTo
from ottla.groups.catalog import Catalog
from ottla.groups.consumer_group import (
    FIRST_EPOCH,
    JOINING,
    LEFT,
    LEFT_FOR_A_WHILE,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from ottla.groups.consumer_heartbeat import (
    check_epoch,
    check_instance,
    facts_of,
    heartbeat_response,
    no_member,
    owned_partitions,
    subscription_of,
    updated_member,
)
from ottla.groups.consumer_plan import FindTopics, Plan
from ottla.groups.consumer_records import (
    CURRENT,
    GROUP,
    MEMBER,
    REGULAR_EXPRESSION,
    TARGET_EPOCH,
    TARGET_MEMBER,
    current_record,
    epoch_record,
    forget_member,
    forget_regex,
    member_record,
    target_record,
)
from ottla.groups.reconciliation import Owned, Step, gone_for_a_while, where_it_stands
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.groups import MemberIdentity

Downgrade = Callable[[ConsumerGroup, list[ConsumerMember], int], Decision | None]
"""How a group goes on that has only classic members left; None if it stays what it is."""
MEMBER_EPOCHS_SINCE = 9  # OffsetCommit versions that members of the new protocol may use


class MemberTimer(NamedTuple):
    """What runs out: the "session" of a member, its time to give up partitions ("revocation") or to "join" again."""

    kind: str
    group_id: str
    member_id: str


class ConsumerGroups:
    """Decides for all groups of the new protocol of one partition."""

    def __init__(self, settings: GroupSettings, find_topics: FindTopics) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.settings = settings
        self.times_of: Mapping[str, ConsumerTimes] = {}  # of groups that have settings of their own
        self.deadlines: Deadlines[MemberTimer] = Deadlines()
        self._find_topics = find_topics
        self.downgrade: Downgrade = lambda *_: None

    @staticmethod
    def of_records(group_id: str, records: Iterable[Any]) -> ConsumerGroup:
        """The group that these records describe."""
        group = ConsumerGroup(group_id)
        for kind, key, value in records:
            _apply(group, kind, key, value)
        return group

    # ---- heartbeat

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        catalog: Catalog,
        reply_to: ReplyTo,
        now_ms: int,
        upgraded: ConsumerGroup | None = None,
    ) -> Decision:
        """`upgraded` is a classic group as it will be under the new protocol."""
        try:
            if request.member_epoch in (LEFT, LEFT_FOR_A_WHILE):
                return self._leave(request, reply_to, now_ms)
            return self._advance(request, client_id, client_host, catalog, reply_to, now_ms, upgraded)
        except KafkaError as refusal:
            response = ConsumerGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)
            return Decision(replies=[Reply(reply_to, response)])

    def _advance(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        catalog: Catalog,
        reply_to: ReplyTo,
        now_ms: int,
        upgraded: ConsumerGroup | None,
    ) -> Decision:
        group = self._group_for(request, upgraded)
        owned = owned_partitions(request)
        known, former_id, records = self._member_for(group, request, owned)
        member = updated_member(known, request, client_id, client_host)
        step = self.step(group, known, former_id, member, owned, records, catalog, now_ms)
        interval_ms = self._times(group.group_id).heartbeat_interval_ms
        return Decision(records, [Reply(reply_to, heartbeat_response(request, known, step, interval_ms))])

    def step(
        self,
        group: ConsumerGroup,
        known: ConsumerMember,
        former_id: str | None,
        member: ConsumerMember,
        owned: Owned,
        records: list[Record],
        catalog: Catalog,
        now_ms: int,
    ) -> Step:
        """What follows from a member's being `member` instead of `known`; what must be written goes to `records`."""
        is_new = former_id is None and member.member_id not in group.members
        if is_new or facts_of(member) != facts_of(known):
            records.append(member_record(group.group_id, member))
        plan = Plan(group, member, former_id, catalog, self._find_topics, records, now_ms)
        plan.resolve_patterns(known.topic_regex)
        plan.raise_epoch_if(is_new or subscription_of(member) != subscription_of(known))
        plan.assign(self.settings.consumer_assignors, self._times(group.group_id).assignment_interval_ms)
        step = plan.move(owned)
        self._watch(group.group_id, member, step, now_ms)
        return step

    def _times(self, group_id: str) -> ConsumerTimes:
        return self.times_of.get(group_id, self.settings.consumer_times)

    def _group_for(self, request: ConsumerGroupHeartbeatRequest, upgraded: ConsumerGroup | None) -> ConsumerGroup:
        group = self.groups.get(request.group_id, upgraded)
        if group is None:
            if request.member_epoch != JOINING:
                raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
            group = ConsumerGroup(request.group_id)
        elif request.member_id not in group.members and len(group.members) >= self.settings.consumer_size_max:
            raise KafkaError(
                Error.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.settings.consumer_size_max} members.",
            )
        return group

    def _member_for(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, owned: Owned
    ) -> tuple[ConsumerMember, str | None, list[Record]]:
        """The member that speaks, or a new one; a static member takes over what its former self had."""
        member = group.members.get(request.member_id)
        if request.instance_id is not None:
            named = group.member_of_instance.get(request.instance_id)
            if request.member_epoch != JOINING:
                check_instance(named, request)
            elif named is not None:
                successor, records = self._successor(group, group.members[named], request)
                return successor, named, records
        if member is None:
            if request.member_epoch != JOINING:
                raise no_member(request)
            return ConsumerMember(request.member_id), None, []
        check_epoch(member, request, owned)
        return member, None, []

    def _successor(
        self, group: ConsumerGroup, former: ConsumerMember, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerMember, list[Record]]:
        if former.epoch != LEFT_FOR_A_WHILE and former.classic is None:
            raise KafkaError(
                Error.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
                f"because the instance id is owned by {former.member_id} member.",
            )
        return self.succeed(group, former, request.member_id)

    def succeed(
        self, group: ConsumerGroup, former: ConsumerMember, member_id: str
    ) -> tuple[ConsumerMember, list[Record]]:
        """A static member under another id, with all that its former self had."""
        group_id = group.group_id
        member = copy(former)
        member.member_id = member_id
        member.epoch = member.previous_epoch = 0
        records = forget_member(group_id, former.member_id)
        records += [
            member_record(group_id, member),
            target_record(group_id, member.member_id, group.target.get(former.member_id, {})),
            current_record(group_id, member.member_id, where_it_stands(member)),
        ]
        return member, records

    # ---- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if request.instance_id is not None:
            check_instance(group.member_of_instance.get(request.instance_id), request)
        member = group.members.get(request.member_id)
        if member is None:
            raise no_member(request)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            step = gone_for_a_while(member, LEFT_FOR_A_WHILE)
            self._forget_timers(group.group_id, member.member_id)
            self.expect(group.group_id, member, now_ms)
            return Decision([current_record(group.group_id, member.member_id, step)], [Reply(reply_to, response)])
        decision = self._removal(group, [member], now_ms)
        decision.replies.append(Reply(reply_to, response))
        return decision

    def remove(
        self, group: ConsumerGroup, leavers: Iterable[MemberIdentity], now_ms: int
    ) -> tuple[list[Error], Decision]:
        """LeaveGroup, by which classic members go and administrators remove any: an answer for each."""
        errors = []
        gone: dict[str, ConsumerMember] = {}
        for leaver in leavers:
            member_id = leaver.member_id
            if leaver.group_instance_id is not None:
                named = group.member_of_instance.get(leaver.group_instance_id)
                if named is not None and member_id not in ("", named):
                    errors.append(Error.FENCED_INSTANCE_ID)
                    continue
                member_id = named or ""
            member = group.members.get(member_id)
            errors.append(Error.NONE if member is not None else Error.UNKNOWN_MEMBER_ID)
            if member is not None:
                gone[member_id] = member
        return errors, self._removal(group, list(gone.values()), now_ms) if gone else Decision()

    def _removal(self, group: ConsumerGroup, gone: list[ConsumerMember], now_ms: int) -> Decision:
        group_id = group.group_id
        leaving = {member.member_id for member in gone}
        stay = [member for member in group.members.values() if member.member_id not in leaving]
        if stay and all(member.classic is not None for member in stay):
            downgraded = self.downgrade(group, stay, now_ms)
            if downgraded is not None:
                return downgraded
        records = [record for member in gone for record in forget_member(group_id, member.member_id)]
        used = {member.topic_regex for member in stay}
        records += [forget_regex(group_id, pattern) for pattern in group.resolved if pattern not in used]
        metadata_hash = group.metadata_hash if stay else 0
        return Decision([*records, epoch_record(group_id, group.epoch + 1, metadata_hash)])

    # ---- time

    def tick(self, now_ms: int) -> list[Decision]:
        late: dict[tuple[str, str], None] = {}
        for timer in self.deadlines.due(now_ms):
            group = self.groups.get(timer.group_id)
            member = group.members.get(timer.member_id) if group is not None else None
            if member is not None and (timer.kind != "revocation" or member.state is MemberState.UNREVOKED_PARTITIONS):
                late[timer.group_id, timer.member_id] = None
        decisions = []
        for group_id, member_id in late:
            group = self.groups[group_id]
            member = group.members[member_id]
            self.expect(group_id, member, now_ms)  # once more, should it be refused to write that it is gone
            decisions.append(self._removal(group, [member], now_ms))
        return decisions

    def start_sessions(self, now_ms: int) -> None:
        """The groups were loaded: their members get a whole session to report."""
        for group in self.groups.values():
            for member in group.members.values():
                self.expect(group.group_id, member, now_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    timer = MemberTimer("revocation", group.group_id, member.member_id)
                    self.deadlines.set(timer, now_ms + member.rebalance_timeout_ms)

    def _watch(self, group_id: str, member: ConsumerMember, step: Step, now_ms: int) -> None:
        self.expect(group_id, member, now_ms)
        timer = MemberTimer("revocation", group_id, member.member_id)
        if step.state is not MemberState.UNREVOKED_PARTITIONS:
            self.deadlines.cancel(timer)
        elif self.deadlines.get(timer) is None:
            self.deadlines.set(timer, now_ms + member.rebalance_timeout_ms)

    def expect(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """It lives: its session begins anew. A classic member has brought its own time-out."""
        times = self._times(group_id)
        within_ms = member.classic.session_timeout_ms if member.classic is not None else times.session_timeout_ms
        self.deadlines.set(MemberTimer("session", group_id, member.member_id), now_ms + within_ms)

    def expect_join(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """A classic member was told to join again."""
        timer = MemberTimer("join", group_id, member.member_id)
        if self.deadlines.get(timer) is None:
            self.deadlines.set(timer, now_ms + member.rebalance_timeout_ms)

    def has_joined(self, group_id: str, member_id: str) -> None:
        self.deadlines.cancel(MemberTimer("join", group_id, member_id))

    def _forget_timers(self, group_id: str, member_id: str) -> None:
        for kind in ("session", "revocation", "join"):
            self.deadlines.cancel(MemberTimer(kind, group_id, member_id))

    # ---- the log

    def apply(self, kind: int, key: Any, value: Any | None) -> None:
        """Take in one record of a group of the new protocol."""
        if kind == GROUP and value is None:
            self.groups.pop(key.group_id, None)
            return
        group = self.groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        if kind == MEMBER and value is None:  # not before: whoever could not be removed must still be watched
            self._forget_timers(key.group_id, key.member_id)
        _apply(group, kind, key, value)

    # ---- offsets

    def commit_problem(
        self,
        group: ConsumerGroup,
        member_id: str,
        epoch: int,
        places: Iterable[tuple[UUID, int]],
        version: int = MEMBER_EPOCHS_SINCE,
    ) -> Error:
        """Whether this member may commit offsets of these partitions.

        With an epoch of the past it may as long as it has them all since then: its heartbeat was just faster than its
        commit (KIP-1251).
        """
        if epoch < 0 and not group.members:
            return Error.NONE
        member = group.members.get(member_id)
        if member is None:
            return Error.UNKNOWN_MEMBER_ID
        if member.classic is None and version < MEMBER_EPOCHS_SINCE:
            return Error.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return Error.NONE
        if member.classic is not None:
            return Error.ILLEGAL_GENERATION
        is_late = 0 <= epoch < member.epoch
        may = is_late and all(member.since.get(place, member.epoch) <= epoch for place in places)
        return Error.NONE if may else Error.STALE_MEMBER_EPOCH

    def fetch_problem(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> Error:
        """Whether who asks for offsets may have them: anybody who does not claim to be a member, or a current one."""
        if member_id is None and epoch < 0:
            return Error.NONE
        member = group.members.get(member_id or "")
        if member is None:
            return Error.UNKNOWN_MEMBER_ID
        return Error.NONE if member.epoch == epoch else Error.STALE_MEMBER_EPOCH


def _apply(group: ConsumerGroup, kind: int, key: Any, value: Any | None) -> None:
    if kind == GROUP and value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif kind == MEMBER:
        group.apply_member(key.member_id, value)
    elif kind == TARGET_EPOCH:
        group.target_epoch = value.assignment_epoch if value is not None else FIRST_EPOCH
        group.assigned_ms = value.assignment_timestamp if value is not None else 0
    elif kind == TARGET_MEMBER:
        group.apply_target(key.member_id, value.topic_partitions if value is not None else None)
    elif kind == CURRENT:
        group.apply_current(key.member_id, value)
    elif kind == REGULAR_EXPRESSION:
        group.apply_pattern(key.regular_expression, value.topics if value is not None else None)
