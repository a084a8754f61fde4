"""Authorization decisions explained: why a request is allowed or denied, and which ACLs would change that. Pure.

Rules for `effects`, which lists the decisions that a change of ACLs turns around:
1. It checks every existing resource that a changed ACL covers. If there is none (a name that does not exist yet, a
   prefix, a wildcard), it checks the name in the ACL.
2. A wildcard ACL is checked for each principal that any ACL names, and for one that no ACL names.
3. Implied operations (IMPLYING: READ and WRITE imply DESCRIBE) are checked too.

`lost_rights` guards against lock-out. Kafka does not tell a client its principal, so it is derived from the client's
properties. Where only the broker knows it (certificates, tickets, tokens), every principal that has the right now is
checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.broker_keys.security import parse_principals
from ottla.base.security import (
    ANONYMOUS,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.client.client import Client
from ottla.client.configs import Resource, describe_configs
from ottla.operations.acls.acl_entries import CLUSTER, operation_word
from ottla.security.acls import (
    IMPLYING_OPERATIONS,
    AccessControlEntry,
    AclBinding,
    Acls,
    ResourcePattern,
    applies_to,
    group_by_pattern,
    matches_name,
)
from ottla.security.authorizer import ANY_RESOURCE_NAME, Authorizer, Explanation
from ottla.security.client_protocol import client_principal, security_protocol
from ottla.security.denial_log import Denial
from ottla.security.jaas import JAAS_CONFIG
from ottla.security.sasl.client_authenticator import mechanism_of

STEPS_MAX: Final = 20  # in one explanation
ADD, REMOVE = "add", "remove"
OPTIONS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}


class AuthorizationRequest(NamedTuple):
    """An authorization request."""

    principal: str
    operation: Operation
    resource_type: ResourceType
    name: str
    host: str = ""  # "": an unknown host; only ACLs for all hosts apply

    @property
    def authorize_arguments(self) -> tuple[str, str, Operation, ResourceType, str]:
        return self.principal, self.host, self.operation, self.resource_type, self.name


def resource_type_text(resource_type: ResourceType) -> str:
    return resource_type.name.lower().replace("_", " ")


def acl_command(action: str, binding: AclBinding) -> str:
    """The command that adds or removes an ACL."""
    pattern, entry = binding
    parts = ["ottla acls", action]
    parts.append(f"--{'allow' if entry.permission is Permission.ALLOW else 'deny'} {quoted(entry.principal)}")
    parts.append(f"--operation {operation_word(entry.operation)}")
    parts.append("--cluster" if pattern == CLUSTER else f"{OPTIONS[pattern.resource_type]} {quoted(pattern.name)}")
    if pattern.pattern_type is PatternType.PREFIXED:
        parts.append("--prefixed")
    if entry.host != WILDCARD:
        parts.append(f"--host {quoted(entry.host)}")
    return " ".join(parts)


def quoted(text: str) -> str:
    from shlex import quote  # noqa: PLC0415 (only where something is printed)

    return quote(text)


class SuggestedAclChange(NamedTuple):
    """An ACL to add or to remove."""

    action: str
    binding: AclBinding


def changes_to_reverse(question: AuthorizationRequest, authorizer: Authorizer) -> list[SuggestedAclChange]:
    """The ACL changes that turn the decision around, in order; empty if no change can."""
    rules = {pattern: set(entries) for pattern, entries in authorizer.acls.items()}
    before = authorizer.explain(*question.authorize_arguments).is_allowed
    steps: list[SuggestedAclChange] = []
    for _ in range(STEPS_MAX):
        trial = Authorizer(
            {pattern: frozenset(entries) for pattern, entries in rules.items() if entries},
            authorizer.super_users,
            allows_without_rules=authorizer.allows_without_rules,
        )
        found = trial.explain(*question.authorize_arguments)
        if found.is_allowed is not before:
            break
        if found.binding is not None:
            steps.append(SuggestedAclChange(REMOVE, found.binding))
            rules[found.binding.pattern].remove(found.binding.entry)
        elif found.is_allowed:
            return []
        else:
            host = question.host or WILDCARD
            entry = AccessControlEntry(question.principal, host, question.operation, Permission.ALLOW)
            binding = AclBinding(ResourcePattern(question.resource_type, question.name), entry)
            steps.append(SuggestedAclChange(ADD, binding))
            rules.setdefault(binding.pattern, set()).add(entry)
    return steps


def decision_reason(question: AuthorizationRequest, explanation: Explanation) -> str:
    if explanation.binding is not None:
        return rule_text(explanation.binding)
    if explanation.rule == "SuperUser":
        return f"{question.principal} is among super.users, and rules do not matter"
    if explanation.is_allowed:
        return "no rule is about this resource, and allow.everyone.if.no.acl.found is true"
    return "no rule allows it"


def rule_text(binding: AclBinding) -> str:
    pattern, entry = binding
    verb = "may" if entry.permission is Permission.ALLOW else "may not"
    kind = resource_type_text(pattern.resource_type)
    name = f"{kind} {pattern.name}"
    if pattern.pattern_type is PatternType.PREFIXED:
        name = f"each {kind} that begins with {pattern.name}"
    elif pattern.name == WILDCARD:
        name = f"each {kind}"
    host = "" if entry.host == WILDCARD else f" from {entry.host}"
    return f"{entry.principal} {verb} {operation_word(entry.operation)} {name}{host}"


def answer_lines(question: AuthorizationRequest, explanation: Explanation, commands: Iterable[str]) -> list[str]:
    verb = "may" if explanation.is_allowed else "may not"
    what = f"{operation_word(question.operation)} {resource_type_text(question.resource_type)} {question.name}"
    lines = [f"{'yes' if explanation.is_allowed else 'no'}: {question.principal} {verb} {what}"]
    lines.append(f"because: {decision_reason(question, explanation)}")
    lines += [f"to change that: {each}" for each in commands]
    return lines


# ---- suggestions


def suggest_acls(denials: Iterable[Denial]) -> list[AclBinding]:
    """The fewest ACLs that would have allowed the denied requests, each for one resource and any host."""
    wanted: dict[tuple[str, ResourcePattern], set[Operation]] = {}
    for denial in denials:
        pattern = ResourcePattern(denial.resource_type, denial.name)
        wanted.setdefault((denial.principal, pattern), set()).add(denial.operation)
    writers = {
        principal
        for (principal, pattern), operations in wanted.items()
        if pattern.resource_type is ResourceType.TOPIC and Operation.WRITE in operations
    }
    found = []
    for (principal, pattern), operations in sorted(wanted.items()):
        if principal in writers and pattern == CLUSTER:
            operations.discard(Operation.IDEMPOTENT_WRITE)  # WRITE on any topic implies it
        found += [AclBinding(pattern, entry) for entry in without_implied(principal, operations)]
    return found


def without_implied(principal: str, operations: Iterable[Operation]) -> list[AccessControlEntry]:
    """READ and WRITE imply DESCRIBE."""
    entries = [AccessControlEntry(principal, WILDCARD, each, Permission.ALLOW) for each in sorted(operations)]
    return [
        entry
        for entry in entries
        if not any(other != entry and applies_to(other, WILDCARD, entry.operation) for other in entries)
    ]


# ---- effects of a change
CHECKS_MAX: Final = 20_000  # takes about a second
ExistingResources = Mapping[ResourceType, Sequence[str]]  # of existing resources


class ChangedDecision(NamedTuple):
    """A decision that the change turns around. `name` is * if the ACL covers only names that do not exist."""

    question: AuthorizationRequest
    before: Explanation
    after: Explanation


class ChangedDecisions(NamedTuple):
    """The changed decisions. `is_complete` is False if there were more than QUESTIONS_MAX to check."""

    found: list[ChangedDecision]
    is_complete: bool


def changed_decisions(
    before: Authorizer, added: Iterable[AclBinding], removed: Iterable[AclBinding], existing: ExistingResources
) -> ChangedDecisions:
    added, removed = list(added), list(removed)
    after = Authorizer(
        changed_acls(before.acls, added, removed),
        before.super_users,
        allows_without_rules=before.allows_without_rules,
    )
    found: list[ChangedDecision] = []
    principals = {entry.principal for acls in (before.acls, after.acls) for each in acls.values() for entry in each}
    for number, question in enumerate(_requests_to_check([*added, *removed], sorted(principals), existing)):
        if number >= CHECKS_MAX:
            return ChangedDecisions(found, is_complete=False)
        was, will = before.explain(*question.authorize_arguments), after.explain(*question.authorize_arguments)
        if was.is_allowed != will.is_allowed:
            shown = question._replace(name=WILDCARD) if question.name == ANY_RESOURCE_NAME else question
            found.append(ChangedDecision(shown, was, will))
    return ChangedDecisions(found, is_complete=True)


def changed_acls(acls: Acls, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> Acls:
    rules = {pattern: set(entries) for pattern, entries in acls.items()}
    for pattern, entry in removed:
        rules.get(pattern, set()).discard(entry)
    for pattern, entry in added:
        rules.setdefault(pattern, set()).add(entry)
    return {pattern: frozenset(entries) for pattern, entries in rules.items() if entries}


def _requests_to_check(
    changed: Sequence[AclBinding], principals: Sequence[str], existing: ExistingResources
) -> Iterator[AuthorizationRequest]:
    asked: set[AuthorizationRequest] = set()
    for pattern, entry in changed:
        host = "" if entry.host == WILDCARD else entry.host
        who = principals if entry.principal == WILDCARD_PRINCIPAL else [entry.principal]
        for operation in _operations(pattern.resource_type, entry.operation, entry.permission):
            for name in _names(pattern, existing):
                for principal in who:
                    question = AuthorizationRequest(principal, operation, pattern.resource_type, name, host)
                    if question not in asked:
                        asked.add(question)
                        yield question


def _operations(resource_type: ResourceType, operation: Operation, permission: Permission) -> list[Operation]:
    known = SUPPORTED_OPERATIONS.get(resource_type, ())
    if operation is Operation.ALL:
        return list(known)
    follows = [each for each, by in IMPLYING_OPERATIONS.items() if operation in by and permission is Permission.ALLOW]
    return list(dict.fromkeys([operation, *map(Operation, follows)]))


def _names(pattern: ResourcePattern, existing: ExistingResources) -> list[str]:
    if pattern.pattern_type is PatternType.LITERAL and pattern.name != WILDCARD:
        return [pattern.name]
    found = [name for name in existing.get(pattern.resource_type, ()) if matches_name(pattern, name)]
    return found or [ANY_RESOURCE_NAME if pattern.name == WILDCARD else pattern.name]


# ---- lock-out of the caller
ADMIN_OPERATIONS: Final = (Operation.ALTER, Operation.ALTER_CONFIGS)  # to change ACLs and users, and to change quotas
NAME_BASED_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Caller:
    """The principal of this client; None if its properties do not determine it."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        is_login = security_protocol(properties).startswith("SASL_")
        self.mechanism = mechanism_of(properties) if is_login else None
        principal = client_principal(properties)
        is_token = "tokenauth" in properties.get(JAAS_CONFIG, "")  # then the name is that of the token
        is_certain = (self.mechanism in NAME_BASED_MECHANISMS and not is_token) or principal == ANONYMOUS
        self.principal = principal if is_certain else None

    def __repr__(self) -> str:
        return f"<Caller {self.principal or 'unknown'}>"


def lost_rights(caller: Caller, before: Authorizer, after: Acls) -> list[str]:
    """The caller's rights on the cluster that `after` removes, as text."""
    then = Authorizer(after, before.super_users, allows_without_rules=before.allows_without_rules)
    rules = before.acls.get(CLUSTER, frozenset())
    hosts = {"" if entry.host == WILDCARD else entry.host for entry in rules} | {""}
    may_be = [caller.principal] if caller.principal is not None else sorted({entry.principal for entry in rules})
    found = []
    for principal in may_be:
        for operation in ADMIN_OPERATIONS:
            questions = [(principal, host, operation, *CLUSTER[:2]) for host in hosts]
            if any(before.explain(*each).is_allowed and not then.explain(*each).is_allowed for each in questions):
                found.append(f"{principal} may {operation_word(operation)} the cluster")
    return found


# ---- the ACLs of a cluster
SUPER_USERS: Final = "super.users"


def load_authorizer(client: Client, bindings: Iterable[AclBinding]) -> Authorizer:
    """An authorizer with these ACLs and the broker's settings. Apache Kafka does not return its super users."""
    return make_authorizer(broker_settings(client), bindings)


def broker_settings(client: Client) -> dict[str, str]:
    """The settings of one broker. SUPER_USERS is missing if the broker does not return it."""
    brokers = client.cluster().brokers
    configs = describe_configs(client, Resource.BROKER, [str(brokers[0].node_id)]) if brokers else {}
    return {config.name: config.value or "" for found in configs.values() for config in found}


def make_authorizer(settings: Mapping[str, str], bindings: Iterable[AclBinding]) -> Authorizer:
    return Authorizer(
        group_by_pattern(bindings),
        parse_principals(settings.get(SUPER_USERS, "")),
        allows_without_rules=settings.get("allow.everyone.if.no.acl.found", "") == "true",
    )
