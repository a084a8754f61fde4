"""The poller on a scripted epoll and clock: for whom it stays awake."""

from __future__ import annotations

import select
import time
from typing import Protocol

import pytest

from ottla.network.close_reason import CloseReason
from ottla.network.poller import ROUND_NS_MAX, SPIN_NS, Poller

ASK_NS = 1_000  # what it takes to ask epoll once
CLIENT = 99
WAKE_NS = 60_000  # what it takes to be woken


class Client:
    """A connection that has nothing to do."""

    def on_readable(self) -> None: ...

    def on_writable(self) -> None: ...

    def flush(self) -> None: ...

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        raise AssertionError(reason)


class Waited:
    """How long others had the core, in parts of a hundred of the time between two looks."""

    def __init__(self, epoll: ScriptedEpoll) -> None:
        self.epoll = epoll
        self.percent = self.last_ns = self.looks = 0

    def since_last(self) -> int:
        past_ns, self.last_ns = self.epoll.now_ns - self.last_ns, self.epoll.now_ns
        self.looks += 1
        return past_ns * self.percent // 100


class ScriptedEpoll:
    """Something comes so long after each answer; notes how long it was waited for, awake and asleep."""

    def __init__(self) -> None:
        self.event = select.EPOLLIN
        self.waited = Waited(self)
        self.now_ns = 1
        self.next_ns = 0
        self.asked_awake = 0
        self.sleeps = 0

    def poll(self, timeout: float | None, _: int) -> list[tuple[int, int]]:
        if timeout == 0:
            self.asked_awake += 1
            self.now_ns += ASK_NS
            return [(CLIENT, self.event)] if self.now_ns >= self.next_ns else []
        self.sleeps += 1
        self.now_ns = max(self.now_ns, self.next_ns) + WAKE_NS
        return [(CLIENT, self.event)]

    def register(self, *_: object) -> None: ...

    def close(self) -> None: ...


class Play(Protocol):
    def __call__(self, gaps_us: list[int], times: int, event: int = ...) -> ScriptedEpoll: ...


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    epoll = ScriptedEpoll()
    poller = Poller()
    poller.close()
    poller._epoll = epoll  # type: ignore[assignment]
    poller._run_delay = epoll.waited  # type: ignore[assignment]
    poller.watch(CLIENT, Client())
    monkeypatch.setattr(time, "monotonic_ns", lambda: epoll.now_ns)

    def run(gaps_us: list[int], times: int, event: int = select.EPOLLIN) -> ScriptedEpoll:
        """Each gap after the other, so many times; what was counted in that time."""
        epoll.event = event
        epoll.asked_awake = epoll.sleeps = 0
        for _ in range(times):
            for gap_us in gaps_us:
                epoll.next_ns = epoll.now_ns + gap_us * 1000
                poller.select(None)
        return epoll

    return run


def test_requests_that_follow_each_other_at_once_are_waited_for_awake(play: Play) -> None:
    play([50], 50)
    assert play([50], 100).sleeps == 0


def test_one_long_wait_among_many_short_ones_does_not_end_it(play: Play) -> None:
    play([50], 50)
    assert play([50] * 30 + [5_000], 10).sleeps == 10


def test_a_producer_and_a_consumer_of_few_messages_are_waited_for_asleep(play: Play) -> None:
    play([150, 850], 50)
    assert play([150, 850], 100).asked_awake == 0


def test_where_nothing_is_met_it_soon_gives_up(play: Play) -> None:
    play([50], 50)
    seen = play([1_000], 100)
    assert 0 < seen.asked_awake <= 5 * SPIN_NS // ASK_NS


def test_a_request_that_only_waking_up_made_late_counts_as_a_short_wait(play: Play) -> None:
    play([220], 50)
    assert play([220], 100).sleeps == 0


def test_a_client_that_reads_a_large_answer_is_no_sign_of_requests_to_come(play: Play) -> None:
    play([50], 100, select.EPOLLOUT)
    assert play([50], 100, select.EPOLLOUT).asked_awake == 0


def test_the_poller_does_not_spin_on_a_contended_cpu(play: Play) -> None:
    waited = play([50], 50).waited
    waited.percent = 60
    play([50], 300)
    assert play([50], 100).asked_awake == 0
    waited.percent = 5
    play([50], 300)
    waited.looks = 0
    assert play([50], 1_000).sleeps == 0
    assert 0 < waited.looks < 10  # a look is dear


class Slow:
    """A connection whose requests take their time."""

    def __init__(self, epoll: ScriptedEpoll, served: list[int], number: int, taken_ns: int) -> None:
        self.epoll, self.served, self.number, self.taken_ns = epoll, served, number, taken_ns
        self.reason = ""

    def on_readable(self) -> None:
        self.served.append(self.number)
        self.epoll.now_ns += self.taken_ns

    def on_writable(self) -> None: ...

    def flush(self) -> None: ...

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        self.reason = reason


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> tuple[Poller, list[int], list[Slow]]:
    """Ten connections that always have a request of a millisecond; whom it served, in which order."""
    epoll = ScriptedEpoll()
    events = [(number, select.EPOLLIN) for number in range(10)]
    monkeypatch.setattr(epoll, "poll", lambda *_: list(events))
    monkeypatch.setattr(epoll, "unregister", lambda number: events.remove((number, select.EPOLLIN)), raising=False)
    poller = Poller()
    poller.close()
    poller._epoll = epoll  # type: ignore[assignment]
    monkeypatch.setattr(time, "monotonic_ns", lambda: epoll.now_ns)
    served: list[int] = []
    connections = [Slow(epoll, served, number, 1_000_000) for number in range(10)]
    for connection in connections:
        poller.watch(connection.number, connection)
    return poller, served, connections


def test_a_round_ends_in_time_and_the_next_one_begins_with_the_deferred_events(
    crowd: tuple[Poller, list[int], list[Slow]],
) -> None:
    poller, served, _ = crowd
    lengths = []
    while len(served) < 40:
        before = len(served)
        poller.select(None)
        lengths.append(len(served) - before)
    assert served[:40] == list(range(10)) * 4, "each connection has its turn before any has a second one"
    longest_ns = ROUND_NS_MAX + 4 * 1_000_000  # the clock is looked at after every fourth
    assert max(lengths) * 1_000_000 <= longest_ns
    assert poller.longest_ns <= longest_ns


def test_a_closed_connection_with_a_pending_event_is_not_called_nor_its_successor(
    crowd: tuple[Poller, list[int], list[Slow]],
) -> None:
    poller, served, _ = crowd
    poller.select(None)
    waits = served[-1] + 1
    poller.unwatch(waits)
    assert not poller._deferred_events or all(number != waits for number, _ in poller._deferred_events)
    poller.select(None)
    assert waits not in served
