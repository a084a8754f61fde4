"""Deadlines that are moved far more often than they expire, above all the sessions of group members.

Moving a deadline to a later time costs one dictionary write; its old heap entry is corrected when it expires.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """One deadline for each key; `due` returns the expired ones, earliest first."""

    def __init__(self) -> None:
        self._at_ms: dict[Key, int] = {}
        self._queued_ms: dict[Key, int] = {}  # the time of a key's earliest entry in the heap
        self._heap: list[tuple[int, int, Key]] = []
        self._count = 0  # a sequence number that breaks ties, so that equal runs give equal results

    def set(self, key: Key, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or queued_ms > at_ms:
            self._push(key, at_ms)

    def shift(self, step_ms: int) -> None:
        """Move all deadlines."""
        self._at_ms = {key: at_ms + step_ms for key, at_ms in self._at_ms.items()}
        self._queued_ms = {key: at_ms + step_ms for key, at_ms in self._queued_ms.items()}
        self._heap = [(at_ms + step_ms, count, key) for at_ms, count, key in self._heap]  # still a heap

    def cancel(self, key: Key) -> None:
        self._at_ms.pop(key, None)

    def get(self, key: Key) -> int | None:
        return self._at_ms.get(key)

    def lower_bound_ms(self) -> int | None:
        """Return a lower bound: no deadline expires earlier, but all may have been moved."""
        return self._heap[0][0] if self._heap else None

    def next_ms(self) -> int | None:
        """Return the earliest deadline."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            wanted_ms = self._at_ms.get(key)
            if wanted_ms == at_ms:
                return at_ms
            self._pop()
            if wanted_ms is not None and key not in self._queued_ms:
                self._push(key, wanted_ms)
        return None

    def pop_expired(self, now_ms: int) -> list[Key]:
        """Remove and return the keys whose deadlines have expired."""
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
