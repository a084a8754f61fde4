"""The brokers of one machine: restarts one by one, and what systemd hears. Nothing is started."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.running.processes import Processes
from ottla.cli.running.processes_roll import ProcessesRoll
from ottla.cli.running.supervisor import Child


def test_a_roll_goes_on_when_all_are_in_sync() -> None:
    roll = ProcessesRoll([1, 2, 3])
    roll.begin()
    assert (roll.next_to_restart(), roll.waits_for) == (None, [1, 2, 3])
    for broker in (1, 2, 3):
        roll.synced(broker)
    assert roll.next_to_restart() == 1
    assert roll.next_to_restart() is None
    roll.ended(1)
    assert roll.next_to_restart() is None
    roll.synced(1)
    roll.ended(3)  # a crash somewhere else
    assert (roll.next_to_restart(), roll.waits_for) == (None, [3])
    roll.synced(3)
    assert roll.next_to_restart() == 2
    roll.synced(2)
    assert roll.next_to_restart() == 3
    assert roll.is_under_way
    roll.synced(3)
    assert not roll.is_under_way
    assert roll.next_to_restart() is None


def test_a_roll_that_is_asked_for_again_begins_anew_but_not_with_the_one_it_is_at() -> None:
    roll = ProcessesRoll([1, 2])
    roll.synced(1)
    roll.synced(2)
    roll.begin()
    assert roll.next_to_restart() == 1
    roll.begin()
    assert (roll.at, roll.left) == (1, [2])


class Machine:
    """Two brokers without processes, and a systemd that hears what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.systemd.bind(str(folder / "notify"))
        self.systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        self.sent: list[tuple[str, int]] = []
        monkeypatch.setattr(Child, "send", lambda child, number: self.sent.append((child.name, number)))
        self.processes = Processes({1: ["true"], 2: ["true"]})

    def say(self, broker: int, line: str) -> bool:
        return self.processes.on_line(self.processes.children[broker], line)

    def tell(self, broker: int, text: str) -> None:
        """As a broker does."""
        address = (self.processes.children[broker].environment or {})["NOTIFY_SOCKET"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text.encode(), f"\0{address[1:]}")
        self.processes._hear()

    def heard(self) -> str:
        return self.systemd.recv(4096).decode()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(monkeypatch, tmp_path)
    yield made
    made.systemd.close()


def test_ready_lines_go_through_and_all_else_says_whose_it_is(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    assert machine.say(2, "ottla broker 2 ready on 127.0.0.1:9093")
    assert not machine.say(1, "[2026-01-01] INFO something")
    assert not machine.say(1, '{"message": "json"}')
    seen = capfd.readouterr()
    assert seen.out == "ottla broker 2 ready on 127.0.0.1:9093\n"
    assert seen.err == 'broker 1: [2026-01-01] INFO something\n{"message": "json"}\n'


def test_systemd_waits_for_everybody_but_not_for_one_that_cannot_start(machine: Machine) -> None:
    machine.say(1, "ottla broker 1 ready on 127.0.0.1:9092")
    assert machine.heard() == "STATUS=1 of 2 brokers serve"
    machine.processes.on_ended(machine.processes.children[2])
    assert machine.heard() == "READY=1\nSTATUS=1 of 2 brokers serve"
    machine.say(2, "ottla broker 2 ready on 127.0.0.1:9093")
    assert machine.heard() == "READY=1\nSTATUS=2 of 2 brokers serve"
    machine.processes.supervisor.stops = 1
    machine.processes.on_ended(machine.processes.children[2])
    assert machine.heard() == "STOPPING=1\nSTATUS=1 of 2 brokers serve"


def test_nothing_serves_before_the_first_broker_does(machine: Machine) -> None:
    for child in machine.processes.children.values():
        machine.processes.on_ended(child)
    assert machine.heard() == "STATUS=0 of 2 brokers serve"


def test_a_hangup_restarts_one_after_the_other(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.tell(1, "READY=1")
    machine.tell(1, "STATUS=all\nX_OTTLA_IN_SYNC=1")
    machine.processes.begin_roll()
    assert machine.sent == []
    machine.tell(2, "X_OTTLA_IN_SYNC=2")
    assert machine.sent == [("broker 1", signal.SIGTERM)]
    machine.tell(2, "X_OTTLA_IN_SYNC=77\nX_OTTLA_IN_SYNC=x")
    machine.processes.on_ended(machine.processes.children[1])
    machine.tell(1, "X_OTTLA_IN_SYNC=1")
    assert machine.sent[1:] == [("broker 2", signal.SIGTERM)]
    machine.processes.begin_roll()
    machine.processes.roll.left.clear()
    machine.tell(2, "X_OTTLA_IN_SYNC=2")
    assert capfd.readouterr().err == (
        "Restarting the brokers one after the other: 1, 2.\n"
        "Waiting until all replicas are in sync: broker 2.\n"
        "A rolling restart is under way already, at broker 2; it goes on until each was restarted once more.\n"
        "The rolling restart is done.\n"
    )


def test_nobody_is_restarted_while_all_are_stopped(machine: Machine) -> None:
    machine.tell(1, "X_OTTLA_IN_SYNC=1\nX_OTTLA_IN_SYNC=2")
    machine.processes.supervisor.stops = 1
    machine.processes.begin_roll()
    assert machine.sent == []


def test_a_terminal_that_is_gone_hurts_nobody(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", fail)
    assert not machine.say(1, "a line")
