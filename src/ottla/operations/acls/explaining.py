"""Why somebody may do something or may not, and which rules he would need: in words for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.base.security import (
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.operations.acls.wishes import CLUSTER, words_of
from ottla.security.acls import AccessControlEntry, AclBinding, ResourcePattern, is_for
from ottla.security.authorizer import Authorizer, Explanation
from ottla.security.denials import Denial

STEPS_MAX: Final = 20  # that are told
ADD, REMOVE = "add", "remove"
OPTIONS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}


class Question(NamedTuple):
    """What somebody wants to do."""

    principal: str
    operation: Operation
    resource_type: ResourceType
    name: str
    host: str = ""  # "": from nowhere in particular; only rules about any host count

    @property
    def asked(self) -> tuple[str, str, Operation, ResourceType, str]:
        return self.principal, self.host, self.operation, self.resource_type, self.name


def kind_of(resource_type: ResourceType) -> str:
    return resource_type.name.lower().replace("_", " ")


def command(action: str, binding: AclBinding) -> str:
    """The command that adds or removes a rule."""
    pattern, entry = binding
    parts = ["ottla acls", action]
    parts.append(f"--{'allow' if entry.permission is Permission.ALLOW else 'deny'} {quoted(entry.principal)}")
    parts.append(f"--operation {words_of(entry.operation)}")
    parts.append("--cluster" if pattern == CLUSTER else f"{OPTIONS[pattern.resource_type]} {quoted(pattern.name)}")
    if pattern.pattern_type is PatternType.PREFIXED:
        parts.append("--prefixed")
    if entry.host != WILDCARD:
        parts.append(f"--host {quoted(entry.host)}")
    return " ".join(parts)


def quoted(text: str) -> str:
    from shlex import quote  # noqa: PLC0415 (only where something is printed)

    return quote(text)


class Step(NamedTuple):
    """A rule to add or to remove."""

    action: str
    binding: AclBinding


def cures(question: Question, authorizer: Authorizer) -> list[Step]:
    """What turns the answer around, one step after the other; nothing if no rule can."""
    rules = {pattern: set(entries) for pattern, entries in authorizer.acls.items()}
    before = authorizer.explain(*question.asked).is_allowed
    steps: list[Step] = []
    for _ in range(STEPS_MAX):
        trial = Authorizer(
            {pattern: frozenset(entries) for pattern, entries in rules.items() if entries},
            authorizer.super_users,
            allows_without_rules=authorizer.allows_without_rules,
        )
        found = trial.explain(*question.asked)
        if found.is_allowed is not before:
            break
        if found.binding is not None:
            steps.append(Step(REMOVE, found.binding))
            rules[found.binding.pattern].remove(found.binding.entry)
        elif found.is_allowed:
            return []
        else:
            host = question.host or WILDCARD
            entry = AccessControlEntry(question.principal, host, question.operation, Permission.ALLOW)
            binding = AclBinding(ResourcePattern(question.resource_type, question.name), entry)
            steps.append(Step(ADD, binding))
            rules.setdefault(binding.pattern, set()).add(entry)
    return steps


def reason(question: Question, explanation: Explanation) -> str:
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
    kind = kind_of(pattern.resource_type)
    name = f"{kind} {pattern.name}"
    if pattern.pattern_type is PatternType.PREFIXED:
        name = f"each {kind} that begins with {pattern.name}"
    elif pattern.name == WILDCARD:
        name = f"each {kind}"
    host = "" if entry.host == WILDCARD else f" from {entry.host}"
    return f"{entry.principal} {verb} {words_of(entry.operation)} {name}{host}"


def answer_lines(question: Question, explanation: Explanation, commands: Iterable[str]) -> list[str]:
    verb = "may" if explanation.is_allowed else "may not"
    what = f"{words_of(question.operation)} {kind_of(question.resource_type)} {question.name}"
    lines = [f"{'yes' if explanation.is_allowed else 'no'}: {question.principal} {verb} {what}"]
    lines.append(f"because: {reason(question, explanation)}")
    lines += [f"to change that: {each}" for each in commands]
    return lines


# ---- suggesting


def suggestions(denials: Iterable[Denial]) -> list[AclBinding]:
    """The fewest rules that would have allowed what was noted, each about one resource and from any host."""
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
            operations.discard(Operation.IDEMPOTENT_WRITE)  # whoever may write to any topic needs no such right
        found += [AclBinding(pattern, entry) for entry in without_implied(principal, operations)]
    return found


def without_implied(principal: str, operations: Iterable[Operation]) -> list[AccessControlEntry]:
    """Who may read or write may also describe."""
    entries = [AccessControlEntry(principal, WILDCARD, each, Permission.ALLOW) for each in sorted(operations)]
    return [
        entry
        for entry in entries
        if not any(other != entry and is_for(other, WILDCARD, entry.operation) for other in entries)
    ]
