"""Keeps child processes running: starts them, waits until they are ready, restarts what crashes, stops them in order.

Rules:
1. One thread: everything wakes one selector (lines of children, signals, the next restart). Nothing polls, unless
   somebody wants to draw: `on_tick` is called a few times a second.
2. A child that ends before it was ever ready has said why on stderr: that ends everything with its exit code.
3. A child that ends with 0 was asked to stop by somebody else: that ends everything, too, with exit code 0.
4. A child that crashes is started again after a pause that doubles, a bounded number of times in a row.
5. Children have sessions of their own, so that Ctrl-C in a terminal reaches only the supervisor, which then stops
   them in order; if the supervisor itself is killed, the kernel stops them.
6. A guest, which is a child with `on_end`, needs the others and they do not need it: it is started when its time has
   come, may end as it likes (only `on_end` is told), and is stopped before the others. What it says on stderr comes as
   lines, too.
7. Of many children of a kind (`is_one_of_many`) some may be missing: one that somebody stopped, or that crashes for
   ever, stays away, and everything ends when none is left. They are stopped one after the other, the last one first,
   so that each can hand its work to those that still run; one that takes long is not waited for. What they say on
   stderr comes as lines, too.
8. Who `needs` another is started when that one is ready, and is stopped before it.
9. A child that `is_kept` is started again however it ended, at once if somebody stopped it, and for ever: rules 2, 3
   and the end of rule 4 are not for it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from ottla.base.clock import Clock, SystemClock
from ottla.cli.terminal import EXIT_FAILED, EXIT_INTERRUPTED

PAUSE_MS = 500
KEPT_PAUSE_MS = 100
PAUSE_MS_MAX = 10_000
PAUSES_MAX = 20  # that differ: more would only make large numbers
RESTARTS_MAX = 10
STEADY_MS = 60_000  # whoever ran this long starts counting anew
KEPT_STEADY_MS = 5_000  # … and whoever is kept: longer pauses are for what cannot run, not for what was killed twice
STOP_MS_ALONE = 3_000  # so long the others of many go on while one of them stops
LINE_BYTES_MAX = 64 * 1024
TICK_SECONDS = 0.5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SET_PARENT_DEATH_SIGNAL = 1


class RestartPolicy:
    """When a crashed child is started again. Pure: times come in, pauses go out."""

    def __init__(
        self, first_pause_ms: int = PAUSE_MS, restarts_max: int | None = RESTARTS_MAX, steady_ms: int = STEADY_MS
    ) -> None:
        self.first_pause_ms = first_pause_ms
        self.restarts_max = restarts_max  # None: for ever
        self.steady_ms = steady_ms
        self.restarts = 0
        self.started_ms = 0

    def started(self, now_ms: int) -> None:
        self.started_ms = now_ms

    def pause_ms(self, now_ms: int) -> int | None:
        """How long to wait before the next start, or None if it has crashed too often."""
        if now_ms - self.started_ms >= self.steady_ms:
            self.restarts = 0
        if self.restarts_max is not None and self.restarts >= self.restarts_max:
            return None
        pause = min(self.first_pause_ms << min(self.restarts, PAUSES_MAX), PAUSE_MS_MAX)
        self.restarts += 1
        return pause

    def __repr__(self) -> str:
        return f"<RestartPolicy restarts={self.restarts}>"


class Child:
    """One process under supervision."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        on_end: Callable[[int], None] | None = None,
        *,
        is_one_of_many: bool = False,
        is_kept: bool = False,
        needs: Child | None = None,
        good_codes: frozenset[int] = frozenset({0}),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.on_end = on_end
        self.is_one_of_many = is_one_of_many
        self.is_kept = is_kept
        self.needs = needs
        self.good_codes = good_codes  # how it ends when it is asked to stop
        self.environment = environment  # on top of ours
        self.policy = RestartPolicy(KEPT_PAUSE_MS, None, KEPT_STEADY_MS) if is_kept else RestartPolicy()
        self.process: subprocess.Popen[bytes] | None = None
        self.buffer = b""
        self.was_ready = False
        self.is_told_to_stop = False
        self.told_to_stop_ms = 0
        self.restart_at_ms: int | None = None

    def start(self, now_ms: int) -> None:
        self.restart_at_ms = None
        self.is_told_to_stop = False
        self.policy.started(now_ms)
        self.process = subprocess.Popen(  # noqa: S603 (our own command line)
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if self.is_guest or self.is_one_of_many or self.is_kept else None,
            env={**os.environ, **self.environment} if self.environment is not None else None,
            start_new_session=True,
            preexec_fn=_stop_with_parent,  # noqa: PLW1509 (this process has one thread)
        )
        os.set_blocking(self.stdout.fileno(), False)

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout

    def lines(self) -> list[str] | None:
        """What it has said on stdout since last time, in whole lines; None once it has closed it."""
        try:
            data = os.read(self.stdout.fileno(), LINE_BYTES_MAX)
        except BlockingIOError:
            return []
        if not data:
            return None
        *whole, self.buffer = (self.buffer + data).split(b"\n")
        self.buffer = self.buffer[-LINE_BYTES_MAX:]
        return [line.decode("utf-8", "replace") for line in whole]

    def send(self, number: int) -> None:
        """To the process; what kills goes to all that it has started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                if number == signal.SIGKILL:
                    os.killpg(self.process.pid, number)
                else:
                    self.process.send_signal(number)

    @property
    def is_guest(self) -> bool:
        return self.on_end is not None

    def __repr__(self) -> str:
        pid = self.process.pid if self.process is not None else None
        return f"<Child {self.name} pid={pid} was_ready={self.was_ready} {self.policy}>"


class Supervisor:
    """Runs children until somebody stops it. `on_line` sees each line of stdout and says whether it means "ready"."""

    def __init__(
        self,
        children: Sequence[Child],
        on_line: Callable[[Child, str], bool],
        say: Callable[[str], None],
        clock: Clock | None = None,
        on_tick: Callable[[], None] | None = None,
        on_hangup: Callable[[], None] | None = None,
    ) -> None:
        """SIGHUP stops everything, too, unless `on_hangup` makes something else of it."""
        self.children = list(children)
        self.on_line = on_line
        self.say = say
        self.on_tick = on_tick
        self.on_hangup = on_hangup
        self.on_ended: Callable[[Child], None] | None = None  # told of each end, before anything is made of it
        self.clock = clock or SystemClock()
        self.selector = selectors.DefaultSelector()
        self.stops = 0  # how many stop signals came
        self.code: int | None = None  # the exit code, once it is clear

    def run(self) -> int:
        wake_out, wake_in = socket.socketpair()
        wake_in.setblocking(False)
        wake_out.setblocking(False)
        self.selector.register(wake_out, selectors.EVENT_READ)
        signal.set_wakeup_fd(wake_in.fileno(), warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, self._signalled)
        for child in self.children:
            if child.needs is None:
                self._start(child)
        while any(child.process is not None for child in self.children) or (self.code is None and self.stops == 0):
            for key, _ in self.selector.select(self._seconds_to_wait()):
                if key.data is None:
                    wake_out.recv(4096)
                elif isinstance(key.data, Child):
                    self._read(key.data)
                else:
                    key.data()
            self._reap()
            self._restart()
            if self.is_ending and self.stops < 2:
                self.stop()  # who has waited long enough for the one before
            if self.on_tick is not None:
                self.on_tick()
        return self.code if self.code is not None else 0

    def start(self, guest: Child) -> None:
        """One more, while the others run; nothing is started any more once everything ends."""
        assert guest.is_guest
        if self.stops == 0 and self.code is None:
            self.children.append(guest)
            self._start(guest)

    def watch(self, source: socket.socket, on_readable: Callable[[], None]) -> None:
        """One more source of news."""
        self.selector.register(source, selectors.EVENT_READ, on_readable)

    def stop(self) -> None:
        """Ask those children to stop whose turn it is; asked again by a person, do not wait for them."""
        for child in self.children:
            child.restart_at_ms = None
            if self.stops > 1:
                child.send(signal.SIGKILL)
        if self.stops > 1:
            self.code = EXIT_INTERRUPTED
            return
        now_ms = self.clock.monotonic_ms()
        for child in next_to_stop([child for child in self.children if child.process is not None], now_ms):
            if not child.is_told_to_stop:
                child.is_told_to_stop = True
                child.told_to_stop_ms = now_ms
                child.send(signal.SIGTERM)

    @property
    def is_ending(self) -> bool:
        return self.stops > 0 or self.code is not None

    def _signalled(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP and self.on_hangup is not None:
            self.on_hangup()
        elif number != signal.SIGCHLD:
            self.stops += 1
            self.say("Stopping. Once more Ctrl-C does not wait." if self.stops == 1 else "Stopping at once.")
            self.stop()

    def _start(self, child: Child) -> None:
        child.start(self.clock.monotonic_ms())
        self.selector.register(child.stdout, selectors.EVENT_READ, child)

    def _read(self, child: Child) -> None:
        lines = child.lines()
        if lines is None:
            self._forget_stdout(child)
            return
        for line in lines:
            if self.on_line(child, line) and not child.was_ready:
                child.was_ready = True
                self._start_those_who_need(child)

    def _start_those_who_need(self, child: Child) -> None:
        for other in self.children:
            if other.needs is child and other.process is None and not self.is_ending:
                self._start(other)

    def _forget_stdout(self, child: Child) -> None:
        with contextlib.suppress(KeyError, ValueError):  # forgotten before
            self.selector.unregister(child.stdout)

    def _reap(self) -> None:
        for child in list(self.children):
            if child.process is None or child.process.poll() is None:
                continue
            self._read(child)  # its last words
            self._forget_stdout(child)
            child.stdout.close()
            code = child.process.returncode
            child.process = None
            self._ended(child, code)

    def _ended(self, child: Child, code: int) -> None:
        if self.on_ended is not None:
            self.on_ended(child)
        if child.on_end is not None:
            self.children.remove(child)
            child.on_end(code)
        elif not self.is_ending:
            self._ended_by_itself(child, code)
        elif code not in child.good_codes and self.code is None:
            self.code = EXIT_FAILED
        if self.is_ending and self.stops < 2:
            self.stop()  # now the next ones

    def _ended_by_itself(self, child: Child, code: int) -> None:
        if child.is_kept and code == 0:
            self.say(f"The {child.name} was stopped: starting it again.")
            child.restart_at_ms = self.clock.monotonic_ms()
            return
        if not (child.was_ready or child.is_kept) and code != 0:
            self._give_up(code if code > 0 else EXIT_FAILED)
            return
        if code == 0:
            self.say(f"The {child.name} was stopped.")
            self._do_without(child, 0)
            return
        pause_ms = child.policy.pause_ms(self.clock.monotonic_ms())
        if pause_ms is None:
            self.say(f"The {child.name} has crashed {RESTARTS_MAX} times in a row: giving up.")
            self._do_without(child, EXIT_FAILED)
            return
        self.say(f"The {child.name} ended {_how(code)}: starting it again in {pause_ms / 1000:g} s.")
        child.restart_at_ms = self.clock.monotonic_ms() + pause_ms

    def _do_without(self, child: Child, code: int) -> None:
        """One of many may be missing; without any other child, or without the last of many, there is no point."""
        others = [other for other in self.children if other.is_one_of_many and other is not child]
        if not child.is_one_of_many or not any(other.process or other.restart_at_ms for other in others):
            self._give_up(code)

    def _give_up(self, code: int) -> None:
        self.code = code
        self.stop()

    def _restart(self) -> None:
        now_ms = self.clock.monotonic_ms()
        for child in self.children:
            if child.restart_at_ms is not None and child.restart_at_ms <= now_ms:
                self._start(child)

    def _seconds_to_wait(self) -> float | None:
        now_ms = self.clock.monotonic_ms()
        times = [child.restart_at_ms for child in self.children if child.restart_at_ms is not None]
        ends = [child.told_to_stop_ms + STOP_MS_ALONE for child in self.children if stops_alone(child)]
        times += [end_ms for end_ms in ends if end_ms > now_ms]  # past ones have been acted on
        waits = [max(0, at_ms - now_ms) / 1000 for at_ms in times]
        return min([*waits, *([TICK_SECONDS] if self.on_tick is not None else [])], default=None)

    def __repr__(self) -> str:
        return f"<Supervisor stops={self.stops} code={self.code} {self.children}>"


def next_to_stop(running: Sequence[Child], now_ms: int) -> list[Child]:
    """Whose turn it is: guests, then the last of many, then those whom nobody needs any more. Pure."""
    if guests := [child for child in running if child.is_guest]:
        return guests
    many = [child for child in running if child.is_one_of_many]
    late = [child for child in many if child.is_told_to_stop and now_ms - child.told_to_stop_ms >= STOP_MS_ALONE]
    waited_for = [child for child in many if child not in late][-1:]
    needed = {child.needs.name for child in running if child.needs is not None}
    return [child for child in running if child.name not in needed and (child not in many or child in waited_for)]


def stops_alone(child: Child) -> bool:
    """Whether the next of many waits for this one."""
    return child.is_one_of_many and child.is_told_to_stop and child.process is not None


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def _stop_with_parent() -> None:
    """In the child, before it becomes the broker: have the kernel stop it when the supervisor dies (Linux only)."""
    import ctypes  # noqa: PLC0415

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
