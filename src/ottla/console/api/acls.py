"""Access rules: list, add and delete them; what a change would mean; why somebody may do something, or not.

Rules:
1. Rights are the business of admins, to look at as well as to change: the list says where a cluster is open.
2. A rule that somebody else has taken away meanwhile is not "deleted": the caller is told (409).
3. A change that would take the console's own right to change rules away is refused unless the body says that it may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ottla.base.properties import read_properties
from ottla.base.security import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.client.acls import create_acls, delete_acls, describe_acls
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.console.api.call import Call
from ottla.console.api.errors import bad_request, conflict
from ottla.console.api.settling import wait_until
from ottla.console.api.unavailable import Unavailable, why_unavailable
from ottla.operations.acls.effects import Effect, changed_acls, effects
from ottla.operations.acls.explaining import Question, Step, command, cures
from ottla.operations.acls.own_rights import Caller, lost_rights
from ottla.operations.acls.reading import SUPER_USERS, authorizer_by, authorizer_of, settings_of
from ottla.operations.acls.wishes import CONSUMER, PRODUCER, filter_of, operation_problem, parse_principal
from ottla.security.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern
from ottla.security.authorizer import Authorizer, Explanation

SHOWN_MAX = 10_000
RULES_MAX = 500  # in one change
EFFECTS_MAX = 500  # that are told
LENGTH_MAX = 1_000  # of a principal, a name, a host
ResourceWord = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
OperationWord = Literal[
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
]  # fmt: skip


class AclRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule, in the words of Kafka's AclBinding."""

    resource_type: ResourceWord
    name: str
    pattern_type: Literal["LITERAL", "PREFIXED"] = "LITERAL"
    principal: str
    host: str = WILDCARD
    operation: OperationWord
    permission: Literal["ALLOW", "DENY"] = "ALLOW"


class AclList(msgspec.Struct, frozen=True):
    """`operations` says what a rule about such a resource can be about, `roles` what a producer and a consumer need."""

    rules: list[AclRow]
    is_all: bool
    operations: dict[str, list[str]]
    roles: dict[str, dict[str, list[str]]]
    unavailable: Unavailable | None = None


class AclRules(msgspec.Struct, forbid_unknown_fields=True):
    rules: list[AclRow]


class AclDeletion(AclRules, forbid_unknown_fields=True):
    """Without `may_lose_own_rights` nothing is deleted that the console itself needs to change rules."""

    may_lose_own_rights: bool = False


class AclChange(msgspec.Struct, forbid_unknown_fields=True):
    add: list[AclRow] = []
    remove: list[AclRow] = []


class EffectRow(msgspec.Struct, frozen=True):
    """Who may do what after a change (`is_allowed`), and could not before; or the other way round."""

    principal: str
    host: str
    operation: str
    resource_type: str
    name: str
    is_allowed: bool


class AclPreview(msgspec.Struct, frozen=True):
    """`lost` are rights on the cluster that the console would not have any more."""

    effects: list[EffectRow]
    is_all: bool
    lost: list[str]


class AclQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """May `principal` do this, from `host`; without one, from nowhere in particular."""

    principal: str
    operation: OperationWord
    resource_type: ResourceWord
    name: str
    host: str = ""


class CureRow(msgspec.Struct, frozen=True):
    """A rule to add or remove, and the command that does it."""

    action: str
    rule: AclRow
    command: str


class Answered(msgspec.Struct, frozen=True):
    """`reason` is SUPER_USER, RULE (`rule` decides), NO_RULES (and the broker allows what has none) or NOTHING_ALLOWS.
    `cures` turn the answer around, one after the other. Apache Kafka does not tell its super users: then NOTHING_ALLOWS
    is true only for somebody who is none of them.
    """

    is_allowed: bool
    reason: str
    rule: AclRow | None
    cures: list[CureRow]
    are_super_users_known: bool


async def list_acls(call: Call) -> AclList:
    try:
        rows, is_all = await call.cluster.ask_seldom(all_acls)
    except ClientError as problem:
        return AclList([], True, OPERATIONS, ROLES, why_unavailable(problem))
    return AclList(rows, is_all, OPERATIONS, ROLES)


async def add_acls(call: Call) -> AclRules:
    wanted = _bindings(call.body.rules)

    def add(client: Client) -> list[AclBinding]:
        known = set(describe_acls(client, AclFilter()))
        call.note(_target(wanted), _noted([each for each in wanted if each in known]), _noted(wanted))
        create_acls(client, wanted)
        wait_until(lambda: known.union(describe_acls(client, AclFilter())).issuperset(wanted))
        return [each for each in wanted if each not in known]

    return AclRules([row_of(each) for each in await call.cluster.change(add)])


async def remove_acls(call: Call) -> AclRules:
    body: AclDeletion = call.body
    wanted = _bindings(body.rules)
    properties = _properties(call)

    def remove(client: Client) -> list[AclBinding]:
        call.note(_target(wanted), _noted(wanted))
        known = set(describe_acls(client, AclFilter()))
        missing = sum(each not in known for each in wanted)
        if missing:
            raise conflict("CHANGED_MEANWHILE", "{0} of these rules are gone by now: look again", missing)
        authorizer = authorizer_of(client, known)
        lost = lost_rights(Caller(properties), authorizer, changed_acls(authorizer.acls, (), wanted))
        if lost and not body.may_lose_own_rights:
            words = "the console could not change rules any more: {0}"
            raise conflict("OWN_RIGHTS", words, "; ".join(lost))
        gone = delete_acls(client, [filter_of(*binding) for binding in wanted])
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
        before = authorizer_of(client, describe_acls(client, AclFilter()))
        found, is_all = effects(before, added, removed, existing)
        after = changed_acls(before.acls, added, removed)
        shown = [_effect(each) for each in found[:EFFECTS_MAX]]
        return AclPreview(shown, is_all and len(shown) == len(found), lost_rights(Caller(properties), before, after))

    return await call.cluster.ask(work_out)


async def explain(call: Call) -> Answered:
    body: AclQuestion = call.body
    resource_type = ResourceType[body.resource_type]
    name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else _text("name", body.name)
    question = Question(_principal(body.principal), Operation[body.operation], resource_type, name, body.host)
    _check_operation(resource_type, question.operation)

    def answer(client: Client) -> Answered:
        settings = settings_of(client)
        authorizer = authorizer_by(settings, describe_acls(client, AclFilter()))
        return answered(question, authorizer, SUPER_USERS in settings)

    return await call.cluster.ask(answer)


def answered(question: Question, authorizer: Authorizer, are_super_users_known: bool) -> Answered:
    found = authorizer.explain(*question.asked)
    steps = [_cure(step) for step in cures(question, authorizer)]
    rule = row_of(found.binding) if found.binding else None
    return Answered(found.is_allowed, _reason(found), rule, steps, are_super_users_known)


def all_acls(client: Client) -> tuple[list[AclRow], bool]:
    """In the thread that asks: rows of ten thousand rules are not made on the loop."""
    found = sorted(describe_acls(client, AclFilter()))
    return [row_of(each) for each in found[:SHOWN_MAX]], len(found) <= SHOWN_MAX


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
    return AclRow(**row)  # type: ignore[arg-type]  # a broker that is newer may have words that we do not know


TOO_MANY = "name 1 to {0} rules"
OPERATIONS = {
    kind.name: [Operation.ALL.name, *(each.name for each in operations)] for kind, operations in OPERATIONS_OF.items()
}
ROLES = {
    role: {kind.name: [each.name for each in operations] for kind, operations in needed.items()}
    for role, needed in (("producer", PRODUCER), ("consumer", CONSUMER))
}


def _bindings(rows: Sequence[AclRow]) -> list[AclBinding]:
    if not 0 < len(rows) <= RULES_MAX:
        raise bad_request(TOO_MANY, RULES_MAX)
    return list(dict.fromkeys(_binding(row) for row in rows))


def _binding(row: AclRow) -> AclBinding:
    resource_type, operation = ResourceType[row.resource_type], Operation[row.operation]
    _check_operation(resource_type, operation)
    name = _text("name", row.name)
    if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise bad_request("the cluster as a resource is called {0}", CLUSTER_NAME)
    entry = AccessControlEntry(
        _principal(row.principal), _text("host", row.host), operation, Permission[row.permission]
    )
    return AclBinding(ResourcePattern(resource_type, name, PatternType[row.pattern_type]), entry)


def _check_operation(resource_type: ResourceType, operation: Operation) -> None:
    if operation_problem(resource_type, operation) is not None:
        raise bad_request("no rule about {0} can be about {1}", resource_type.name, operation.name)


def _principal(text: str) -> str:
    try:
        return parse_principal(_text("principal", text))
    except ValueError:
        raise bad_request("write who it is with his kind, as in User:alice: {0} has none", text) from None


def _text(what: str, text: str) -> str:
    if not 0 < len(text) <= LENGTH_MAX:
        raise bad_request("{0} has 1 to {1} characters", what, LENGTH_MAX)
    return text


def _properties(call: Call) -> Mapping[str, str]:
    return read_properties(call.cluster.address.properties)


def _target(bindings: Sequence[AclBinding]) -> str:
    """Whom and what it is about, for the trail."""
    names = sorted({f"{pattern.resource_type.name.lower()} {pattern.name}" for pattern, _ in bindings})
    who = sorted({entry.principal for _, entry in bindings})
    return f"rules of {_some(who)} about {_some(names)}"


def _some(words: Sequence[str], most: int = 3) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _noted(bindings: Sequence[AclBinding]) -> list[AclRow] | None:
    return [row_of(each) for each in bindings] or None


def _effect(effect: Effect) -> EffectRow:
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


def _cure(step: Step) -> CureRow:
    return CureRow(step.action, row_of(step.binding), command(*step))
