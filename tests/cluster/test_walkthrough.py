"""The walk-through of docs/operations.md, word for word: a broker is added and gets work, another one is taken out."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.faults.loads import LIBRDKAFKA, read_everything

from ottla.testing.cluster import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
RUN_SECONDS_MAX = 60
RECORDS = 500


def commands(section: str) -> list[str]:
    """The commands of a section: the lines that start with a dollar."""
    text = re.search(rf"^## {section}\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert text, section
    return re.findall(r"^\$ (.+)$", text.group(1), re.MULTILINE)


class Shell:
    """Types commands in a folder, with the tools under all their names in reach."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir()
        for name, module in (("ottla", "main"), ("kafka-reassign-partitions.sh", "kafka_scripts")):
            words = f'"{sys.executable}" -m ottla.cli.{module} {name if module == "kafka_scripts" else ""}'
            (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (tools / name).chmod(0o755)
        path = f"{tools}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "OTTLA_BOOTSTRAP_SERVER": bootstrap}

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def replicas(cluster: Cluster) -> Counter[int]:
    with cluster.admin() as admin:
        rows = [partition.replicas for topic in admin.topics() for partition in topic.partitions]
    return Counter(broker for row in rows for broker in row)


@pytest.mark.parametrize("brokers", [3])
def test_a_broker_is_added_and_another_one_taken_out(
    cluster_factory: Callable[..., Cluster], tmp_path: Path, brokers: int
) -> None:
    cluster = cluster_factory(brokers=brokers)
    cluster.create_topic("orders", partitions=6, replicas=2, settings={"min.insync.replicas": 1})
    cluster.create_topic("payments", partitions=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **LIBRDKAFKA})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, partition=number % 6)
    assert producer.flush(30) == 0
    shell = Shell(tmp_path, cluster.bootstrap)

    (start, *adding) = commands("Add a broker and give it work")
    assert start.startswith("ottla broker ")
    cluster.add_broker().start()
    assert replicas(cluster)[4] == 0, "a new broker is idle"
    for command in adding:
        told = shell.run(command)
        while "still in progress" in told:  # as a person would ask again
            time.sleep(0.2)
            told = shell.run(command)
        if "fill.json --throttle" in command:
            assert replicas(cluster)[4] == sum(replicas(cluster).values()) // 4

    for command in commands("Take a broker out"):
        told = shell.run(command)
        if "under-replicated" in command:
            assert told == ""
    assert replicas(cluster)[2] == 0
    cluster.broker(2).stop()
    doctor = shell.run("ottla doctor --json")
    assert '"problem"' not in doctor
    assert "throttle" not in doctor
    survivors = cluster.broker(1).bootstrap_servers
    found = read_everything(survivors, [("orders", number) for number in range(6)])
    assert sorted(int(value) for rows in found.values() for _, value in rows) == list(range(RECORDS))


def test_the_doctor_sees_a_dead_broker(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("watched", partitions=3)
    shell = Shell(tmp_path, cluster.bootstrap)
    spread = "ottla reassign generate watched --brokers 1,2,3 --replication-factor"
    assert json.loads(shell.run(f"{spread} 3"))["partitions"] == [], "it fits already"
    assert {len(row["replicas"]) for row in json.loads(shell.run(f"{spread} 2"))["partitions"]} == {2}
    store = f"ottla doctor --json --zookeeper {cluster.zookeeper.connect}"
    assert '"problem"' not in shell.run(store), "whatever other tests have left in the cluster"
    cluster.broker(3).kill()
    for partition in range(3):
        cluster.wait_for_isr("watched", partition, [1, 2])
    problems: list[dict[str, str]] = []

    def is_missed() -> bool:
        told = json.loads(shell.run(f"{store} || true"))
        problems[:] = [finding for finding in told["findings"] if finding["severity"] == "problem"]
        return any(
            each["what"].startswith("broker 3 is not in the cluster") for each in problems if each["case"] == "F6"
        )

    cluster.wait_for(is_missed, "the doctor to miss broker 3, when its session is over")
    assert not any("watched" in finding["what"] for finding in problems), "two of its three replicas are enough"
    assert shell.run("ottla doctor > /dev/null 2>&1; echo $?") == "1\n"
    (summary,) = json.loads(shell.run("ottla topics describe watched --summary --json"))
    figures = summary["figures"]
    assert (figures["Total number of Brokers"], figures["Number of Brokers for Topic"]) == (3, 3), "it stores some"
    assert (figures["Under-replicated %"], summary["levels"]["Under-replicated %"]) == (100, "red")
    assert [(row["broker"], row["partitions"]) for row in summary["brokers"]] == [(n, [0, 1, 2]) for n in (1, 2, 3)]
