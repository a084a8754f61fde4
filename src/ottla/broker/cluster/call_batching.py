"""Calls to other brokers in batches: what comes up while a request to a broker is under way goes out with the next one.

So there is one request at a time to each broker, and many transactions share it. Whoever carries the calls answers
each of them, whatever happens; nothing is repeated here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from ottla.base import tasks

E = TypeVar("E")

TOGETHER_MAX: Final = 500


class CallBatcher(Generic[E]):
    """One line of calls for each broker."""

    def __init__(self, carry: Callable[[int, list[E]], Awaitable[None]]) -> None:
        """`carry(broker, calls)` answers all of them before it returns, and raises nothing."""
        self._carry = carry
        self._waiting: dict[int, deque[E]] = {}
        self._at_work: dict[int, asyncio.Task[None]] = {}

    def send(self, broker: int, call: E) -> None:
        self._waiting.setdefault(broker, deque()).append(call)
        if broker not in self._at_work:
            self._at_work[broker] = tasks.keep_running(lambda: self._work(broker), f"calls to broker {broker}")

    async def _work(self, broker: int) -> None:
        line = self._waiting[broker]
        while line:
            together = [line.popleft() for _ in range(min(len(line), TOGETHER_MAX))]
            await self._carry(broker, together)
        del self._at_work[broker], self._waiting[broker]

    def close(self) -> None:
        for task in self._at_work.values():
            task.cancel()

    def __repr__(self) -> str:
        return f"<CallBatcher to {sorted(self._at_work)}, {sum(map(len, self._waiting.values()))} waiting>"
