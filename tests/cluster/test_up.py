"""`ottla up --brokers 3`: a cluster with one command, as a person has it in a terminal."""

import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import promised
from tests.conftest import Broker, free_port, ottla_command

from ottla.cli.ports import is_free
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.pipelines.spark.processes import children_of, command_of

SECONDS_MAX = 60.0


class Up:
    """The command, and what it has said."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output"
        self.data = folder / "data"
        self.ports = three_free_ports()
        self.bootstrap = ",".join(f"127.0.0.1:{each}" for each in self.ports)
        words = ["up", "--brokers", "3", "--port", str(self.ports[0]), "--zookeeper-port", str(free_port())]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*ottla_command(), *words, "--data", str(self.data)], stdout=output, stderr=output
            )

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, pattern: str, times: int = 1) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while len(re.findall(pattern, self.text())) < times:
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text()}"
            assert self.process.poll() is None, self.text()
            time.sleep(0.02)

    def pid_of(self, broker_id: int) -> int:
        return next(pid for pid in children_of(self.process.pid) if f"broker.id={broker_id} " in command_of(pid))

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    command = Up(tmp_path)
    command.wait_for("is up: a cluster of 3 brokers")
    yield command
    if command.process.poll() is None:
        command.end(signal.SIGTERM)


def three_free_ports() -> list[int]:
    """Consecutive, and outside the kernel's range of ephemeral ports."""
    while True:
        port = random.randrange(15_000, 30_000)
        if all(is_free(port + index) for index in range(3)):
            return [port + index for index in range(3)]


def in_sync(bootstrap: str, topic: str) -> list[list[int]]:
    with Client(bootstrap) as client:
        return [sorted(partition.isr) for partition in Admin(client).topic(topic).partitions]


@promised(15.0)
def test_a_cluster_comes_with_one_command_and_goes_with_ctrl_c(up: Up, seconds_max: float) -> None:
    with Client(up.bootstrap) as client:
        admin = Admin(client)
        assert sorted(admin.live_brokers()) == [1, 2, 3]
    [address, *others] = re.findall(r"(http://\S+/metrics)\n", up.text().partition("is up")[2].partition("stop ")[0])
    assert len(others) == 2
    assert b"kafka_server" in urllib.request.urlopen(address, timeout=SECONDS_MAX).read()
    with Client(up.bootstrap) as client:
        admin = Admin(client)
        admin.create_topic("orders")
        (partition,) = admin.topic("orders", needs_leaders=True).partitions
        assert sorted(partition.isr) == [1, 2, 3]
    up.wait_for(r"ottla registry ready on http://\S+")
    with Client(up.bootstrap) as client:
        (partition,) = Admin(client).topic("_schemas", needs_leaders=True).partitions
        assert len(partition.replicas) == 3
    begin = time.monotonic()
    assert up.end(signal.SIGINT) == 0, up.text()
    assert time.monotonic() - begin < seconds_max, up.text()
    assert "Traceback" not in up.text()
    assert "Exception" not in up.text()


def test_a_broker_that_dies_is_started_again_and_reported(up: Up) -> None:
    with Client(up.bootstrap) as client:
        Admin(client).create_topic("orders", partitions=3)
    up.process.poll()
    dead = up.pid_of(2)
    subprocess.run(["kill", "-9", str(dead)], check=True)
    up.wait_for(r"The broker 2 ended by signal 9: restarting it in 0\.5 s\.")
    up.wait_for(r"ottla broker 2 ready on", times=2)
    assert up.pid_of(2) != dead
    deadline = time.monotonic() + SECONDS_MAX
    while in_sync(up.bootstrap, "orders") != [[1, 2, 3]] * 3:
        assert time.monotonic() < deadline, in_sync(up.bootstrap, "orders")
        time.sleep(0.05)


def test_one_broker_may_be_stopped_and_all_of_them_end_it(up: Up) -> None:
    """What kafka-server-stop.sh does: SIGTERM to the brokers themselves."""
    words = [*ottla_command(), "stop", "--data", str(up.data), "--node-id", "3"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert done.stdout == "stopped 1 broker\n"
    up.wait_for(r"The broker 3 was stopped\.")
    assert up.process.poll() is None
    again = [*ottla_command(), "up", "--brokers", "4", "--port", str(three_free_ports()[0]), "--data", str(up.data)]
    done = subprocess.run(again, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "another ZooKeeper uses" in done.stderr
    subprocess.run(["kill", "-TERM", str(up.pid_of(1)), str(up.pid_of(2))], check=True)
    assert up.process.wait(SECONDS_MAX) == 0, up.text()


def test_ottla_stop_waits_until_a_broker_is_gone(tmp_path: Path) -> None:
    broker = Broker(tmp_path, {"broker.id": "471147"}).start()
    try:
        words = [str(Path(sys.executable).with_name("ottla")), "stop", "--node-id=471147"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
        assert done.stdout == "stopped 1 broker\n"
        assert broker.wait() == 0
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        assert (done.returncode, done.stderr) == (1, "ottla stop: no broker with the id 471147 runs on this machine\n")
    finally:
        broker.discard()
