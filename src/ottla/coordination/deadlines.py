"""Deadlines that are moved far more often than they are reached: sessions of group members, above all.

Moving a deadline to a later time costs one dictionary write; its old place in the heap is corrected when it comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """A time for each key; `due` gives those that have come, earliest first."""

    def __init__(self) -> None:
        self._at_ms: dict[Key, int] = {}
        self._queued_ms: dict[Key, int] = {}  # the earliest entry of a key in the heap
        self._heap: list[tuple[int, int, Key]] = []
        self._count = 0  # breaks ties in the order of arrival, so that equal runs are equal

    def set(self, key: Key, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or queued_ms > at_ms:
            self._push(key, at_ms)

    def cancel(self, key: Key) -> None:
        self._at_ms.pop(key, None)

    def get(self, key: Key) -> int | None:
        return self._at_ms.get(key)

    def soonest_ms(self) -> int | None:
        """No deadline comes before this; whoever looks then, with due(), may find that all have been moved."""
        return self._heap[0][0] if self._heap else None

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            wanted_ms = self._at_ms.get(key)
            if wanted_ms == at_ms:
                return at_ms
            self._pop()
            if wanted_ms is not None and key not in self._queued_ms:
                self._push(key, wanted_ms)
        return None

    def due(self, now_ms: int) -> list[Key]:
        """The keys whose time has come; they are forgotten here."""
        keys = []
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            key = self._heap[0][2]
            self._pop()
            del self._at_ms[key]
            keys.append(key)
        return keys

    def _push(self, key: Key, at_ms: int) -> None:
        self._count += 1
        self._queued_ms[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._count, key))

    def _pop(self) -> None:
        at_ms, _, key = heapq.heappop(self._heap)
        if self._queued_ms.get(key) == at_ms:
            del self._queued_ms[key]

    def __len__(self) -> int:
        return len(self._at_ms)

    def __repr__(self) -> str:
        return f"<Deadlines {len(self._at_ms)} set, next {self.next_ms()}>"
