"""The administration tools as people use them: under their own names, with old options, with bad input, in a shell."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest

NewTopic = Callable[..., str]
SECONDS_MAX = 40
ANSWER_SECONDS_MAX = 0.3  # of the processor: how long that takes is the machine's business
SHELL_SECONDS_MAX = 15
NO_BROKER = "127.0.0.1:1"


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err
        assert "Traceback" not in err, err

    def __repr__(self) -> str:
        return f"<Result {self.code} out={self.out[-500:]!r} err={self.err[-500:]!r}>"


def run(name: str, *arguments: str, **environment: str) -> Result:
    module = ["ottla.cli.main"] if name == "ottla" else ["ottla.cli.kafka_scripts", name]
    done = subprocess.run(
        [sys.executable, "-m", *module, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={**os.environ, **environment},
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def ottla(bootstrap: str) -> Callable[..., Result]:
    """`ottla` on the session's broker: ottla("topics", "list")."""
    return lambda *arguments: run("ottla", *arguments, OTTLA_BOOTSTRAP_SERVER=bootstrap)


Tool = Callable[..., Result]


# ---- under their own names


def test_settings_are_changed_and_put_back(ottla: Tool, topic: str, tmp_path: Path) -> None:
    changed = ottla("configs", "set", "topic", topic, "retention.ms=5", "cleanup.policy=compact,delete")
    assert (changed.code, changed.out) == (0, f"Changed retention.ms, cleanup.policy of topic {topic}.\n")
    shown = ottla("configs", "describe", "topic", topic)
    assert "retention.ms\t5\tdynamic topic\n" in shown.out
    assert len(ottla("configs", "describe", "topic", topic, "--all").out.splitlines()) > 30
    assert ottla("configs", "unset", "topic", topic, "retention.ms").code == 0
    assert "retention.ms" not in ottla("configs", "describe", "topic", topic).out
    file = tmp_path / "changes.properties"
    file.write_text("retention.ms=7\n")
    assert ottla("configs", "set", "topic", topic, "--file", str(file)).code == 0
    assert "retention.ms\t7\t" in ottla("configs", "describe", "topic", topic).out
    assert "read-only" in ottla("configs", "describe", "broker", "1", "--all").out


def test_offsets_and_records(ottla: Tool, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    run("ottla", "produce", topic, "a", "b", "c", "--partition", "1", "--bootstrap-server", bootstrap)
    assert ottla("offsets", "list", topic).out == f"{topic}\t0\t0\t0\t0\n{topic}\t1\t0\t3\t3\n"
    assert ottla("offsets", "list", topic, "--at", "1970-01-02").out == f"{topic}\t0\tnone\n{topic}\t1\t0\n"
    deleted = ottla("records", "delete", topic, "--partition", "1", "--before", "2")
    assert (deleted.code, deleted.out) == (0, f"{topic}\t1\t2\n")
    assert ottla("offsets", "list", topic, "--partitions", "1").out == f"{topic}\t1\t2\t3\t1\n"
    refused = ottla("records", "delete", topic, "--before", "99")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 2)
    assert ottla("records", "delete", topic, "--before", "end").out == f"{topic}\t0\t0\n{topic}\t1\t3\n"


def test_the_cluster_is_described(ottla: Tool, bootstrap: str, topic: str) -> None:
    assert f"1\t{bootstrap}\t\tup\tcontroller\n" in ottla("cluster", "info").out
    assert "1\t18\tApiVersions\t0-4\n" in ottla("cluster", "apis").out
    assert ottla("cluster", "quorum").out.endswith("Leader\n")
    assert re.match(r"1\t/\S+\t\d+\t", ottla("log-dirs", "list").out)
    assert f"\t{topic}-0\t0\n" in ottla("log-dirs", "describe", "--topic", topic).out
    assert ottla("features", "list").code == 0
    assert re.fullmatch(r"[\w-]{22}\n", ottla("storage", "random-uuid").out)


# ---- old options and words


def test_scripts_from_the_days_of_zookeeper_work(bootstrap: str, topic_name: str) -> None:
    def topics(*arguments: str) -> Result:
        words = ("--zookeeper", "zk1:2181,zk2:2181/kafka", *arguments)
        return run("kafka-topics.sh", *words, OTTLA_BOOTSTRAP_SERVER=bootstrap)

    created = topics("--create", "--replication-factor", "1", "--partitions", "1", "--topic", topic_name)
    assert (created.code, created.out) == (0, f'Created topic "{topic_name}".\n')
    assert topics("--list", "--topic", topic_name).out == f"{topic_name}\n"
    described = topics("--describe", "--topic", topic_name).out.splitlines()
    assert re.fullmatch(rf"Topic:{topic_name}\tPartitionCount:1\tReplicationFactor:1\tConfigs:.*", described[0])
    assert described[1] == f"\tTopic: {topic_name}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1"
    assert topics("--alter", "--partitions", "2", "--topic", topic_name).out.endswith("Adding partitions succeeded!\n")
    changed = run(
        "kafka-configs.sh",
        *("--zookeeper", "zk:2181", "--alter", "--entity-type", "topics", "--entity-name", topic_name),
        *("--add-config", "retention.ms=5"),
        OTTLA_BOOTSTRAP_SERVER=bootstrap,
    )
    assert changed.out == f"Completed Updating config for entity: topic '{topic_name}'.\n"
    deleted = topics("--delete", "--topic", topic_name)
    marked, note = deleted.out.splitlines()
    assert (deleted.code, marked) == (0, f"Topic {topic_name} is marked for deletion.")
    assert note == "Note: This will have no impact if delete.topic.enable is not set to true."
    assert topics("--list", "--topic", topic_name).out == "\n"


def test_offsets_are_shown_with_the_old_broker_list(bootstrap: str, topic: str) -> None:
    shown = run("kafka-get-offsets.sh", "--broker-list", bootstrap, "--topic", topic, "--time", "-1")
    assert (shown.code, shown.out) == (0, f"{topic}:0:0\n")


def test_tools_are_started_by_the_names_of_their_classes(bootstrap: str, topic: str) -> None:
    shown = run("kafka-run-class.sh", "kafka.tools.GetOffsetShell", "--broker-list", bootstrap, "--topic", topic)
    assert (shown.code, shown.out) == (0, f"{topic}:0:0\n")
    unknown = run("kafka-run-class.sh", "kafka.tools.Nonsense")
    assert (unknown.code, unknown.err) == (1, "Error: Could not find or load main class kafka.tools.Nonsense\n")


@pytest.mark.needs_ottla
def test_a_cluster_that_does_not_delete_topics_says_so(broker_factory: Callable[..., Any]) -> None:
    broker = broker_factory(delete_topic_enable="false")
    server = ("--bootstrap-server", broker.bootstrap)
    assert run("kafka-topics.sh", *server, "--create", "--topic", "kept").code == 0
    refused = run("kafka-topics.sh", *server, "--delete", "--topic", "kept")
    assert (refused.code, refused.out) == (1, "Error while executing topic command : Topic deletion is disabled.\n")
    old = ("--zookeeper", "zk:2181", "--delete", "--topic", "kept")
    unmarked = run("kafka-topics.sh", *old, OTTLA_BOOTSTRAP_SERVER=broker.bootstrap)
    assert (unmarked.code, unmarked.out) == (refused.code, refused.out), "without a ZooKeeper nothing can be marked"
    assert run("kafka-topics.sh", *server, "--list").out == "kept\n"


# ---- folders and the metadata store


@pytest.mark.needs_ottla
def test_a_broker_starts_on_formatted_folders_and_its_store_can_be_read(
    broker_factory: Callable[..., Any], tmp_path: Path
) -> None:
    broker = broker_factory(start=False)
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in broker.settings.items()))
    cluster_id = run("kafka-storage.sh", "random-uuid").out.strip()
    formatted = run("kafka-storage.sh", "format", "-t", cluster_id, "-c", str(config), "--standalone")
    folder = str(broker.data_directory)
    assert formatted.out == f"Formatting data directory {folder} with metadata.version 4.3-IV0.\n"
    assert run("kafka-storage.sh", "format", "-t", cluster_id, "-c", str(config)).code == 1
    broker.start()
    shown = run("kafka-cluster.sh", "cluster-id", "--bootstrap-server", broker.bootstrap)
    assert shown.out == f"Cluster ID: {cluster_id}\n"
    node = json.loads(run("ottla", "metadata", "get", "/brokers/ids/1", "--data", folder).out)
    assert node["endpoints"] == [f"PLAINTEXT://{broker.bootstrap}"]
    run("kafka-topics.sh", "--bootstrap-server", broker.bootstrap, "--create", "--topic", "seen")
    assert run("ottla", "metadata", "ls", "/brokers/topics", "--data", folder).out == "[seen]\n"
    before = sorted(os.listdir(folder))
    assert "seen" in run("ottla", "metadata", "tree", "--data", folder).out
    assert sorted(os.listdir(folder)) == before
    broker.stop()
    assert run("ottla", "metadata", "ls", "/brokers/topics", "--data", folder).out == "[seen]\n"
    broker.start()


# ---- bad input


def test_without_a_broker_one_line_says_so_soon() -> None:
    commands = [
        "kafka-configs.sh --bootstrap-server NONE --describe --topic t",
        "kafka-get-offsets.sh --bootstrap-server NONE",
        "kafka-log-dirs.sh --bootstrap-server NONE --describe",
        "kafka-broker-api-versions.sh --bootstrap-server NONE",
        "kafka-cluster.sh cluster-id --bootstrap-server NONE",
        "kafka-features.sh --bootstrap-server NONE describe",
        "kafka-metadata-quorum.sh --bootstrap-server NONE describe --status",
        "ottla configs describe topic t --bootstrap-server NONE",
        "ottla offsets list --bootstrap-server NONE",
        "ottla records delete t --before 1 --bootstrap-server NONE",
        "ottla cluster info --bootstrap-server NONE",
        "ottla log-dirs list --bootstrap-server NONE",
    ]
    with ThreadPoolExecutor(len(commands)) as threads:  # each gives its broker a second
        results = list(threads.map(lambda words: run(*words.replace("NONE", NO_BROKER).split()), commands))
    for command, result in zip(commands, results, strict=True):
        assert (command, result.code, result.out, result.err.count("\n")) == (command, 1, "", 1)
        assert "cannot reach 127.0.0.1:1: connection refused. Is the broker running?" in result.err


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "kafka-configs.sh --bogus"),
        (1, "kafka-cluster.sh nonsense"),
        (1, "kafka-cluster.sh cluster-id"),
        (1, "kafka-cluster.sh unregister --bootstrap-server a:1 --id x"),
        (1, "kafka-features.sh describe"),
        (1, "kafka-metadata-quorum.sh describe --status"),
        (1, "kafka-storage.sh format"),
        (1, "kafka-storage.sh info --config /not/there"),
        (1, "kafka-delete-records.sh --bootstrap-server a:1 --offset-json-file /dev/null"),
        (1, "kafka-configs.sh --bootstrap-server a:1 --describe --topic .."),
        (2, "ottla configs nonsense"),
        (2, "ottla configs set topic t"),
        (2, "ottla configs describe planet mars"),
        (2, "ottla offsets list --bogus"),
        (2, "ottla offsets list t --at 2026-02-30"),
        (2, "ottla records delete t --before -1"),
        (2, "ottla cluster unregister x"),
        (2, "ottla completion powershell"),
        (1, "ottla metadata ls --data /not/there"),
        (1, "ottla features upgrade --release 9.9"),
    ],
)
def test_bad_command_lines_are_refused(code: int, words: str, bootstrap: str) -> None:
    result = run(*words.split(), OTTLA_BOOTSTRAP_SERVER=bootstrap)
    assert (result.code, result.out) == (code, "")
    assert result.err


def test_passwords_are_not_repeated(bootstrap: str) -> None:
    words = ("--alter", "--user", "u", "--add-config", "SCRAM-SHA-256=[password=geheim],nonsense=1")
    refused = run("kafka-configs.sh", "--bootstrap-server", bootstrap, *words)
    assert refused.code == 1
    assert "geheim" not in refused.err


def test_a_closed_pipe_ends_a_tool_quietly(bootstrap: str, topic: str) -> None:
    command = f"{sys.executable} -m ottla.cli.kafka_scripts kafka-configs.sh --bootstrap-server {bootstrap}"
    done = subprocess.run(
        ["bash", "-c", f"{command} --describe --topic {topic} --all | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# ---- speed and completion


@pytest.mark.parametrize(
    "words",
    ["kafka-topics.sh --list", "kafka-topics.sh --describe", "ottla topics list", "kafka-configs.sh --describe"],
)
def test_a_topic_tool_answers_at_once(bootstrap: str, topic: str, words: str) -> None:
    name, *arguments = words.split()
    if words.endswith("--describe"):
        arguments += ["--topic", topic]

    def seconds() -> float:
        started = os.times()
        assert run(name, *arguments, "--bootstrap-server", bootstrap).code == 0
        ended = os.times()
        return ended.children_user + ended.children_system - started.children_user - started.children_system

    assert min(seconds() for _ in range(3)) <= ANSWER_SECONDS_MAX


def test_bash_completes_commands_options_and_topics(bootstrap: str, topic_name: str, tmp_path: Path) -> None:
    run("ottla", "topics", "create", f"{topic_name}-zebra", "--bootstrap-server", bootstrap)
    script = tmp_path / "completion.bash"
    script.write_text(run("ottla", "completion", "bash").out)
    environment = shell_environment(tmp_path)
    with Shell(["bash", "--norc", "--noprofile", "-i"], environment) as shell:
        shell.type(f"PS1='> '; source {script}; echo set''up\n", "setup")
        shell.type("ottla topi\t", "ottla topics ")
        shell.type("cre\t", "create ")
        shell.type("--part\t", "--partitions ")
        shell.type(f"\x15ottla topics describe --bootstrap-server {bootstrap} {topic_name}-z\t", f"{topic_name}-zebra")
        shell.type(f"\x15ottla broker --config {tmp_path}/comp\t", "completion.bash")


@pytest.mark.other_languages
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_too(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    assert program is not None, f"{shell} is not installed"
    script = tmp_path / "completion"
    script.write_text(run("ottla", "completion", shell).out)
    environment = shell_environment(tmp_path)
    if shell == "fish":
        asked = [program, "-c", f"source {script}; complete -C 'ottla topics cre'"]
        done = subprocess.run(asked, capture_output=True, text=True, env=environment, timeout=SECONDS_MAX, check=False)
        assert done.stdout == "create\n"
        return
    with Shell([program, "-f", "-i"], environment) as typist:
        typist.type(f"autoload -Uz compinit; compinit -u; source {script}; echo set''up\n", "setup")
        typist.type("ottla topi\t", "ottla topics ")
        typist.type("cre\t", "create ")


def shell_environment(folder: Path) -> dict[str, str]:
    """One in which `ottla` is the one under test."""
    binary = folder / "bin" / "ottla"
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n')
    binary.chmod(0o755)
    return {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(folder)}


class Shell:
    """A shell at a terminal, with typed input, Tab keys included."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))  # no line is folded

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.terminal)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)

    def type(self, text: str, expected: str) -> None:
        """Type, and wait until the screen shows what was expected."""
        os.write(self.terminal, text.encode())
        shown, deadline = "", time.monotonic() + SHELL_SECONDS_MAX
        while expected not in shown.replace("\a", ""):
            assert time.monotonic() < deadline, shown
            if select.select([self.terminal], [], [], 0.1)[0]:
                shown += os.read(self.terminal, 65536).decode(errors="replace")
