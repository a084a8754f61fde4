"""Very many committed offsets: their memory, and the duration of a start that must read them all."""

import time
from collections.abc import Callable

from bench import group_wire as wire
from bench.errors import BenchError
from bench.figures import Figures
from bench.loads.members import group_error, wait_for_coordinator
from bench.meter import Meter
from bench.procfs import memory, wait_until_quiet
from bench.raw_client import Connection, Target

REQUESTS_AHEAD = 20
QUIET_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.02
LOADING = frozenset((14, 15, 16))  # load in progress, not available, not coordinator


def commit_many(target: Target, topic: str, prefix: str, groups: int, partitions: int) -> Figures:
    """One commit of all partitions for each group, by hand (no members)."""
    wait_for_coordinator(target, "bench", wire.GROUP)
    wait_until_quiet(target.pid, QUIET_SECONDS_MAX)
    before = memory(target.pid).rss_mb
    position = wire.commit_error_position(topic)
    with Connection(target) as connection, Meter(target.pid) as meter:
        for first in range(0, groups, REQUESTS_AHEAD):
            numbers = range(first, min(first + REQUESTS_AHEAD, groups))
            names = (f"{prefix}-{number}" for number in numbers)
            connection.send(b"".join(wire.commit_request(name, -1, "", topic, range(partitions), 1) for name in names))
            for _ in numbers:
                if error := wire.ERROR.unpack_from(connection.receive(), position)[0]:
                    raise BenchError(f"OffsetCommit was answered with error {error}")
    wait_until_quiet(target.pid, QUIET_SECONDS_MAX)
    return meter.figures(requests=groups) | {"more_mb": memory(target.pid).rss_mb - before}


def wait_until_loaded(target: Target, prefix: str, groups: int, started: float, check: Callable[[], None]) -> Figures:
    """Poll the groups until all their coordinators answer; seconds since the start of the process."""
    first = 0.0
    connection = _connect(target, check)
    for number in range(groups):
        while (error := group_error(connection, f"{prefix}-{number}")) in LOADING:
            check()
            time.sleep(PAUSE_SECONDS)
        if error:
            raise BenchError(f"OffsetFetch was answered with error {error}")
        first = first or time.perf_counter() - started
    seconds = time.perf_counter() - started
    connection.close()
    return {"all_loaded_s": seconds, "first_loaded_s": first, "rss_mb": memory(target.pid).rss_mb}


def _connect(target: Target, check: Callable[[], None]) -> Connection:
    while True:
        try:
            return Connection(target)
        except OSError:
            check()
            time.sleep(PAUSE_SECONDS)
