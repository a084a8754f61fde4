"""What was answered, for a while: the newest answers, no more than so many, none older than a time. Pure: the time is
an argument. What was asked for least recently goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """`get` gives None for what is not known: an answer is never None."""

    def __init__(self, size: int, seconds: float) -> None:
        self.size = size
        self.seconds = seconds
        self._kept: OrderedDict[Hashable, tuple[float, Value]] = OrderedDict()

    def __repr__(self) -> str:
        return f"Cache({len(self._kept)} of {self.size}, {self.seconds} s)"

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, now: float) -> Value | None:
        found = self._kept.get(key)
        if found is None:
            return None
        answered, value = found
        if now - answered >= self.seconds:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return value

    def put(self, key: Hashable, value: Value, now: float) -> None:
        if self.size < 1 or self.seconds <= 0:
            return
        self._kept[key] = (now, value)
        self._kept.move_to_end(key)
        while len(self._kept) > self.size:
            self._kept.popitem(last=False)
