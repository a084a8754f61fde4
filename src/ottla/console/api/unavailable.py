"""Why a page has nothing to show: a cluster without an authorizer, too old, or one that lets the console not look."""

from __future__ import annotations

import msgspec

from ottla.base.errors import Error
from ottla.client.errors import ClientError
from ottla.console.api.errors import of_cluster

REASONS = frozenset(
    {
        Error.SECURITY_DISABLED,
        Error.UNSUPPORTED_VERSION,
        Error.CLUSTER_AUTHORIZATION_FAILED,
        Error.DELEGATION_TOKEN_AUTH_DISABLED,
        Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)


class Unavailable(msgspec.Struct, frozen=True):
    """Not here, and why: a code of Kafka's and words of the cluster. The page greys out what needs it."""

    error: str
    message: str


def why_unavailable(problem: ClientError) -> Unavailable:
    """The reason, if it is one that lasts; raises what it is otherwise."""
    if problem.error not in REASONS:
        raise problem
    told = of_cluster(problem)
    return Unavailable(told.code, str(problem))
