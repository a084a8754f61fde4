"""F11, F12: what a login may do with a topic or a group, as reported by the broker (KIP-430).

Nothing is changed. Metadata responses list the allowed operations of a topic. For a group, the check sends a heartbeat
of a member that does not exist and looks at the error code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.security import Operation
from ottla.client.client import Client
from ottla.client.coordinators import KeyType, call_coordinator
from ottla.client.errors import RETRIABLE, ClientError, error_from_code, error_of
from ottla.operations.doctor.findings import Finding, Severity
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

PROBE_MEMBER_ID = "ottla-doctor"
THIS_LOGIN, EXAMPLE_PRINCIPAL = "this login", "User:NAME"  # if the client's settings do not name the principal
FORBIDDEN, WAITING = "F11", "F12"


class TopicAuthorization(NamedTuple):
    """The broker's answer about a topic: an error code, or the allowed operations."""

    name: str
    error: Error
    operations: int  # one bit each; negative: an old broker does not report them

    def is_allowed(self, operation: Operation) -> bool:
        return self.operations < 0 or bool(self.operations >> operation & 1)


class GroupAuthorization(NamedTuple):
    """Why this login cannot read as the group; None if it can."""

    name: str
    problem: ClientError | None


def describe_topic_rights(client: Client, names: Sequence[str] | None) -> list[TopicAuthorization]:
    """The rights on these topics, or on all visible ones."""
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    answer = client.call(request, MetadataResponse)
    return [
        TopicAuthorization(topic.name or "", error_of(topic.error_code), topic.topic_authorized_operations)
        for topic in answer.topics
        if names is not None or not topic.is_internal
    ]


def check_group_rights(client: Client, names: Sequence[str]) -> list[GroupAuthorization]:
    return [GroupAuthorization(name, _group_problem(client, name)) for name in names]


def _group_problem(client: Client, name: str) -> ClientError | None:
    def ask(broker: int) -> None:
        request = HeartbeatRequest(group_id=name, generation_id=0, member_id=PROBE_MEMBER_ID)
        error = error_of(client.call_broker(broker, request, HeartbeatResponse).error_code)
        if error in RETRIABLE or error is Error.GROUP_AUTHORIZATION_FAILED:
            raise error_from_code(error)

    try:
        call_coordinator(client, KeyType.GROUP, name, ask)
    except ClientError as problem:
        return problem
    return None


def topic_findings(
    rights: Sequence[TopicAuthorization], principal: str | None, *, are_named: bool
) -> Iterator[Finding]:
    """`are_named`: the user asked for exactly these topics."""
    for topic in rights:
        who, name = principal or THIS_LOGIN, quote(topic.name)
        grant = (
            f"ottla acls add --allow {quote(principal or EXAMPLE_PRINCIPAL)} --producer --topic {name} lets it write, "
            "--consumer --group GROUP read; ottla acls explain names the rule that decides"
        )
        if topic.error is Error.TOPIC_AUTHORIZATION_FAILED:
            yield Finding(
                Severity.PROBLEM,
                WAITING,
                f"topic {topic.name} does not exist for {who}: producers are refused, and a consumer waits for ever or "
                "logs: Error getting partition metadata",
                "no rule allows it to DESCRIBE the topic, or one denies it",
                grant,
            )
        elif topic.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
            yield Finding(
                Severity.PROBLEM,
                "",
                f"topic {topic.name} does not exist: a consumer waits for ever",
                "it was never created, its name is misspelt, or it was deleted",
                f"ottla topics create {name}",
            )
        elif not topic.is_allowed(Operation.READ) and not topic.is_allowed(Operation.WRITE):
            yield Finding(
                Severity.PROBLEM if are_named else Severity.NOTE,
                FORBIDDEN,
                f"{who} may neither read topic {topic.name} nor write to it",
                "no rule allows it, or one denies it",
                grant,
            )
        elif are_named and not (topic.is_allowed(Operation.READ) and topic.is_allowed(Operation.WRITE)):
            may, may_not = ("read", "write to") if topic.is_allowed(Operation.READ) else ("write to", "read")
            yield Finding(
                Severity.NOTE,
                FORBIDDEN,
                f"{who} may {may} topic {topic.name}, and may not {may_not} it",
                "no rule allows it, or one denies it",
                grant,
            )


def group_findings(rights: Sequence[GroupAuthorization], principal: str | None) -> Iterator[Finding]:
    for group in rights:
        if group.problem is None:
            continue
        if group.problem.error is Error.GROUP_AUTHORIZATION_FAILED:
            yield Finding(
                Severity.PROBLEM,
                FORBIDDEN,
                f"{principal or THIS_LOGIN} may not read as group {group.name}: its consumers get no partitions",
                "no rule allows it to READ the group, or one denies it",
                f"ottla acls add --allow {quote(principal or EXAMPLE_PRINCIPAL)} --operation read --group "
                f"{quote(group.name)}",
            )
        else:
            yield Finding(
                Severity.WARNING,
                "",
                f"group {group.name} could not be checked: {group.problem}",
                "the broker refused or did not answer in time",
                "fix the findings above, then check again",
            )
