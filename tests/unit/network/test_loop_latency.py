"""Where the time of a long round went."""

from __future__ import annotations

import select
import time
from pathlib import Path

import pytest

from ottla.network import loop_latency
from ottla.network.close_reason import CloseReason
from ottla.network.loop_latency import IterationTime, SchedulerDelay, SlowIterations
from ottla.network.poller import MARK_NS, Poller

MS = 1_000_000
CLIENT = 99


class Kernel:
    """What it counts for a thread, and its clock."""

    def __init__(self) -> None:
        self.now_ns = 10 * MARK_NS
        self.cpu_ns = self.delay_ns = 0
        self.asked = 0

    def total(self) -> int:
        self.asked += 1
        return self.delay_ns

    def spend(self, running: int = 0, waiting: int = 0, asleep: int = 0) -> None:
        """Milliseconds."""
        self.cpu_ns += running * MS
        self.delay_ns += waiting * MS
        self.now_ns += (running + waiting + asleep) * MS


class Client:
    """Its request takes so much."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.costs = (0, 0, 0)

    def on_readable(self) -> None:
        self.kernel.spend(*self.costs)

    def on_writable(self) -> None: ...

    def flush(self) -> None: ...

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        raise AssertionError(reason)


class Epoll:
    def poll(self, *_: object) -> list[tuple[int, int]]:
        return [(CLIENT, select.EPOLLIN)]

    def register(self, *_: object) -> None: ...


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    found = Kernel()
    monkeypatch.setattr(time, "monotonic_ns", lambda: found.now_ns)
    monkeypatch.setattr(time, "thread_time_ns", lambda: found.cpu_ns)
    return found


@pytest.fixture
def poller(kernel: Kernel) -> Poller:
    poller = Poller()
    poller.close()
    poller._epoll = Epoll()  # type: ignore[assignment]
    poller.slow_iterations = SlowIterations(kernel)  # type: ignore[arg-type]
    return poller


def serve(poller: Poller, kernel: Kernel, *rounds: tuple[int, int, int]) -> None:
    """Rounds that cost so many milliseconds at work, waiting for a core and asleep."""
    client = Client(kernel)
    poller._watched[CLIENT] = client
    for client.costs in rounds:
        poller.select(0)
    client.costs = (0, 0, 0)
    poller.select(0)


def test_of_a_long_round_is_known_what_it_was(poller: Poller, kernel: Kernel) -> None:
    serve(poller, kernel, (2, 0, 0), (4, 20, 6), (0, 0, 12), (2, 0, 0))
    assert poller.slow_iterations.longest == IterationTime(4 * MS, 20 * MS, 6 * MS)
    assert poller.slow_iterations.total == IterationTime(4 * MS, 20 * MS, 18 * MS)
    assert (poller.slow_count, poller.longest_ns, poller.slow_iterations.longest_running_ns) == (2, 30 * MS, 4 * MS)


def test_the_most_work_in_a_round_need_not_be_in_the_longest(poller: Poller, kernel: Kernel) -> None:
    serve(poller, kernel, (15, 0, 0), (1, 0, 40))
    assert (poller.slow_iterations.longest_running_ns, poller.slow_iterations.longest.running_ns) == (15 * MS, 1 * MS)


def test_short_rounds_are_marked_once_in_a_while_and_never_noted(poller: Poller, kernel: Kernel) -> None:
    client = Client(kernel)
    poller._watched[CLIENT] = client
    for _ in range(100):
        poller.select(0)
        kernel.now_ns += MARK_NS // 10
    assert kernel.asked <= 11
    assert poller.slow_iterations.total == IterationTime()


def test_what_the_kernel_has_not_counted_was_sleep(kernel: Kernel) -> None:
    slow = SlowIterations(kernel)  # type: ignore[arg-type]
    slow.begin()
    kernel.spend(running=3, waiting=30)
    slow.record(20 * MS, is_longest=True)  # it was marked before the round began: never more than the round took
    assert slow.longest == IterationTime(3 * MS, 17 * MS, 0)
    assert repr(slow) == "<SlowIterations 3.0 ms at work, 17.0 waiting for a core, 0.0 asleep>"


def test_what_took_long_before_the_broker_was_ready_is_forgotten(poller: Poller, kernel: Kernel) -> None:
    serve(poller, kernel, (4, 20, 6))
    poller.reset_measurements()
    assert (poller.longest_ns, poller.slow_count, poller.slow_iterations.longest, poller.slow_iterations.total) == (
        0,
        0,
        IterationTime(),
        IterationTime(),
    )


def test_it_returns_the_delay_since_the_last_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = tmp_path / "schedstat"
    monkeypatch.setattr(loop_latency, "PATH", str(counters))
    counters.write_text("900 5000 3\n")
    delay = SchedulerDelay()
    assert delay.since_last() == 0
    counters.write_text("900 7500 3\n")
    assert (delay.since_last(), delay.since_last()) == (2500, 0)
    delay.close()
    delay.close()
    assert delay.since_last() == 0


def test_without_kernel_statistics_the_delay_is_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_latency, "PATH", str(tmp_path / "none"))
    assert SchedulerDelay().since_last() == 0


def test_the_kernel_counts_for_this_thread() -> None:
    delay = SchedulerDelay()
    delay.since_last()
    assert delay.since_last() >= 0
    delay.close()
