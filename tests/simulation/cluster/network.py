"""Processes that can die and stall, and the network between them: slow, lossy, cut in one direction or both.

A call is a request on a connection: it is handled at most once, its answer may get lost, and the caller learns of a
refusal, of a reset when the other dies, or of nothing until its timeout ends. A request that was slow may arrive
long after its sender gave up and sent another: that is how repeated and reordered messages come about.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from tests.simulation.world import Event, World

STORE = 0  # the host of the metadata store
Answer = Callable[[Any], None]


class Failure(Enum):
    """Why there is no answer."""

    REFUSED = "refused"  # no process listens there, or the connection was reset
    SILENCE = "silence"


class Process:
    """One life of a program. What was meant for an earlier life never reaches a later one."""

    def __init__(self, world: World, host: int) -> None:
        self.world = world
        self.host = host
        self.is_alive = True
        self.is_paused = False
        self._backlog: list[Event] = []

    def after(self, delay_ms: int, event: Event) -> None:
        self.world.after(delay_ms, lambda: self.take(event))

    def take(self, event: Event) -> None:
        """Something reaches the process: while it is stopped, the kernel keeps it."""
        if self.is_paused:
            self._backlog.append(event)
        elif self.is_alive:
            event()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for event in backlog:
            self.take(event)

    def die(self) -> None:
        self.is_alive = False
        self.is_paused = False
        self._backlog = []


class Call:
    """A request that waits for its answer."""

    __slots__ = ("failed", "is_done", "source", "target", "then")

    def __init__(self, source: Process, target: int, then: Answer, failed: Callable[[Failure], None]) -> None:
        self.source = source
        self.target = target
        self.then = then
        self.failed = failed
        self.is_done = False

    def answer(self, value: Any) -> None:
        if not self.is_done:
            self.is_done = True
            self.source.take(lambda: self.then(value))

    def fail(self, why: Failure) -> None:
        if not self.is_done:
            self.is_done = True
            self.source.take(lambda: self.failed(why))


class Network:
    """The connections between hosts, and their quality."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.random.random
        self.processes: dict[int, Process] = {}  # by host: the newest life
        self.dark: set[int] = set()  # hosts without power: nothing there refuses a connection
        self.cuts: dict[tuple[int, int], None] = {}  # one direction each
        self.loss = 0.0
        self.slowness = 0.0
        self.delay_ms = 4
        self.slow_ms = 1_200
        self.on_slow: Callable[[int], None] = lambda source: None  # a message from this host takes its time
        self._calls: dict[int, dict[Call, None]] = {}  # by target

    def reaches(self, source: int, target: int) -> bool:
        return (source, target) not in self.cuts

    def heal(self) -> None:
        self.cuts.clear()
        self.loss = self.slowness = 0.0

    def call(
        self,
        source: Process,
        target: int,
        request: Callable[[Any, Answer], None],
        then: Answer,
        failed: Callable[[Failure], None],
        timeout_ms: int,
    ) -> None:
        """`request(process, answer)` runs there, `then(value)` or `failed(why)` here."""
        call = Call(source, target, then, failed)
        self._calls.setdefault(target, {})[call] = None
        self.send(source.host, target, lambda: self._arrive(call, request))
        self._world.after(timeout_ms, lambda: self._end(call, Failure.SILENCE))

    def send(self, source: int, target: int, event: Event) -> None:
        if (source, target) in self.cuts or self._chance() < self.loss:
            return
        delay_ms = 1 + int(self._chance() * self.delay_ms)
        if self.slowness and self._chance() < self.slowness:
            delay_ms += int(self._chance() * self.slow_ms)
            self.on_slow(source)
        self._world.after(delay_ms, event)

    def _arrive(self, call: Call, request: Callable[[Any, Answer], None]) -> None:
        target = call.target
        process = self.processes.get(target)
        if process is None or not process.is_alive:
            if target not in self.dark:
                self.send(target, call.source.host, lambda: self._end(call, Failure.REFUSED))
            return

        def answer(value: Any) -> None:
            self.send(target, call.source.host, lambda: self._answered(call, value))

        process.take(lambda: request(process, answer))

    def _answered(self, call: Call, value: Any) -> None:
        self._calls[call.target].pop(call, None)
        call.answer(value)

    def _end(self, call: Call, why: Failure) -> None:
        if self._calls[call.target].pop(call, False) is None:
            call.fail(why)

    def reset(self, host: int) -> None:
        """The process on this host is gone: its kernel resets all its connections, if there still is one."""
        if host not in self.dark:
            for call in list(self._calls.get(host, ())):
                self.send(host, call.source.host, lambda call=call: self._end(call, Failure.REFUSED))  # type: ignore[misc]
