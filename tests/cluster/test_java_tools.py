"""Apache Kafka's own tools on our cluster: they move replicas, elect leaders and describe, and ours print the same."""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from tests.conformance.conftest import KAFKA_VERSION, find_jars
from tests.conformance.java_tools import JavaTools
from tests.faults.loads import LIBRDKAFKA

from ottla.cli.kafka_scripts import run_script
from ottla.testing.cluster import Cluster

REASSIGN, ELECT, TOPICS = "kafka-reassign-partitions.sh", "kafka-leader-election.sh", "kafka-topics.sh"
TRACE = re.compile(r"^(\tat |\t\.\.\. |Caused by|java\.|joptsimple\.|org\.apache\.kafka)")
# TOPIC has partition 0 on brokers 1 and 2, and 1 on 2 and 3; TMP is the folder of the plans below.
SAME = [
    (REASSIGN, ""),
    (REASSIGN, "--list"),
    (REASSIGN, "--list --bogus"),
    (REASSIGN, "--list --execute"),
    (REASSIGN, "--list --throttle 5"),
    (REASSIGN, "--execute"),
    (REASSIGN, "--generate --topics-to-move-json-file TMP/topics.json"),
    (REASSIGN, "--generate --topics-to-move-json-file TMP/topics.json --broker-list 1,x"),
    (REASSIGN, "--generate --topics-to-move-json-file TMP/topics.json --broker-list 1,1"),
    (REASSIGN, "--generate --topics-to-move-json-file TMP/topics.json --broker-list 1,9"),
    (REASSIGN, "--generate --topics-to-move-json-file TMP/unknown-topics.json --broker-list 1"),
    (REASSIGN, "--generate --topics-to-move-json-file TMP/nonsense.json --broker-list 1"),
    (REASSIGN, "--generate --topics-to-move-json-file TMP/not-there.json --broker-list 1"),
    *(
        (REASSIGN, f"--{action} --reassignment-json-file TMP/{name}.json")
        for name in (
            "empty",
            "doubled",
            "doubled-replica",
            "no-replica",
            "future-version",
            "folders",
            "wrong-partition",
        )
        for action in ("execute", "verify", "cancel")
    ),
    (REASSIGN, "--execute --reassignment-json-file TMP/wrong-broker.json"),
    (REASSIGN, "--execute --reassignment-json-file TMP/wrong-topic.json"),
    (REASSIGN, "--execute --reassignment-json-file TMP/fewer.json --disallow-replication-factor-change"),
    (REASSIGN, "--verify --reassignment-json-file TMP/as-it-is.json"),
    (REASSIGN, "--verify --reassignment-json-file TMP/fewer.json --preserve-throttles"),
    (ELECT, ""),
    (ELECT, "--election-type preferred"),
    (ELECT, "--election-type nonsense --all-topic-partitions"),
    (ELECT, "--election-type preferred --topic TOPIC"),
    (ELECT, "--election-type preferred --topic TOPIC --partition 0"),
    (ELECT, "--election-type unclean --topic TOPIC --partition 0"),
    (ELECT, "--election-type preferred --topic TOPIC --partition 9"),
    (ELECT, "--election-type preferred --path-to-json-file TMP/election.json"),
    (ELECT, "--election-type preferred --path-to-json-file TMP/one-bucket.json"),
    (ELECT, "--election-type preferred --path-to-json-file TMP/nonsense.json"),
    (TOPICS, "--describe --topic TOPIC"),
    (TOPICS, "--describe --topic TOPIC --at-min-isr-partitions"),
]


class Result(NamedTuple):
    code: int
    out: list[str]
    err: list[str]


def result(code: int, out: str, err: str) -> Result:
    lines = [line for line in out.splitlines() if not TRACE.match(line)]
    while lines and not lines[-1]:
        lines.pop()
    complaint = [] if err.startswith("null\nTools$Ended") else err.splitlines()[:1]
    return Result(code, lines, complaint)


def ours(name: str, *arguments: str) -> Result:
    """In this process: a new one for each command would take most of the time."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code: object = run_script(name, arguments)
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return result(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def java() -> Iterator[JavaTools]:
    with JavaTools(find_jars(KAFKA_VERSION)) as tools:
        yield tools


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"java-{uuid.uuid4().hex[:8]}"
    return cluster.create_topic(name, assignment={0: [1, 2], 1: [2, 3]})


@pytest.fixture
def files(tmp_path: Path, topic: str) -> Callable[..., str]:
    """Writes a plan: files("name", {0: [1, 2]}) or files("name", anything else)."""

    def write(name: str, content: object, of_topic: str = topic) -> str:
        if isinstance(content, dict) and all(isinstance(key, int) for key in content):
            content = plan([(of_topic, number, row) for number, row in content.items()])
        path = tmp_path / f"{name}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def plan(rows: list[tuple[str, int, list[int]]]) -> dict[str, object]:
    partitions = [{"topic": topic, "partition": number, "replicas": row} for topic, number, row in rows]
    return {"version": 1, "partitions": partitions}


def election(partitions: list[tuple[str, int]]) -> dict[str, object]:
    return {"partitions": [{"topic": name, "partition": number} for name, number in partitions]}


def write_all(files: Callable[..., str], topic: str) -> None:
    files("topics", {"version": 1, "topics": [{"topic": topic}]})
    files("unknown-topics", {"version": 1, "topics": [{"topic": "not-there"}]})
    files("nonsense", "{nonsense")
    files("empty", plan([]))
    files("doubled", plan([(topic, 0, [1, 2]), (topic, 0, [1, 2])]))
    files("doubled-replica", {0: [2, 2]})
    files("no-replica", {0: []})
    files("future-version", {"version": 7, "partitions": []})
    row = {"topic": topic, "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]}
    files("folders", {"version": 1, "partitions": [row]})
    files("wrong-partition", {7: [1, 2]})
    files("wrong-broker", {0: [1, 9]})
    files("wrong-topic", {0: [1, 2]}, "not-there")
    files("as-it-is", {0: [1, 2], 1: [2, 3]})
    files("fewer", {0: [1]})
    partitions = [(topic, 0), (topic, 7), (topic, 1), ("not-there", 3), ("not-there", 4)]
    files("election", election(partitions))
    # A map of Java keeps these two in one place, as they were put in.
    files("one-bucket", election([("not-there", 4), ("java-00000050", 7)]))


def test_tools_print_what_javas_print(
    java: JavaTools, cluster: Cluster, topic: str, files: Callable[..., str], tmp_path: Path
) -> None:
    """One test for all: each of them is short, and a cluster is not made in no time."""
    write_all(files, topic)
    differing = []
    for name, words in SAME:
        arguments = words.replace("TOPIC", topic).replace("TMP", str(tmp_path)).split()
        command = (name, "--bootstrap-server", cluster.bootstrap, *arguments)
        for _ in range(3):  # the cluster may have changed between the two
            theirs = result(*java.run(*command))
            mine = ours(*command)
            if mine == theirs:
                break
            cluster.wait_until_whole()
        else:
            differing.append((command, mine, theirs))
    assert differing == []


def fill(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **LIBRDKAFKA})
    for _ in range(count):
        producer.produce(topic, bytes(1000), partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def test_javas_tool_moves_replicas(java: JavaTools, cluster: Cluster, topic: str, files: Callable[..., str]) -> None:
    fill(cluster, topic, 3000)
    there = files("there", {0: [3, 2]})

    def reassign(*words: str) -> Result:
        return result(*java.run(REASSIGN, "--bootstrap-server", cluster.bootstrap, *words))

    begun = reassign("--execute", "--reassignment-json-file", there, "--throttle", "100000")
    assert begun.code == 0
    assert begun.out[-2:] == [
        "The inter-broker throttle limit was set to 100000 B/s",
        f"Successfully started partition reassignment for {topic}-0",
    ]
    listed = ["Current partition reassignments:", f"{topic}-0: replicas: 3,2,1. adding: 3. removing: 1."]
    assert reassign("--list").out == ours(REASSIGN, "--bootstrap-server", cluster.bootstrap, "--list").out == listed
    verify = ("--verify", "--reassignment-json-file", there)
    still = ["Status of partition reassignment:", f"Reassignment of partition {topic}-0 is still in progress."]
    assert reassign(*verify).out == still
    assert reassign("--execute", "--reassignment-json-file", there).code == 1, "one at a time"
    for words in ("", "--under-replicated-partitions", "--at-min-isr-partitions"):
        describe = (TOPICS, "--bootstrap-server", cluster.bootstrap, "--describe", "--topic", topic, *words.split())
        theirs = result(*java.run(*describe))
        assert ours(*describe) == theirs
        assert any("Adding Replicas: 3\tRemoving Replicas: 1" in line for line in theirs.out) is not ("under" in words)
    throttled = cluster.read_node(f"/config/topics/{topic}")
    assert throttled is not None
    assert json.loads(throttled)["config"]["follower.replication.throttled.replicas"] == "0:3"
    cancelled = reassign("--cancel", "--reassignment-json-file", there)
    assert cancelled.out[0] == f"Successfully cancelled partition reassignment for: {topic}-0"
    assert reassign("--list").out == ["No partition reassignments found."]
    assert reassign("--execute", "--reassignment-json-file", there).code == 0
    cluster.wait_for_isr(topic, 0, [2, 3])
    done = reassign(*verify)
    assert done.out[1] == f"Reassignment of partition {topic}-0 is completed."
    assert done.out[-1] == f"Clearing topic-level throttles on topic {topic}"
    left = cluster.read_node(f"/config/topics/{topic}")
    assert left is not None
    assert "throttled" not in left.decode()


def test_javas_tools_elect_and_describe(
    java: JavaTools, cluster: Cluster, topic: str, files: Callable[..., str]
) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    ours(REASSIGN, *server, "--execute", "--reassignment-json-file", files("turned", {0: [2, 1], 1: [3, 2]}))
    elected = result(*java.run(ELECT, *server, "--election-type", "preferred", "--all-topic-partitions"))
    assert elected.code == 0
    assert set(elected.out[0].rpartition(" partitions ")[2].split(", ")) >= {f"{topic}-0", f"{topic}-1"}
    assert [cluster.leader_of(topic, number).id for number in (0, 1)] == [2, 3]
    cluster.broker(3).stop()
    cluster.wait_for_isr(topic, 1, [2])
    server = ("--bootstrap-server", cluster.broker(2).bootstrap_servers)
    for flag in ("under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions"):
        command = (TOPICS, *server, "--describe", "--topic", topic, f"--{flag}")
        theirs = result(*java.run(*command))
        assert ours(*command) == theirs
        assert len(theirs.out) == 1, theirs.out
        assert f"Partition: {0 if flag.startswith('at') else 1}\t" in theirs.out[0]
    command = (TOPICS, *server, "--describe", "--topic", topic, "--unavailable-partitions")
    assert ours(*command) == result(*java.run(*command)) == Result(0, [], [])
