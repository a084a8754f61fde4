"""A world in which real brokers run: one clock, one queue of what happens next, one generator of chance.

Whatever runs is a node: a broker in one of its lives, the clients, each with an event loop of its own
(`node_loop.py`). The world runs one round of one node after the other, in an order that the seed decides, and lets time
pass when no node has anything to do. So a node can be paused (its rounds are not run), and it can die between any two
lines of its code: it simply is not run any more.

Rules:
1. Everything random comes from `random`, which the seed makes. A seed reproduces a run exactly: its hash is
   the same in every run and in every process.
2. Nothing that belonged to a dead node is freed before the end: a coroutine that is closed runs its `finally`, and that
   would be an act of the dead.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulation.brokers.node_loop import NodeLoop

START_SECONDS: Final = 1_000.0
EPOCH_SECONDS: Final = 1_700_000_000.0
ROUND_SECONDS: Final = 20e-6  # what one round of a loop takes
ROUNDS_MAX: Final = 400_000  # a world in which that much happens goes round in circles
TRACE_LINES: Final = 80


class BrokenPromiseError(AssertionError):
    """A broken promise, with the end of the trace."""


class World:
    """Time, chance and the queue."""

    def __init__(self, seed: int, lines: int | None = TRACE_LINES) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = START_SECONDS
        self.rounds = 0
        self.trace: deque[str] = deque(maxlen=lines)
        self.broken: BrokenPromiseError | None = None
        self.problems: list[str] = []  # what the nodes themselves complain about
        self.current: NodeLoop | None = None  # the node that runs now
        self.graveyard: list[Any] = []
        self._digest = blake2b(digest_size=8)
        self._queue: list[tuple[float, int, Any, NodeLoop | None]] = []
        self._count = 0
        self._runnable: list[NodeLoop] = []

    # ---- what happens

    def tell(self, line: str) -> None:
        line = f"{(self.now - START_SECONDS) * 1000:>10.2f} {line}"
        self.trace.append(line)
        self._digest.update(line.encode())

    def note(self, *facts: object) -> None:
        """Part of the hash, but not of the trace, which would become too long."""
        self._digest.update(repr((self.now, facts)).encode())

    def complain(self, problem: str) -> None:
        """A node's code has noticed that it is broken."""
        self.tell(f"PROBLEM {problem}")
        self.problems.append(problem)

    def break_(self, what: str) -> None:
        self.tell(f"BROKEN {what}")
        self.broken = self.broken or BrokenPromiseError(f"{what}\n{self.report()}")
        raise self.broken

    def report(self) -> str:
        return "\n".join([f"seed {self.seed}", *self.trace])

    @property
    def hash(self) -> str:
        return self._digest.hexdigest()

    @property
    def seconds(self) -> float:
        """Since the world began."""
        return self.now - START_SECONDS

    @property
    def wall_ms(self) -> int:
        """What a clock on the wall shows that is right."""
        return int((EPOCH_SECONDS + self.now) * 1000)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # ---- what will happen

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen that is no node's own doing."""
        self.push(self.now + seconds, event, None)

    def push(self, when: float, event: Any, loop: NodeLoop | None) -> None:
        """With a loop: a timer's handle, which that loop runs when the time has come."""
        self._count += 1
        heapq.heappush(self._queue, (when, self._count, event, loop))

    def wake(self, loop: NodeLoop) -> None:
        """This node has something to do."""
        if not loop.is_runnable and not loop.is_paused and not loop.is_dead:
            loop.is_runnable = True
            self._runnable.append(loop)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Live for so long, or until something is the case; the result tells whether it is."""
        end = self.now + seconds
        queue, runnable = self._queue, self._runnable
        while True:
            while queue and queue[0][0] <= self.now:
                self._begin(*heapq.heappop(queue)[2:])
            if runnable:
                self._run_one()
                if self.now > end:
                    return until() if until is not None else False
            elif queue and queue[0][0] <= end:
                self.now = queue[0][0]
            else:
                self.now = end
                return until() if until is not None else False
            if until is not None and self.rounds % 16 == 0 and until():
                return True

    def _begin(self, event: Any, loop: NodeLoop | None) -> None:
        if loop is None:
            event()
        elif loop.is_dead:
            self.graveyard.append(event)
        elif not event.cancelled():
            loop.take(event)

    def _run_one(self) -> None:
        runnable = self._runnable
        count = len(runnable)
        place = int(self.random.random() * count) if count > 1 else 0
        loop = runnable[place]
        runnable[place] = runnable[-1]
        runnable.pop()
        loop.is_runnable = False
        if loop.is_paused or loop.is_dead:
            return
        self.rounds += 1
        self.now += ROUND_SECONDS
        if self.rounds > ROUNDS_MAX:
            self.break_("the world goes round and round")
        loop.run_round()
        if self.broken is not None:  # raised inside of a task
            raise self.broken

    def clear(self) -> None:
        """The end of the world."""
        self._queue.clear()
        self._runnable.clear()
        self.graveyard.clear()
