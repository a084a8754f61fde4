"""The routes of the API.

A route declares role, body and answer; the check of rights, the decoding of bodies, the audit trail and
/api/openapi.json are derived from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.console.auth.rights import Role
from ottla.web.routing import Match, RouteTable, path_segments

if TYPE_CHECKING:
    from ottla.console.api.call import Call

T = TypeVar("T")
GET, POST, PUT, PATCH, DELETE = "GET", "POST", "PUT", "PATCH", "DELETE"


class Route(NamedTuple):
    """One route. Without a `required_role`, callers need not be signed in.

    The role is checked for the {cluster} of the path and, if there are any, for names such as {topic} or {group}.
    """

    method: str
    path: str
    handler: Callable[[Call], Awaitable[object] | object]  # a coroutine, or a function that runs in a thread
    required_role: Role | None
    summary: str
    answer: Any = None  # the type of the answer; None: nothing (204)
    body: Any = None  # the type of the body, a msgspec.Struct
    reads_messages: bool = False  # also requires that right for the topic
    is_change: bool = True  # of a route other than GET: audited
    needs_all_names: bool = False  # requires the role for all names of the cluster
    is_shared: bool = True  # of a GET on a cluster: the answer is cached for each version of the cluster


def find_route(table: RouteTable[T], method: str, path: bytes) -> Match[T]:
    """The route of a request. No name in a path is empty."""
    try:
        segments = path_segments(path)
    except UnicodeDecodeError:
        return Match(None, {})
    return Match(None, {}) if "" in segments else table.find(method, segments)
