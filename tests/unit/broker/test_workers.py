"""The pool of threads for disk work, whose size can be changed."""

import threading
from concurrent.futures import wait

import pytest

from ottla.broker.workers import Workers

SECONDS_MAX = 60


class Gate:
    """Work that waits until it is let through, and counts how many wait at the same time."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def work(self) -> None:
        self.entered.release()
        assert self.open.wait(SECONDS_MAX)

    def expect(self, count: int) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=SECONDS_MAX)
        assert not self.entered.acquire(blocking=False), "more work at a time than threads are allowed"


def test_no_more_work_at_a_time_than_threads_are_allowed() -> None:
    workers, gate = Workers(2), Gate()
    futures = [workers.submit(gate.work) for _ in range(5)]
    gate.expect(2)
    assert repr(workers) == "<Workers 2 busy of 2, 3 waiting>"
    workers.limit(4)
    gate.expect(2)
    gate.open.set()
    assert not wait(futures, SECONDS_MAX).not_done
    workers.shutdown()


def test_a_smaller_number_holds_back_what_comes_later() -> None:
    workers, first, second = Workers(3), Gate(), Gate()
    futures = [workers.submit(first.work) for _ in range(3)]
    first.expect(3)
    workers.limit(1)
    futures += [workers.submit(second.work) for _ in range(2)]
    first.open.set()
    second.expect(1)
    second.open.set()
    assert not wait(futures, SECONDS_MAX).not_done
    workers.shutdown()


def test_results_and_errors_come_back() -> None:
    workers = Workers(1)
    assert workers.submit(divmod, 7, 2).result(SECONDS_MAX) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 1, 0).result(SECONDS_MAX)
    workers.shutdown()


def test_a_shutdown_finishes_everything_that_was_submitted() -> None:
    workers = Workers(1)
    done: list[int] = []
    futures = [workers.submit(done.append, number) for number in range(1000)]
    workers.shutdown()
    assert len(done) == 1000
    assert all(future.done() for future in futures)


def test_work_that_was_cancelled_is_not_done() -> None:
    workers, gate = Workers(1), Gate()
    first = workers.submit(gate.work)
    gate.expect(1)
    second = workers.submit(gate.work)
    assert second.cancel()
    gate.open.set()
    first.result(SECONDS_MAX)
    workers.shutdown()
    assert not gate.entered.acquire(blocking=False)
