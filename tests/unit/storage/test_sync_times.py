"""How long the disks of a broker take: the fastest sync of the slowest folder."""

from __future__ import annotations

import pytest

from ottla.storage.sync_times import PERIOD_MS, SyncTimes


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.ms = 5 * PERIOD_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sync(times: SyncTimes, clock: Clock, folder: str, taken_ms: int) -> None:
    with times.timed(folder):
        clock.ms += taken_ms


def test_a_disk_that_nobody_uses_is_not_slow(clock: Clock) -> None:
    assert SyncTimes(clock).slowest_ms() == 0


def test_of_a_folder_the_fastest_counts_and_of_all_folders_the_slowest(clock: Clock) -> None:
    times = SyncTimes(clock)
    for folder, taken_ms in (("/a", 4000), ("/a", 2), ("/b", 700), ("/b", 600)):
        sync(times, clock, folder, taken_ms)
    assert times.slowest_ms() == 600


def test_what_is_long_over_counts_no_more(clock: Clock) -> None:
    times = SyncTimes(clock)
    sync(times, clock, "/a", 700)
    clock.ms += PERIOD_MS
    assert times.slowest_ms() == 700
    sync(times, clock, "/a", 900)
    assert times.slowest_ms() == 700
    clock.ms += PERIOD_MS
    assert times.slowest_ms() == 900
    clock.ms += PERIOD_MS
    assert times.slowest_ms() == 0


def test_a_disk_that_does_not_answer_is_as_slow_as_what_waits_for_it(clock: Clock) -> None:
    times = SyncTimes(clock)
    sync(times, clock, "/a", 1)
    with times.timed("/a"), times.timed("/b"):
        clock.ms += 3000
        assert times.slowest_ms() == 3000, "of /b nothing else is known"
        clock.ms += 3 * PERIOD_MS
        with times.timed("/b"):
            clock.ms += 5
        assert times.slowest_ms() == 3 * PERIOD_MS + 3005, "/a has not ended anything for long"


def test_a_sync_that_fails_counts_as_any_other(clock: Clock) -> None:
    times = SyncTimes(clock)
    with pytest.raises(OSError, match="gone"), times.timed("/a"):
        clock.ms += 40
        raise OSError("gone")
    assert times.slowest_ms() == 40
