"""What a change of users and rights must not do: shut out whoever makes it, or want rights where nobody keeps any."""

from __future__ import annotations

from ottla.cli.security.plan import Plan
from ottla.cli.security.policy import RIGHTS, Policy
from ottla.cli.terminal import ToolError
from ottla.client.client import Client
from ottla.operations.acls.own_rights import Caller, lost_rights
from ottla.operations.acls.reading import authorizer_of
from ottla.security.acls import acls_of


def check_authorizer(wanted: Policy, found: Policy) -> None:
    if wanted.rights and found.rights is None:
        raise ToolError(f"the cluster has no authorizer (authorizer.class.name): leave {RIGHTS} out of the file")


def refuse_own_end(client: Client, caller: Caller, plan: Plan, found: Policy) -> None:
    """Nobody takes from himself in silence what he needs to undo it."""
    for change in plan.users:
        own = caller.principal == f"User:{change.user}" and caller.mechanism == change.mechanism
        if own and change.after is None:
            raise ToolError(
                f"refused, nothing was changed: {change.user} {change.mechanism} is how you log in yourself. "
                f"Leave it in the file, or: ottla users remove {change.user}"
            )
    if plan.rights:
        before = found.rights or frozenset()
        lost = lost_rights(caller, authorizer_of(client, before), acls_of(plan.rights_after(before)))
        if lost:
            who = "you" if caller.principal is not None else "you may be one of them, and"
            raise ToolError(
                f"refused, nothing was changed: it would no longer hold that {', '.join(lost)}; {who} could not undo "
                "it. Leave these rights in the file, or remove them with ottla acls remove"
            )
