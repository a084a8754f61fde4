"""Reads users, ACLs and quotas of a cluster over the wire and applies changes to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeVar

from ottla.base.errors import Error
from ottla.client.acls import create_acls, delete_acls, describe_acls
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.quotas import alter_quotas, alter_scram, describe_quotas, describe_scram
from ottla.operations.acls.acl_entries import acl_filter
from ottla.operations.acls.evaluation import Caller, load_authorizer, lost_rights
from ottla.operations.cluster_policy.security_plan import ADD, REMOVE, Plan, RightChange, Step, UserChange, make_plan
from ottla.operations.cluster_policy.security_policy import (
    QUOTAS,
    RIGHTS,
    SECTIONS,
    USERS,
    EntityKey,
    Login,
    Policy,
    entity_key,
)
from ottla.operations.errors import OperationError
from ottla.security.acls import AclBinding, AclFilter, group_by_pattern
from ottla.security.scram_credentials import NUMBERS

RULES_MAX: Final = 500  # in one request

T = TypeVar("T")


def read_cluster(client: Client, sections: Collection[str] = SECTIONS) -> Policy:
    """Read the current state; rights are None if the cluster has no authorizer."""
    return Policy(
        _users(client) if USERS in sections else None,
        _rights(client) if RIGHTS in sections else None,
        _quotas(client) if QUOTAS in sections else None,
    )


def security_steps(client: Client, plan: Plan) -> list[Step]:
    """The possible changes as steps; additions come before removals."""
    added = [change for change in plan.rights if change.mark == ADD]
    removed = [change for change in plan.rights if change.mark == REMOVE]
    quotas = [change.row() for change in plan.quotas]
    return [
        *(_user_step(client, change) for change in plan.users if change.after is not None and change.is_possible),
        *(_rights_step(client, some) for some in batches(added, RULES_MAX)),
        *([Step(quotas, lambda: alter_quotas(client, plan.alterations()))] if quotas else ()),
        *(_rights_step(client, some) for some in batches(removed, RULES_MAX)),
        *(_user_step(client, change) for change in plan.users if change.after is None),
    ]


def _users(client: Client) -> dict[tuple[str, str], Login]:
    users: dict[tuple[str, str], Login] = {}
    for user, known in describe_scram(client, ()).items():
        if isinstance(known, BrokerError):
            raise known
        users |= {(user, mechanism): Login(count) for mechanism, count in known if mechanism in NUMBERS}
    return users


def _rights(client: Client) -> frozenset[AclBinding] | None:
    try:
        return frozenset(describe_acls(client, AclFilter()))
    except BrokerError as problem:
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
            delete_acls(client, [acl_filter(*change.binding) for change in changes])

    return Step([change.row() for change in changes], run)


def batches(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (items[start : start + most] for start in range(0, len(items), most))


# ---- checks before a change
def make_checked_plan(client: Client, wanted: Policy, caller: Caller, *, prunes: bool, sets_passwords: bool) -> Plan:
    """The changes; raises OperationError for those that no plan may make."""
    found = read_cluster(client, [name for name in SECTIONS if getattr(wanted, name) is not None])
    check_authorizer(wanted, found)
    plan = make_plan(wanted, found, prunes=prunes, sets_passwords=sets_passwords)
    check_own_access(client, caller, plan, found)
    return plan


def check_authorizer(wanted: Policy, found: Policy) -> None:
    if wanted.rights and found.rights is None:
        raise OperationError(f"the cluster has no authorizer (authorizer.class.name): leave {RIGHTS} out of the file")


def check_own_access(client: Client, caller: Caller, plan: Plan, found: Policy) -> None:
    """Reject a plan that removes the caller's own login or its right to undo the plan."""
    for change in plan.users:
        own = caller.principal == f"User:{change.user}" and caller.mechanism == change.mechanism
        if own and change.after is None:
            raise OperationError(
                f"rejected, nothing was changed: {change.user} {change.mechanism} is your own login. "
                f"Leave it in the file, or: ottla users remove {change.user}"
            )
    if plan.rights:
        before = found.rights or frozenset()
        lost = lost_rights(caller, load_authorizer(client, before), group_by_pattern(plan.rights_after(before)))
        if lost:
            caller_text = "you" if caller.principal is not None else "you may be one of them, and"
            raise OperationError(
                f"rejected, nothing was changed: these would no longer hold: {', '.join(lost)}; {caller_text} "
                "could not undo it. Keep these rights in the file, or remove them with ottla acls remove"
            )
