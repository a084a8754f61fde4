"""The poller on a scripted epoll and clock: for whom it stays awake."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ottla.network.poller import SPIN_NS, Poller

ASK_NS = 1_000  # what it takes to ask epoll once
WAKE_NS = 60_000  # what it takes to be woken


class ScriptedEpoll:
    """Something comes so long after each answer; notes how long it was waited for, awake and asleep."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.next_ns = 0
        self.asked_awake = 0
        self.sleeps = 0

    def poll(self, timeout: float | None, _: int) -> list[tuple[int, int]]:
        if timeout == 0:
            self.asked_awake += 1
            self.now_ns += ASK_NS
            return [(99, 1)] if self.now_ns >= self.next_ns else []
        self.sleeps += 1
        self.now_ns = max(self.now_ns, self.next_ns) + WAKE_NS
        return [(99, 1)]

    def register(self, *_: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[int], int], ScriptedEpoll]:
    epoll = ScriptedEpoll()
    poller = Poller()
    poller.close()
    poller._epoll = epoll  # type: ignore[assignment]
    monkeypatch.setattr(time, "monotonic_ns", lambda: epoll.now_ns)

    def run(gaps_us: list[int], times: int) -> ScriptedEpoll:
        """Each gap after the other, so many times; what was counted in that time."""
        epoll.asked_awake = epoll.sleeps = 0
        for _ in range(times):
            for gap_us in gaps_us:
                epoll.next_ns = epoll.now_ns + gap_us * 1000
                poller.select(None)
        return epoll

    return run


Play = Callable[[list[int], int], ScriptedEpoll]


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
