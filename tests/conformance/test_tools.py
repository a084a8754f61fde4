"""The tools as processes, as people and scripts run them. Every expected text was printed by Apache Kafka 4.3.1's own
tools; with OTTLA_TEST_BOOTSTRAP the same tests run our tools against Apache Kafka."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from tests.conformance.waiting import eventually

NewTopic = Callable[..., str]
METRIC_NAMES_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both.\n"
)
TOPICS = "kafka-topics.sh"
PRODUCER = "kafka-console-producer.sh"
CONSUMER = "kafka-console-consumer.sh"
SECONDS_MAX = 40


class Result:
    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode("utf-8", "surrogateescape")
        self.err = err.decode("utf-8", "surrogateescape")
        assert "Traceback" not in self.err, self.err

    def __repr__(self) -> str:
        return f"<Result {self.code} out={self.out[-500:]!r} err={self.err[-500:]!r}>"


def command_of(name: str) -> list[str]:
    module = ["ottla.cli.main"] if name == "ottla" else ["ottla.cli.kafka_scripts", name]
    return [sys.executable, "-m", *module]


def run(name: str, *arguments: str, stdin: bytes = b"") -> Result:
    done = subprocess.run(
        [*command_of(name), *arguments], input=stdin, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def topics(bootstrap: str) -> Callable[..., Result]:
    """`kafka-topics.sh` on the session's broker: topics("--list")."""
    return lambda *arguments: run(TOPICS, "--bootstrap-server", bootstrap, *arguments)


Tool = Callable[..., Result]


# ---- kafka-topics.sh


def test_a_topic_is_created_listed_and_deleted(topics: Tool, topic_name: str) -> None:
    created = topics("--create", "--topic", topic_name, "--partitions", "2", "--replication-factor", "1")
    assert (created.code, created.out, created.err) == (0, f"Created topic {topic_name}.\n", "")
    assert topics("--list", "--topic", topic_name).out == f"{topic_name}\n"
    grown = topics("--alter", "--topic", topic_name, "--partitions", "3")
    assert (grown.code, grown.out) == (0, "")
    described = topics("--describe", "--topic", topic_name)
    lines = described.out.splitlines()
    assert re.fullmatch(
        rf"Topic: {topic_name}\tTopicId: [\w-]{{22}}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: .*", lines[0]
    )
    assert re.fullmatch(
        rf"\tTopic: {topic_name}\tPartition: 0\tLeader: (\d+)\tReplicas: \1\tIsr: \1\tElr: \tLastKnownElr: ", lines[1]
    )
    assert len(lines) == 4
    deleted = topics("--delete", "--topic", topic_name)
    assert (deleted.code, deleted.out, deleted.err) == (0, "", "")
    assert topics("--list", "--topic", topic_name).out == "\n"


def test_settings_of_a_topic_are_shown(topics: Tool, topic_name: str) -> None:
    configs = ("--config", "retention.ms=1000", "--config", "cleanup.policy=compact")
    assert topics("--create", "--topic", topic_name, *configs).code == 0
    described = topics("--describe", "--topic", topic_name, "--topics-with-overrides").out
    assert described.count("\n") == 1
    shown = described.partition("Configs: ")[2].strip().split(",")
    assert [item for item in shown if not item.startswith("min.insync")] == [
        "cleanup.policy=compact",
        "retention.ms=1000",
    ]


def test_a_topic_is_found_by_its_id(topics: Tool, topic: str) -> None:
    described = topics("--describe", "--topic", topic).out
    topic_id = re.search(r"TopicId: (\S+)", described)
    assert topic_id is not None
    by_id = topics("--describe", "--topic-id", topic_id.group(1))
    assert by_id.out == described.replace("Elr: \tLastKnownElr: ", "Elr: N/A\tLastKnownElr: N/A")


def test_names_with_dots_or_underscores_are_warned_about(topics: Tool, topic_name: str) -> None:
    name = f"{topic_name}.a"
    created = topics("--create", "--topic", name)
    assert (created.code, created.out) == (0, f"{METRIC_NAMES_WARNING}Created topic {name}.\n")


def test_an_existing_topic_is_an_error_without_the_flag(topics: Tool, topic: str) -> None:
    again = topics("--create", "--topic", topic)
    assert (again.code, again.out) == (1, f"Error while executing topic command : Topic '{topic}' already exists.\n")
    quiet = topics("--create", "--topic", topic, "--if-not-exists")
    assert (quiet.code, quiet.out) == (0, "")


def test_a_missing_topic_is_an_error_without_the_flag(topics: Tool, topic_name: str) -> None:
    words = f"Error while executing topic command : Topic '{topic_name}' does not exist as expected\n"
    for action in (("--describe",), ("--delete",), ("--alter", "--partitions", "3")):
        missing = topics(*action, "--topic", topic_name)
        assert (missing.code, missing.out) == (1, words)
        quiet = topics(*action, "--topic", topic_name, "--if-exists")
        assert (quiet.code, quiet.out) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--topic ..", "Topic name is invalid: '..' is not allowed"),
        ("--topic T --partitions 0", "The partitions must be greater than 0"),
        ("--topic T --partitions -1", "The partitions must be greater than 0"),
        ("--topic T --partitions abc", "Cannot parse argument 'abc' of option partitions"),
        ("--topic T --replication-factor 0", "The replication factor must be between 1 and 32767 inclusive"),
        ("--topic T --config nonsense=1", "Unknown topic config name: nonsense"),
        (
            "--topic T --config retention.ms=abc",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ("--topic T --replica-assignment 1:1", "Partition replica lists may not contain duplicate entries: 1"),
        (
            "--topic T --replica-assignment 77",
            "The manual partition assignment includes broker 77, but no such broker is registered.",
        ),
    ],
)
def test_invalid_topics_are_refused_with_kafkas_message(
    topics: Tool, topic_name: str, arguments: str, words: str
) -> None:
    refused = topics("--create", *arguments.replace("T", topic_name).split())
    assert refused.code == 1
    assert refused.out.removeprefix(METRIC_NAMES_WARNING) == f"Error while executing topic command : {words}\n"
    assert topics("--list", "--topic", topic_name).out == "\n"


def test_more_replicas_than_brokers_are_refused(topics: Tool, topic_name: str) -> None:
    refused = topics("--create", "--topic", topic_name, "--replication-factor", "3")
    assert refused.code == 1
    assert refused.out.startswith(
        "Error while executing topic command : Unable to replicate the partition 3 time(s): The target replication "
        "factor of 3 cannot be reached because only 1 broker(s) are registered"
    )


@pytest.mark.parametrize(
    ("count", "words"),
    [
        ("1", "Topic already has 1 partition(s)."),
        ("0", "The topic T currently has 1 partition(s); 0 would not be an increase."),
    ],
)
def test_partitions_only_become_more(topics: Tool, topic: str, count: str, words: str) -> None:
    refused = topics("--alter", "--topic", topic, "--partitions", count)
    assert (refused.code, refused.out) == (
        1,
        f"Error while executing topic command : {words.replace('T c', topic + ' c')}\n",
    )


def test_patterns_choose_topics(topics: Tool, topic_name: str) -> None:
    for letter in "abc":
        topics("--create", "--topic", f"{topic_name}-{letter}")
    assert topics("--list", "--topic", f"{topic_name}-[ab]").out == f"{topic_name}-a\n{topic_name}-b\n"
    topics("--delete", "--topic", f"{topic_name}-a,{topic_name}-c")
    assert topics("--list", "--topic", f"{topic_name}-.*").out == f"{topic_name}-b\n"
    bad = topics("--list", "--topic", "[")
    assert (bad.code, bad.out) == (1, "Error while executing topic command : [ is an invalid regex.\n")


def test_bad_command_lines_end_with_code_1_as_kafkas_do(topics: Tool) -> None:
    unknown = topics("--list", "--bogus")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.startswith("bogus is not a recognized option\n")
    assert "Usage: kafka-topics.sh" in unknown.err


# ---- console producer and consumer


def test_lines_come_back_as_they_went_in(bootstrap: str, topic: str) -> None:
    lines = b"one\ntwo\n\n\xff\xfe\x00\x1b[31mred\nlast without end"
    produced = run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, stdin=lines)
    assert (produced.code, produced.out, produced.err) == (0, "", "")
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "5")
    consumed = run(CONSUMER, *arguments)
    assert consumed.out.encode("utf-8", "surrogateescape") == lines + b"\n"
    assert (consumed.code, consumed.err) == (0, "Processed a total of 5 messages\n")


def test_keys_headers_and_nulls_make_the_round_trip(bootstrap: str, topic: str) -> None:
    produced = run(
        PRODUCER,
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=N"),
        stdin=b"h1:a,h2:b\tk1\tv1\nh1:\tk2\t\nN\tN\tN\n",
    )
    assert (produced.code, produced.err) == (0, "")
    columns = ("key", "headers", "offset", "partition", "epoch", "delivery")
    wanted = [word for name in columns for word in ("--formatter-property", f"print.{name}=true")]
    consumed = run(
        CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "3", *wanted
    )
    rest = "Delivery:NOT_PRESENT\tEpoch:NOT_PRESENT"
    assert consumed.out == (
        f"Partition:0\tOffset:0\t{rest}\th1:a,h2:b\tk1\tv1\n"
        f"Partition:0\tOffset:1\t{rest}\th1:\tk2\t\n"
        f"Partition:0\tOffset:2\t{rest}\tNO_HEADERS\tnull\tnull\n"
    )


def test_a_partition_can_be_read_from_any_offset(bootstrap: str, topic: str) -> None:
    run(PRODUCER, "--broker-list", bootstrap, "--topic", topic, "--sync", stdin=b"0\n1\n2\n3\n")
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--max-messages", "2")
    assert run(CONSUMER, *arguments, "--offset", "1").out == "1\n2\n"
    assert run(CONSUMER, *arguments, "--offset", "earliest").out == "0\n1\n"
    separated = run(CONSUMER, *arguments, "--offset", "2", "--formatter-property", "line.separator=;")
    assert separated.out == "2;3;"


def test_all_partitions_are_read_without_a_group(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = b"".join(b"%d:%d\n" % (number, number) for number in range(20))
    run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, *keyed, stdin=lines)
    consumed = run(
        CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "1000"
    )
    assert sorted(map(int, consumed.out.split())) == list(range(20))
    assert consumed.err == "Processed a total of 20 messages\n"


def test_keys_go_to_the_partitions_that_java_chooses(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, *keyed, stdin=b"k1:a\nk2:b\nk3:c\nk4:d\n")
    shown = ("--formatter-property", "print.partition=true", "--formatter-property", "print.key=true")
    consumed = run(
        CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "4"),
        *("--formatter-property", "print.value=false", *shown),
    )
    # murmur2 of the key, as KafkaProducer does it
    assert sorted(consumed.out.splitlines()) == JAVA_PARTITIONS


JAVA_PARTITIONS = ["Partition:0\tk2", "Partition:1\tk3", "Partition:1\tk4", "Partition:2\tk1"]


def test_a_time_out_without_messages_is_no_error(bootstrap: str, topic: str) -> None:
    started = time.monotonic()
    consumed = run(CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--timeout-ms", "700")
    assert (consumed.code, consumed.out, consumed.err) == (0, "", "Processed a total of 0 messages\n")
    assert time.monotonic() - started < 5


def test_a_bad_line_stops_the_producer_in_kafkas_words(bootstrap: str, topic: str) -> None:
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--reader-property", "parse.key=true")
    produced = run(PRODUCER, *arguments, stdin=b"k\tv\nnokey\n")
    assert (produced.code, produced.err) == (1, f"{PRODUCER}: No key separator found on line number 2: 'nokey'\n")


def test_a_message_that_is_too_large_is_named_and_the_others_are_stored(bootstrap: str, topic: str) -> None:
    lines = b"x" * 1_200_000 + b"\nsmall\n"
    produced = run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, stdin=lines)
    assert produced.code == 1
    assert produced.err.count("\n") == 1
    assert produced.err.startswith(f"{PRODUCER}: message 1 (1200000 bytes) was not stored in {topic}: ")
    consumed = run(
        CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "1"
    )
    assert consumed.out == "small\n"


def test_a_line_of_100_mb_is_one_refusal(bootstrap: str, topic: str) -> None:
    produced = run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, stdin=b"x" * 104_857_600)
    assert produced.code == 1
    assert produced.err.count("\n") == 1


def test_every_codec_is_read_back(bootstrap: str, topic: str) -> None:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec)
        assert run(PRODUCER, *arguments, stdin=f"{codec}\n".encode()).code == 0
    consumed = run(
        CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "5"
    )
    assert consumed.out.split() == list(codecs)


# ---- how tools end


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (TOPICS, ("--list", "--bootstrap-server", "127.0.0.1:1")),
        (PRODUCER, ("--topic", "t", "--bootstrap-server", "127.0.0.1:1")),
        (CONSUMER, ("--topic", "t", "--bootstrap-server", "127.0.0.1:1")),
        ("ottla", ("topics", "list", "--bootstrap-server", "127.0.0.1:1")),
        ("ottla", ("produce", "t", "message", "--bootstrap-server", "127.0.0.1:1")),
        ("ottla", ("consume", "t", "--bootstrap-server", "127.0.0.1:1")),
    ],
)
def test_without_a_broker_one_line_says_so_soon(name: str, arguments: tuple[str, ...]) -> None:
    started = time.monotonic()
    result = run(name, *arguments, stdin=b"line\n")
    assert result.code == 1
    text = result.out + result.err
    assert text.count("\n") == 1
    assert "cannot reach 127.0.0.1:1: connection refused. Is the broker running? Start one with: ottla up" in text
    assert time.monotonic() - started < 5


def test_a_port_with_another_protocol_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_http, args=(listener,), daemon=True)
        thread.start()
        result = run("ottla", "topics", "list", "--bootstrap-server", f"127.0.0.1:{listener.getsockname()[1]}")
    assert result.code == 1
    assert "does not speak Kafka's protocol: is it the right port?" in result.err


def answer_http(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            peer, _ = listener.accept()
            peer.recv(100)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.close()


def test_a_closed_pipe_ends_a_tool_quietly(bootstrap: str, topic: str) -> None:
    run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, stdin=b"line\n" * 20_000)
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning")
    with subprocess.Popen([*command_of(CONSUMER), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == b"line\n"
        tool.stdout.close()
        assert tool.wait(SECONDS_MAX) == 141
        assert tool.stderr is not None
        assert tool.stderr.read() == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_consumer_in_order(bootstrap: str, topic: str, number: signal.Signals, code: int) -> None:
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning")
    run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, stdin=b"line\n")
    with subprocess.Popen([*command_of(CONSUMER), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == b"line\n"
        tool.send_signal(number)
        assert tool.wait(10) == code
        assert tool.stderr is not None
        assert tool.stderr.read() == b"Processed a total of 1 messages\n"


def unread(pipe: IO[bytes]) -> int:
    """The number of bytes in the pipe that are not read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_records_typed_before_ctrl_c_are_stored(bootstrap: str, topic: str) -> None:
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--command-property", "linger.ms=10000")
    with subprocess.Popen([*command_of(PRODUCER), *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        assert tool.stdin is not None
        tool.stdin.write(b"typed\n")
        tool.stdin.flush()
        assert eventually(lambda: unread(tool.stdin) == 0, SECONDS_MAX)
        time.sleep(0.2)  # from its hands to its producer
        tool.send_signal(signal.SIGINT)
        assert tool.wait(10) == 130
    consumed = run(
        CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "1"
    )
    assert consumed.out == "typed\n"


def on_a_terminal(name: str, *arguments: str) -> str:
    """What a tool shows on a terminal of its own."""
    shown = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 4096)
        shown.extend(data)
        return data

    inner, outer = pty.openpty()
    with subprocess.Popen([*command_of(name), *arguments], stdin=outer, stdout=outer, stderr=outer) as tool:
        os.close(outer)
        with contextlib.suppress(OSError):
            while read(inner):
                pass
        os.close(inner)
        tool.wait(SECONDS_MAX)
    return shown.decode()


def test_on_a_terminal_values_cannot_send_escape_codes(bootstrap: str, topic: str) -> None:
    run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, stdin=b"\x1b[2Jgone\xff\n")
    for name, words in ((CONSUMER, ("--topic", topic)), ("ottla", ("consume", topic))):
        shown = on_a_terminal(name, *words, "--bootstrap-server", bootstrap, "--from-beginning", "--max-messages", "1")
        assert "\\x1b[2Jgone\\xff" in shown
        assert "\x1b[2J" not in shown


# ---- ottla's own forms


def test_ottla_topics_do_the_same_in_other_words(bootstrap: str, topic_name: str) -> None:
    def ottla(*arguments: str) -> Result:
        return run("ottla", "topics", *arguments, "--bootstrap-server", bootstrap)

    assert ottla("create", topic_name, "--partitions", "2").out == f"Created topic {topic_name} (2 partitions).\n"
    assert topic_name in ottla("list").out.splitlines()
    assert ottla("describe", topic_name).out.count("\n") == 3
    run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic_name, stdin=b"a\nb\nc\n")
    summary = ottla("describe", topic_name, "--summary").out
    assert f"{topic_name}\tSum of partition offsets\t3\tok\n" in summary
    assert f"{topic_name}\tBrokers Spread %\t100\tok\n" in summary
    assert summary.endswith("\t2\t2\t(0,1)\tfalse\tfalse\n")
    (told,) = json.loads(ottla("describe", topic_name, "--summary", "--json").out)
    assert told["figures"]["Preferred Replicas %"] == 100
    for words in (("--json",), ("--summary", "--problems")):
        assert ottla("describe", topic_name, *words).code == 2
    assert ottla("alter", topic_name, "--partitions", "3").out == f"Topic {topic_name} has 3 partitions now.\n"
    assert ottla("delete", topic_name).out == f"Deleted topic {topic_name}.\n"
    missing = ottla("describe", topic_name)
    assert missing.code == 1
    assert missing.err.startswith(f"ottla topics: topic {topic_name} does not exist")


def test_ottla_produce_and_consume(bootstrap: str, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    assert run("ottla", "produce", topic, "one", "two", "--key", "k", "--header", "h=1", *server).code == 0
    assert run("ottla", "produce", topic, "--key-separator", ":", *server, stdin=b"a:b\n").code == 0
    shown = run("ottla", "consume", topic, "--until-end", "--show", "offset,key", *server)
    assert (shown.code, shown.out) == (0, "Offset:0\tk\tone\nOffset:1\tk\ttwo\nOffset:2\ta\tb\n")
    first = json.loads(run("ottla", "consume", topic, "--from-beginning", "--json", "-n", "1", *server).out)
    assert {name: first[name] for name in ("topic", "offset", "key", "value", "headers")} == {
        "topic": topic,
        "offset": 0,
        "key": "k",
        "value": "one",
        "headers": [["h", "1"]],
    }


def test_ottla_consume_wants_an_existing_topic(bootstrap: str, topic_name: str) -> None:
    missing = run("ottla", "consume", topic_name, "--bootstrap-server", bootstrap)
    words = f"topic {topic_name} does not exist. Create it with: ottla topics create {topic_name}"
    assert (missing.code, missing.err) == (1, f"ottla consume: {words}\n")


# ---- ottla up and Kafka's server scripts


def start_and_wait(command: list[str], directory: Path) -> subprocess.Popen[str]:
    tool = subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert tool.stdout is not None
    while not re.match(r"ottla broker -?\d+ ready on 127.0.0.1:\d+", line := tool.stdout.readline()):
        assert line, tool.communicate()
    tool.address = line.split()[-1]  # type: ignore[attr-defined]
    return tool


@pytest.mark.needs_ottla
def test_ottla_up_serves_restarts_a_crashed_broker_and_stops_cleanly(tmp_path: Path) -> None:
    tool = start_and_wait([*command_of("ottla"), "up", "--port", "0"], tmp_path)
    server = ("--bootstrap-server", tool.address)  # type: ignore[attr-defined]
    assert (tmp_path / "ottla-data" / "broker").is_dir()
    assert run("ottla", "topics", "create", "kept", "--override", "x").code == 2
    assert run("ottla", "topics", "create", "kept", *server).code == 0
    children = Path(f"/proc/{tool.pid}/task/{tool.pid}/children").read_text().split()
    assert tool.stdout is not None
    lines: list[str] = []
    for guest, name, path in (("registry", "schemas", "/subjects"), ("console", "console", "/api/session")):
        while not any(line.startswith(f"ottla {guest} ready on ") for line in lines):
            lines.append(tool.stdout.readline())
            assert lines[-1]
        (address,) = [line.split()[-1] for line in lines if line.startswith(f"  {name} ")]
        with urllib.request.urlopen(f"{address}{path}") as answer:
            assert answer.status == 200
    os.kill(int(children[0]), signal.SIGKILL)
    while not re.match(r"ottla broker .* ready on", line := tool.stdout.readline()):
        assert line
    server = ("--bootstrap-server", line.split()[-1])
    assert "kept" in run("ottla", "topics", "list", *server).out.splitlines()
    tool.send_signal(signal.SIGINT)
    _, err = tool.communicate(timeout=SECONDS_MAX)
    assert tool.returncode == 0
    assert "The broker ended by signal 9: restarting it in 0.5 s." in err
    assert "Stopping." in err


@pytest.mark.needs_ottla
def test_ottla_up_refuses_what_others_use(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    tool = start_and_wait([*command_of("ottla"), "up", "--port", "0", "--data", "data", "--no-registry"], tmp_path)
    port = tool.address.rpartition(":")[2]  # type: ignore[attr-defined]
    refused = run("ottla", "up", "--port", port, "--data", str(tmp_path / "other"))
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert f"port {port} on 127.0.0.1 is in use" in refused.err
    refused = run("ottla", "up", "--port", "0", "--data", str(tmp_path / "data"))
    assert refused.code == 1
    assert "is in use by another broker" in refused.err
    refused = run("ottla", "up", "--data", str(tmp_path))
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "holds other files" in refused.err
    tool.send_signal(signal.SIGTERM)
    tool.communicate(timeout=SECONDS_MAX)
    assert tool.returncode == 0


@pytest.mark.needs_ottla
def test_kafkas_server_scripts_start_and_stop_a_broker(tmp_path: Path) -> None:
    node_id = str(os.getpid())  # other brokers on this machine must not be stopped
    config = tmp_path / "server.properties"
    config.write_text(f"node.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n")
    started = subprocess.run(
        [*command_of("kafka-server-start.sh"), "-daemon", str(config), "--override", "num.partitions=2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        timeout=SECONDS_MAX,
        check=False,
    )
    assert started.returncode == 0
    log = tmp_path / "logs" / "kafkaServer.out"
    wait_until(lambda: "ready on" in log.read_text())
    assert run("kafka-server-stop.sh", f"--node-id={node_id}").code == 0
    wait_until(lambda: run("kafka-server-stop.sh", f"--node-id={node_id}").code == 1)
    none_left = run("kafka-server-stop.sh", f"--node-id={node_id}")
    assert none_left.err == "kafka-server-stop.sh: No kafka server to stop\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--config", "/nowhere/server.properties"), "there is no such file"),
        (("--override", "num.partitions=many"), "Invalid value many for configuration num.partitions"),
    ],
)
def test_a_broker_with_bad_settings_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    refused = run("ottla", "broker", *arguments)
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert words in refused.err


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
