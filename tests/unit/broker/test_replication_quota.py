"""The replication throttle, and the windows over which its rate is measured (Kafka's SimpleRate)."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.unit.broker.nodes import node
from tests.virtual_time import LoopClock, run

from ottla.base.setting_types import LONG_MAX
from ottla.broker.log_manager.log_dir_moves import LogDirMoves
from ottla.broker.replica_manager.replica_fetchers import ReplicaFetcherManager
from ottla.broker.replica_manager.replication_quota import ReplicationQuotaManager, throttles
from ottla.quotas.meter_registry import Windows


class Clock:
    def __init__(self):
        self.ms = 0

    def now_ms(self):
        return self.ms

    def monotonic_ms(self):
        return self.ms


DEFAULT = Windows()


def make(rate, is_throttled=True, windows=DEFAULT):
    clock = Clock()
    limit = SimpleNamespace(rate=rate)
    return ReplicationQuotaManager(clock, lambda: limit.rate, lambda _: is_throttled, windows), clock, limit


def test_a_replica_above_the_rate_waits():
    quota, clock, _ = make(1000)
    assert quota.wait_ms(None, True) == 0
    quota.record(None, 1500)
    assert quota.wait_ms(None, True) == 100, "settings may change meanwhile"
    clock.ms = 1460
    assert quota.wait_ms(None, True) == 41
    clock.ms = 1499
    assert quota.wait_ms(None, True) == 2
    clock.ms = 1500
    assert quota.wait_ms(None, True) == 0


def test_in_sync_replicas_never_wait():
    quota, _, _ = make(1000)
    quota.record(None, 10**9)
    assert not quota.wait_ms(None, False)


def test_without_a_rate_or_without_throttled_replicas_nothing_waits():
    for quota in (make(LONG_MAX)[0], make(1000, is_throttled=False)[0]):
        quota.record(None, 10**9)
        assert not quota.wait_ms(None, True)


def test_a_removed_rate_ends_the_wait():
    quota, _, limit = make(1)
    quota.record(None, 10**9)
    assert quota.wait_ms(None, True)
    limit.rate = LONG_MAX
    assert not quota.wait_ms(None, True)


def test_unused_capacity_is_limited():
    quota, clock, _ = make(1000)
    clock.ms = 3_600_000
    quota.record(None, 2500)
    assert quota.wait_ms(None, True)


def test_a_high_rate_is_reached_with_reads_of_a_megabyte():
    rate, seconds = 50_000_000, 60
    quota, clock, _ = make(rate)
    while clock.ms < seconds * 1000:
        wait_ms = quota.wait_ms(None, True)
        if wait_ms:
            clock.ms += wait_ms
        else:
            clock.ms += 1  # a read takes its time, too
            quota.record(None, 1 << 20)
    assert quota.bytes == pytest.approx(rate * seconds, rel=0.05)


def test_a_topic_names_its_throttled_replicas():
    assert throttles(("*",), 3, 1)
    assert throttles(("0:1", "3:1"), 3, 1)
    assert not throttles(("3:2",), 3, 1)
    assert not throttles(("",), 3, 1)


def copied_until(quota, clock, end_ms, step_ms=100, piece=100):
    """The bytes copied by a replica that copies a piece whenever it is allowed."""
    copied = 0
    while clock.ms < end_ms:
        while not quota.wait_ms(None, True):
            quota.record(None, piece)
            copied += piece
        clock.ms += step_ms
    return copied


def test_one_window_may_be_copied_at_once_and_then_the_rate():
    for size_seconds in (1, 3):
        quota, clock, _ = make(1000, windows=Windows(11, size_seconds * 1000))
        assert copied_until(quota, clock, 100) == size_seconds * 1000 + 100
        assert copied_until(quota, clock, 100_000) == pytest.approx(100_000, rel=0.05)


@pytest.mark.parametrize("num", [2, 11])
def test_excess_bytes_are_forgotten_when_their_window_has_left(num):
    quota, clock, _ = make(1, windows=Windows(num, 1000))
    quota.record(None, 10**9)
    clock.ms = num * 1000 - 1
    assert quota.wait_ms(None, True)
    clock.ms += 1
    assert not quota.wait_ms(None, True)


@pytest.mark.parametrize(("num", "saved"), [(2, 1_000), (11, 5_000)])
def test_unused_capacity_of_the_windows_can_be_used_later(num, saved):
    quota, clock, _ = make(1000, windows=Windows(num, 1000))
    for _ in range(50):
        quota.record(None, 1)
        clock.ms += 100
    assert copied_until(quota, clock, clock.ms + 1) == pytest.approx(saved, abs=200)


def test_a_rate_of_zero_allows_one_piece_per_all_windows():
    quota, clock, _ = make(0, windows=Windows(3, 1000))
    assert copied_until(quota, clock, 9_000) == 300


def test_in_sync_replicas_are_not_charged():
    """Otherwise the copies of a fast producer would use up the rate, and other replicas would never catch up."""
    quota, _, _ = make(1000)
    quota.record(None, 10**9, is_behind=False)
    assert not quota.wait_ms(None, True)
    quota.record(None, 10**9, is_behind=True)
    assert quota.wait_ms(None, True)


def test_partitions_of_one_fetch_share_the_rate():
    """Regression: eight new partitions returned eight megabytes in one response, under a throttle of one byte per
    second.
    """
    quota, clock, _ = make(1)
    assert quota.shared_wait_ms(None, True, is_first=True, bytes_promised=1 << 20) == 0
    assert quota.shared_wait_ms(None, True, is_first=False, bytes_promised=2 << 20) > 0
    assert quota.shared_wait_ms(None, False, is_first=False, bytes_promised=2 << 20) == 0, "in sync"
    quota.record(None, 1 << 20)
    assert quota.shared_wait_ms(None, True, is_first=True, bytes_promised=1 << 20) == 100

    quota, clock, _ = make(50 << 20)
    turns = [quota.shared_wait_ms(None, True, number == 0, (number + 1) << 20) for number in range(60)]
    assert turns.count(0) == 50, "as many as the rate allows"
    quota.record(None, 20 << 20)
    clock.ms = 1_500
    assert quota.shared_wait_ms(None, True, is_first=False, bytes_promised=55 << 20) == 0
    assert quota.shared_wait_ms(None, True, is_first=False, bytes_promised=56 << 20) > 0


# ---- the settings


def fetchers_of(settings):
    replicas = SimpleNamespace(partitions={}, on_role=None)
    return ReplicaFetcherManager(node(settings), replicas, None, None)


@pytest.mark.parametrize("name", ["leader_quota", "quota"])
def test_the_replication_window_settings_are_used(name):
    settings = {"replication.quota.window.num": "2", "replication.quota.window.size.seconds": "3"}
    rates = {f"{side}.replication.throttled.rate": "1000" for side in ("leader", "follower")}
    made = []
    for texts in ({}, settings):
        quota = getattr(fetchers_of({**texts, **rates}), name)
        quota._is_throttled = lambda _: True
        clock = quota._clock = Clock()
        at_once = copied_until(quota, clock, 1)
        quota.record(None, 10**9)
        while quota.wait_ms(None, True):
            clock.ms += 100
        made.append((at_once, clock.ms))
    assert made == [(1_100, 11_000), (3_100, 6_000)]


@pytest.mark.parametrize(("num", "seconds"), [(2, 1), (2, 3), (11, 1)])
def test_the_window_settings_of_log_dir_moves_are_used(num, seconds):
    """A piece that exceeds the limit by far is forgotten when its window has left."""
    settings = {
        "alter.log.dirs.replication.quota.window.num": str(num),
        "alter.log.dirs.replication.quota.window.size.seconds": str(seconds),
        "replica.alter.log.dirs.io.max.bytes.per.second": "1000",
    }

    async def scene():
        me = node(settings, clock=LoopClock())
        replicas = SimpleNamespace(log_dirs=SimpleNamespace(dirs=["a"]))
        moves, move = (
            LogDirMoves(replicas, me.dynamic_config, me.clock, None, None, None),
            SimpleNamespace(is_wanted=True),
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(seconds):
            await moves._wait_for_turn(move, 1_000)
        await moves._wait_for_turn(move, 10**9)
        assert loop.time() == began, "one window and one more piece are copied at once"
        await moves._wait_for_turn(move, 1)
        return loop.time() - began

    assert run(scene()) == pytest.approx(num * seconds, abs=0.01)
