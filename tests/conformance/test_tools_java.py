"""Our tools under Kafka's names beside Apache Kafka's own, on the same broker: the same lines, the same exit codes.

Both run every command; what they print is compared line by line. Of stderr only the first line counts (Java's tools
go on with a stack trace or all of their options), or the first two where the first one only repeats the command.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conformance.java_tools import JavaTools

NewTopic = Callable[..., str]
RUN_SECONDS_MAX = 40
CONFIGS, OFFSETS, TOPICS = "kafka-configs.sh", "kafka-get-offsets.sh", "kafka-topics.sh"
FEATURES, QUORUM, CLUSTER = "kafka-features.sh", "kafka-metadata-quorum.sh", "kafka-cluster.sh"
DELETE, DIRS, STORAGE = "kafka-delete-records.sh", "kafka-log-dirs.sh", "kafka-storage.sh"

TIMES = ("max-timestamp", "earliest-local", "-5", "-6", "0", "xyz")
# TOPIC is a topic with three partitions and five records in the first, SERVER the broker, TMP a folder.
SAME = [
    (CONFIGS, "--describe --topic TOPIC"),
    (CONFIGS, "--describe --topic TOPIC --all"),
    (CONFIGS, "--describe --entity-type topics --entity-name TOPIC-not-there"),
    (CONFIGS, "--describe --entity-type topics --entity-name TOPIC-not-there --all"),
    (CONFIGS, "--describe --entity-type brokers"),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1 --all"),
    (CONFIGS, "--describe --broker 77"),
    (CONFIGS, "--describe --broker x"),
    (CONFIGS, "--describe --entity-type brokers --entity-default"),
    (CONFIGS, "--describe --entity-type broker-loggers --entity-name 1"),
    (CONFIGS, "--describe --entity-type nonsense"),
    (CONFIGS, "--describe"),
    (CONFIGS, "--alter --topic TOPIC"),
    (CONFIGS, "--alter --topic TOPIC --add-config retention.ms"),
    (CONFIGS, "--alter --topic TOPIC --add-config nonsense=1"),
    (CONFIGS, "--alter --topic TOPIC --add-config retention.ms=abc"),
    (CONFIGS, "--alter --topic TOPIC-not-there --add-config retention.ms=5"),
    (CONFIGS, "--alter --broker 1 --add-config broker.id=2"),
    (CONFIGS, "--alter --broker-logger 1 --add-config nope=INFO"),
    (CONFIGS, "--alter --entity-type users --entity-name u --add-config nonsense=1"),
    (CONFIGS, "--alter --entity-type users --entity-name u --add-config SCRAM-SHA-256=[password=geheim]"),
    (CONFIGS, "--describe --entity-type users --entity-name u"),
    (CONFIGS, "--describe --user u"),
    (CONFIGS, "--describe --entity-type users"),
    (CONFIGS, "--describe --user unknown"),
    (CONFIGS, "--alter --user u --delete-config SCRAM-SHA-512"),
    (CONFIGS, "--alter --user u --add-config SCRAM-SHA-256=[iterations=100,password=x]"),
    (CONFIGS, "--alter --user u --add-config SCRAM-SHA-1=[password=x]"),
    (CONFIGS, "--alter --user-defaults --add-config SCRAM-SHA-256=[password=x]"),
    (CONFIGS, "--describe --topic TOPIC --bogus"),
    (OFFSETS, "--topic TOPIC"),
    (OFFSETS, "--topic TOPIC --partitions 0,2 --time -2"),
    (OFFSETS, "--topic TOPIC --partitions a"),
    (OFFSETS, "--topic-partitions TOPIC:1-,TOPIC:0"),
    (OFFSETS, "--topic-partitions TOPIC:a"),
    (OFFSETS, "--topic-partitions TOPIC --topic TOPIC"),
    (OFFSETS, "--topic TOPIC-not-there"),
    *(
        (OFFSETS, f"--topic TOPIC --time {time}")
        for time in ("max-timestamp", "earliest-local", "-5", "-6", "0", "xyz")
    ),
    (OFFSETS, "--topic TOPIC --bogus"),
    (DIRS, "--describe --topic-list TOPIC"),
    (DIRS, "--describe --broker-list 1,77"),
    (DIRS, "--describe --broker-list x"),
    (DIRS, ""),
    (DELETE, "--offset-json-file TMP/nonsense.json"),
    (DELETE, "--offset-json-file TMP/not-there.json"),
    (DELETE, ""),
    ("kafka-broker-api-versions.sh", ""),
    (TOPICS, "--describe --topic TOPIC"),
    (TOPICS, "--describe --topic TOPIC --topics-with-overrides"),
    (TOPICS, "--describe --topic TOPIC --at-min-isr-partitions"),
    (TOPICS, "--describe --topic TOPIC --under-min-isr-partitions"),
    (TOPICS, "--describe --topic TOPIC --unavailable-partitions"),
    (TOPICS, "--describe --topic TOPIC --partition-size-limit-per-response 1"),
    (TOPICS, "--list --topic TOPIC --exclude-internal"),
    (TOPICS, "--alter --topic TOPIC --partitions 1"),
    (TOPICS, "--create --topic TOPIC"),
]
WITH_COMMANDS = [
    (FEATURES, "--bootstrap-server SERVER describe"),
    (FEATURES, "version-mapping --release-version 4.0"),
    (FEATURES, "version-mapping --release-version 9"),
    (FEATURES, "feature-dependencies --feature eligible.leader.replicas.version=1 --feature group.version=1"),
    (FEATURES, "--bootstrap-server SERVER upgrade"),
    (FEATURES, "--bootstrap-server SERVER upgrade --feature nope=1 --dry-run"),
    (FEATURES, "--bootstrap-server SERVER upgrade --feature nope=x"),
    (FEATURES, "--bootstrap-server SERVER downgrade --feature nope=1 --feature nope=2"),
    (CLUSTER, "cluster-id --bootstrap-server SERVER"),
    (CLUSTER, "list-endpoints --bootstrap-server SERVER"),
    (CLUSTER, "list-endpoints --bootstrap-server SERVER --include-fenced-brokers"),
    (CLUSTER, "unregister --bootstrap-server SERVER --id 77"),
    (QUORUM, "--bootstrap-server SERVER describe"),
    (QUORUM, "--bootstrap-server SERVER describe --status --replication"),
    (QUORUM, "--bootstrap-server SERVER describe --status"),
    (QUORUM, "--bootstrap-server SERVER describe --replication"),
    (STORAGE, "version-mapping"),
    (STORAGE, "info --config TMP/not-formatted.properties"),
    (STORAGE, "format --config TMP/voters.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAQ --standalone"),
    (STORAGE, "format --config TMP/dynamic.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAQ"),
    (STORAGE, "format --config TMP/dynamic.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAQ -s -r 9.9"),
]
MOVING = re.compile(r"(?<=HighWatermark: )\s*\d+|(?<=Epoch: )\d+|\t\d+\s*\t0\s*\t\d+\s*\t\d+\s*\tLeader")


class Result(NamedTuple):
    code: int
    out: str
    err: list[str]


def result(code: int, out: str, err: str) -> Result:
    """What a tool printed, without the numbers that change from one moment to the next."""
    lines = [] if err.startswith("null\nTools$Ended") else err.splitlines()  # kafka-topics.sh prints its own exit
    wanted = 2 if lines and lines[0].startswith("Error while executing config command") else 1
    return Result(code, MOVING.sub(" <number>", out), lines[:wanted])


@pytest.fixture(scope="module")
def filled_topic(bootstrap: str, topic_names: Callable[[], str]) -> str:
    name = topic_names()
    configs = ["--config", "retention.ms=86400000", "--config", "cleanup.policy=compact,delete"]
    ours(TOPICS, "--bootstrap-server", bootstrap, "--create", "--topic", name, "--partitions", "3", *configs)
    lines = b"".join(b"k:%d\n" % number for number in range(5))
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    ours("kafka-console-producer.sh", "--bootstrap-server", bootstrap, "--topic", name, *keyed, stdin=lines)
    return name


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    (folder / "nonsense.json").write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": "x"}]}')
    common = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n"
    common += f"listeners=PLAINTEXT://127.0.0.1:19892,C://127.0.0.1:19893\nlog.dirs={folder}/one,{folder}/two\n"
    voters, dynamic = "controller.quorum.voters=1@127.0.0.1:19893\n", "controller.quorum.bootstrap.servers=a:1\n"
    (folder / "voters.properties").write_text(common + voters)
    (folder / "dynamic.properties").write_text(common + dynamic)
    (folder / "not-formatted.properties").write_text(common + voters)
    return folder


def ours(name: str, *arguments: str, stdin: bytes = b"") -> Result:
    command = [sys.executable, "-m", "ottla.cli.kafka_scripts", name, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=RUN_SECONDS_MAX, check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return result(done.returncode, done.stdout.decode(), done.stderr.decode())


def theirs(java: JavaTools, name: str, *arguments: str) -> Result:
    return result(*java.run(name, *arguments))


@pytest.mark.parametrize(("name", "words"), SAME)
def test_tools_print_what_javas_print(
    java: JavaTools, bootstrap: str, filled_topic: str, files: Path, name: str, words: str
) -> None:
    words = words.replace("TOPIC", filled_topic).replace("TMP", str(files))
    arguments = ["--bootstrap-server", bootstrap, *words.split()]
    assert ours(name, *arguments) == theirs(java, name, *arguments)


@pytest.mark.parametrize(("name", "words"), WITH_COMMANDS)
def test_tools_with_commands_print_what_javas_print(
    java: JavaTools, bootstrap: str, files: Path, name: str, words: str
) -> None:
    arguments = words.replace("SERVER", bootstrap).replace("TMP", str(files)).split()
    assert ours(name, *arguments) == theirs(java, name, *arguments)


def test_changes_are_printed_as_by_kafkas_tool(java: JavaTools, bootstrap: str, new_topic: NewTopic) -> None:
    """Each side changes a topic of its own and reads the one of the other."""
    mine, other = new_topic(), new_topic()
    server = ("--bootstrap-server", bootstrap)
    for change in (
        ("--add-config", "retention.ms=5,cleanup.policy=[compact,delete]"),
        ("--delete-config", "retention.ms,flush.ms"),
    ):
        here = ours(CONFIGS, *server, "--alter", "--topic", mine, *change)
        there = theirs(java, CONFIGS, *server, "--alter", "--entity-type", "topics", "--entity-name", other, *change)
        assert (
            (here.code, here.out.replace(mine, other), here.err)
            == (there.code, there.out, there.err)
            == (0, there.out, [])
        )
        seen = theirs(java, CONFIGS, *server, "--describe", "--topic", mine)
        assert seen.out.replace(mine, other) == ours(CONFIGS, *server, "--describe", "--topic", other).out


def test_records_are_deleted_as_by_kafkas_tool(
    java: JavaTools, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    server = ("--bootstrap-server", bootstrap)
    told = []
    for run in (ours, lambda *words: theirs(java, *words)):
        name = new_topic()
        ours("kafka-console-producer.sh", *server, "--topic", name, stdin=b"a\nb\nc\n")
        path = tmp_path / f"{name}.json"
        results = []
        for offset in (2, 99, -1):
            path.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": offset}]}))
            results.append(run(DELETE, *server, "--offset-json-file", str(path)).out.replace(name, "T"))
        told.append(results)
        assert ours(OFFSETS, *server, "--topic", name, "--time", "earliest").out == f"{name}:0:3\n"
    assert told[0] == told[1]


def test_javas_storage_tool_knows_what_ours_formatted(java: JavaTools, tmp_path: Path) -> None:
    folders = f"{tmp_path}/one,{tmp_path}/two"
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n"
        "controller.quorum.voters=1@127.0.0.1:19893\n"
        f"listeners=PLAINTEXT://127.0.0.1:19892,C://127.0.0.1:19893\nlog.dirs={folders}\n"
    )
    cluster_id = ours(STORAGE, "random-uuid").out.strip()
    formatted = ours(STORAGE, "format", "-c", str(config), "-t", cluster_id)
    lines = sorted(formatted.out.splitlines())
    assert lines == [
        f"Formatting data directory {tmp_path}/two with metadata.version 4.3-IV0.",
        f"Formatting metadata directory {tmp_path}/one with metadata.version 4.3-IV0.",
    ]
    for words in (
        ("info", "-c", str(config)),
        ("format", "-c", str(config), "-t", cluster_id),
        ("format", "-c", str(config), "-t", cluster_id, "--ignore-formatted"),
        ("format", "-c", str(config), "-t", "AAAAAAAAAAAAAAAAAAAAAQ"),
    ):
        assert told(ours(STORAGE, *words)) == told(theirs(java, STORAGE, *words))


def told(storage: Result) -> Result:
    """Without the ids of folders, without the order of folders, and without what only KRaft keeps in them."""
    lines = [line for line in storage.out.splitlines() if not line.startswith("Bootstrap metadata:")]
    out = re.sub("directory.id=[^,]*", "", "\n".join(lines))
    return storage._replace(out=out, err=[re.sub("/(one|two)", "/D", line) for line in storage.err])
