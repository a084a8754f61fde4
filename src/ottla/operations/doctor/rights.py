"""F11, F12: what the login that was given may do with a topic or as a group. The broker itself says so (KIP-430).

Nothing is changed: of a topic the broker is asked for the operations that it allows, and whether a group may be joined
is seen in its answer to the heartbeat of a member that it does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.security import Operation
from ottla.client.client import Client
from ottla.client.coordinators import KeyType, ask_coordinator
from ottla.client.errors import RETRIABLE, ClientError, error_of, refusal
from ottla.operations.doctor.findings import Finding, Severity
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

NO_MEMBER = "ottla-doctor"
THIS_LOGIN, SOMEBODY = "this login", "User:NAME"  # where the client's settings do not tell who it is
FORBIDDEN, WAITING = "F11", "F12"


class TopicRights(NamedTuple):
    """What the broker says about a topic: an error, or what may be done with it."""

    name: str
    error: Error
    operations: int  # one bit for each; negative: an old broker does not tell

    def may(self, operation: Operation) -> bool:
        return self.operations < 0 or bool(self.operations >> operation & 1)


class GroupRights(NamedTuple):
    """Why nobody could read as this group, None if somebody could."""

    name: str
    problem: ClientError | None


def ask_topic_rights(client: Client, names: Sequence[str] | None) -> list[TopicRights]:
    """Of these topics, or of all that can be seen."""
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    answer = client.call(request, MetadataResponse)
    return [
        TopicRights(topic.name or "", error_of(topic.error_code), topic.topic_authorized_operations)
        for topic in answer.topics
        if names is not None or not topic.is_internal
    ]


def ask_group_rights(client: Client, names: Sequence[str]) -> list[GroupRights]:
    return [GroupRights(name, _group_problem(client, name)) for name in names]


def _group_problem(client: Client, name: str) -> ClientError | None:
    def ask(broker: int) -> None:
        request = HeartbeatRequest(group_id=name, generation_id=0, member_id=NO_MEMBER)
        error = error_of(client.call_broker(broker, request, HeartbeatResponse).error_code)
        if error in RETRIABLE or error is Error.GROUP_AUTHORIZATION_FAILED:
            raise refusal(error)

    try:
        ask_coordinator(client, KeyType.GROUP, name, ask)
    except ClientError as problem:
        return problem
    return None


def topic_findings(rights: Sequence[TopicRights], principal: str | None, *, are_named: bool) -> Iterator[Finding]:
    """`are_named`: somebody has asked for just these."""
    for topic in rights:
        who, name = principal or THIS_LOGIN, quote(topic.name)
        grant = (
            f"ottla acls add --allow {quote(principal or SOMEBODY)} --producer --topic {name} lets it write, "
            "--consumer --group GROUP read; ottla acls explain names the rule that decides"
        )
        if topic.error is Error.TOPIC_AUTHORIZATION_FAILED:
            yield Finding(
                Severity.PROBLEM,
                WAITING,
                f"topic {topic.name} does not exist for {who}: producers are refused, and a consumer waits for ever or "
                "says: Error getting partition metadata",
                "no rule allows it to DESCRIBE the topic, or one denies it",
                grant,
            )
        elif topic.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
            yield Finding(
                Severity.PROBLEM,
                "",
                f"topic {topic.name} does not exist: a consumer waits for ever",
                "nobody has created it, its name is misspelt, or it was deleted",
                f"ottla topics create {name}",
            )
        elif not topic.may(Operation.READ) and not topic.may(Operation.WRITE):
            yield Finding(
                Severity.PROBLEM if are_named else Severity.NOTE,
                FORBIDDEN,
                f"{who} may neither read topic {topic.name} nor write to it",
                "no rule allows it, or one denies it",
                grant,
            )
        elif are_named and not (topic.may(Operation.READ) and topic.may(Operation.WRITE)):
            may, may_not = ("read", "write to") if topic.may(Operation.READ) else ("write to", "read")
            yield Finding(
                Severity.NOTE,
                FORBIDDEN,
                f"{who} may {may} topic {topic.name}, and may not {may_not} it",
                "no rule allows it, or one denies it",
                grant,
            )


def group_findings(rights: Sequence[GroupRights], principal: str | None) -> Iterator[Finding]:
    for group in rights:
        if group.problem is None:
            continue
        if group.problem.error is Error.GROUP_AUTHORIZATION_FAILED:
            yield Finding(
                Severity.PROBLEM,
                FORBIDDEN,
                f"{principal or THIS_LOGIN} may not read as group {group.name}: its consumers get no partitions",
                "no rule allows it to READ the group, or one denies it",
                f"ottla acls add --allow {quote(principal or SOMEBODY)} --operation read --group {quote(group.name)}",
            )
        else:
            yield Finding(
                Severity.WARNING,
                "",
                f"group {group.name} could not be looked at: {group.problem}",
                "the broker refused or did not answer in time",
                "repair what is told above, then look again",
            )
