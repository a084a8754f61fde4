"""`ottla broker --processes N`: the brokers of one machine under one supervisor."""

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cluster.conftest import promised
from tests.cluster.machines import SECONDS_MAX, Machine, rows_of, wait_until, wait_until_whole
from tests.conftest import ottla_command

from ottla.base.names import TopicPartition
from ottla.cli.commands.stop import is_running
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.offsets import LATEST, list_offsets
from ottla.testing.zookeeper import ZooKeeperProcess

Machines = Callable[..., Machine]


@pytest.fixture
def machines(zookeeper: ZooKeeperProcess, chroot: str, tmp_path: Path) -> Iterator[Machines]:
    """Makes machines of one cluster: `machines("a", 101, 2, broker_rack="a")`."""
    made: list[Machine] = []

    def make(name: str, first_id: int, count: int, **settings: str) -> Machine:
        made.append(Machine(tmp_path / name, f"{zookeeper.connect}{chroot}-processes", first_id, count, **settings))
        return made[-1]

    yield make
    for machine in made:
        machine.close()


class Writer(threading.Thread):
    """Records to each partition, again and again, acks=all; `failed` are those that were refused in the end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.acked = 0
        self.failed: list[str] = []
        self._partitions = partitions
        self._topic = topic
        self._ending = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})

    def run(self) -> None:
        while not self._ending.wait(0.02):
            for partition in range(self._partitions):
                self._producer.produce(self._topic, b"x", partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(SECONDS_MAX)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        self.acked += error is None

    def end(self) -> int:
        self._ending.set()
        self.join(SECONDS_MAX)
        assert not self.failed
        return self.acked


def stored(bootstrap: str, topic: str, partitions: int) -> int:
    names = [TopicPartition(topic, number) for number in range(partitions)]
    with Client(bootstrap) as client:
        ends, failures = list_offsets(client, names, LATEST)
    assert not failures
    return sum(found.offset for found in ends.values())


@promised(10.0)  # a second, mostly: bench.cores
def test_two_processes_are_one_service(machines: Machines, seconds_max: float) -> None:
    """Ready lines, one page of metrics, a crash, a rolling restart under load, an orderly end."""
    machine = machines("a", 101, 2).start()
    with Client(machine.bootstrap) as client:
        Admin(client).create_topic("orders", partitions=4, replication_factor=2)
    wait_until_whole(machine.bootstrap, "orders")
    assert sorted(leader for leader, _, _ in rows_of(machine.bootstrap, "orders")) == [101, 101, 102, 102]
    assert machine.up() == {101: 1, 102: 1}
    assert re.search(r'^kafka_server_replicamanager_leadercount\{broker="102"\} 2$', machine.page("/metrics"), re.M)
    assert machine.page("/readyz") == "ok\n"
    assert machine.page("/jolokia/version").startswith("404 this endpoint merges several brokers")

    before = machine.pids()
    begin = time.monotonic()
    machine.kill(102)
    machine.wait_for(r"^The broker 102 ended by signal 9: restarting it in 0.1 s\.$")
    machine.wait_for(r"^ottla broker 102 ready on", times=2)
    assert time.monotonic() - begin < seconds_max
    assert machine.pids()[101] == before[101]
    wait_until_whole(machine.bootstrap, "orders")

    writer = Writer(machine.bootstrap, "orders", 4)
    writer.start()
    before = machine.pids()
    os.kill(machine.pid, signal.SIGHUP)
    machine.wait_for(r"^The rolling restart is done\.$")
    assert not set(before.values()) & set(machine.pids().values())
    acked = writer.end()
    assert stored(machine.bootstrap, "orders", 4) >= acked > 0
    said = re.findall(r"^The broker (\d+) was stopped|^ottla broker (\d+) ready", machine.text(), re.M)[3:]
    assert [first or second for first, second in said] == ["101", "101", "102", "102"]
    assert (machine.folder / "logs" / "broker.102" / "server.log").exists()
    assert machine.stop() == 0, machine.text()
    assert "Traceback" not in machine.text()


def test_one_process_is_restarted_by_ottla_cluster_roll(machines: Machines) -> None:
    machine = machines("a", 101, 2).start()
    before = machine.pids()
    ottla = " ".join(ottla_command())
    words = [*ottla_command(), "cluster", "roll", "--command", f"{ottla} stop --node-id {{id}}", "--brokers", "102"]
    words += ["--bootstrap-server", machine.bootstrap, "--state", str(machine.folder / "roll")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + machine.text()
    after = machine.pids()
    assert (after[101] == before[101], after[102] == before[102]) == (True, False)
    words = [*ottla_command(), "stop", "--data", machine.settings["log.dirs"]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert done.stdout == "stopped 1 broker\n"
    assert machine.process is not None
    assert machine.process.wait(SECONDS_MAX) == 0


@pytest.mark.faults
def test_two_machines_share_no_partition_more_than_they_must(machines: Machines) -> None:
    """Three replicas on two machines: each has one at least. Two replicas: each has exactly one."""
    both = [
        machines(name, first, 3, broker_rack=name, auto_leader_rebalance_enable="false").launch()
        for name, first in (("a", 101), ("b", 201))
    ]
    for machine in both:
        for broker in machine.ids:
            machine.wait_for(rf"^ottla broker {broker} ready on")
    bootstrap = both[0].bootstrap
    with Client(bootstrap) as client:
        for replicas in (2, 3):
            Admin(client).create_topic(f"r{replicas}", partitions=12, replication_factor=replicas)
    for replicas in (2, 3):
        wait_until_whole(bootstrap, f"r{replicas}")
        rows = rows_of(bootstrap, f"r{replicas}")
        assert all({broker // 100 for broker in row} == {1, 2} for _, row, _ in rows)
        assert sorted(leader for leader, _, _ in rows) == sorted([101, 102, 103, 201, 202, 203] * 2)
    # A machine moves to another place: its rack changes, and new partitions follow it.
    assert both[0].stop() == 0, both[0].text()
    wait_until(lambda: all(leader > 200 for leader, _, _ in rows_of(both[1].bootstrap, "r2")), both[1].text)
    both[0].settings["broker.rack"] = "b"
    both[0].start()
    with Client(bootstrap) as client:
        Admin(client).create_topic("moved", partitions=12, replication_factor=2)
    assert {len({broker // 100 for broker in row}) for _, row, _ in rows_of(bootstrap, "moved")} == {1, 2}
    wait_until_whole(bootstrap, "r2")
    assert [machine.stop() for machine in both] == [0, 0]


@pytest.mark.faults
def test_kills_one_after_the_other_and_all_at_once_lose_nothing(machines: Machines) -> None:
    machine = machines("a", 101, 3, min_insync_replicas="2").start()
    with Client(machine.bootstrap) as client:
        Admin(client).create_topic("orders", partitions=6, replication_factor=3)
    writer = Writer(machine.bootstrap, "orders", 6)
    writer.start()
    for broker in machine.ids:
        wait_until_whole(machine.bootstrap, "orders")
        machine.kill(broker)
        machine.wait_for(rf"^ottla broker {broker} ready on", times=2)
    wait_until_whole(machine.bootstrap, "orders")
    assert machine.up() == {101: 1, 102: 1, 103: 1}
    machine.kill(*machine.ids)
    for broker in machine.ids:
        machine.wait_for(rf"^ottla broker {broker} ready on", times=3)
    wait_until_whole(machine.bootstrap, "orders")
    acked = writer.end()
    assert stored(machine.bootstrap, "orders", 6) >= acked > 0
    assert machine.stop() == 0, machine.text()


@pytest.mark.faults
def test_brokers_whose_supervisor_is_killed_stop_and_make_room(machines: Machines) -> None:
    machine = machines("a", 101, 2).start()
    pids = [*machine.pids().values()]
    machine.stop(signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, pids)), machine.text)
    for broker in machine.ids:  # they have stopped, and did not just die
        assert (machine.folder / "data" / f"broker.{broker}" / ".kafka_cleanshutdown").exists()
        log = (machine.folder / "logs" / f"broker.{broker}" / "server.log").read_text()
        assert f"broker {broker} has stopped" in log
    machine.start()
    machine.stop(signal.SIGKILL)
    machine.start()  # at once: it waits for the process that still holds the port or the folder
    assert machine.stop() == 0, machine.text()


@pytest.mark.faults
def test_a_port_a_folder_or_an_id_in_use_affects_no_other_broker(machines: Machines) -> None:
    other = machines("other", 103, 1).start()
    machine = machines("a", 101, 4)
    file = machine.folder / "data" / "broker.102"
    file.parent.mkdir(parents=True)
    file.write_text("no folder")
    with socket.create_server(("127.0.0.1", machine.port + 3)):
        machine.launch()
        machine.wait_for(r"^ottla broker 101 ready on")
        for broker in (102, 103, 104):
            machine.wait_for(rf"^broker {broker}: ottla broker: \S.*")
            machine.wait_for(rf"^The broker {broker} ended with exit code 1: restarting it in 0.1 s\.$")
        assert "Traceback" not in machine.text()
        assert machine.up() == {101: 1, 102: 0, 103: 0, 104: 0}
        assert machine.page("/readyz") == "503 not ready: broker 102, 103, 104\n"
    file.unlink()
    assert other.stop() == 0
    for broker in (102, 103, 104):
        machine.wait_for(rf"^ottla broker {broker} ready on")
    assert machine.stop() == 0, machine.text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--processes", "0"], "'0' is not a number of processes: 1 to 128, or auto"),
        (["--processes", "1000"], "'1000' is not a number of processes: 1 to 128, or auto"),
        (
            ["--processes", "2"],
            "have no zookeeper.connect. On a single machine `ottla up --brokers auto` also starts one",
        ),
        (["--processes", "2", "--from-environment"], "in containers, and as a child, a broker runs alone"),
    ],
)
def test_bad_numbers_and_a_broker_that_is_alone_are_refused(words: list[str], sentence: str) -> None:
    done = subprocess.run([*ottla_command(), "broker", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
