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


class _Row(NamedTuple, Generic[T]):
    """One route: its path as words and names by their place."""

    method: str
    words: Sequence[tuple[int, str]]
    names: Sequence[tuple[int, str]]
    target: T

    def parameters(self, segments: Sequence[str]) -> dict[str, str] | None:
        for place, word in self.words:
            if segments[place] != word:
                return None
        return {name: segments[place] for place, name in self.names}


class RouteTable(Generic[T]):
    """Finds routes by method and path, such as `/topics/{topic}`. A HEAD request takes the route of GET."""

    def __init__(self, rows: Iterable[tuple[str, str, T]]) -> None:
        self._by_length: dict[int, list[_Row[T]]] = {}
        for method, path, target in rows:
            segments = path_segments(path.encode())
            words = [(place, word) for place, word in enumerate(segments) if not word.startswith("{")]
            names = [(place, word[1:-1]) for place, word in enumerate(segments) if word.startswith("{")]
            self._by_length.setdefault(len(segments), []).append(_Row(method, words, names, target))

    def __repr__(self) -> str:
        return f"<RouteTable {sum(map(len, self._by_length.values()))} rows>"

    def find(self, method: str, segments: Sequence[str]) -> Match[T]:
        wanted = "GET" if method == "HEAD" else method
        methods: dict[str, None] = {}
        for row in self._by_length.get(len(segments), ()):
            parameters = row.parameters(segments)
            if parameters is None:
                continue
            if row.method == wanted:
                return Match(row.target, parameters)
            methods[row.method] = None
        return Match(None, {}, tuple(methods))


def path_segments(raw_path: bytes, on_invalid: str = "strict") -> list[str]:
    """The decoded segments. Raises UnicodeDecodeError, unless `on_invalid` has another error handler of Python."""
    path = raw_path.removeprefix(b"/").removesuffix(b"/")
    return [unquote_to_bytes(part).decode("utf-8", on_invalid) for part in path.split(b"/")] if path else []
