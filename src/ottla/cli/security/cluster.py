"""Users, rights and quotas of a cluster, read and changed over the wire."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from ottla.base.errors import Error
from ottla.cli.security.plan import ADD, REMOVE, Plan, UserChange
from ottla.cli.security.policy import QUOTAS, RIGHTS, SECTIONS, USERS, EntityKey, Login, Policy, entity_key
from ottla.cli.terminal import ToolError
from ottla.client.acls import create_acls, delete_acls, describe_acls
from ottla.client.client import Client
from ottla.client.errors import ClientError, RefusedError
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


def apply_plan(client: Client, plan: Plan) -> int:
    """Carry out what can be; what is given comes before what is taken away. The number of changes."""
    added = [change.binding for change in plan.rights if change.mark == ADD]
    removed = [filter_of(*change.binding) for change in plan.rights if change.mark == REMOVE]
    steps: list[tuple[int, Callable[[], object]]] = [
        *((1, _user_step(client, change)) for change in plan.users if change.after is not None and change.is_possible),
        *((len(some), _call(create_acls, client, some)) for some in _portions(added)),
        (len(plan.quotas), _call(alter_quotas, client, plan.alterations())),
        *((len(some), _call(delete_acls, client, some)) for some in _portions(removed)),
        *((1, _user_step(client, change)) for change in plan.users if change.after is None),
    ]
    done = 0
    for count, step in steps:
        try:
            step()
        except ClientError as problem:
            total = sum(count for count, _ in steps)
            raise ToolError(
                f"stopped after {done} of {total} changes: {problem}. Once mended, apply it again"
            ) from None
        done += count
    return done


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


def _user_step(client: Client, change: UserChange) -> Callable[[], None]:
    if change.after is None or change.after.password is None:
        return lambda: alter_scram(client, change.user, (), [change.mechanism])
    password = change.after.password
    return lambda: alter_scram(client, change.user, [password], ())


def _call(call: Callable[[Client, Sequence[T]], object], client: Client, items: Sequence[T]) -> Callable[[], object]:
    return lambda: call(client, items)


def _portions(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + RULES_MAX] for start in range(0, len(items), RULES_MAX)]
