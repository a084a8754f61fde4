"""Runs child processes: starts them, waits until they are ready, restarts crashed ones, stops them in order.

Rules:
1. One thread and one selector for output lines, signals and restarts. Nothing polls, except that `on_tick` is called a
   few times a second if it is set.
2. A child that ends before it was ready has printed the reason on stderr: the supervisor stops with its exit code.
3. A child that ends with 0 was stopped by another program: the supervisor stops with exit code 0.
4. A crashed child is restarted with exponential backoff, a bounded number of times in a row.
5. Each child has its own session, so Ctrl-C reaches only the supervisor, which stops the children in order. If the
   supervisor is killed, the kernel stops them.
6. A sidecar (a child with `on_end`) depends on the others, which do not depend on it. It is started later, its end is
   reported only to `on_end`, and it is stopped first. Its stderr is read as lines, too.
7. A pool of children (`is_one_of_many`) may lose members: a stopped or permanently failing member stays away, and the
   supervisor stops when none is left. Members are stopped one at a time, the last one first, so that each can hand over
   its work; a slow one delays the next only for a while. Their stderr is read as lines, too.
8. A child that `needs` another is started when that one is ready, and stopped before it.
9. A child that `is_kept` is always restarted, at once if it was stopped; rules 2, 3 and the limit of rule 4 do not
   apply.
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

BACKOFF_MS = 500
ALWAYS_RESTART_BACKOFF_MS = 100
BACKOFF_MS_MAX = 10_000
BACKOFF_DOUBLINGS_MAX = 20  # limits the exponent
RESTARTS_MAX = 10
RESTART_RESET_MS = 60_000  # the restart count is reset after this time
ALWAYS_RESTART_RESET_MS = (
    5_000  # shorter for children that are always restarted: long pauses are for those that cannot run at all
)
STOP_STAGGER_MS = 3_000  # a stopping pool member delays the next one for at most this time
LINE_BYTES_MAX = 64 * 1024
TICK_SECONDS = 0.5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SET_PARENT_DEATH_SIGNAL = 1


class RestartPolicy:
    """When a crashed child is restarted. Pure: times in, pauses out."""

    def __init__(
        self,
        first_pause_ms: int = BACKOFF_MS,
        restarts_max: int | None = RESTARTS_MAX,
        steady_ms: int = RESTART_RESET_MS,
    ) -> None:
        self.first_backoff_ms = first_pause_ms
        self.restarts_max = restarts_max  # None: unlimited
        self.reset_ms = steady_ms
        self.restarts = 0
        self.started_ms = 0

    def record_start(self, now_ms: int) -> None:
        self.started_ms = now_ms

    def next_backoff_ms(self, now_ms: int) -> int | None:
        """The pause before the next start; None after too many crashes."""
        if now_ms - self.started_ms >= self.reset_ms:
            self.restarts = 0
        if self.restarts_max is not None and self.restarts >= self.restarts_max:
            return None
        pause = min(self.first_backoff_ms << min(self.restarts, BACKOFF_DOUBLINGS_MAX), BACKOFF_MS_MAX)
        self.restarts += 1
        return pause

    def __repr__(self) -> str:
        return f"<RestartPolicy restarts={self.restarts}>"


class Child:
    """One supervised process."""

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
        self.on_exit = on_end
        self.is_pool_member = is_one_of_many
        self.is_always_restarted = is_kept
        self.depends_on = needs
        self.expected_exit_codes = good_codes  # exit codes after a stop request
        self.environment = environment  # added to the supervisor's environment
        self.policy = (
            RestartPolicy(ALWAYS_RESTART_BACKOFF_MS, None, ALWAYS_RESTART_RESET_MS) if is_kept else RestartPolicy()
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.buffer = b""
        self.was_ready = False
        self.is_stopping = False
        self.stop_requested_ms = 0
        self.restart_at_ms: int | None = None

    def start(self, now_ms: int) -> None:
        self.restart_at_ms = None
        self.is_stopping = False
        self.policy.record_start(now_ms)
        self.process = subprocess.Popen(  # noqa: S603 (our own command line)
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if self.is_sidecar or self.is_pool_member or self.is_always_restarted else None,
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
        """New lines on stdout since the last call; None after it was closed."""
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
        """Send a signal to the process; SIGKILL goes to its whole process group."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                if number == signal.SIGKILL:
                    os.killpg(self.process.pid, number)
                else:
                    self.process.send_signal(number)

    @property
    def is_sidecar(self) -> bool:
        return self.on_exit is not None

    def __repr__(self) -> str:
        pid = self.process.pid if self.process is not None else None
        return f"<Child {self.name} pid={pid} was_ready={self.was_ready} {self.policy}>"


class Supervisor:
    """Runs children until it is stopped. `on_line` receives each line of stdout and returns whether it means ready."""

    def __init__(
        self,
        children: Sequence[Child],
        on_line: Callable[[Child, str], bool],
        say: Callable[[str], None],
        clock: Clock | None = None,
        on_tick: Callable[[], None] | None = None,
        on_hangup: Callable[[], None] | None = None,
    ) -> None:
        """SIGHUP also stops everything, unless `on_hangup` is set."""
        self.children = list(children)
        self.on_line = on_line
        self.say = say
        self.on_tick = on_tick
        self.on_hangup = on_hangup
        self.on_child_exit: Callable[[Child], None] | None = None  # called for each end, before it is handled
        self.clock = clock or SystemClock()
        self.selector = selectors.DefaultSelector()
        self.stop_signals = 0  # number of received stop signals
        self.code: int | None = None  # the exit code, once it is known

    def run(self) -> int:
        wake_out, wake_in = socket.socketpair()
        wake_in.setblocking(False)
        wake_out.setblocking(False)
        self.selector.register(wake_out, selectors.EVENT_READ)
        signal.set_wakeup_fd(wake_in.fileno(), warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, self._signalled)
        for child in self.children:
            if child.depends_on is None:
                self._start(child)
        while any(child.process is not None for child in self.children) or (
            self.code is None and self.stop_signals == 0
        ):
            for key, _ in self.selector.select(self._seconds_to_wait()):
                if key.data is None:
                    wake_out.recv(4096)
                elif isinstance(key.data, Child):
                    self._read(key.data)
                else:
                    key.data()
            self._reap()
            self._restart()
            if self.is_stopping and self.stop_signals < 2:
                self.stop()  # members whose predecessor took too long
            if self.on_tick is not None:
                self.on_tick()
        return self.code if self.code is not None else 0

    def start(self, sidecar: Child) -> None:
        """Start a sidecar while the others run; does nothing during shutdown."""
        assert sidecar.is_sidecar
        if self.stop_signals == 0 and self.code is None:
            self.children.append(sidecar)
            self._start(sidecar)

    def watch(self, source: socket.socket, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` whenever the socket has data."""
        self.selector.register(source, selectors.EVENT_READ, on_readable)

    def stop(self) -> None:
        """Stop the children that are next in order; after a second signal, kill all of them."""
        for child in self.children:
            child.restart_at_ms = None
            if self.stop_signals > 1:
                child.send(signal.SIGKILL)
        if self.stop_signals > 1:
            self.code = EXIT_INTERRUPTED
            return
        now_ms = self.clock.monotonic_ms()
        for child in children_to_stop([child for child in self.children if child.process is not None], now_ms):
            if not child.is_stopping:
                child.is_stopping = True
                child.stop_requested_ms = now_ms
                child.send(signal.SIGTERM)

    @property
    def is_stopping(self) -> bool:
        return self.stop_signals > 0 or self.code is not None

    def _signalled(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP and self.on_hangup is not None:
            self.on_hangup()
        elif number != signal.SIGCHLD:
            self.stop_signals += 1
            self.say("Stopping. Once more Ctrl-C does not wait." if self.stop_signals == 1 else "Stopping at once.")
            self.stop()

    def _start(self, child: Child) -> None:
        child.start(self.clock.monotonic_ms())
        self.selector.register(child.stdout, selectors.EVENT_READ, child)

    def _read(self, child: Child) -> None:
        lines = child.lines()
        if lines is None:
            self._unregister_stdout(child)
            return
        for line in lines:
            if self.on_line(child, line) and not child.was_ready:
                child.was_ready = True
                self._start_dependents(child)

    def _start_dependents(self, child: Child) -> None:
        for other in self.children:
            if other.depends_on is child and other.process is None and not self.is_stopping:
                self._start(other)

    def _unregister_stdout(self, child: Child) -> None:
        with contextlib.suppress(KeyError, ValueError):  # already unregistered
            self.selector.unregister(child.stdout)

    def _reap(self) -> None:
        for child in list(self.children):
            if child.process is None or child.process.poll() is None:
                continue
            self._read(child)  # the remaining output
            self._unregister_stdout(child)
            child.stdout.close()
            code = child.process.returncode
            child.process = None
            self._handle_exit(child, code)

    def _handle_exit(self, child: Child, code: int) -> None:
        if self.on_child_exit is not None:
            self.on_child_exit(child)
        if child.on_exit is not None:
            self.children.remove(child)
            child.on_exit(code)
        elif not self.is_stopping:
            self._handle_unexpected_exit(child, code)
        elif code not in child.expected_exit_codes and self.code is None:
            self.code = EXIT_FAILED
        if self.is_stopping and self.stop_signals < 2:
            self.stop()  # the next children in order

    def _handle_unexpected_exit(self, child: Child, code: int) -> None:
        if child.is_always_restarted and code == 0:
            self.say(f"The {child.name} was stopped: starting it again.")
            child.restart_at_ms = self.clock.monotonic_ms()
            return
        if not (child.was_ready or child.is_always_restarted) and code != 0:
            self._shut_down(code if code > 0 else EXIT_FAILED)
            return
        if code == 0:
            self.say(f"The {child.name} was stopped.")
            self._stop_if_none_left(child, 0)
            return
        pause_ms = child.policy.next_backoff_ms(self.clock.monotonic_ms())
        if pause_ms is None:
            self.say(f"The {child.name} has crashed {RESTARTS_MAX} times in a row: giving up.")
            self._stop_if_none_left(child, EXIT_FAILED)
            return
        self.say(f"The {child.name} ended {_exit_text(code)}: restarting it in {pause_ms / 1000:g} s.")
        child.restart_at_ms = self.clock.monotonic_ms() + pause_ms

    def _stop_if_none_left(self, child: Child, code: int) -> None:
        """Continue if other pool members remain; otherwise stop the supervisor."""
        others = [other for other in self.children if other.is_pool_member and other is not child]
        if not child.is_pool_member or not any(other.process or other.restart_at_ms for other in others):
            self._shut_down(code)

    def _shut_down(self, code: int) -> None:
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
        ends = [child.stop_requested_ms + STOP_STAGGER_MS for child in self.children if delays_next_stop(child)]
        times += [end_ms for end_ms in ends if end_ms > now_ms]  # earlier ones are already handled
        waits = [max(0, at_ms - now_ms) / 1000 for at_ms in times]
        return min([*waits, *([TICK_SECONDS] if self.on_tick is not None else [])], default=None)

    def __repr__(self) -> str:
        return f"<Supervisor stops={self.stop_signals} code={self.code} {self.children}>"


def children_to_stop(running: Sequence[Child], now_ms: int) -> list[Child]:
    """The children to stop now: sidecars, then the last pool member, then those that no running child needs. Pure."""
    if guests := [child for child in running if child.is_sidecar]:
        return guests
    many = [child for child in running if child.is_pool_member]
    late = [child for child in many if child.is_stopping and now_ms - child.stop_requested_ms >= STOP_STAGGER_MS]
    waited_for = [child for child in many if child not in late][-1:]
    needed = {child.depends_on.name for child in running if child.depends_on is not None}
    return [child for child in running if child.name not in needed and (child not in many or child in waited_for)]


def delays_next_stop(child: Child) -> bool:
    """Whether the next pool member waits for this one."""
    return child.is_pool_member and child.is_stopping and child.process is not None


def _exit_text(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def _stop_with_parent() -> None:
    """In the child, before exec: ask the kernel to stop it when the supervisor dies (Linux only)."""
    import ctypes  # noqa: PLC0415

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
