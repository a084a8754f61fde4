"""The throttle of replicas that catch up."""

from types import SimpleNamespace

from ottla.base.setting_types import LONG_MAX
from ottla.broker.replicas.replication_quota import ReplicationQuota, throttles


class Clock:
    def __init__(self):
        self.ms = 0

    def now_ms(self):
        return self.ms

    def monotonic_ms(self):
        return self.ms


def make(rate, is_throttled=True):
    clock = Clock()
    limit = SimpleNamespace(rate=rate)
    return ReplicationQuota(clock, lambda: limit.rate, lambda _: is_throttled), clock, limit


def test_more_than_the_rate_makes_who_is_behind_wait():
    quota, clock, _ = make(1000)
    assert not quota.must_wait(None, True)
    quota.note(None, 1500)
    assert quota.must_wait(None, True)
    clock.ms = 1400
    assert quota.must_wait(None, True)
    clock.ms = 1500
    assert not quota.must_wait(None, True)


def test_replicas_that_keep_up_never_wait():
    quota, _, _ = make(1000)
    quota.note(None, 10**9)
    assert not quota.must_wait(None, False)


def test_without_a_rate_or_without_throttled_replicas_nobody_waits():
    for quota in (make(LONG_MAX)[0], make(1000, is_throttled=False)[0]):
        quota.note(None, 10**9)
        assert not quota.must_wait(None, True)


def test_a_rate_that_is_taken_away_ends_the_wait():
    quota, _, limit = make(1)
    quota.note(None, 10**9)
    assert quota.must_wait(None, True)
    limit.rate = LONG_MAX
    assert not quota.must_wait(None, True)


def test_what_may_be_saved_up_is_limited():
    quota, clock, _ = make(1000)
    clock.ms = 3_600_000
    quota.note(None, 2500)
    assert quota.must_wait(None, True)


def test_a_topic_names_its_throttled_replicas():
    assert throttles(("*",), 3, 1)
    assert throttles(("0:1", "3:1"), 3, 1)
    assert not throttles(("3:2",), 3, 1)
    assert not throttles(("",), 3, 1)


def test_a_longer_window_lets_more_be_saved_up():
    clock = Clock()
    quota = ReplicationQuota(clock, lambda: 1000, lambda _: True, lambda: 3_000)
    clock.ms = 3_600_000
    quota.note(None, 2_999)
    assert not quota.must_wait(None, True)
    quota.note(None, 2)
    assert quota.must_wait(None, True)
