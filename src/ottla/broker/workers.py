"""The threads that do a broker's disk work: syncs, cold reads, checks, recovery, removal of files.

`num.io.threads` says how many of them work at a time, and can be changed while they do: what is too much waits. The
time that they take for a request counts for its client, if he has a quota of that.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from ottla.quotas.charging import charged

THREADS_MAX: Final = 256  # whatever the setting says: each one costs memory

P = ParamSpec("P")
T = TypeVar("T")


class Workers(ThreadPoolExecutor):
    """A pool whose number of busy threads can be changed. Idle threads beyond it stay, and cost next to nothing."""

    def __init__(self, threads: int) -> None:
        super().__init__(THREADS_MAX, thread_name_prefix="worker")
        self._lock = threading.Lock()
        self._limit = threads
        self._busy = 0
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def limit(self, threads: int) -> None:
        """Another number from now on; what has begun is not stopped."""
        with self._lock:
            self._limit = threads
        self._start_waiting()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        work = charged(lambda: fn(*args, **kwargs))
        with self._lock:
            self._waiting.append((future, work))
        self._start_waiting()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish what was submitted, however little may run at a time, then end the threads."""
        self.limit(sys.maxsize)
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _start_waiting(self) -> None:
        with self._lock:
            while self._waiting and self._busy < self._limit:
                self._busy += 1
                super().submit(self._run, *self._waiting.popleft())

    def _run(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                _finish(future, work)
        finally:
            with self._lock:
                self._busy -= 1
            self._start_waiting()

    def __repr__(self) -> str:
        return f"<Workers {self._busy} busy of {self._limit}, {len(self._waiting)} waiting>"


def _finish(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 (whoever waits for the result gets it)
        future.set_exception(error)
    else:
        future.set_result(result)
