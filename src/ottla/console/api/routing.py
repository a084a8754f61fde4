"""Routes and their table.

A route declares role, body and answer; the check of rights, the decoding of bodies, the audit trail and
/api/openapi.json are derived from it.

Paths are matched on raw bytes, segment by segment, because a group name may be `a/b?c`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from ottla.console.auth.rights import Role

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


class Match(NamedTuple, Generic[T]):
    """The route of a request; None: no match. `allowed_methods` are the methods of the path."""

    target: T | None
    parameters: dict[str, str]
    allowed_methods: tuple[str, ...] = ()


class RouteTable(Generic[T]):
    """Finds routes by method and path."""

    def __init__(self, rows: Sequence[tuple[str, str, T]]) -> None:
        self.routes = [(method, tuple(path.strip("/").split("/")), target) for method, path, target in rows]

    def find(self, method: str, raw_path: bytes) -> Match[T]:
        parts = raw_path.removeprefix(b"/").removesuffix(b"/").split(b"/")
        methods: dict[str, None] = {}
        for known_method, pattern, target in self.routes:
            parameters = _match_path(pattern, parts)
            if parameters is None:
                continue
            if known_method == method:
                return Match(target, parameters)
            methods[known_method] = None
        return Match(None, {}, tuple(methods))

    def __repr__(self) -> str:
        return f"<RouteTable {len(self.routes)} rows>"


def _match_path(pattern: Sequence[str], parts: Sequence[bytes]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    parameters = {}
    for wanted, part in zip(pattern, parts, strict=True):
        try:
            text = unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            return None
        if wanted.startswith("{") and text:
            parameters[wanted[1:-1]] = text
        elif wanted != text:
            return None
    return parameters
