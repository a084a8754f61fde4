"""The consumer group protocol (KIP-848): heartbeats of members that join, leave, report and get their assignment.

The coordinator computes the assignment. Each heartbeat has these steps: changes of the member are written, the group
epoch is raised if they affect other members, the target assignment is updated for the new epoch, and the member is
reconciled from its current assignment towards its target (reconciliation.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.coordination.deadlines import Deadlines
from ottla.coordination.machine import Decision, Record, Reply, ReplyTo
from ottla.groups.consumer_group import (
    INITIAL_EPOCH,
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    Assignment,
    ClassicMemberJoined,
    ConsumerGroup,
    ConsumerGroupMember,
    MemberState,
    TopicCatalog,
    topic_id_sort_key,
)
from ottla.groups.consumer_group_records import (
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_REGULAR_EXPRESSION,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    current_assignment_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    regex_tombstone,
    target_assignment_record,
)
from ottla.groups.consumer_group_update import ConsumerGroupUpdate, ValidateRegex, preferred_server_assignor
from ottla.groups.group_memory import GroupMemory, names_bytes
from ottla.groups.reconciliation import CurrentAssignment, OwnedPartitions, current_assignment, static_member_left
from ottla.groups.settings import ConsumerGroupTimes, GroupSettings
from ottla.groups.topic_regexes import RegexResolutions
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from ottla.protocol.messages.groups import MemberIdentity

DowngradeHook = Callable[[ConsumerGroup, list[ConsumerGroupMember], int], Decision | None]
"""Returns the decision that converts a group with only classic members; None if it stays a consumer group."""
CLASSIC_MEMBER_TIMERS = ("join", "sync")  # kinds of timers that only classic members have


class MemberTimer(NamedTuple):
    """The key of a member's deadline. Kinds are "session", "revocation", "join" and "sync"."""

    kind: str
    group_id: str
    member_id: str


class ConsumerGroups:
    """All consumer groups of one partition."""

    def __init__(self, settings: GroupSettings, check_pattern: ValidateRegex, metadata: GroupMemory) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.settings = settings
        self.group_overrides: Mapping[str, ConsumerGroupTimes] = {}  # of groups with their own settings
        self.deadlines: Deadlines[MemberTimer] = Deadlines()
        self.memory = metadata
        self._check_pattern = check_pattern
        self.regexes = RegexResolutions(self.groups)
        self.downgrade: DowngradeHook = lambda *_: None

    @staticmethod
    def replay_records(group_id: str, records: Iterable[Any]) -> ConsumerGroup:
        """Return the group after replay of these records."""
        group = ConsumerGroup(group_id)
        for kind, key, value in records:
            _replay(group, kind, key, value)
        return group

    # ---- heartbeat

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        catalog: TopicCatalog,
        reply_to: ReplyTo,
        now_ms: int,
        upgraded: ConsumerGroup | None = None,
    ) -> Decision:
        """Handle a heartbeat. `upgraded` is the classic group with this id, converted to a consumer group."""
        try:
            if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
                return self._leave(request, reply_to, now_ms)
            return self._update_and_reconcile(request, client_id, client_host, catalog, reply_to, now_ms, upgraded)
        except KafkaError as refusal:
            response = ConsumerGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)
            return Decision(replies=[Reply(reply_to, response)])

    def _update_and_reconcile(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        catalog: TopicCatalog,
        reply_to: ReplyTo,
        now_ms: int,
        upgraded: ConsumerGroup | None,
    ) -> Decision:
        group = self._get_or_create_group(request, upgraded)
        owned = owned_partitions(request)
        known, former_id, records = self._get_or_create_member(group, request, owned)
        member = updated_member(known, request, client_id, client_host)
        step = self.update_member(group, known, former_id, member, owned, records, catalog, now_ms)
        self.regexes.maybe_start(group, known, member, catalog, self.settings.regex_refresh_interval_ms, now_ms)
        interval_ms = self._times_for(group.group_id).heartbeat_interval_ms
        return Decision(records, [Reply(reply_to, heartbeat_response(request, known, step, interval_ms))])

    def update_member(
        self,
        group: ConsumerGroup,
        previous: ConsumerGroupMember,
        replaced_member_id: str | None,
        member: ConsumerGroupMember,
        owned: OwnedPartitions,
        records: list[Record],
        catalog: TopicCatalog,
        now_ms: int,
    ) -> CurrentAssignment:
        """Replace `known` by `member`: reconcile the member and append the changes to `records`."""
        is_new = replaced_member_id is None and member.member_id not in group.members
        if is_new or member_metadata_fields(member) != member_metadata_fields(previous):
            records.append(member_record(group.group_id, member))
        plan = ConsumerGroupUpdate(group, previous, member, replaced_member_id, catalog, records, now_ms)
        plan.update_regex(self._check_pattern)
        plan.bump_group_epoch()
        plan.update_target_assignment(
            self.settings.consumer_assignors, self._times_for(group.group_id).assignment_interval_ms
        )
        step = plan.reconcile(owned)
        self._schedule_timeouts(group.group_id, member, step, now_ms)
        return step

    def reconcile_with_last_target(
        self,
        group: ConsumerGroup,
        previous: ConsumerGroupMember,
        replaced_member_id: str | None,
        member: ConsumerGroupMember,
        owned: OwnedPartitions,
        catalog: TopicCatalog,
        now_ms: int,
    ) -> CurrentAssignment | None:
        """Reconcile without a new target and without records; None if the target is older than the group epoch."""
        plan = ConsumerGroupUpdate(group, previous, member, replaced_member_id, catalog, [], now_ms)
        plan.update_regex(self._check_pattern)
        plan.bump_group_epoch()
        return None if plan.is_target_outdated else plan.reconcile(owned)

    def _times_for(self, group_id: str) -> ConsumerGroupTimes:
        return self.group_overrides.get(group_id, self.settings.consumer_times)

    def _get_or_create_group(
        self, request: ConsumerGroupHeartbeatRequest, upgraded: ConsumerGroup | None
    ) -> ConsumerGroup:
        group = self.groups.get(request.group_id, upgraded)
        if group is None:
            if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
                raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
            group = ConsumerGroup(request.group_id)
        elif request.member_id not in group.members and len(group.members) >= self.settings.consumer_size_max:
            raise KafkaError(
                Error.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.settings.consumer_size_max} members.",
            )
        if request.member_id not in group.members and request.instance_id not in group.static_members:
            self.check_memory_limit(request.group_id, subscription_bytes(request))
        return group

    def check_memory_limit(self, group_id: str, size: int) -> None:
        """Check the memory limit for a new member. Raises KafkaError."""
        at_most = self.settings.metadata_bytes_max
        if not self.memory.has_capacity(group_id, size, at_most):
            problem = f"The members of all groups have reached ottla.group.metadata.max.bytes={at_most}."
            raise KafkaError(Error.GROUP_MAX_SIZE_REACHED, problem)

    def _get_or_create_member(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, owned: OwnedPartitions
    ) -> tuple[ConsumerGroupMember, str | None, list[Record]]:
        """Return the member of the heartbeat, or a new one; a static member takes over the state of the one it
        replaces.
        """
        member = group.members.get(request.member_id)
        if request.instance_id is not None:
            named = group.static_members.get(request.instance_id)
            if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
                check_instance_id(named, request)
            elif named is not None:
                successor, records = self._replace_released_static_member(group, group.members[named], request)
                return successor, named, records
        if member is None:
            if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
                raise unknown_member_error(request)
            return ConsumerGroupMember(request.member_id), None, []
        check_member_epoch(member, request, owned)
        return member, None, []

    def _replace_released_static_member(
        self, group: ConsumerGroup, replaced: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerGroupMember, list[Record]]:
        if replaced.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH and replaced.classic_metadata is None:
            raise KafkaError(
                Error.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
                f"because the instance id is owned by {replaced.member_id} member.",
            )
        return self.replace_static_member(group, replaced, request.member_id)

    def replace_static_member(
        self, group: ConsumerGroup, replaced: ConsumerGroupMember, member_id: str
    ) -> tuple[ConsumerGroupMember, list[Record]]:
        """Return a static member with a new member id and the state of the member that it replaces."""
        group_id = group.group_id
        member = copy(replaced)
        member.member_id = member_id
        member.member_epoch = member.previous_member_epoch = 0
        records = member_tombstones(group_id, replaced.member_id)
        records += [
            member_record(group_id, member),
            target_assignment_record(group_id, member.member_id, group.target_assignment.get(replaced.member_id, {})),
            current_assignment_record(group_id, member.member_id, current_assignment(member)),
        ]
        return member, records

    # ---- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if request.instance_id is not None:
            check_instance_id(group.static_members.get(request.instance_id), request)
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_member_error(request)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            step = static_member_left(member, LEAVE_GROUP_STATIC_MEMBER_EPOCH)
            self._cancel_timers(group.group_id, member.member_id)
            self.schedule_session_timeout(group.group_id, member, now_ms)
            return Decision(
                [current_assignment_record(group.group_id, member.member_id, step)], [Reply(reply_to, response)]
            )
        decision = self._remove_members(group, [member], now_ms)
        decision.replies.append(Reply(reply_to, response))
        return decision

    def remove_members(
        self, group: ConsumerGroup, leaving_members: Iterable[MemberIdentity], now_ms: int
    ) -> tuple[list[Error], Decision]:
        """Handle LeaveGroup of classic members and administrators; returns an error code for each member."""
        errors = []
        gone: dict[str, ConsumerGroupMember] = {}
        for leaver in leaving_members:
            member_id = leaver.member_id
            if leaver.group_instance_id is not None:
                named = group.static_members.get(leaver.group_instance_id)
                if named is not None and member_id not in ("", named):
                    errors.append(Error.FENCED_INSTANCE_ID)
                    continue
                member_id = named or ""
            member = group.members.get(member_id)
            errors.append(Error.NONE if member is not None else Error.UNKNOWN_MEMBER_ID)
            if member is not None:
                gone[member_id] = member
        return errors, self._remove_members(group, list(gone.values()), now_ms) if gone else Decision()

    def _remove_members(self, group: ConsumerGroup, removed: list[ConsumerGroupMember], now_ms: int) -> Decision:
        group_id = group.group_id
        leaving = {member.member_id for member in removed}
        stay = [member for member in group.members.values() if member.member_id not in leaving]
        if stay and all(member.classic_metadata is not None for member in stay):
            downgraded = self.downgrade(group, stay, now_ms)
            if downgraded is not None:
                return downgraded
        records = [record for member in removed for record in member_tombstones(group_id, member.member_id)]
        left = Counter(member.subscribed_topic_regex for member in removed)
        members = group.regex_subscriber_counts
        last = [each for each in left if members[each] == left[each]]
        records += [regex_tombstone(group_id, each) for each in last if each in group.resolved_regexes]
        metadata_hash = group.metadata_hash if stay else 0
        return Decision([*records, group_epoch_record(group_id, group.group_epoch + 1, metadata_hash)])

    # ---- time

    def tick(self, now_ms: int) -> list[Decision]:
        late: dict[tuple[str, str], None] = {}
        for timer in self.deadlines.pop_expired(now_ms):
            group = self.groups.get(timer.group_id)
            member = group.members.get(timer.member_id) if group is not None else None
            if member is not None and _is_timer_valid(timer.kind, member):
                late[timer.group_id, timer.member_id] = None
        decisions = []
        for group_id, member_id in late:
            group = self.groups[group_id]
            member = group.members[member_id]
            self.schedule_session_timeout(
                group_id, member, now_ms
            )  # renewed, because the append of the removal may be rejected
            decisions.append(self._remove_members(group, [member], now_ms))
        return decisions

    def start_sessions(self, now_ms: int) -> None:
        """Give all members of the loaded groups a whole session timeout."""
        for group in self.groups.values():
            group.regexes_resolved_generation = -1  # generations of another broker are not comparable
            for member in group.members.values():
                self.schedule_session_timeout(group.group_id, member, now_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    timer = MemberTimer("revocation", group.group_id, member.member_id)
                    self.deadlines.set(timer, now_ms + member.rebalance_timeout_ms)

    def _schedule_timeouts(
        self, group_id: str, member: ConsumerGroupMember, step: CurrentAssignment, now_ms: int
    ) -> None:
        self.schedule_session_timeout(group_id, member, now_ms)
        timer = MemberTimer("revocation", group_id, member.member_id)
        if step.state is not MemberState.UNREVOKED_PARTITIONS:
            self.deadlines.cancel(timer)
        elif self.deadlines.get(timer) is None:
            self.deadlines.set(timer, now_ms + member.rebalance_timeout_ms)

    def schedule_session_timeout(self, group_id: str, member: ConsumerGroupMember, now_ms: int) -> None:
        """Restart the member's session; a classic member has its own timeout."""
        times = self._times_for(group_id)
        within_ms = (
            member.classic_metadata.session_timeout_ms
            if member.classic_metadata is not None
            else times.session_timeout_ms
        )
        self.deadlines.set(MemberTimer("session", group_id, member.member_id), now_ms + within_ms)

    def schedule_join_timeout(self, group_id: str, member: ConsumerGroupMember, now_ms: int) -> None:
        """Start the rebalance timeout, within which a classic member with REBALANCE_IN_PROGRESS must join."""
        timer = MemberTimer("join", group_id, member.member_id)
        if self.deadlines.get(timer) is None:
            self.deadlines.set(timer, now_ms + member.rebalance_timeout_ms)

    def on_classic_member_joined(self, event: ClassicMemberJoined, now_ms: int) -> None:
        self.deadlines.cancel(MemberTimer("join", event.group_id, event.member_id))
        self.deadlines.set(MemberTimer("sync", event.group_id, event.member_id), now_ms + event.sync_timeout_ms)

    def cancel_sync_timeout(self, group_id: str, member_id: str) -> None:
        self.deadlines.cancel(MemberTimer("sync", group_id, member_id))

    def _cancel_timers(self, group_id: str, member_id: str) -> None:
        for kind in ("session", "revocation", *CLASSIC_MEMBER_TIMERS):
            self.deadlines.cancel(MemberTimer(kind, group_id, member_id))

    # ---- the log

    def replay(self, kind: int, key: Any, value: Any | None) -> None:
        """Replay one record of a consumer group."""
        if kind == CONSUMER_GROUP_METADATA and value is None:
            gone = self.groups.pop(key.group_id, None)
            if gone is not None:
                self.memory.remove_all(gone.members.values())
            return
        group = self.groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        # not when it is decided: the append may be rejected
        if kind == CONSUMER_GROUP_MEMBER_METADATA and value is None:
            self._cancel_timers(key.group_id, key.member_id)
            self.memory.remove_all(each for each in (group.members.get(key.member_id),) if each is not None)
        _replay(group, kind, key, value)
        if kind == CONSUMER_GROUP_MEMBER_METADATA and value is not None:
            self.memory.update(group.members[key.member_id])


def _is_timer_valid(kind: str, member: ConsumerGroupMember) -> bool:
    if kind == "revocation":
        return member.state is MemberState.UNREVOKED_PARTITIONS
    return kind not in CLASSIC_MEMBER_TIMERS or member.classic_metadata is not None


def _replay(group: ConsumerGroup, kind: int, key: Any, value: Any | None) -> None:
    if kind == CONSUMER_GROUP_METADATA and value is not None:
        group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif kind == CONSUMER_GROUP_MEMBER_METADATA:
        group.apply_member(key.member_id, value)
    elif kind == CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
        group.assignment_epoch = value.assignment_epoch if value is not None else INITIAL_EPOCH
        group.assignment_timestamp_ms = value.assignment_timestamp if value is not None else 0
    elif kind == CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
        group.apply_target_assignment(key.member_id, value.topic_partitions if value is not None else None)
    elif kind == CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
        group.apply_current_assignment(key.member_id, value)
    elif kind == CONSUMER_GROUP_REGULAR_EXPRESSION:
        group.apply_regex(key.regular_expression, value)


# ---- requests and responses
def heartbeat_response(
    request: ConsumerGroupHeartbeatRequest, previous: ConsumerGroupMember, step: CurrentAssignment, interval_ms: int
) -> ConsumerGroupHeartbeatResponse:
    """Return the response, with the assignment if it has changed, or if the request is a full heartbeat."""
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=step.member_epoch, heartbeat_interval_ms=interval_ms
    )
    is_whole = (
        request.rebalance_timeout_ms != -1
        and request.topic_partitions is not None
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
    )
    if (
        request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        or is_whole
        or step.assigned_partitions != previous.assigned_partitions
    ):
        response.assignment = HeartbeatAssignment(
            topic_partitions=[
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(step.assigned_partitions.items(), key=topic_id_sort_key)
            ]
        )
    return response


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> OwnedPartitions:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in request.topic_partitions}


def updated_member(
    previous: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
) -> ConsumerGroupMember:
    """Return the member after this heartbeat; fields that are null have not changed."""
    member = copy(previous)
    member.classic_metadata = None
    member.client_id, member.client_host = client_id, client_host
    if request.instance_id is not None:
        member.instance_id = request.instance_id
    if request.rack_id is not None:
        member.rack_id = request.rack_id
    if request.rebalance_timeout_ms != -1:
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
    if request.subscribed_topic_names is not None:
        member.subscribed_topic_names = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        member.subscribed_topic_regex = request.subscribed_topic_regex
    if request.server_assignor is not None:
        member.server_assignor_name = request.server_assignor
    return member


def member_metadata_fields(member: ConsumerGroupMember) -> tuple[object, ...]:
    identity = (member.instance_id, member.rack_id, member.client_id, member.client_host)
    subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
    return (*identity, member.rebalance_timeout_ms, member.server_assignor_name, member.classic_metadata, *subscription)


def subscription_bytes(request: ConsumerGroupHeartbeatRequest) -> int:
    return names_bytes(request.subscribed_topic_names or ()) + len(request.subscribed_topic_regex or "")


def unknown_member_error(request: ConsumerGroupHeartbeatRequest) -> KafkaError:
    problem = f"Member {request.member_id} is not a member of group {request.group_id}."
    return KafkaError(Error.UNKNOWN_MEMBER_ID, problem)


def check_instance_id(named: str | None, request: ConsumerGroupHeartbeatRequest) -> None:
    if named is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if named != request.member_id:
        raise KafkaError(
            Error.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member {named}.",
        )


def check_member_epoch(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, owned: OwnedPartitions
) -> None:
    """Accept the current epoch, and the previous one if the member owns only assigned partitions.

    Then the response with the current epoch was lost. Raises KafkaError(FENCED_MEMBER_EPOCH) otherwise.
    """
    epoch = request.member_epoch
    if epoch in (member.member_epoch, JOIN_GROUP_MEMBER_EPOCH):
        return
    if epoch == member.previous_member_epoch and owned is not None and _is_subset(owned, member.assigned_partitions):
        return
    word = "greater" if epoch > member.member_epoch else "smaller"
    raise KafkaError(
        Error.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Assignment, assigned: Assignment) -> bool:
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


# ---- ConsumerGroupDescribe

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1  # member types

NO_PARTITIONS: frozenset[int] = frozenset()


def describe_group(group: ConsumerGroup, assignors: tuple[str, ...], catalog: TopicCatalog) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_server_assignor(group, assignors),
        members=[_describe_member(group, member, catalog) for member in group.members.values()],
    )


def _describe_member(group: ConsumerGroup, member: ConsumerGroupMember, catalog: TopicCatalog) -> DescribedConsumer:
    """Return the description of a member; its assignment includes partitions that are pending revocation."""
    pending = member.partitions_pending_revocation
    held = {
        topic_id: member.assigned_partitions.get(topic_id, NO_PARTITIONS) | pending.get(topic_id, NO_PARTITIONS)
        for topic_id in {**member.assigned_partitions, **pending}
    }
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_describe_assignment(held, catalog),
        target_assignment=_describe_assignment(group.target_assignment.get(member.member_id, {}), catalog),
        member_type=CLASSIC_MEMBER if member.classic_metadata is not None else CONSUMER_MEMBER,
    )


def _describe_assignment(assignment: Assignment, catalog: TopicCatalog) -> DescribedAssignment:
    rows = []
    for topic_id, partitions in sorted(assignment.items()):
        facts = catalog.topic_by_id(topic_id)
        if facts is not None:
            rows.append(
                DescribedTopicPartitions(topic_id=topic_id, topic_name=facts.name, partitions=sorted(partitions))
            )
    return DescribedAssignment(topic_partitions=rows)
