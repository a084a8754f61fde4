"""Users, rights and quotas of a cluster, read and changed over the wire."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeVar

from ottla.base.errors import Error
from ottla.cli.security.plan import ADD, REMOVE, Plan, RightChange, UserChange
from ottla.cli.security.policy import QUOTAS, RIGHTS, SECTIONS, USERS, EntityKey, Login, Policy, entity_key
from ottla.cli.security.steps import Step
from ottla.client.acls import create_acls, delete_acls, describe_acls
from ottla.client.client import Client
from ottla.client.errors import RefusedError
from ottla.client.quotas import alter_quotas, alter_scram, describe_quotas, describe_scram
from ottla.operations.acls.wishes import filter_of
from ottla.security.acls import AclBinding, AclFilter
from ottla.security.scram import NUMBERS

RULES_MAX: Final = 500  # in one request

T = TypeVar("T")


def read_cluster(client: Client, sections: Collection[str] = SECTIONS) -> Policy:
    """What there is; no rights are told (None) where no authorizer keeps any."""
    return Policy(
        _users(client) if USERS in sections else None,
        _rights(client) if RIGHTS in sections else None,
        _quotas(client) if QUOTAS in sections else None,
    )


def security_steps(client: Client, plan: Plan) -> list[Step]:
    """What can be done, in order; what is given comes before what is taken away."""
    added = [change for change in plan.rights if change.mark == ADD]
    removed = [change for change in plan.rights if change.mark == REMOVE]
    quotas = [change.row() for change in plan.quotas]
    return [
        *(_user_step(client, change) for change in plan.users if change.after is not None and change.is_possible),
        *(_rights_step(client, some) for some in _portions(added)),
        *([Step(quotas, lambda: alter_quotas(client, plan.alterations()))] if quotas else ()),
        *(_rights_step(client, some) for some in _portions(removed)),
        *(_user_step(client, change) for change in plan.users if change.after is None),
    ]


def _users(client: Client) -> dict[tuple[str, str], Login]:
    users: dict[tuple[str, str], Login] = {}
    for user, known in describe_scram(client, ()).items():
        if isinstance(known, RefusedError):
            raise known
        users |= {(user, mechanism): Login(count) for mechanism, count in known if mechanism in NUMBERS}
    return users


def _rights(client: Client) -> frozenset[AclBinding] | None:
    try:
        return frozenset(describe_acls(client, AclFilter()))
    except RefusedError as problem:
        if problem.error is Error.SECURITY_DISABLED:
            return None
        raise


def _quotas(client: Client) -> dict[tuple[EntityKey, str], float]:
    found = describe_quotas(client, (), is_strict=False)
    return {(entity_key(quota.entity), key): value for quota in found for key, value in quota.limits.items()}


def _user_step(client: Client, change: UserChange) -> Step:
    def run() -> None:
        if change.after is None or change.after.password is None:
            alter_scram(client, change.user, (), [change.mechanism])
        else:
            alter_scram(client, change.user, [change.after.password], ())

    return Step([change.row()], run)


def _rights_step(client: Client, changes: Sequence[RightChange]) -> Step:
    def run() -> None:
        if changes[0].mark == ADD:
            create_acls(client, [change.binding for change in changes])
        else:
            delete_acls(client, [filter_of(*change.binding) for change in changes])

    return Step([change.row() for change in changes], run)


def _portions(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + RULES_MAX] for start in range(0, len(items), RULES_MAX)]
