"""Tools that query ZooKeeper: the live servers and brokers, and the content of the tree."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.waiting import eventually

from ottla.cli.zookeeper.znodes import registered_brokers
from ottla.testing.broker import Broker
from ottla.testing.zookeeper import ZooKeeperProcess

SECONDS_MAX = 30.0


@pytest.fixture
def broker(zookeeper: ZooKeeperProcess, chroot: str) -> Iterator[Broker]:
    settings = {"broker.id": 7, "zookeeper.connect": zookeeper.connect + chroot}
    with Broker(settings, topics={"orders": 2}) as broker:
        yield broker


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *words], check=False, capture_output=True, text=True, timeout=SECONDS_MAX
    )


def test_old_scripts_find_the_brokers_through_zookeeper(
    broker: Broker, zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    connect = zookeeper.connect + chroot
    assert registered_brokers(connect) == [broker.bootstrap_servers]
    listed = run("ottla.cli.kafka_scripts", "kafka-topics.sh", "--zookeeper", connect, "--list")
    assert (listed.returncode, listed.stdout) == (0, "orders\n")
    assert f"using the broker at {broker.bootstrap_servers}" in listed.stderr
    broker.stop()
    assert registered_brokers(connect) == []
    assert registered_brokers(f"{zookeeper.connect}/no/such/chroot") == []


def test_a_topic_that_is_not_deleted_is_marked_and_goes_once_a_controller_deletes(
    zookeeper: ZooKeeperProcess, chroot: str, tmp_path: Path
) -> None:
    connect = zookeeper.connect + chroot

    def topics(*words: str) -> list[str]:
        done = run("ottla.cli.kafka_scripts", "kafka-topics.sh", "--zookeeper", connect, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    def broker(number: int, is_deleting: bool) -> Broker:
        settings = {"broker.id": number, "zookeeper.connect": connect, "delete.topic.enable": str(is_deleting).lower()}
        return Broker(settings, folder=tmp_path)

    with broker(1, False) as first, broker(2, False) as second:
        topics("--create", "--topic", "orders", "--partitions", "1", "--replication-factor", "1")
        topics("--create", "--topic", "other", "--partitions", "1", "--replication-factor", "1")
        assert topics("--delete", "--topic", "orders")[0] == "Topic orders is marked for deletion."
        assert topics("--delete", "--topic", "orders") == ["Topic orders is already marked for deletion."]
        assert topics("--list") == ["orders - marked for deletion", "other"]
        assert topics("--describe", "--topic", "orders")[0].endswith("\tMarkedForDeletion:true")
        told = run("ottla.cli.main", "doctor", "--zookeeper", connect, "--bootstrap-server", first.bootstrap_servers)
        assert "topics that are marked for deletion, and still there: orders" in told.stdout
        first.kill()
        assert eventually(lambda: "successfully elected as the controller" in second.logs, SECONDS_MAX)
        assert topics("--list") == ["orders - marked for deletion", "other"]
        with broker(3, True) as third:
            second.stop()
            assert eventually(lambda: "deleted topics that were marked for deletion: orders" in third.logs, SECONDS_MAX)
            assert topics("--list") == ["other"]
            topics("--create", "--topic", "orders", "--partitions", "1", "--replication-factor", "1")
            third.restart()
            assert topics("--list") == ["orders", "other"], "the mark has counted once"


def test_tools_do_not_wait_where_no_zookeeper_runs() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        assert registered_brokers(f"127.0.0.1:{reserved.getsockname()[1]}") == []


def test_the_tree_of_a_cluster_is_shown_and_looking_changes_nothing(
    broker: Broker, zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    connect = zookeeper.connect + chroot
    assert run("ottla.cli.main", "metadata", "ls", "/brokers/ids", "--zookeeper", connect).stdout == "[7]\n"
    shown = run("ottla.cli.main", "metadata", "get", "/brokers/ids/7", "--zookeeper", connect).stdout
    assert f'"port":{broker.port}' in shown
    tree = run("ottla.cli.main", "metadata", "tree", "/brokers/topics", "--zookeeper", connect).stdout
    assert tree.startswith("/brokers/topics\n  orders  {")
    missing = run("ottla.cli.main", "metadata", "ls", "/", "--zookeeper", f"{zookeeper.connect}{chroot}-none")
    assert (missing.returncode, missing.stdout) == (0, "[]\n")
    top = run("ottla.cli.main", "metadata", "ls", "/", "--zookeeper", zookeeper.connect).stdout
    assert f"{chroot[1:]}-none" not in top
