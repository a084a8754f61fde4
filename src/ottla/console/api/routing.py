"""How the API is described: one row a route. Who may call it, what it takes and gives all stand there, so that the
check of rights, the reading of bodies, the audit trail and /api/openapi.json are one piece of code each.

Paths are matched on their raw bytes, piece by piece: a group may be called `a/b?c`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from ottla.console.people.rights import Role

if TYPE_CHECKING:
    from ottla.console.api.call import Call

T = TypeVar("T")
GET, POST, PUT, PATCH, DELETE = "GET", "POST", "PUT", "PATCH", "DELETE"


class Route(NamedTuple):
    """One thing that can be asked for. `needs` None: also by those who are not signed in.

    A path with {cluster} is checked on that cluster; one with {topic} or {group}, too, for that name.
    """

    method: str
    path: str
    handler: Callable[[Call], Awaitable[object] | object]  # a coroutine, or a function that runs in a thread
    needs: Role | None
    summary: str
    answer: Any = None  # the type of the answer; None: nothing (204)
    body: Any = None  # the type of the body, a msgspec.Struct
    reads_messages: bool = False  # needs that right for the topic, too
    is_change: bool = True  # if it is no GET: stands in the audit trail
    is_about_all: bool = False  # needs the role for all names of the cluster, though the path has none
    is_shared: bool = True  # if it is a GET of a cluster: the same for all as long as the cluster has the same version


class Match(NamedTuple, Generic[T]):
    """What a path leads to; none: no such path; `methods` are those that there are."""

    target: T | None
    parameters: dict[str, str]
    methods: tuple[str, ...] = ()


class Table(Generic[T]):
    """Finds the row of a path."""

    def __init__(self, rows: Sequence[tuple[str, str, T]]) -> None:
        self.rows = [(method, tuple(path.strip("/").split("/")), target) for method, path, target in rows]

    def find(self, method: str, raw_path: bytes) -> Match[T]:
        parts = raw_path.removeprefix(b"/").removesuffix(b"/").split(b"/")
        methods: dict[str, None] = {}
        for known_method, pattern, target in self.rows:
            parameters = _fit(pattern, parts)
            if parameters is None:
                continue
            if known_method == method:
                return Match(target, parameters)
            methods[known_method] = None
        return Match(None, {}, tuple(methods))

    def __repr__(self) -> str:
        return f"<Table {len(self.rows)} rows>"


def _fit(pattern: Sequence[str], parts: Sequence[bytes]) -> dict[str, str] | None:
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
