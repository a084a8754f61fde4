"""Limits of connections, without a socket."""

import pytest

from ottla.network.listener_limits import UNLIMITED, ConnectionLimits, ListenerLimits, RateLimit


def test_a_second_of_events_comes_at_once_and_then_one_by_one() -> None:
    rate = RateLimit(4, now=100.0)
    for _ in range(4):
        assert rate.seconds_to_wait(100.0) == 0.0
        rate.consume()
    assert rate.seconds_to_wait(100.0) == pytest.approx(0.25)
    assert rate.seconds_to_wait(100.2) == pytest.approx(0.05)
    assert rate.seconds_to_wait(100.25) == 0.0


def test_a_long_pause_saves_up_no_more_than_a_second() -> None:
    rate = RateLimit(2, now=0.0)
    assert [rate.seconds_to_wait(1000.0), rate.consume(), rate.seconds_to_wait(1000.0), rate.consume()][::2] == [
        0.0,
        0.0,
    ]
    assert rate.seconds_to_wait(1000.0) > 0


def test_without_a_limit_there_is_no_wait() -> None:
    rate = RateLimit(UNLIMITED, now=0.0)
    for _ in range(1000):
        rate.consume()
    assert rate.seconds_to_wait(0.0) == 0.0


def test_a_new_rate_counts_from_now_on() -> None:
    rate = RateLimit(UNLIMITED, now=0.0)
    rate.consume()
    rate.update_rate(1, now=5.0)
    rate.consume()
    assert rate.seconds_to_wait(5.0) == pytest.approx(1.0)
    rate.update_rate(10, now=5.0)
    assert rate.seconds_to_wait(5.0) == pytest.approx(0.1)


def test_hosts_and_listeners_may_have_limits_of_their_own() -> None:
    limits = ConnectionLimits(
        connections_per_host_max=5,
        connections_by_host={"10.0.0.1": 2},
        by_listener={"INTERNAL": ListenerLimits(connections_max=7)},
    )
    assert (limits.per_host("10.0.0.1"), limits.per_host("10.0.0.2")) == (2, 5)
    assert limits.of_listener("INTERNAL").connections_max == 7
    assert limits.of_listener("OTHER") == ListenerLimits()
