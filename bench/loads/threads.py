"""Several connections at once: one thread each, which all start at the same moment.

Threads are enough here: they wait in send and receive, where the interpreter lock is free.
"""

import threading
from collections.abc import Callable

from bench.meter import Meter

SET_UP_SECONDS_MAX = 120.0

Load = Callable[[], None]


def run_together(broker_pid: int, set_up: Callable[[int], Load], count: int) -> Meter:
    """Every thread prepares its load with set_up(number), and all loads run together under one meter."""
    barrier = threading.Barrier(count + 1)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            load = set_up(number)
            barrier.wait(SET_UP_SECONDS_MAX)
            load()
        except BaseException as failure:  # noqa: BLE001  # raised again below, in the thread that asked
            failures.append(failure)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        with Meter(broker_pid) as meter:
            barrier.wait(SET_UP_SECONDS_MAX)
            meter.restart()
            for thread in threads:
                thread.join()
    except threading.BrokenBarrierError:
        pass
    real = [failure for failure in failures if not isinstance(failure, threading.BrokenBarrierError)]
    if failures:
        raise (real or failures)[0]
    return meter
