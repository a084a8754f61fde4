"""Restarts and stop order, without real processes."""

from __future__ import annotations

import signal

import pytest

from ottla.cli.processes.supervisor import (
    ALWAYS_RESTART_RESET_MS,
    RESTART_RESET_MS,
    RESTARTS_MAX,
    STOP_STAGGER_MS,
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
    messages: list[str] = []
    return Supervisor([child], lambda *_: False, messages.append, ManualClock()), child, messages


def test_pauses_double_up_to_a_bound_and_end() -> None:
    policy = RestartPolicy()
    pauses = [policy.next_backoff_ms(0) for _ in range(RESTARTS_MAX + 1)]
    assert pauses == [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000, 10_000, 10_000, None]


def test_a_steady_run_starts_the_count_anew() -> None:
    policy = RestartPolicy()
    for _ in range(RESTARTS_MAX):
        policy.next_backoff_ms(0)
    policy.record_start(1000)
    assert policy.next_backoff_ms(1000 + RESTART_RESET_MS) == 500


def test_an_always_restarted_child_waits_longer_only_if_it_cannot_run() -> None:
    policy = Child("broker", ["true"], is_kept=True).policy
    assert [policy.next_backoff_ms(0) for _ in range(3)] == [100, 200, 400]
    policy.record_start(1000)
    assert policy.next_backoff_ms(1000 + ALWAYS_RESTART_RESET_MS) == 100


@pytest.mark.parametrize(("code", "how"), [(-9, "by signal 9"), (3, "with exit code 3")])
def test_a_crash_is_reported_and_followed_by_a_restart(code: int, how: str) -> None:
    supervisor, child, messages = supervised(was_ready=True)
    supervisor._handle_exit(child, code)
    assert child.restart_at_ms == 500
    assert supervisor.code is None
    assert messages == [f"The broker ended {how}: restarting it in 0.5 s."]


def test_a_child_that_never_was_ready_ends_everything_with_its_code() -> None:
    supervisor, child, messages = supervised(was_ready=False)
    supervisor._handle_exit(child, 1)
    assert supervisor.code == 1
    assert child.restart_at_ms is None
    assert messages == []


def test_a_stopped_child_ends_the_supervisor_with_code_0() -> None:
    supervisor, child, messages = supervised(was_ready=True)
    supervisor._handle_exit(child, 0)
    assert supervisor.code == 0
    assert messages == ["The broker was stopped."]


def test_restarts_are_bounded() -> None:
    supervisor, child, messages = supervised(was_ready=True)
    for _ in range(RESTARTS_MAX + 1):
        supervisor._handle_exit(child, 1)
    assert supervisor.code == 1
    assert messages[-1] == "The broker has crashed 10 times in a row: giving up."


def test_nothing_is_restarted_while_stopping() -> None:
    supervisor, child, messages = supervised(was_ready=True)
    supervisor.stop_signals = 1
    supervisor._handle_exit(child, -15)
    assert child.restart_at_ms is None
    assert supervisor.code == 1
    assert messages == []


def test_a_kept_child_is_always_restarted() -> None:
    child = Child("broker 1", ["true"], is_one_of_many=True, is_kept=True)
    messages: list[str] = []
    supervisor = Supervisor([child], lambda *_: False, messages.append, ManualClock())
    pauses = []
    for _ in range(100):
        supervisor._handle_exit(child, 1)  # it was never ready: for instance, its port is in use
        pauses.append(child.restart_at_ms)
    assert pauses[:9] == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    assert pauses[-1] == 10_000
    supervisor._handle_exit(child, 0)
    assert child.restart_at_ms == 0
    assert messages[-1] == "The broker 1 was stopped: starting it again."
    assert not supervisor.is_stopping


def test_a_hangup_stops_everything_unless_a_handler_is_set() -> None:
    supervisor, _, _ = supervised(was_ready=True)
    hangups: list[str] = []
    supervisor.on_hangup = lambda: hangups.append("roll")
    supervisor._signalled(signal.SIGHUP, None)
    assert (hangups, supervisor.stop_signals) == (["roll"], 0)
    supervisor.on_hangup = None
    supervisor._signalled(signal.SIGHUP, None)
    assert (hangups, supervisor.stop_signals) == (["roll"], 1)


def test_a_sidecar_may_end_with_any_code() -> None:
    supervisor, broker, messages = supervised(was_ready=True)
    codes: list[int] = []
    sidecar = Child("sidecar", ["false"], codes.append)
    supervisor.children.append(sidecar)
    supervisor._handle_exit(sidecar, 1)
    assert codes == [1]
    assert supervisor.code is None
    assert supervisor.children == [broker]
    assert messages == []


def test_no_sidecar_starts_during_shutdown() -> None:
    supervisor, broker, _ = supervised(was_ready=True)
    supervisor.stop_signals = 1
    supervisor.start(Child("sidecar", ["true"], lambda _: None))
    assert supervisor.children == [broker]


def test_sidecars_are_stopped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, broker, _ = supervised(was_ready=True)
    sidecar = Child("sidecar", ["true"], lambda _: None)
    sidecar.process = broker.process = object()  # type: ignore[assignment]
    supervisor.children.append(sidecar)
    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(Child, "send", lambda child, number: sent.append((child.name, number)))
    supervisor.stop_signals = 1
    supervisor.stop()
    assert sent == [("sidecar", signal.SIGTERM)]
    sidecar.process = None
    supervisor._handle_exit(sidecar, 0)
    assert sent[1:] == [("broker", signal.SIGTERM)]
    supervisor.stop_signals = 2
    supervisor.stop()
    assert sent[2:] == [("broker", signal.SIGKILL)]


def test_the_tick_callback_is_called_periodically() -> None:
    supervisor, _, _ = supervised(was_ready=True)
    assert supervisor._seconds_to_wait() is None
    supervisor.on_tick = lambda: None
    assert supervisor._seconds_to_wait() == TICK_SECONDS


class Cluster:
    """ZooKeeper and three brokers without processes; `sent` are the signals."""

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
        self.supervisor._handle_exit(child, code)


def test_brokers_of_a_cluster_stop_one_at_a_time_and_zookeeper_last(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.supervisor.stop_signals = 1
    cluster.supervisor.stop()
    assert cluster.sent == [("broker 3", signal.SIGTERM)]
    cluster.supervisor.stop()
    assert len(cluster.sent) == 1  # each child is signalled once
    for broker in reversed(cluster.brokers):
        cluster.end(broker, 0)
    assert [name for name, _ in cluster.sent] == ["broker 3", "broker 2", "broker 1", "ZooKeeper"]
    cluster.end(cluster.zookeeper, 143)
    assert cluster.supervisor.code is None  # all is well


def test_a_broker_that_takes_long_to_stop_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.supervisor.stop_signals = 1
    cluster.supervisor.stop()
    monkeypatch.setattr(ManualClock, "time_ms", STOP_STAGGER_MS - 1)
    cluster.supervisor.stop()
    assert [name for name, _ in cluster.sent] == ["broker 3"]
    assert cluster.supervisor._seconds_to_wait() == 0.001
    monkeypatch.setattr(ManualClock, "time_ms", STOP_STAGGER_MS)
    cluster.supervisor.stop()
    assert [name for name, _ in cluster.sent] == ["broker 3", "broker 2"]
    assert cluster.supervisor._seconds_to_wait() == STOP_STAGGER_MS / 1000
    cluster.end(cluster.brokers[1], 0)
    cluster.end(cluster.brokers[0], 0)
    assert [name for name, _ in cluster.sent] == ["broker 3", "broker 2", "broker 1"]  # and ZooKeeper waits for all
    cluster.end(cluster.brokers[2], 0)
    assert cluster.sent[-1] == ("ZooKeeper", signal.SIGTERM)


def test_a_child_that_dies_during_shutdown_does_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.supervisor.stop_signals = 1
    cluster.supervisor.stop()
    cluster.end(cluster.brokers[0], -9)
    cluster.end(cluster.brokers[2], 0)
    assert [name for name, _ in cluster.sent] == ["broker 3", "broker 2"]
    assert cluster.supervisor.code == 1


def test_one_broker_of_a_cluster_may_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.end(cluster.brokers[1], 0)
    assert cluster.said == ["The broker 2 was stopped."]
    assert not cluster.supervisor.is_stopping
    cluster.end(cluster.brokers[0], 0)
    assert not cluster.supervisor.is_stopping
    cluster.end(cluster.brokers[2], 0)
    assert cluster.supervisor.code == 0
    assert cluster.sent == [("ZooKeeper", signal.SIGTERM)]


def test_a_broker_that_waits_for_its_restart_counts_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.end(cluster.brokers[0], -9)
    cluster.end(cluster.brokers[1], 0)
    cluster.end(cluster.brokers[2], 0)
    assert cluster.said[0] == "The broker 1 ended by signal 9: restarting it in 0.5 s."
    assert not cluster.supervisor.is_stopping


def test_a_permanently_failing_broker_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    for _ in range(RESTARTS_MAX + 1):
        cluster.end(cluster.brokers[0], 1)
    assert cluster.said[-1] == "The broker 1 has crashed 10 times in a row: giving up."
    assert not cluster.supervisor.is_stopping


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
    cluster.supervisor._read(cluster.zookeeper)  # it was restarted
    assert len(started) == 3
