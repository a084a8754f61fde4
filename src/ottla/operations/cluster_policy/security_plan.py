"""Compares the users, ACLs and quotas of a file with those of a cluster, and runs the changes as steps.

Rules:
1. Only differences are changed: after a plan is applied, the next plan is empty.
2. Entries that the file does not contain stay, unless pruning is on; missing sections are ignored.
3. A user without a password cannot be created. Passwords cannot be compared, so an existing one is set only on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from ottla.client.errors import ClientError
from ottla.client.quotas import Alteration, entity_text, number_text
from ottla.operations.acls.evaluation import rule_text
from ottla.operations.cluster_policy.security_policy import EntityKey, Login, Policy
from ottla.operations.errors import OperationError
from ottla.security.acls import AclBinding

# ---- steps
Row = tuple[str, ...]  # the columns of a change; unique in a plan


class Step(NamedTuple):
    """Changes of one request. `run` returns the rejected ones, or raises if all were."""

    rows: Sequence[Row]
    run: Callable[[], Mapping[Row, Exception] | None]


class Outcome(NamedTuple):
    """The progress of the steps; `problem` is None if all are done."""

    done: list[Row]
    not_done: list[Row]
    problem: Exception | KeyboardInterrupt | None = None
    row: Row | None = None  # the change that failed, if it is known


def run_steps(steps: Sequence[Step]) -> Outcome:
    done: list[Row] = []
    for index, step in enumerate(steps):
        following = [row for later in steps[index + 1 :] for row in later.rows]
        try:
            refused = step.run() or {}
        except (ClientError, OperationError, KeyboardInterrupt) as problem:
            return Outcome(done, [*step.rows, *following], problem, step.rows[0] if len(step.rows) == 1 else None)
        done += [row for row in step.rows if row not in refused]
        if refused:
            row, cause = next(iter(refused.items()))
            return Outcome(done, [*refused, *following], cause, row)
    return Outcome(done, [])


ADD, CHANGE, REMOVE = "+", "~", "-"
NOT_POSSIBLE: Final = "!"  # the mark of a user without a password
COLUMNS: Final = ("CHANGE", "KIND", "WHAT", "BEFORE", "AFTER")
NOTHING: Final = ""

K = TypeVar("K")
V = TypeVar("V")


class UserChange(NamedTuple):
    """One login mechanism of a user."""

    mark: str
    user: str
    mechanism: str
    before: Login | None
    after: Login | None

    @property
    def is_possible(self) -> bool:
        return self.after is None or self.after.password is not None

    def impossible_reason(self) -> str:
        return (
            f"{self.user} needs a password for {self.mechanism}, which the file does not have: "
            f"ottla users add {self.user} --mechanism {self.mechanism}"
        )

    def row(self) -> tuple[str, ...]:
        what = f"{self.user} {self.mechanism}"
        mark = self.mark if self.is_possible else NOT_POSSIBLE
        return mark, "user", what, _iterations(self.before), _iterations(self.after)


class RightChange(NamedTuple):
    """An ACL to add or remove."""

    mark: str
    binding: AclBinding

    def row(self) -> tuple[str, ...]:
        return self.mark, "right", rule_text(self.binding), NOTHING, NOTHING


class QuotaChange(NamedTuple):
    """One quota of one entity."""

    mark: str
    entity: EntityKey
    key: str
    before: float | None
    after: float | None

    def row(self) -> tuple[str, ...]:
        texts = [NOTHING if value is None else number_text(value) for value in (self.before, self.after)]
        return self.mark, "quota", f"{entity_text(dict(self.entity))}: {self.key}", *texts


class Plan(NamedTuple):
    """The changes, and the entries that are not in the file."""

    users: list[UserChange]
    rights: list[RightChange]
    quotas: list[QuotaChange]
    unmanaged: dict[str, int]  # by section: entries that are neither in the file nor pruned
    uncompared_passwords: list[str]  # users whose password may differ: passwords cannot be compared

    @property
    def is_empty(self) -> bool:
        return not (self.users or self.rights or self.quotas)

    def rows(self) -> list[tuple[str, ...]]:
        changes: list[UserChange | RightChange | QuotaChange] = [*self.users, *self.rights, *self.quotas]
        return [change.row() for change in changes]

    def impossible(self) -> list[UserChange]:
        return [change for change in self.users if not change.is_possible]

    def alterations(self) -> list[Alteration]:
        """The quota changes, grouped by entity."""
        found: dict[EntityKey, tuple[dict[str, float], list[str]]] = {}
        for change in self.quotas:
            changed, deleted = found.setdefault(change.entity, ({}, []))
            if change.after is None:
                deleted.append(change.key)
            else:
                changed[change.key] = change.after
        return [Alteration(dict(entity), *each) for entity, each in found.items()]

    def rights_after(self, before: Iterable[AclBinding]) -> set[AclBinding]:
        removed = {change.binding for change in self.rights if change.mark == REMOVE}
        return (set(before) - removed) | {change.binding for change in self.rights if change.mark == ADD}


def make_plan(wanted: Policy, found: Policy, *, prunes: bool = False, sets_passwords: bool = False) -> Plan:
    """Compare both states. `found` contains at least the wanted sections."""
    users = list(_user_changes(wanted.users or {}, found.users or {}, sets_passwords))
    known = found.rights or frozenset()
    rights = [RightChange(ADD, binding) for binding in sorted((wanted.rights or frozenset()) - known)]
    quotas = list(_quota_changes(wanted.quotas or {}, found.quotas or {}))
    extra_users = _extra(wanted.users, found.users)
    extra_rights = sorted(known - wanted.rights) if wanted.rights is not None else []
    extra_quotas = _extra(wanted.quotas, found.quotas)
    left = {"users": len(extra_users), "rights": len(extra_rights), "quotas": len(extra_quotas)}
    if prunes:
        left = {}
        users += [UserChange(REMOVE, user, name, before, None) for (user, name), before in extra_users]
        rights += [RightChange(REMOVE, binding) for binding in extra_rights]
        quotas += [QuotaChange(REMOVE, entity, key, before, None) for (entity, key), before in extra_quotas]
    changed = {(change.user, change.mechanism) for change in users}
    untold = [
        f"{user} {mechanism}"
        for (user, mechanism), login in (wanted.users or {}).items()
        if login.password is not None and (user, mechanism) not in changed
    ]
    return Plan(users, rights, quotas, {name: count for name, count in left.items() if count}, untold)


def _user_changes(
    wanted: Mapping[tuple[str, str], Login], found: Mapping[tuple[str, str], Login], sets_passwords: bool
) -> Iterator[UserChange]:
    for key, login in wanted.items():
        before = found.get(key)
        is_set = sets_passwords and login.password is not None
        if before is None or before.iterations != login.iterations or is_set:
            yield UserChange(ADD if before is None else CHANGE, *key, before, login)


def _quota_changes(
    wanted: Mapping[tuple[EntityKey, str], float], found: Mapping[tuple[EntityKey, str], float]
) -> Iterator[QuotaChange]:
    for key, value in wanted.items():
        before = found.get(key)
        if before != value:
            yield QuotaChange(ADD if before is None else CHANGE, *key, before, value)


def _extra(wanted: Mapping[K, V] | None, found: Mapping[K, V] | None) -> list[tuple[K, V]]:
    """Entries that exist and are not wanted, if the section is specified."""
    if wanted is None:
        return []
    return [(key, value) for key, value in (found or {}).items() if key not in wanted]


def _iterations(login: Login | None) -> str:
    return NOTHING if login is None else f"{login.iterations} iterations"
