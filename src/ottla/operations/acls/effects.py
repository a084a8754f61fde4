"""What a change of access rules changes: who may do something then that he may not now, and the other way. Pure.

Rules:
1. Asked is about every resource that exists and that a changed rule is about; where there is none (a name that is not
   there yet, the prefix itself, any name), about the name of the rule.
2. A rule about anybody is asked for everybody whom some rule names, and for somebody whom none names.
3. Whoever may read may describe: what follows from a rule (IMPLYING) is asked about, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.security import ANYBODY, OPERATIONS_OF, WILDCARD, Operation, PatternType, Permission, ResourceType
from ottla.operations.acls.explaining import Question
from ottla.security.acls import IMPLYING, AclBinding, Acls, ResourcePattern, is_about
from ottla.security.authorizer import ANY_NAME, Authorizer, Explanation

QUESTIONS_MAX: Final = 20_000  # about a second
Names = Mapping[ResourceType, Sequence[str]]  # of resources that exist


class Effect(NamedTuple):
    """Somebody may do something, or may not any more. `name` is * where the rule is about names that are not there."""

    question: Question
    before: Explanation
    after: Explanation


class Effects(NamedTuple):
    """What changes; `is_all` False: there were too many questions to ask them all."""

    found: list[Effect]
    is_all: bool


def effects(before: Authorizer, added: Iterable[AclBinding], removed: Iterable[AclBinding], existing: Names) -> Effects:
    added, removed = list(added), list(removed)
    after = Authorizer(
        changed_acls(before.acls, added, removed),
        before.super_users,
        allows_without_rules=before.allows_without_rules,
    )
    found: list[Effect] = []
    principals = {entry.principal for acls in (before.acls, after.acls) for each in acls.values() for entry in each}
    for number, question in enumerate(_questions([*added, *removed], sorted(principals), existing)):
        if number >= QUESTIONS_MAX:
            return Effects(found, is_all=False)
        was, will = before.explain(*question.asked), after.explain(*question.asked)
        if was.is_allowed != will.is_allowed:
            shown = question._replace(name=WILDCARD) if question.name == ANY_NAME else question
            found.append(Effect(shown, was, will))
    return Effects(found, is_all=True)


def changed_acls(acls: Acls, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> Acls:
    rules = {pattern: set(entries) for pattern, entries in acls.items()}
    for pattern, entry in removed:
        rules.get(pattern, set()).discard(entry)
    for pattern, entry in added:
        rules.setdefault(pattern, set()).add(entry)
    return {pattern: frozenset(entries) for pattern, entries in rules.items() if entries}


def _questions(changed: Sequence[AclBinding], principals: Sequence[str], existing: Names) -> Iterator[Question]:
    asked: set[Question] = set()
    for pattern, entry in changed:
        host = "" if entry.host == WILDCARD else entry.host
        who = principals if entry.principal == ANYBODY else [entry.principal]
        for operation in _operations(pattern.resource_type, entry.operation, entry.permission):
            for name in _names(pattern, existing):
                for principal in who:
                    question = Question(principal, operation, pattern.resource_type, name, host)
                    if question not in asked:
                        asked.add(question)
                        yield question


def _operations(resource_type: ResourceType, operation: Operation, permission: Permission) -> list[Operation]:
    known = OPERATIONS_OF.get(resource_type, ())
    if operation is Operation.ALL:
        return list(known)
    follows = [each for each, by in IMPLYING.items() if operation in by and permission is Permission.ALLOW]
    return list(dict.fromkeys([operation, *map(Operation, follows)]))


def _names(pattern: ResourcePattern, existing: Names) -> list[str]:
    if pattern.pattern_type is PatternType.LITERAL and pattern.name != WILDCARD:
        return [pattern.name]
    found = [name for name in existing.get(pattern.resource_type, ()) if is_about(pattern, name)]
    return found or [ANY_NAME if pattern.name == WILDCARD else pattern.name]
