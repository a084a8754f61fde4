"""From what is to what shall be: the changes that a file of users, rights and quotas asks for. Pure.

Rules:
1. Only what differs is changed: a plan made after it was carried out is empty.
2. What the file lacks stays, unless it is to be pruned; what it says nothing about (no such section) always stays.
3. A user cannot be made without a password, and a password cannot be compared with the one that is there: the first is
   a change that nobody can carry out, the second is done on request only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from ottla.cli.security.policy import EntityKey, Login, Policy
from ottla.client.quota_words import entity_text, number_text
from ottla.client.quotas import Alteration
from ottla.operations.acls.explaining import rule_text
from ottla.security.acls import AclBinding

ADD, CHANGE, REMOVE = "+", "~", "-"
NOT_POSSIBLE: Final = "!"  # as it is shown: a user without a password
COLUMNS: Final = ("CHANGE", "KIND", "WHAT", "BEFORE", "AFTER")
NOTHING: Final = ""

K = TypeVar("K")
V = TypeVar("V")


class UserChange(NamedTuple):
    """How one user logs in."""

    mark: str
    user: str
    mechanism: str
    before: Login | None
    after: Login | None

    @property
    def is_possible(self) -> bool:
        return self.after is None or self.after.password is not None

    def why_not(self) -> str:
        return (
            f"{self.user} needs a password for {self.mechanism}, which the file does not have: "
            f"ottla users add {self.user} --mechanism {self.mechanism}"
        )

    def row(self) -> tuple[str, ...]:
        what = f"{self.user} {self.mechanism}"
        mark = self.mark if self.is_possible else NOT_POSSIBLE
        return mark, "user", what, _iterations(self.before), _iterations(self.after)


class RightChange(NamedTuple):
    """A rule that comes or goes."""

    mark: str
    binding: AclBinding

    def row(self) -> tuple[str, ...]:
        return self.mark, "right", rule_text(self.binding), NOTHING, NOTHING


class QuotaChange(NamedTuple):
    """One limit of one entity."""

    mark: str
    entity: EntityKey
    key: str
    before: float | None
    after: float | None

    def row(self) -> tuple[str, ...]:
        texts = [NOTHING if value is None else number_text(value) for value in (self.before, self.after)]
        return self.mark, "quota", f"{entity_text(dict(self.entity))}: {self.key}", *texts


class Plan(NamedTuple):
    """What to do, and what is there besides and stays."""

    users: list[UserChange]
    rights: list[RightChange]
    quotas: list[QuotaChange]
    left: dict[str, int]  # by section: what the file lacks and nobody prunes
    untold: list[str]  # users whose password in the file may be another one: nobody can compare

    @property
    def is_empty(self) -> bool:
        return not (self.users or self.rights or self.quotas)

    def rows(self) -> list[tuple[str, ...]]:
        changes: list[UserChange | RightChange | QuotaChange] = [*self.users, *self.rights, *self.quotas]
        return [change.row() for change in changes]

    def impossible(self) -> list[UserChange]:
        return [change for change in self.users if not change.is_possible]

    def alterations(self) -> list[Alteration]:
        """The changes of quotas, each entity once."""
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
    """`found` has at least the sections that are wanted."""
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
    """What is there and not wanted, if anything is said about it at all."""
    if wanted is None:
        return []
    return [(key, value) for key, value in (found or {}).items() if key not in wanted]


def _iterations(login: Login | None) -> str:
    return NOTHING if login is None else f"{login.iterations} iterations"
