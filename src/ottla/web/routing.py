"""Routes by method and path. Pure.

A path is split before it is decoded: a name in it may contain any character, also a slash (%2F).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

T = TypeVar("T")


class Match(NamedTuple, Generic[T]):
    """The route of a request; None: no match. `allowed_methods` are the methods of the path."""

    target: T | None
    parameters: Mapping[str, str]
    allowed_methods: Sequence[str] = ()


class RouteTable(Generic[T]):
    """Finds routes by method and path, such as `/topics/{topic}`. A HEAD request takes the route of GET."""

    def __init__(self, rows: Iterable[tuple[str, str, T]]) -> None:
        self._by_length: dict[int, list[tuple[str, tuple[str, ...], T]]] = {}
        for method, path, target in rows:
            pattern = tuple(path_segments(path.encode()))
            self._by_length.setdefault(len(pattern), []).append((method, pattern, target))

    def __repr__(self) -> str:
        return f"<RouteTable {sum(map(len, self._by_length.values()))} rows>"

    def find(self, method: str, segments: Sequence[str]) -> Match[T]:
        wanted = "GET" if method == "HEAD" else method
        methods: dict[str, None] = {}
        for known_method, pattern, target in self._by_length.get(len(segments), ()):
            parameters = _match(pattern, segments)
            if parameters is None:
                continue
            if known_method == wanted:
                return Match(target, parameters)
            methods[known_method] = None
        return Match(None, {}, tuple(methods))


def path_segments(raw_path: bytes, on_invalid: str = "strict") -> list[str]:
    """The decoded segments. Raises UnicodeDecodeError, unless `on_invalid` has another error handler of Python."""
    path = raw_path.removeprefix(b"/").removesuffix(b"/")
    return [unquote_to_bytes(part).decode("utf-8", on_invalid) for part in path.split(b"/")] if path else []


def _match(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    parameters = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            parameters[wanted[1:-1]] = given
        elif wanted != given:
            return None
    return parameters
