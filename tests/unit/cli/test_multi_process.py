"""The brokers of one machine: rolling restarts and notifications to systemd, without processes."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.processes.multi_process import MultiProcessBroker, RollingRestart
from ottla.cli.processes.supervisor import Child


def test_a_rolling_restart_continues_when_all_are_in_sync() -> None:
    roll = RollingRestart([1, 2, 3])
    roll.start()
    assert (roll.next_to_restart(), roll.not_in_sync) == (None, [1, 2, 3])
    for broker in (1, 2, 3):
        roll.broker_in_sync(broker)
    assert roll.next_to_restart() == 1
    assert roll.next_to_restart() is None
    roll.broker_stopped(1)
    assert roll.next_to_restart() is None
    roll.broker_in_sync(1)
    roll.broker_stopped(3)  # a crash at another place
    assert (roll.next_to_restart(), roll.not_in_sync) == (None, [3])
    roll.broker_in_sync(3)
    assert roll.next_to_restart() == 2
    roll.broker_in_sync(2)
    assert roll.next_to_restart() == 3
    assert roll.is_running
    roll.broker_in_sync(3)
    assert not roll.is_running
    assert roll.next_to_restart() is None


def test_a_repeated_request_restarts_all_but_the_current_broker() -> None:
    roll = RollingRestart([1, 2])
    roll.broker_in_sync(1)
    roll.broker_in_sync(2)
    roll.start()
    assert roll.next_to_restart() == 1
    roll.start()
    assert (roll.current_broker, roll.pending) == (1, [2])


class Machine:
    """Two brokers without processes, and a systemd socket that records notifications."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.systemd.bind(str(folder / "notify"))
        self.systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        self.sent: list[tuple[str, int]] = []
        monkeypatch.setattr(Child, "send", lambda child, number: self.sent.append((child.name, number)))
        self.processes = MultiProcessBroker({1: ["true"], 2: ["true"]})

    def say(self, broker: int, line: str) -> bool:
        return self.processes.on_line(self.processes.children[broker], line)

    def notify(self, broker: int, text: str) -> None:
        """Send a notification as a broker does."""
        address = (self.processes.children[broker].environment or {})["NOTIFY_SOCKET"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text.encode(), f"\0{address[1:]}")
        self.processes._read_notification()

    def status(self) -> str:
        return self.systemd.recv(4096).decode()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(monkeypatch, tmp_path)
    yield made
    made.systemd.close()


def test_ready_lines_are_passed_on_and_others_are_prefixed(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    assert machine.say(2, "ottla broker 2 ready on 127.0.0.1:9093")
    assert not machine.say(1, "[2026-01-01] INFO something")
    assert not machine.say(1, '{"message": "json"}')
    seen = capfd.readouterr()
    assert seen.out == "ottla broker 2 ready on 127.0.0.1:9093\n"
    assert seen.err == 'broker 1: [2026-01-01] INFO something\n{"message": "json"}\n'


def test_systemd_waits_for_all_brokers_except_failed_ones(machine: Machine) -> None:
    machine.say(1, "ottla broker 1 ready on 127.0.0.1:9092")
    assert machine.status() == "STATUS=1 of 2 brokers serve"
    machine.processes.on_ended(machine.processes.children[2])
    assert machine.status() == "READY=1\nSTATUS=1 of 2 brokers serve"
    machine.say(2, "ottla broker 2 ready on 127.0.0.1:9093")
    assert machine.status() == "READY=1\nSTATUS=2 of 2 brokers serve"
    machine.processes.supervisor.stop_signals = 1
    machine.processes.on_ended(machine.processes.children[2])
    assert machine.status() == "STOPPING=1\nSTATUS=1 of 2 brokers serve"


def test_nothing_serves_before_the_first_broker_does(machine: Machine) -> None:
    for child in machine.processes.children.values():
        machine.processes.on_ended(child)
    assert machine.status() == "STATUS=0 of 2 brokers serve"


def test_a_hangup_restarts_one_at_a_time(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.notify(1, "READY=1")
    machine.notify(1, "STATUS=all\nX_OTTLA_IN_SYNC=1")
    machine.processes.start_rolling_restart()
    assert machine.sent == []
    machine.notify(2, "X_OTTLA_IN_SYNC=2")
    assert machine.sent == [("broker 1", signal.SIGTERM)]
    machine.notify(2, "X_OTTLA_IN_SYNC=77\nX_OTTLA_IN_SYNC=x")
    machine.processes.on_ended(machine.processes.children[1])
    machine.notify(1, "X_OTTLA_IN_SYNC=1")
    assert machine.sent[1:] == [("broker 2", signal.SIGTERM)]
    machine.processes.start_rolling_restart()
    machine.processes.rolling_restart.pending.clear()
    machine.notify(2, "X_OTTLA_IN_SYNC=2")
    assert capfd.readouterr().err == (
        "Restarting the brokers one at a time: 1, 2.\n"
        "Waiting until all replicas are in sync: broker 2.\n"
        "A rolling restart is already in progress, at broker 2; it will restart every broker once more.\n"
        "The rolling restart is done.\n"
    )


def test_no_broker_is_restarted_during_shutdown(machine: Machine) -> None:
    machine.notify(1, "X_OTTLA_IN_SYNC=1\nX_OTTLA_IN_SYNC=2")
    machine.processes.supervisor.stop_signals = 1
    machine.processes.start_rolling_restart()
    assert machine.sent == []


def test_a_closed_terminal_does_not_stop_brokers(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", fail)
    assert not machine.say(1, "a line")
