"""A cluster that balances, grows and shrinks: the commands of docs/operations.md word for word, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cluster.test_walkthrough import commands, replicas
from tests.faults.loads import LIBRDKAFKA, read_everything

from ottla.base.names import TopicPartition
from ottla.cli.commands import cluster as cluster_command
from ottla.cli.commands import reassign as reassign_command
from ottla.cli.commands import topics as topics_command
from ottla.cli.ports import free_port
from ottla.cli.terminal import EXIT_INTERRUPTED, run_tool
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import Resource, describe_configs
from ottla.client.reassignments import alter_reassignments, list_reassignments
from ottla.operations.reassignment.cluster_model import load_cluster_model
from ottla.operations.reassignment.throttles import (
    BROKER_KEYS,
    TOPIC_KEYS,
    clear_throttles,
    set_throttles,
    throttle_settings,
)
from ottla.testing.cluster import Cluster

RECORDS = 600
RECORD_BYTES = 10_000
SLOW = 100_000


def fill(cluster: Cluster, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **LIBRDKAFKA})
    for number in range(RECORDS):
        producer.produce(topic, b"%07d" % number + os.urandom(RECORD_BYTES), partition=number % partitions)
        producer.poll(0)
        if number % 200 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0


def assert_all_there(cluster: Cluster, topic: str, partitions: int) -> None:
    bootstrap = ",".join(broker.bootstrap_servers for broker in cluster.live_brokers)
    found = read_everything(bootstrap, [(topic, number) for number in range(partitions)])
    assert sorted(int(value[:7]) for rows in found.values() for _, value in rows) == list(range(RECORDS))


def left_throttles(cluster: Cluster, topics: list[str]) -> list[str]:
    bootstrap = ",".join(broker.bootstrap_servers for broker in cluster.live_brokers)
    with Client(bootstrap) as client:
        brokers = [str(broker.id) for broker in cluster.live_brokers]
        found = [describe_configs(client, Resource.BROKER, [broker]) for broker in brokers]
        found.append(describe_configs(client, Resource.TOPIC, topics))
    return [
        f"{name}: {config.name}={config.value}"
        for answer in found
        for name, settings in answer.items()
        for config in settings
        if config.name in (*BROKER_KEYS, *TOPIC_KEYS) and not config.is_default
    ]


def test_the_drill_of_the_page(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = cluster_factory(each={broker: {"ottla.metrics.port": free_port()} for broker in (1, 2, 3)})
    cluster.create_topic("orders", partitions=6, replicas=2, settings={"min.insync.replicas": 1})
    cluster.create_topic("big", assignment={0: [1, 2], 1: [1, 2], 2: [2, 1]}, settings={"min.insync.replicas": 1})
    fill(cluster, "big", 3)
    with Client(cluster.bootstrap) as client:
        facts = load_cluster_model(client, 0.5)
    assert facts.without_traffic == [], "what brokers send is read from their metrics"
    assert all(load.size_bytes is not None and load.bytes_out is not None for load in facts.loads)
    cluster.add_broker()
    tool = Tool(cluster, tmp_path)

    def type_in(line: str) -> str:
        name, verb, *words = line.split()
        assert name == "ottla"
        tool.command = {"cluster": cluster_command.run, "topics": topics_command.run}[verb]
        code, out, err = tool.run(*words)
        assert code == 0, err
        return out

    typed = commands("Balance, grow and shrink with one command")
    assert typed[:3] == ["ottla cluster add 4", "ottla cluster balance --dry-run", "ottla cluster balance"]

    type_in(typed[0])
    total = sum(replicas(cluster).values())
    assert replicas(cluster)[4] >= total // 4 - 1, "the new broker has its share"
    before = replicas(cluster)
    shown = type_in(typed[1])
    assert replicas(cluster) == before, "nothing moves in a dry run"
    if "No replica needs to move" not in shown:
        assert "to copy" in shown
    type_in(typed[2])
    second = type_in(typed[2])
    assert "No replica needs to move." in second, "a second run moves nothing"
    told = type_in(typed[3])
    assert "Broker 2 holds no replicas now: it can be stopped." in told
    assert replicas(cluster)[2] == 0
    cluster.broker(2).stop()
    tool.environment["OTTLA_BOOTSTRAP_SERVER"] = cluster.broker(1).bootstrap_servers
    type_in(typed[4])
    with cluster.admin() as admin:
        rows = {(topic.name, row.number): row.replicas for topic in admin.topics() for row in topic.partitions}
    assert {len(row) for row in rows.values()} == {3}
    cluster.wait_for(lambda: type_in(typed[5]) == "", "all in sync")
    type_in(f"{typed[4]} --rollback")
    with cluster.admin() as admin:
        back = Counter(len(row.replicas) for topic in admin.topics(["orders", "big"]) for row in topic.partitions)
    assert back == {2: 9}, "as it was before"
    assert left_throttles(cluster, ["orders", "big"]) == []
    assert_all_there(cluster, "big", 3)


class Tool:
    """`ottla cluster ...` as a process of its own, which a test may kill."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.command: Callable[[Sequence[str]], int] = cluster_command.run
        self.environment = {
            **os.environ,
            "OTTLA_BOOTSTRAP_SERVER": ",".join(broker.bootstrap_servers for broker in cluster.live_brokers),
            "XDG_STATE_HOME": str(folder),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", "cluster", *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """The same in this process: most of a call would be the start of Python."""
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in ("OTTLA_BOOTSTRAP_SERVER", "XDG_STATE_HOME"):
                patch.setenv(name, self.environment[name])
            code = run_tool("ottla cluster", lambda: self.command(words))
        return code, out.getvalue(), err.getvalue()


@pytest.mark.faults
def test_a_killed_balance_can_be_continued_or_cancelled(
    cluster_factory: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = cluster_factory()
    cluster.create_topic("big", assignment={0: [1, 2], 1: [2, 3], 2: [3, 1]}, settings={"min.insync.replicas": 1})
    fill(cluster, "big", 3)
    with Client(cluster.bootstrap) as client:
        tool = Tool(cluster, tmp_path)
        first = tool.start("remove", "3", "--throttle", str(SLOW))
        cluster.wait_for(lambda: list_reassignments(client) or None, "the first moves")
        first.kill()
        first.communicate()
        assert list_reassignments(client), "the cluster goes on by itself"

        code, _, err = tool.run("balance", "--measure", "0")
        assert code == 1
        assert err == (
            "ottla cluster: `ottla cluster remove 3` is not finished: repeat it to resume, or cancel it: ottla "
            "cluster remove 3 --cancel\n"
        )
        second = tool.start("remove", "3", "--throttle", str(SLOW))
        assert second.stdout
        assert second.stdout.readline().startswith("Resuming: ")
        second.send_signal(signal.SIGINT)
        _, err = second.communicate()
        assert second.returncode == EXIT_INTERRUPTED
        assert "Moves in progress continue (ottla reassign list)." in err
        assert "ottla cluster remove 3 --cancel" in err

        code, out, _ = tool.run("remove", "3")  # faster now
        assert code == 0
        assert "Broker 3 holds no replicas now" in out
        assert replicas(cluster)[3] == 0
        assert left_throttles(cluster, ["big"]) == []

        assert tool.run("remove", "3", "--rollback")[0] == 0
        with cluster.admin() as admin:
            (topic,) = admin.topics(["big"])
        assert [row.replicas for row in topic.partitions] == [[1, 2], [2, 3], [3, 1]], "as it was before"
        assert tool.run("remove", "3", "--rollback")[1] == "Already rolled back.\n"

        third = tool.start("remove", "3", "--throttle", str(SLOW), "--no-wait")
        out, _ = third.communicate()
        assert third.returncode == 0
        assert list_reassignments(client)
        code, out, _ = tool.run("remove", "3", "--cancel")
        assert (code, out[:10]) == (0, "Cancelled ")
        assert list_reassignments(client) == {}
    assert left_throttles(cluster, ["big"]) == []
    assert_all_there(cluster, "big", 3)


def test_an_impossible_balance_is_refused_in_one_line(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = cluster_factory()
    cluster.create_topic("big", assignment={0: [1, 2], 1: [2, 3]}, settings={"min.insync.replicas": 2})
    fill(cluster, "big", 2)
    tool = Tool(cluster, tmp_path)
    for words, code, line in (
        (("add", "9"), 1, "Unknown broker id 9"),
        (("remove", "9"), 1, "Unknown broker id 9"),
        (("remove", "1", "1"), 2, "a broker is named twice"),
        (("remove", "1", "2"), 1, "has 2 replicas, but only 1 of the brokers would be left"),
        (("remove", "1", "2", "3"), 1, "none would be left to hold their replicas"),
        (("replication-factor", "4"), 1, "Replication factor: 4 larger than available brokers: 3."),
        (
            ("replication-factor", "1", "big"),
            1,
            "big has min.insync.replicas=2: with 1 writing with acks=all would fail",
        ),
        (("replication-factor", "2", "nonsense"), 1, "nonsense"),
        (("balance", "--disk-mark", "101"), 2, "--disk-mark 101 is more than a whole disk"),
        (("balance", "--rollback"), 1, "the previous assignment is unknown"),
        (("balance", "--output", "plan.json"), 2, "--output requires --dry-run"),
    ):
        found, out, err = tool.run(*words)
        assert (found, out) == (code, ""), words
        assert line in err, words
        assert len(err.splitlines()) == 1, words
    with Client(cluster.bootstrap) as client:
        assert load_cluster_model(client).dead_brokers == []
        name = TopicPartition("big", 0)
        wanted = {name: [1, 2, 3]}
        set_throttles(client, throttle_settings({}, wanted, {name: [1, 2]}), SLOW)  # so that it does not end too soon
        assert alter_reassignments(client, wanted) == {}
        code, _, err = tool.run("balance", "--measure", "0")
        assert code == 1
        assert "1 move is in progress that another command started (ottla reassign list)" in err
        other = Tool(cluster, tmp_path)
        other.command = reassign_command.run
        code, _, err = other.run("generate", "big", "--replication-factor", "3", "-o", str(tmp_path / "plan.json"))
        assert code == 0
        assert "1 move is in progress (ottla reassign list): the plan starts from their targets." in err
        plan = json.loads((tmp_path / "plan.json").read_text())
        assert [row["partition"] for row in plan["partitions"]] == [1], "partition 0 is on its way to three already"
        assert alter_reassignments(client, {name: None}) == {}
        clear_throttles(client, ["big"])
    (file,) = (tmp_path / "ottla" / "moves").glob("*.lock")
    file.with_suffix(".json").write_text('{"version": 1, "partitions": [5]}')
    code, _, err = tool.run("balance", "--measure", "0")
    assert code == 1
    assert "move it away to start over" in err
    file.with_suffix(".json").unlink()
    cluster.create_topic("solo", assignment={0: [3]})
    cluster.broker(3).kill()
    cluster.wait_for_isr("big", 1, [2])
    tool = Tool(cluster, tmp_path)

    def is_refused(*words: str) -> bool | None:
        code, _, err = tool.run(*words)
        return (code == 1 and "solo-0 has no leader, and its records are only on broker 3: " in err) or None

    for words in (("remove", "3", "--dry-run"), ("remove", "3"), ("replication-factor", "1")):
        cluster.wait_for(lambda words=words: is_refused(*words), f"a refusal of {words}")
    assert not file.with_suffix(".json").exists(), "nothing was begun"
    with Client(",".join(broker.bootstrap_servers for broker in cluster.live_brokers)) as client:
        Admin(client).delete_topics(["solo"])

    def is_missed() -> bool | None:
        code, _, err = tool.run("balance", "--measure", "0")
        return (code == 1 and "broker 3 is down, but holds replicas" in err) or None

    cluster.wait_for(is_missed, "a refusal while broker 3 is away")
    code, out, _ = tool.run("remove", "3")
    assert (code, replicas(cluster)[3]) == (0, 0), "a broker that is dead can be taken out"
    assert "Broker 3 holds no replicas now.\n" in out
    journal = json.loads(file.with_suffix(".json").read_text())
    assert (journal["command"], journal["ended"]) == ("remove 3", True)


def test_a_dry_run_writes_a_plan_that_the_other_tool_reads(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("lopsided", assignment={number: [1, 2] for number in range(8)})
    file = tmp_path / "plan.json"
    code, _, _ = Tool(cluster, tmp_path).run("balance", "--dry-run", "--measure", "0", "--output", str(file))
    assert code == 0
    plan = json.loads(file.read_text())
    assert any(row["topic"] == "lopsided" and 3 in row["replicas"] for row in plan["partitions"])
    cluster.delete_topic("lopsided")
