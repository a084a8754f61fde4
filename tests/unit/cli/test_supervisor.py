"""Restarts, without starting anything."""

from __future__ import annotations

import signal

import pytest

from ottla.cli.running.supervisor import (
    KEPT_STEADY_MS,
    RESTARTS_MAX,
    STEADY_MS,
    STOP_MS_ALONE,
    TICK_SECONDS,
    Child,
    RestartPolicy,
    Supervisor,
)


class ManualClock:
    time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


def supervised(was_ready: bool) -> tuple[Supervisor, Child, list[str]]:
    child = Child("broker", ["true"])
    child.was_ready = was_ready
    said: list[str] = []
    return Supervisor([child], lambda *_: False, said.append, ManualClock()), child, said


def test_pauses_double_up_to_a_bound_and_end() -> None:
    policy = RestartPolicy()
    pauses = [policy.pause_ms(0) for _ in range(RESTARTS_MAX + 1)]
    assert pauses == [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000, 10_000, 10_000, None]


def test_a_steady_run_starts_the_count_anew() -> None:
    policy = RestartPolicy()
    for _ in range(RESTARTS_MAX):
        policy.pause_ms(0)
    policy.started(1000)
    assert policy.pause_ms(1000 + STEADY_MS) == 500


def test_who_is_kept_waits_longer_only_if_it_cannot_run() -> None:
    policy = Child("broker", ["true"], is_kept=True).policy
    assert [policy.pause_ms(0) for _ in range(3)] == [100, 200, 400]
    policy.started(1000)
    assert policy.pause_ms(1000 + KEPT_STEADY_MS) == 100


@pytest.mark.parametrize(("code", "how"), [(-9, "by signal 9"), (3, "with exit code 3")])
def test_a_crash_is_told_and_followed_by_a_restart(code: int, how: str) -> None:
    supervisor, child, said = supervised(was_ready=True)
    supervisor._ended(child, code)
    assert child.restart_at_ms == 500
    assert supervisor.code is None
    assert said == [f"The broker ended {how}: starting it again in 0.5 s."]


def test_a_child_that_never_was_ready_ends_everything_with_its_code() -> None:
    supervisor, child, said = supervised(was_ready=False)
    supervisor._ended(child, 1)
    assert supervisor.code == 1
    assert child.restart_at_ms is None
    assert said == []


def test_a_child_that_somebody_stopped_ends_everything_well() -> None:
    supervisor, child, said = supervised(was_ready=True)
    supervisor._ended(child, 0)
    assert supervisor.code == 0
    assert said == ["The broker was stopped."]


def test_a_child_that_crashes_for_ever_is_given_up() -> None:
    supervisor, child, said = supervised(was_ready=True)
    for _ in range(RESTARTS_MAX + 1):
        supervisor._ended(child, 1)
    assert supervisor.code == 1
    assert said[-1] == "The broker has crashed 10 times in a row: giving up."


def test_nothing_is_restarted_while_stopping() -> None:
    supervisor, child, said = supervised(was_ready=True)
    supervisor.stops = 1
    supervisor._ended(child, -15)
    assert child.restart_at_ms is None
    assert supervisor.code == 1
    assert said == []


def test_a_child_that_is_kept_is_started_again_for_ever_however_it_ends() -> None:
    child = Child("broker 1", ["true"], is_one_of_many=True, is_kept=True)
    said: list[str] = []
    supervisor = Supervisor([child], lambda *_: False, said.append, ManualClock())
    pauses = []
    for _ in range(100):
        supervisor._ended(child, 1)  # never was ready: its port is in use, for instance
        pauses.append(child.restart_at_ms)
    assert pauses[:9] == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    assert pauses[-1] == 10_000
    supervisor._ended(child, 0)
    assert child.restart_at_ms == 0
    assert said[-1] == "The broker 1 was stopped: starting it again."
    assert not supervisor.is_ending


def test_a_hangup_stops_everything_unless_somebody_makes_something_else_of_it() -> None:
    supervisor, _, _ = supervised(was_ready=True)
    hangups: list[str] = []
    supervisor.on_hangup = lambda: hangups.append("roll")
    supervisor._signalled(signal.SIGHUP, None)
    assert (hangups, supervisor.stops) == (["roll"], 0)
    supervisor.on_hangup = None
    supervisor._signalled(signal.SIGHUP, None)
    assert (hangups, supervisor.stops) == (["roll"], 1)


def test_a_guest_may_end_as_it_likes() -> None:
    supervisor, broker, said = supervised(was_ready=True)
    codes: list[int] = []
    guest = Child("guest", ["false"], codes.append)
    supervisor.children.append(guest)
    supervisor._ended(guest, 1)
    assert codes == [1]
    assert supervisor.code is None
    assert supervisor.children == [broker]
    assert said == []


def test_nobody_is_invited_while_everything_ends() -> None:
    supervisor, broker, _ = supervised(was_ready=True)
    supervisor.stops = 1
    supervisor.start(Child("guest", ["true"], lambda _: None))
    assert supervisor.children == [broker]


def test_guests_are_stopped_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, broker, _ = supervised(was_ready=True)
    guest = Child("guest", ["true"], lambda _: None)
    guest.process = broker.process = object()  # type: ignore[assignment]
    supervisor.children.append(guest)
    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(Child, "send", lambda child, number: sent.append((child.name, number)))
    supervisor.stops = 1
    supervisor.stop()
    assert sent == [("guest", signal.SIGTERM)]
    guest.process = None
    supervisor._ended(guest, 0)
    assert sent[1:] == [("broker", signal.SIGTERM)]
    supervisor.stops = 2
    supervisor.stop()
    assert sent[2:] == [("broker", signal.SIGKILL)]


def test_who_wants_to_draw_is_called_now_and_then() -> None:
    supervisor, _, _ = supervised(was_ready=True)
    assert supervisor._seconds_to_wait() is None
    supervisor.on_tick = lambda: None
    assert supervisor._seconds_to_wait() == TICK_SECONDS


class Cluster:
    """ZooKeeper and three brokers, none of them a real process; `sent` are the signals."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.zookeeper = Child("ZooKeeper", ["true"], good_codes=frozenset({0, 143}))
        self.brokers = [
            Child(f"broker {number}", ["true"], is_one_of_many=True, needs=self.zookeeper) for number in (1, 2, 3)
        ]
        self.said: list[str] = []
        self.sent: list[tuple[str, int]] = []
        self.supervisor = Supervisor([self.zookeeper, *self.brokers], lambda *_: True, self.said.append, ManualClock())
        monkeypatch.setattr(Child, "send", lambda child, number: self.sent.append((child.name, number)))
        for child in self.supervisor.children:
            child.process = object()  # type: ignore[assignment]
            child.was_ready = True

    def end(self, child: Child, code: int) -> None:
        child.process = None
        self.supervisor._ended(child, code)


def test_brokers_of_a_cluster_stop_one_after_the_other_and_zookeeper_last(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.supervisor.stops = 1
    cluster.supervisor.stop()
    assert cluster.sent == [("broker 3", signal.SIGTERM)]
    cluster.supervisor.stop()
    assert len(cluster.sent) == 1  # nobody is asked twice
    for broker in reversed(cluster.brokers):
        cluster.end(broker, 0)
    assert [name for name, _ in cluster.sent] == ["broker 3", "broker 2", "broker 1", "ZooKeeper"]
    cluster.end(cluster.zookeeper, 143)
    assert cluster.supervisor.code is None  # all is well


def test_a_broker_that_takes_long_to_stop_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.supervisor.stops = 1
    cluster.supervisor.stop()
    monkeypatch.setattr(ManualClock, "time_ms", STOP_MS_ALONE - 1)
    cluster.supervisor.stop()
    assert [name for name, _ in cluster.sent] == ["broker 3"]
    assert cluster.supervisor._seconds_to_wait() == 0.001
    monkeypatch.setattr(ManualClock, "time_ms", STOP_MS_ALONE)
    cluster.supervisor.stop()
    assert [name for name, _ in cluster.sent] == ["broker 3", "broker 2"]
    assert cluster.supervisor._seconds_to_wait() == STOP_MS_ALONE / 1000
    cluster.end(cluster.brokers[1], 0)
    cluster.end(cluster.brokers[0], 0)
    assert [name for name, _ in cluster.sent] == ["broker 3", "broker 2", "broker 1"]  # and ZooKeeper waits for all
    cluster.end(cluster.brokers[2], 0)
    assert cluster.sent[-1] == ("ZooKeeper", signal.SIGTERM)


def test_who_dies_while_everything_stops_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.supervisor.stops = 1
    cluster.supervisor.stop()
    cluster.end(cluster.brokers[0], -9)
    cluster.end(cluster.brokers[2], 0)
    assert [name for name, _ in cluster.sent] == ["broker 3", "broker 2"]
    assert cluster.supervisor.code == 1


def test_one_broker_of_a_cluster_may_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.end(cluster.brokers[1], 0)
    assert cluster.said == ["The broker 2 was stopped."]
    assert not cluster.supervisor.is_ending
    cluster.end(cluster.brokers[0], 0)
    assert not cluster.supervisor.is_ending
    cluster.end(cluster.brokers[2], 0)
    assert cluster.supervisor.code == 0
    assert cluster.sent == [("ZooKeeper", signal.SIGTERM)]


def test_a_broker_that_will_come_back_counts_as_one_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.end(cluster.brokers[0], -9)
    cluster.end(cluster.brokers[1], 0)
    cluster.end(cluster.brokers[2], 0)
    assert cluster.said[0] == "The broker 1 ended by signal 9: starting it again in 0.5 s."
    assert not cluster.supervisor.is_ending


def test_one_broker_that_crashes_for_ever_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    for _ in range(RESTARTS_MAX + 1):
        cluster.end(cluster.brokers[0], 1)
    assert cluster.said[-1] == "The broker 1 has crashed 10 times in a row: giving up."
    assert not cluster.supervisor.is_ending


def test_brokers_are_started_when_zookeeper_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    started: list[str] = []
    monkeypatch.setattr(Supervisor, "_start", lambda _, child: started.append(child.name))
    monkeypatch.setattr(Child, "lines", lambda _: ["ready"])
    for broker in cluster.brokers:
        broker.process = None
    cluster.zookeeper.was_ready = False
    cluster.supervisor._read(cluster.zookeeper)
    assert started == ["broker 1", "broker 2", "broker 3"]
    cluster.supervisor._read(cluster.zookeeper)  # it was away and is back
    assert len(started) == 3
