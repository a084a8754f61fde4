"""One heartbeat of the new protocol (KIP-848): what it says about its member, whether it may, how it is answered."""

from __future__ import annotations

from copy import copy

from ottla.base.errors import Error, KafkaError
from ottla.groups.consumer_group import JOINING, Assignment, ConsumerMember
from ottla.groups.reconciliation import Owned, Step
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)


def heartbeat_response(
    request: ConsumerGroupHeartbeatRequest, known: ConsumerMember, step: Step, interval_ms: int
) -> ConsumerGroupHeartbeatResponse:
    """The assignment is told when it is another one, or when the member asks with all it knows."""
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=step.epoch, heartbeat_interval_ms=interval_ms
    )
    is_whole = (
        request.rebalance_timeout_ms != -1
        and request.topic_partitions is not None
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
    )
    if request.member_epoch == JOINING or is_whole or step.assigned != known.assigned:
        response.assignment = HeartbeatAssignment(
            topic_partitions=[
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(step.assigned.items())
            ]
        )
    return response


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Owned:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in request.topic_partitions}


def updated_member(
    known: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
) -> ConsumerMember:
    """What is null in a heartbeat has not changed."""
    member = copy(known)
    member.classic = None
    member.client_id, member.client_host = client_id, client_host
    if request.instance_id is not None:
        member.instance_id = request.instance_id
    if request.rack_id is not None:
        member.rack_id = request.rack_id
    if request.rebalance_timeout_ms != -1:
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
    if request.subscribed_topic_names is not None:
        member.topic_names = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        member.topic_regex = request.subscribed_topic_regex
    if request.server_assignor is not None:
        member.server_assignor = request.server_assignor
    return member


def facts_of(member: ConsumerMember) -> tuple[object, ...]:
    identity = (member.instance_id, member.rack_id, member.client_id, member.client_host)
    return (*identity, member.rebalance_timeout_ms, member.server_assignor, member.classic, *subscription_of(member))


def subscription_of(member: ConsumerMember) -> tuple[object, ...]:
    return member.topic_names, member.topic_regex


def no_member(request: ConsumerGroupHeartbeatRequest) -> KafkaError:
    problem = f"Member {request.member_id} is not a member of group {request.group_id}."
    return KafkaError(Error.UNKNOWN_MEMBER_ID, problem)


def check_instance(named: str | None, request: ConsumerGroupHeartbeatRequest) -> None:
    if named is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if named != request.member_id:
        raise KafkaError(
            Error.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member {named}.",
        )


def check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, owned: Owned) -> None:
    """Equal, or one step behind with nothing that it was not given: then only an answer got lost."""
    epoch = request.member_epoch
    if epoch in (member.epoch, JOINING):
        return
    if epoch == member.previous_epoch and owned is not None and _is_within(owned, member.assigned):
        return
    word = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        Error.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_within(owned: Assignment, assigned: Assignment) -> bool:
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items())
