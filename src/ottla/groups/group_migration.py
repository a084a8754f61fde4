"""Online migration between the classic and the consumer group protocol (KIP-848), and groups with members of both.

A classic group becomes a consumer group when the first member with the consumer protocol joins. It becomes classic
again when the last of these members leaves, or when its instance id rejoins with the classic protocol.

In a consumer group, a classic member sends JoinGroup, SyncGroup and Heartbeat as before. Its generation is its member
epoch, and its assignment comes from the coordinator's target. When its assignment must change, its heartbeat gets
REBALANCE_IN_PROGRESS, and it joins again.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from ottla.base.errors import Error, KafkaError
from ottla.coordination.machine import Decision, Record, Reply, ReplyTo
from ottla.groups.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    RequestClient,
    join_error_response,
    sync_error_response,
)
from ottla.groups.classic_rebalance import ConsumerGroupDowngraded
from ottla.groups.consumer_group import (
    Assignment,
    ClassicMemberJoined,
    ConsumerGroup,
    ConsumerGroupMember,
    MemberState,
    TopicCatalog,
    compute_metadata_hash,
)
from ottla.groups.consumer_group_records import (
    consumer_group_tombstones,
    current_assignment_record,
    group_epoch_record,
    member_record,
    target_assignment_epoch_record,
    target_assignment_record,
)
from ottla.groups.consumer_heartbeat import ConsumerGroups
from ottla.groups.coordinator_records import decode_record, group_record, group_tombstone
from ottla.groups.group_memory import protocols_bytes
from ottla.groups.reconciliation import current_assignment
from ottla.groups.settings import GroupSettings
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.consumer_groups import (
    CONSUMER,
    OwnedPartitions,
    Subscription,
    read_version,
    read_versioned,
    write_versioned,
)
from ottla.protocol.messages.consumer_groups import Assignment as ClassicAssignment
from ottla.protocol.messages.coordinator_records import ClassicMemberMetadata, ClassicProtocol
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MIGRATION_DISABLED = "disabled"
UPGRADES = ("upgrade", "bidirectional")
DOWNGRADES = ("downgrade", "bidirectional")
ASSIGNMENT_VERSION_MAX = 3
CUSTOM_ASSIGNOR = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)


class ConsumerGroupClassicMembers:
    """Requests of classic members to consumer groups."""

    def __init__(self, consumer: ConsumerGroups) -> None:
        self._consumer = consumer

    # ---- requests

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        client: RequestClient,
        new_member_id: str,
        catalog: TopicCatalog,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        settings = self._consumer.settings
        if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
            return Decision(
                replies=[Reply(reply_to, join_error_response(request.member_id, Error.INVALID_SESSION_TIMEOUT))]
            )
        try:
            self._check_join(group, request)
            member_id = request.member_id or new_member_id
            if not request.member_id and request.group_instance_id is None and client.requires_known_member_id:
                return Decision(replies=[Reply(reply_to, join_error_response(new_member_id, Error.MEMBER_ID_REQUIRED))])
            known, former_id, records = self._get_or_create_member(group, request, member_id)
            subscription = _read_subscription(request)
        except KafkaError as refusal:
            return Decision(replies=[Reply(reply_to, join_error_response("", refusal.error))])
        member = _updated_member(known, request, client, subscription)
        owned = assignment_by_topic_id(subscription.owned_partitions, catalog)
        if self._is_last_consumer_protocol_member(group, request.group_instance_id):
            return self._downgrade(group, known, former_id, member, owned, catalog, reply_to, now_ms)
        step = self._consumer.update_member(group, known, former_id, member, owned, records, catalog, now_ms)
        event = ClassicMemberJoined(group.group_id, member_id, member.rebalance_timeout_ms)
        return Decision(records, [Reply(reply_to, _join_response(member, step.member_epoch))], event)

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        settings = self._consumer.settings
        if settings.migration_policy == MIGRATION_DISABLED:
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id not in group.members and len(group.members) >= settings.consumer_size_max:
            raise KafkaError(Error.GROUP_MAX_SIZE_REACHED)
        common = _common_protocols(group)
        names = {protocol.name for protocol in request.protocols}
        if request.protocol_type != CONSUMER or not names or (common is not None and not common & names):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id not in group.members and request.group_instance_id not in group.static_members:
            self._consumer.check_memory_limit(group.group_id, protocols_bytes(request.protocols))

    def _is_last_consumer_protocol_member(self, group: ConsumerGroup, instance_id: str | None) -> bool:
        """Return whether only classic members remain when this static member rejoins with the classic protocol."""
        former = group.members.get(group.static_members.get(instance_id or "", ""))
        if former is None or former.classic_metadata is not None:
            return False
        others_are_classic = all(
            each.classic_metadata is not None for each in group.members.values() if each is not former
        )
        return others_are_classic and can_downgrade(len(group.members), self._consumer.settings)

    def _downgrade(
        self,
        group: ConsumerGroup,
        known: ConsumerGroupMember,
        former_id: str | None,
        member: ConsumerGroupMember,
        owned: Assignment,
        catalog: TopicCatalog,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """Downgrade the group.

        Members keep a target of the current epoch; with an older target the classic group rebalances.
        """
        step = self._consumer.reconcile_with_last_target(group, known, former_id, member, owned, catalog, now_ms)
        former_id = former_id or member.member_id
        stay = [(each, group.target_assignment.get(each.member_id, {})) for each in group.members.values()]
        stay = [row for row in stay if row[0].member_id != former_id]
        stay.append((member, group.target_assignment.get(former_id, {})))
        decision = downgrade(group, stay, catalog, now_ms, must_rebalance=step is None)
        decision.replies.append(
            Reply(reply_to, _join_response(member, member.member_epoch if step is None else step.member_epoch))
        )
        return decision

    def _get_or_create_member(
        self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str
    ) -> tuple[ConsumerGroupMember, str | None, list[Record]]:
        instance_id = request.group_instance_id
        named = group.static_members.get(instance_id) if instance_id is not None else None
        if instance_id is not None and request.member_id:
            if named is None:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID)
            if named != request.member_id:
                raise KafkaError(Error.FENCED_INSTANCE_ID)
        if named is not None and named != member_id:
            member, records = self._consumer.replace_static_member(group, group.members[named], member_id)
            return member, named, records
        return group.members.get(member_id) or ConsumerGroupMember(member_id), None, []

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, catalog: TopicCatalog, reply_to: ReplyTo, now_ms: int
    ) -> Decision:
        member, error = self._find(group, request.member_id, request.group_instance_id, request.generation_id)
        if member is None or error is not Error.NONE:
            return Decision(replies=[Reply(reply_to, sync_error_response(error))])
        protocol = _first_protocol(member)
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol):
            error = Error.INCONSISTENT_GROUP_PROTOCOL
        elif group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._consumer.schedule_join_timeout(group.group_id, member, now_ms)
            error = Error.REBALANCE_IN_PROGRESS
        if error is not Error.NONE:
            return Decision(replies=[Reply(reply_to, sync_error_response(error))])
        self._consumer.cancel_sync_timeout(group.group_id, member.member_id)
        self._consumer.schedule_session_timeout(group.group_id, member, now_ms)
        response = SyncGroupResponse(
            protocol_type=CONSUMER,
            protocol_name=protocol,
            assignment=classic_assignment(member, member.assigned_partitions, catalog),
        )
        return Decision(replies=[Reply(reply_to, response)])

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        member, error = self._find(group, request.member_id, request.group_instance_id, request.generation_id)
        if member is None or error is not Error.NONE:
            return HeartbeatResponse(error_code=error)
        self._consumer.schedule_session_timeout(group.group_id, member, now_ms)
        if group.assignment_epoch > member.member_epoch or _must_rejoin(group, member):
            self._consumer.schedule_join_timeout(group.group_id, member, now_ms)
            return HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    @staticmethod
    def _find(
        group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerGroupMember | None, Error]:
        """Return the classic member of a request, and the error if it is stale or its instance id is reused."""
        if instance_id is not None:
            named = group.static_members.get(instance_id)
            if named is not None and named != member_id:
                return None, Error.FENCED_INSTANCE_ID
            member_id = named or ""
        member = group.members.get(member_id)
        if member is None or member.classic_metadata is None:
            return None, Error.UNKNOWN_MEMBER_ID
        return member, Error.NONE if generation == member.member_epoch else Error.ILLEGAL_GENERATION


# ---- helpers


def _must_rejoin(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Return whether it has partitions to revoke, or the partitions that it waits for are free."""
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    wanted = group.target_assignment.get(member.member_id, {})
    return all(
        group.partition_owners.get((topic_id, each)) in (None, member.member_id)
        for topic_id, partitions in wanted.items()
        for each in partitions
    )


def _updated_member(
    known: ConsumerGroupMember, request: JoinGroupRequest, client: RequestClient, subscription: Subscription
) -> ConsumerGroupMember:
    member = copy(known)
    member.client_id, member.client_host = client.client_id, client.host
    if request.group_instance_id is not None:
        member.instance_id = request.group_instance_id
    member.rack_id = subscription.rack_id
    timeout_ms = request.rebalance_timeout_ms
    member.rebalance_timeout_ms = timeout_ms if timeout_ms >= 0 else request.session_timeout_ms
    member.subscribed_topic_names, member.subscribed_topic_regex = frozenset(subscription.topics), ""
    member.server_assignor_name = None
    member.classic_metadata = ClassicMemberMetadata(
        session_timeout_ms=request.session_timeout_ms, supported_protocols=to_classic_protocols(request.protocols)
    )
    return member


def _common_protocols(group: ConsumerGroup) -> set[str] | None:
    """Return the protocols that all classic members support; None without classic members."""
    sets = [
        {protocol.name for protocol in member.classic_metadata.supported_protocols}
        for member in group.members.values()
        if member.classic_metadata is not None
    ]
    return set.intersection(*sets) if sets else None


def _first_protocol(member: ConsumerGroupMember) -> str:
    """Return the member's first protocol: the coordinator assigns, so the members need no common protocol."""
    assert member.classic_metadata is not None
    return member.classic_metadata.supported_protocols[0].name


def _join_response(member: ConsumerGroupMember, epoch: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=epoch,
        protocol_type=CONSUMER,
        protocol_name=_first_protocol(member),
        leader="",
        member_id=member.member_id,
        members=[],
    )


def _read_subscription(request: JoinGroupRequest) -> Subscription:
    try:
        return read_versioned(Subscription, request.protocols[0].metadata)
    except ProtocolError:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from None  # as in Kafka


# ---- upgrade


def upgrade_problem(group: ClassicGroup, size_max: int, policy: str) -> str | None:
    """Return the reason why this group cannot become a consumer group while it has members, or None."""
    if policy not in UPGRADES:
        return "online upgrade is disabled"
    if group.protocol_type != CONSUMER:
        return "the group does not use the consumer embedded protocol"
    if len(group.members) > size_max:
        return "the group size exceeds the consumer group maximum size"
    try:
        for member in group.members.values():
            _, assignment = _read_member(group, member)
            if assignment.user_data:  # the group's own assignor needs it, and the broker's would discard it
                return CUSTOM_ASSIGNOR
    except ProtocolError:
        return "the embedded consumer protocol is malformed"
    return None


def upgrade(group: ClassicGroup, catalog: TopicCatalog) -> tuple[ConsumerGroup, list[Record]]:
    """Return the group under the new protocol, as after these records are applied."""
    epoch = group.generation
    members = [_upgraded(group, member, catalog) for member in group.members.values()]
    names = {name for member in members for name in member.subscribed_topic_names}
    group_id = group.group_id
    records = [member_record(group_id, member) for member in members]
    records.append(group_epoch_record(group_id, epoch, compute_metadata_hash(catalog, names)))
    records += [target_assignment_record(group_id, member.member_id, member.assigned_partitions) for member in members]
    records.append(target_assignment_epoch_record(group_id, epoch, 0))
    records += [current_assignment_record(group_id, member.member_id, current_assignment(member)) for member in members]
    scratch = ConsumerGroups.replay_records(group_id, [decode_record(*record) for record in records])
    return scratch, [group_tombstone(group_id), *records]


def _upgraded(group: ClassicGroup, member: ClassicGroupMember, catalog: TopicCatalog) -> ConsumerGroupMember:
    subscription, assignment = _read_member(group, member)
    upgraded = ConsumerGroupMember(member.member_id)
    upgraded.instance_id, upgraded.rack_id = member.instance_id, subscription.rack_id
    upgraded.client_id, upgraded.client_host = member.client_id, member.client_host
    upgraded.rebalance_timeout_ms = member.rebalance_timeout_ms
    upgraded.subscribed_topic_names = frozenset(subscription.topics)
    upgraded.classic_metadata = ClassicMemberMetadata(
        session_timeout_ms=member.session_timeout_ms, supported_protocols=to_classic_protocols(member.protocols)
    )
    upgraded.member_epoch = upgraded.previous_member_epoch = group.generation
    upgraded.assigned_partitions = assignment_by_topic_id(assignment.assigned_partitions, catalog)
    upgraded.assignment_epochs = {
        (topic_id, each): group.generation for topic_id, rows in upgraded.assigned_partitions.items() for each in rows
    }
    return upgraded


def _read_member(group: ClassicGroup, member: ClassicGroupMember) -> tuple[Subscription, ClassicAssignment]:
    """Decode the metadata of a member. Raises ProtocolError."""
    protocol = group.protocol_name or member.protocols[0].name
    subscription = read_versioned(Subscription, member.protocol_metadata(protocol))
    if not member.assignment:
        return subscription, ClassicAssignment(assigned_partitions=[])
    return subscription, read_versioned(ClassicAssignment, member.assignment)


# ---- downgrade


def can_downgrade(size: int, settings: GroupSettings) -> bool:
    """Return whether a group with this number of members, all classic, can become a classic group."""
    return settings.migration_policy in DOWNGRADES and size <= settings.size_max


def downgrade(
    group: ConsumerGroup,
    remaining: Iterable[tuple[ConsumerGroupMember, Assignment]],
    catalog: TopicCatalog,
    now_ms: int,
    *,
    must_rebalance: bool,
) -> Decision:
    """Return the decision that turns a group into a classic group of these members with their target assignments."""
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation = group.group_epoch
    classic.protocol_type = CONSUMER
    assignments = {}
    for member, target in remaining:
        assert member.classic_metadata is not None
        classic.add(_downgraded(member, member.classic_metadata))
        assignments[member.member_id] = classic_assignment(member, target, catalog)
    classic.protocol_name = classic.select_protocol()
    protocols = {member.member_id: member.protocols for member in classic.members.values()}
    records = [*consumer_group_tombstones(group), group_record(classic, assignments)]
    return Decision(records, event=ConsumerGroupDowngraded(group.group_id, protocols, must_rebalance))


def _downgraded(member: ConsumerGroupMember, facts: ClassicMemberMetadata) -> ClassicGroupMember:
    protocols = [JoinGroupRequestProtocol(name=each.name, metadata=each.metadata) for each in facts.supported_protocols]
    return ClassicGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        facts.session_timeout_ms,
        protocols,
    )


# ---- both directions


def to_classic_protocols(protocols: list[JoinGroupRequestProtocol]) -> list[ClassicProtocol]:
    return [ClassicProtocol(name=each.name, metadata=bytes(each.metadata)) for each in protocols]


def classic_assignment(member: ConsumerGroupMember, assigned: Assignment, catalog: TopicCatalog) -> bytes:
    """Encode an assignment in the version that the member itself uses."""
    assert member.classic_metadata is not None
    version = min(read_version(member.classic_metadata.supported_protocols[0].metadata), ASSIGNMENT_VERSION_MAX)
    rows = []
    for topic_id, partitions in sorted(assigned.items()):
        facts = catalog.topic_by_id(topic_id)
        if facts is not None:
            rows.append(OwnedPartitions(topic=facts.name, partitions=sorted(partitions)))
    return write_versioned(ClassicAssignment(assigned_partitions=rows), version)


def assignment_by_topic_id(rows: list[OwnedPartitions], catalog: TopicCatalog) -> Assignment:
    found: Assignment = {}
    for row in rows:
        facts = catalog.topic(row.topic)
        if facts is not None and row.partitions:
            found[facts.topic_id] = frozenset(row.partitions)
    return found
