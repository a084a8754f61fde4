"""Groups of the new protocol with members that still speak the classic one, and the way between the two (KIP-848).

A member of the classic protocol joins, syncs and heartbeats as ever, but its generation is its member epoch, and what
it gets comes from the coordinator's target. It is asked to join again (REBALANCE_IN_PROGRESS) where a member of the new
protocol would be told in its heartbeat.

A classic group becomes one of the new protocol when the first new member joins; it becomes classic again when the last
new member is gone.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.coordination.machine import Decision, Record, Reply, ReplyTo
from ottla.groups.catalog import Catalog, fingerprint
from ottla.groups.classic_answers import Client, refused_join, refused_sync
from ottla.groups.classic_group import ClassicGroup, Member
from ottla.groups.consumer import ConsumerGroups
from ottla.groups.consumer_group import Assignment, ConsumerGroup, ConsumerMember, MemberState
from ottla.groups.consumer_records import (
    current_record,
    epoch_record,
    forget_group,
    member_record,
    target_epoch_record,
    target_record,
)
from ottla.groups.reconciliation import where_it_stands
from ottla.groups.records import group_record, group_tombstone, read_record
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.consumer_protocol import (
    CONSUMER,
    OwnedPartitions,
    Subscription,
    read_version,
    read_versioned,
    write_versioned,
)
from ottla.protocol.messages.consumer_protocol import Assignment as ClassicAssignment
from ottla.protocol.messages.group_records import ClassicMemberMetadata, ClassicProtocol
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

UPGRADES = ("upgrade", "bidirectional")
DOWNGRADES = ("downgrade", "bidirectional")
ASSIGNMENT_VERSION_MAX = 3


class Downgraded(NamedTuple):
    """A group was written as a classic one: its members join again."""

    group_id: str


class MixedGroups:
    """Classic requests to groups of the new protocol."""

    def __init__(self, consumer: ConsumerGroups) -> None:
        self._consumer = consumer

    # ---- requests

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        client: Client,
        fresh_id: str,
        catalog: Catalog,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        try:
            subscription = self._check_join(group, request)
            member_id = request.member_id or fresh_id
            if not request.member_id and request.group_instance_id is None and client.must_know_id:
                raise KafkaError(Error.MEMBER_ID_REQUIRED)
            known, former_id, records = self._joiner(group, request, member_id)
        except KafkaError as refusal:
            told_id = fresh_id if refusal.error is Error.MEMBER_ID_REQUIRED else request.member_id
            return Decision(replies=[Reply(reply_to, refused_join(told_id, refusal.error))])
        member = _updated(known, request, client, subscription)
        owned = _ids(subscription.owned_partitions, catalog)
        step = self._consumer.step(group, known, former_id, member, owned, records, catalog, now_ms)
        self._consumer.has_joined(group.group_id, member_id)
        response = JoinGroupResponse(
            generation_id=step.epoch,
            protocol_type=CONSUMER,
            protocol_name=_chosen_protocol(group, member),
            leader="",
            member_id=member_id,
            members=[],
        )
        return Decision(records, [Reply(reply_to, response)])

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> Subscription:
        settings = self._consumer.settings
        if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
            raise KafkaError(Error.INVALID_SESSION_TIMEOUT)
        common = _common_protocols(group)
        names = {protocol.name for protocol in request.protocols}
        if request.protocol_type != CONSUMER or not names or (common is not None and not common & names):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        is_new = request.member_id not in group.members and request.group_instance_id not in group.member_of_instance
        if is_new and len(group.members) >= settings.consumer_size_max:
            raise KafkaError(Error.GROUP_MAX_SIZE_REACHED)
        try:
            return read_versioned(Subscription, request.protocols[0].metadata)
        except ProtocolError:
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL) from None

    def _joiner(
        self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str
    ) -> tuple[ConsumerMember, str | None, list[Record]]:
        instance_id = request.group_instance_id
        named = group.member_of_instance.get(instance_id) if instance_id is not None else None
        if instance_id is not None and request.member_id:
            if named is None:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID)
            if named != request.member_id:
                raise KafkaError(Error.FENCED_INSTANCE_ID)
        if named is not None and named != member_id:
            member, records = self._consumer.succeed(group, group.members[named], member_id)
            return member, named, records
        return group.members.get(member_id) or ConsumerMember(member_id), None, []

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, catalog: Catalog, reply_to: ReplyTo, now_ms: int
    ) -> Decision:
        member, error = self._find(group, request.member_id, request.group_instance_id, request.generation_id)
        if member is None or error is not Error.NONE:
            return Decision(replies=[Reply(reply_to, refused_sync(error))])
        protocol = _chosen_protocol(group, member)
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol):
            error = Error.INCONSISTENT_GROUP_PROTOCOL
        elif group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._consumer.expect_join(group.group_id, member, now_ms)
            error = Error.REBALANCE_IN_PROGRESS
        if error is not Error.NONE:
            return Decision(replies=[Reply(reply_to, refused_sync(error))])
        self._consumer.expect(group.group_id, member, now_ms)
        response = SyncGroupResponse(
            protocol_type=CONSUMER,
            protocol_name=protocol,
            assignment=_classic_assignment(member, member.assigned, catalog),
        )
        return Decision(replies=[Reply(reply_to, response)])

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        member, error = self._find(group, request.member_id, request.group_instance_id, request.generation_id)
        if member is None or error is not Error.NONE:
            return HeartbeatResponse(error_code=error)
        self._consumer.expect(group.group_id, member, now_ms)
        if group.epoch > member.epoch or _has_more_to_do(group, member):
            self._consumer.expect_join(group.group_id, member, now_ms)
            return HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    @staticmethod
    def _find(
        group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember | None, Error]:
        """A member of the classic protocol, if it is still the one that has its name."""
        if instance_id is not None:
            named = group.member_of_instance.get(instance_id)
            if named is not None and named != member_id:
                return None, Error.FENCED_INSTANCE_ID
            member_id = named or ""
        member = group.members.get(member_id)
        if member is None or member.classic is None:
            return None, Error.UNKNOWN_MEMBER_ID
        return member, Error.NONE if generation == member.epoch else Error.ILLEGAL_GENERATION


# ---- from classic to new


def upgrade_problem(group: ClassicGroup, size_max: int, policy: str) -> str | None:
    """Why this group cannot become one of the new protocol while it has members."""
    if policy not in UPGRADES:
        return "online upgrade is disabled"
    if group.protocol_type != CONSUMER:
        return "the group does not use the consumer embedded protocol"
    if len(group.members) > size_max:
        return "the group size exceeds the consumer group maximum size"
    try:
        for member in group.members.values():
            _read_member(group, member)
    except ProtocolError:
        return "the embedded consumer protocol is malformed"
    return None


def upgrade(group: ClassicGroup, catalog: Catalog) -> tuple[ConsumerGroup, list[Record]]:
    """The same group under the new protocol, as it will be when these records are applied."""
    epoch = group.generation
    members = [_upgraded(group, member, catalog) for member in group.members.values()]
    names = {name for member in members for name in member.topic_names}
    group_id = group.group_id
    records = [member_record(group_id, member) for member in members]
    records.append(epoch_record(group_id, epoch, fingerprint(catalog, names)))
    records += [target_record(group_id, member.member_id, member.assigned) for member in members]
    records.append(target_epoch_record(group_id, epoch, 0))
    records += [current_record(group_id, member.member_id, where_it_stands(member)) for member in members]
    scratch = ConsumerGroups.of_records(group_id, [read_record(*record) for record in records])
    return scratch, [group_tombstone(group_id), *records]


def _upgraded(group: ClassicGroup, member: Member, catalog: Catalog) -> ConsumerMember:
    subscription, assignment = _read_member(group, member)
    upgraded = ConsumerMember(member.member_id)
    upgraded.instance_id, upgraded.rack_id = member.instance_id, subscription.rack_id
    upgraded.client_id, upgraded.client_host = member.client_id, member.client_host
    upgraded.rebalance_timeout_ms = member.rebalance_timeout_ms
    upgraded.topic_names = frozenset(subscription.topics)
    upgraded.classic = ClassicMemberMetadata(
        session_timeout_ms=member.session_timeout_ms, supported_protocols=_kept(member.protocols)
    )
    upgraded.epoch = upgraded.previous_epoch = group.generation
    upgraded.assigned = _ids(assignment.assigned_partitions, catalog)
    upgraded.since = {
        (topic_id, each): group.generation for topic_id, rows in upgraded.assigned.items() for each in rows
    }
    return upgraded


def _read_member(group: ClassicGroup, member: Member) -> tuple[Subscription, ClassicAssignment]:
    """Raises ProtocolError when it is not what consumers write."""
    protocol = group.protocol or member.protocols[0].name
    subscription = read_versioned(Subscription, member.metadata_of(protocol))
    if not member.assignment:
        return subscription, ClassicAssignment(assigned_partitions=[])
    return subscription, read_versioned(ClassicAssignment, member.assignment)


# ---- and back


def downgrade(group: ConsumerGroup, stay: list[ConsumerMember], catalog: Catalog, now_ms: int) -> list[Record]:
    """The group as a classic one of those that stay, all of whom speak the classic protocol."""
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation = group.epoch
    classic.protocol_type = CONSUMER
    assignments = {}
    for member in stay:
        assert member.classic is not None
        protocols = [
            JoinGroupRequestProtocol(name=each.name, metadata=each.metadata)
            for each in member.classic.supported_protocols
        ]
        classic.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                protocols,
            )
        )
        assignments[member.member_id] = _classic_assignment(member, member.assigned, catalog)
    classic.protocol = classic.elect_protocol()
    return [*forget_group(group), group_record(classic, assignments)]


# ---- small things


def _has_more_to_do(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """It has something to give up, or what it waits for is free."""
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    wanted = group.target.get(member.member_id, {})
    return all(
        group.owners.get((topic_id, each)) in (None, member.member_id)
        for topic_id, partitions in wanted.items()
        for each in partitions
    )


def _updated(
    known: ConsumerMember, request: JoinGroupRequest, client: Client, subscription: Subscription
) -> ConsumerMember:
    member = copy(known)
    member.client_id, member.client_host = client.client_id, client.host
    if request.group_instance_id is not None:
        member.instance_id = request.group_instance_id
    member.rack_id = subscription.rack_id
    timeout_ms = request.rebalance_timeout_ms
    member.rebalance_timeout_ms = timeout_ms if timeout_ms >= 0 else request.session_timeout_ms
    member.topic_names, member.topic_regex = frozenset(subscription.topics), ""
    member.server_assignor = None
    member.classic = ClassicMemberMetadata(
        session_timeout_ms=request.session_timeout_ms, supported_protocols=_kept(request.protocols)
    )
    return member


def _kept(protocols: list[JoinGroupRequestProtocol]) -> list[ClassicProtocol]:
    return [ClassicProtocol(name=each.name, metadata=bytes(each.metadata)) for each in protocols]


def _common_protocols(group: ConsumerGroup) -> set[str] | None:
    """What all classic members can do; None while there is none."""
    sets = [
        {protocol.name for protocol in member.classic.supported_protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    return set.intersection(*sets) if sets else None


def _chosen_protocol(group: ConsumerGroup, member: ConsumerMember) -> str:
    assert member.classic is not None
    names = [protocol.name for protocol in member.classic.supported_protocols]
    common = _common_protocols(group)
    return next((name for name in names if common is None or name in common), names[0])


def _classic_assignment(member: ConsumerMember, assigned: Assignment, catalog: Catalog) -> bytes:
    """In the version in which the member itself writes."""
    assert member.classic is not None
    version = min(read_version(member.classic.supported_protocols[0].metadata), ASSIGNMENT_VERSION_MAX)
    rows = []
    for topic_id, partitions in sorted(assigned.items()):
        facts = catalog.topic_by_id(topic_id)
        if facts is not None:
            rows.append(OwnedPartitions(topic=facts.name, partitions=sorted(partitions)))
    return write_versioned(ClassicAssignment(assigned_partitions=rows), version)


def _ids(rows: list[OwnedPartitions], catalog: Catalog) -> Assignment:
    found: Assignment = {}
    for row in rows:
        facts = catalog.topic(row.topic)
        if facts is not None and row.partitions:
            found[facts.topic_id] = frozenset(row.partitions)
    return found
