"""What a request costs: the loop's time and that of workers, not the time in which it waits."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from ottla.broker.offload import Workers
from ottla.quotas import request_time
from ottla.quotas.request_time import ChargedCoroutine, RequestTimeCharge, loop_work

SECOND = 100.0  # percent of a thread


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.ns = 1

    def __call__(self) -> int:
        return self.ns

    def work(self, seconds: float) -> float:
        self.ns += int(seconds * 1e9)
        return seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(request_time, "monotonic_ns", made)
    return made


def test_only_the_loop_s_own_time_counts(clock: Clock) -> None:
    settled: list[float] = []
    charge = RequestTimeCharge(settled.append)
    charge.begin()
    clock.work(1)
    charge.pause()
    clock.work(10)
    charge.begin()
    clock.work(2)
    charge.finish()
    assert settled == [pytest.approx(3 * SECOND)]
    assert loop_work.charge is None


class Pause:
    """Gives the loop back once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def test_what_workers_do_for_a_request_counts_and_what_they_do_for_others_does_not(clock: Clock) -> None:
    settled: list[float] = []
    workers, gate = Workers(1), threading.Event()  # else the worker's time would pass while the loop's is taken

    def slow(seconds: float) -> float:
        assert gate.wait(60)
        if seconds > 5:  # what fails took a thread's time, too
            clock.work(seconds)
            raise ZeroDivisionError
        return clock.work(seconds)

    async def request() -> list[Any]:
        clock.work(1)
        asked = [workers.submit(slow, 5), workers.submit(slow, 7)]
        await Pause()
        clock.work(1)
        return [asked[0].result(60), asked[1].exception(60)]

    charge = RequestTimeCharge(settled.append)
    steps = ChargedCoroutine(request(), charge).__await__()
    next(steps)
    other = workers.submit(slow, 3)
    gate.set()
    assert other.result(60) == 3
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert (end.value.value[0], type(end.value.value[1])) == (5, ZeroDivisionError)
    charge.finish()
    workers.shutdown()
    assert settled == [pytest.approx(14 * SECOND)]


def test_a_request_that_was_answered_pays_nothing_more(clock: Clock) -> None:
    settled: list[float] = []
    workers = Workers(1)
    charge = RequestTimeCharge(settled.append)
    charge.begin()
    charge.finish()
    workers.submit(clock.work, 5).result(60)
    workers.shutdown()
    assert settled == [0]
