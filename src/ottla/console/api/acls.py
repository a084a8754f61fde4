"""Access rules (ACLs): list, add, delete, preview of changes, and explanation of decisions.

Rules:
1. Only admins may read or change rules: the list shows where a cluster is open.
2. Deleting a rule that no longer exists is a conflict (409).
3. A change that would remove the console's own right to change rules is refused unless the body allows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ottla.base.properties import read_properties
from ottla.base.security import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.client.acls import create_acls, delete_acls, describe_acls
from ottla.client.client import Client
from ottla.console.api.call import Call
from ottla.console.api.errors import Unavailable, bad_request, conflict
from ottla.console.clusters.cluster import wait_until
from ottla.operations.acls import evaluation
from ottla.operations.acls.acl_entries import (
    CONSUMER_OPERATIONS,
    PRODUCER_OPERATIONS,
    acl_filter,
    operation_problem,
    parse_principal,
)
from ottla.operations.acls.evaluation import (
    SUPER_USERS,
    AuthorizationRequest,
    Caller,
    ChangedDecision,
    acl_command,
    broker_settings,
    changed_acls,
    changed_decisions,
    changes_to_reverse,
    load_authorizer,
    lost_rights,
    make_authorizer,
)
from ottla.security.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern
from ottla.security.authorizer import Authorizer, Explanation

SHOWN_MAX = 10_000
RULES_MAX = 500  # in one change
EFFECTS_MAX = 500  # in a response
TEXT_LENGTH_MAX = 1_000  # of a principal, a name, a host
ResourceWord = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
OperationWord = Literal[
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
]  # fmt: skip


class AclRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule, with the names of Kafka's AclBinding."""

    resource_type: ResourceWord
    name: str
    pattern_type: Literal["LITERAL", "PREFIXED"] = "LITERAL"
    principal: str
    host: str = WILDCARD
    operation: OperationWord
    permission: Literal["ALLOW", "DENY"] = "ALLOW"


class AclList(msgspec.Struct, frozen=True):
    """`operations`: those that each resource type supports; `roles`: those that a producer and a consumer need."""

    rules: list[AclRow]
    is_all: bool
    operations: dict[str, list[str]]
    roles: dict[str, dict[str, list[str]]]
    unavailable: Unavailable | None = None


class AclRules(msgspec.Struct, forbid_unknown_fields=True):
    rules: list[AclRow]


class AclDeletion(AclRules, forbid_unknown_fields=True):
    """Without `may_lose_own_rights`, rules that the console needs to change rules are not deleted."""

    may_lose_own_rights: bool = False


class AclChange(msgspec.Struct, forbid_unknown_fields=True):
    add: list[AclRow] = []
    remove: list[AclRow] = []


class EffectRow(msgspec.Struct, frozen=True):
    """An operation that a change would allow (`is_allowed`) or deny."""

    principal: str
    host: str
    operation: str
    resource_type: str
    name: str
    is_allowed: bool


class AclPreview(msgspec.Struct, frozen=True):
    """`lost`: rights on the cluster that the console itself would lose."""

    effects: list[EffectRow]
    is_all: bool
    lost: list[str]


class AclQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """May `principal` do this from `host`? An empty host stands for no particular one."""

    principal: str
    operation: OperationWord
    resource_type: ResourceWord
    name: str
    host: str = ""


class CureRow(msgspec.Struct, frozen=True):
    """A rule to add or remove, and the equivalent command."""

    action: str
    rule: AclRow
    command: str


class Answered(msgspec.Struct, frozen=True):
    """`reason` is SUPER_USER, RULE (`rule` decides), NO_RULES (and the broker allows access without rules) or
    NOTHING_ALLOWS. `cures` together reverse the answer. Apache Kafka does not report its super users: then
    NOTHING_ALLOWS is only valid for other principals.
    """

    is_allowed: bool
    reason: str
    rule: AclRow | None
    cures: list[CureRow]
    are_super_users_known: bool


async def list_acls(call: Call) -> AclList:
    rows, unavailable = await call.query_if_available(all_acls)
    return AclList(rows[:SHOWN_MAX], len(rows) <= SHOWN_MAX, OPERATIONS, ROLES, unavailable)


async def add_acls(call: Call) -> AclRules:
    wanted = _bindings(call.body.rules)

    def add(client: Client) -> list[AclBinding]:
        known = set(describe_acls(client, AclFilter()))
        call.audit(_audit_target(wanted), _audit_rows([each for each in wanted if each in known]), _audit_rows(wanted))
        create_acls(client, wanted)
        wait_until(lambda: known.union(describe_acls(client, AclFilter())).issuperset(wanted))
        return [each for each in wanted if each not in known]

    return AclRules([row_of(each) for each in await call.cluster.change(add)])


async def remove_acls(call: Call) -> AclRules:
    body: AclDeletion = call.body
    wanted = _bindings(body.rules)
    properties = _properties(call)

    def remove(client: Client) -> list[AclBinding]:
        call.audit(_audit_target(wanted), _audit_rows(wanted))
        known = set(describe_acls(client, AclFilter()))
        missing = sum(each not in known for each in wanted)
        if missing:
            raise conflict("CHANGED_MEANWHILE", "{0} of these rules no longer exist: reload the list", missing)
        authorizer = load_authorizer(client, known)
        lost = lost_rights(Caller(properties), authorizer, changed_acls(authorizer.acls, (), wanted))
        if lost and not body.may_lose_own_rights:
            words = "the console could no longer change rules: {0}"
            raise conflict("OWN_RIGHTS", words, "; ".join(lost))
        gone = delete_acls(client, [acl_filter(*binding) for binding in wanted])
        wait_until(lambda: not set(gone).intersection(describe_acls(client, AclFilter())))
        return gone

    return AclRules([row_of(each) for each in await call.cluster.change(remove)])


async def preview(call: Call) -> AclPreview:
    body: AclChange = call.body
    if len(body.add) + len(body.remove) > RULES_MAX:
        raise bad_request(TOO_MANY, RULES_MAX)
    added, removed = [_binding(row) for row in body.add], [_binding(row) for row in body.remove]
    properties = _properties(call)
    snapshot = call.snapshot
    existing = {ResourceType.TOPIC: list(snapshot.topics), ResourceType.GROUP: list(snapshot.groups)}

    def work_out(client: Client) -> AclPreview:
        before = load_authorizer(client, describe_acls(client, AclFilter()))
        found, is_all = changed_decisions(before, added, removed, existing)
        after = changed_acls(before.acls, added, removed)
        shown = [_effect_row(each) for each in found[:EFFECTS_MAX]]
        return AclPreview(shown, is_all and len(shown) == len(found), lost_rights(Caller(properties), before, after))

    return await call.cluster.query(work_out)


async def explain(call: Call) -> Answered:
    body: AclQuestion = call.body
    resource_type = ResourceType[body.resource_type]
    name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else _checked_text("name", body.name)
    question = AuthorizationRequest(
        _principal(body.principal), Operation[body.operation], resource_type, name, body.host
    )
    _check_operation(resource_type, question.operation)

    def answer(client: Client) -> Answered:
        settings = broker_settings(client)
        authorizer = make_authorizer(settings, describe_acls(client, AclFilter()))
        return explain_answer(question, authorizer, SUPER_USERS in settings)

    return await call.cluster.query(answer)


def explain_answer(question: AuthorizationRequest, authorizer: Authorizer, are_super_users_known: bool) -> Answered:
    found = authorizer.explain(*question.authorize_arguments)
    steps = [_cure_row(step) for step in changes_to_reverse(question, authorizer)]
    rule = row_of(found.binding) if found.binding else None
    return Answered(found.is_allowed, _reason(found), rule, steps, are_super_users_known)


def all_acls(client: Client) -> list[AclRow]:
    """At most one row more than are shown. Made in the calling thread: ten thousand would block the event loop."""
    return [row_of(each) for each in sorted(describe_acls(client, AclFilter()))[: SHOWN_MAX + 1]]


def row_of(binding: AclBinding) -> AclRow:
    pattern, entry = binding
    row = {
        "resource_type": pattern.resource_type.name,
        "name": pattern.name,
        "pattern_type": pattern.pattern_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission": entry.permission.name,
    }
    return AclRow(**row)  # type: ignore[arg-type]  # a newer broker may have unknown values


TOO_MANY = "name 1 to {0} rules"
OPERATIONS = {
    kind.name: [Operation.ALL.name, *(each.name for each in operations)]
    for kind, operations in SUPPORTED_OPERATIONS.items()
}
ROLES = {
    role: {kind.name: [each.name for each in operations] for kind, operations in needed.items()}
    for role, needed in (("producer", PRODUCER_OPERATIONS), ("consumer", CONSUMER_OPERATIONS))
}


def _bindings(rows: Sequence[AclRow]) -> list[AclBinding]:
    if not 0 < len(rows) <= RULES_MAX:
        raise bad_request(TOO_MANY, RULES_MAX)
    return list(dict.fromkeys(_binding(row) for row in rows))


def _binding(row: AclRow) -> AclBinding:
    resource_type, operation = ResourceType[row.resource_type], Operation[row.operation]
    _check_operation(resource_type, operation)
    name = _checked_text("name", row.name)
    if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise bad_request("the name of the cluster resource is {0}", CLUSTER_NAME)
    entry = AccessControlEntry(
        _principal(row.principal), _checked_text("host", row.host), operation, Permission[row.permission]
    )
    return AclBinding(ResourcePattern(resource_type, name, PatternType[row.pattern_type]), entry)


def _check_operation(resource_type: ResourceType, operation: Operation) -> None:
    if operation_problem(resource_type, operation) is not None:
        raise bad_request("rules for {0} do not support {1}", resource_type.name, operation.name)


def _principal(text: str) -> str:
    try:
        return parse_principal(_checked_text("principal", text))
    except ValueError:
        raise bad_request("a principal has a type, as in User:alice: {0} has none", text) from None


def _checked_text(what: str, text: str) -> str:
    if not 0 < len(text) <= TEXT_LENGTH_MAX:
        raise bad_request("{0} has 1 to {1} characters", what, TEXT_LENGTH_MAX)
    return text


def _properties(call: Call) -> Mapping[str, str]:
    return read_properties(call.cluster.address.properties)


def _audit_target(bindings: Sequence[AclBinding]) -> str:
    """The principals and resources of rules, for the audit trail."""
    names = sorted({f"{pattern.resource_type.name.lower()} {pattern.name}" for pattern, _ in bindings})
    who = sorted({entry.principal for _, entry in bindings})
    return f"rules of {_join_some(who)} about {_join_some(names)}"


def _join_some(words: Sequence[str], most: int = 3) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _audit_rows(bindings: Sequence[AclBinding]) -> list[AclRow] | None:
    return [row_of(each) for each in bindings] or None


def _effect_row(effect: ChangedDecision) -> EffectRow:
    asked = effect.question
    return EffectRow(
        asked.principal,
        asked.host or WILDCARD,
        asked.operation.name,
        asked.resource_type.name,
        asked.name,
        effect.after.is_allowed,
    )


def _reason(found: Explanation) -> str:
    if found.binding is not None:
        return "RULE"
    if found.rule == "SuperUser":
        return "SUPER_USER"
    return "NO_RULES" if found.is_allowed else "NOTHING_ALLOWS"


def _cure_row(step: evaluation.SuggestedAclChange) -> CureRow:
    return CureRow(step.action, row_of(step.binding), acl_command(*step))
