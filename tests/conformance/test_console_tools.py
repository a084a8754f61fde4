"""The console tools beside Apache Kafka's own: the same command, the same lines. Also what only ottla's forms do:
typed fields, JSON lines, an order over partitions."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.in_process import run_here
from tests.conformance.java_tools import JavaTools
from tests.conformance.peer import Peer
from tests.conformance.test_tools import CONSUMER, PRODUCER, SECONDS_MAX, Result, command_of, on_a_terminal, run

NewTopic = Callable[..., str]
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
START_MS = (int(time.time()) - 3600) * 1000  # an hour ago: records that are too old are retired while a test looks


@pytest.fixture(scope="module")
def filled(bootstrap: str, topic_names: Callable[[], str]) -> str:
    """A topic with keys, headers, nulls, empty values and text of the world."""
    name = topic_names()
    with Peer(bootstrap) as peer:
        peer.create_topic(name, 1)
    lines = "h1:a,h2:b\tk1\tv1\nh1:\tk2\t\nN\tN\tN\nh:é\t中\tñandú\n"
    properties = ("parse.key=true", "parse.headers=true", "null.marker=N")
    words = [word for text in properties for word in ("--reader-property", text)]
    assert run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", name, *words, stdin=lines.encode()).code == 0
    return name


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("print.key=true", "print.value=false"),
        ("print.key=true", "print.headers=true", "print.offset=true", "print.partition=true", "print.timestamp=true"),
        ("print.key=true", "print.epoch=true", "print.delivery=true", "key.separator= | ", "line.separator=;"),
        ("print.headers=true", "headers.separator=//", "null.literal=NIL", "print.key=true"),
    ],
)
def test_formatters_print_what_kafkas_print(
    java: JavaTools, bootstrap: str, filled: str, options: tuple[str, ...]
) -> None:
    words = [word for text in options for word in ("--formatter-property", text)]
    place = ("--topic", filled, "--partition", "0", "--offset", "earliest", "--max-messages", "4")
    arguments = ("--bootstrap-server", bootstrap, *place, *words)
    theirs = java.run(CONSUMER, *arguments)
    found = run(CONSUMER, *arguments)
    assert found.out.splitlines() == theirs.out.splitlines()
    assert (found.code, found.err) == (0, "Processed a total of 4 messages\n")
    assert theirs.err.splitlines()[-1] == "Processed a total of 4 messages"


@pytest.mark.parametrize(
    "arguments",
    [
        "--topic t --include t --bootstrap-server b",
        "--bootstrap-server b",
        "--topic t",
        "--topic t --bootstrap-server b --offset 3",
        "--include t --bootstrap-server b --partition 3",
        "--topic t --bootstrap-server b --partition 0 --offset latestt",
        "--topic t --bootstrap-server b --partition 0 --offset -1",
        "--topic t --bootstrap-server b --partition 0 --offset 1 --from-beginning",
        "--topic t --bootstrap-server b --partition 0 --group g",
        "--topic t --bootstrap-server b --bogus",
        "--topic t --bootstrap-server b --from-beginning --command-property auto.offset.reset=latest",
        "--topic t --bootstrap-server b --group a --command-property group.id=b",
        "--topic t --bootstrap-server b --property a=b --formatter-property a=b",
        "--topic t --bootstrap-server b --consumer-property a=b --command-property a=b",
        "--topic t --bootstrap-server",
    ],
)
def test_bad_command_lines_are_refused_in_kafkas_words(java: JavaTools, arguments: str) -> None:
    theirs = java.run(CONSUMER, *arguments.split())
    found = run_here(CONSUMER, *arguments.split())
    assert (found.code, theirs.code) == (1, 1)
    assert found.err.splitlines()[0] == theirs.err.splitlines()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        "--bootstrap-server b",
        "--topic t --bootstrap-server b --bogus",
        "--topic t --bootstrap-server b --batch-size",
        "--topic t --bootstrap-server b --property a=b --reader-property a=b",
        "--topic t --bootstrap-server b --producer-property a=b --command-property a=b",
        "--topic t --bootstrap-server b --producer.config a --command-config a",
    ],
)
def test_bad_command_lines_of_the_producer_are_refused_in_kafkas_words(java: JavaTools, arguments: str) -> None:
    theirs = java.run(PRODUCER, *arguments.split())
    found = run_here(PRODUCER, *arguments.split())
    assert (found.code, theirs.code) == (1, 1)
    assert found.err.splitlines()[0] == theirs.err.splitlines()[0]


def test_java_reads_what_our_producer_wrote_and_the_reverse(kafka_jars: Path, bootstrap: str, topic: str) -> None:
    """Kafka's producer needs standard input, and so a JVM of its own."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars}/*", CONSOLE_PRODUCER]
    properties = ("parse.key=true", "key.separator=:", "parse.headers=true", "headers.delimiter=|")
    words = [word for text in properties for word in ("--reader-property", text)]
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, *words, "--compression-codec", "lz4")
    lines = b"a:1,b:2|key:value:with:colons\nc:|k:v\n"
    theirs = subprocess.run([*command, *arguments], input=lines, capture_output=True, timeout=SECONDS_MAX, check=False)
    ours = run(PRODUCER, *arguments, stdin=lines)
    assert (ours.code, theirs.returncode) == (0, 0), (ours, theirs)
    shown = run("ottla", "consume", topic, "--until-end", "--json", "--bootstrap-server", bootstrap).out.splitlines()
    records = [{name: json.loads(line)[name] for name in ("key", "value", "headers")} for line in shown]
    half = len(records) // 2
    assert records[:half] == records[half:]
    assert len(records) == 4


def test_a_group_continues_where_it_stopped(bootstrap: str, filled: str) -> None:
    group = f"group-{random.randrange(10**9)}"
    arguments = ("--bootstrap-server", bootstrap, "--topic", filled, "--group", group, "--from-beginning")
    consumed = run(CONSUMER, *arguments, "--max-messages", "3")
    assert (consumed.code, consumed.out.splitlines()) == (0, ["v1", "", "null"])
    rest = run(CONSUMER, *arguments, "--max-messages", "1")
    assert rest.out == "ñandú\n"


@pytest.mark.parametrize(
    ("topic", "formatter", "words"),
    [
        ("__consumer_offsets", "OffsetsMessageFormatter", '{"key":{"type":1,"data":{"group":'),
        ("__consumer_offsets", "GroupMetadataMessageFormatter", '{"key":{"type":2,"data":{"group":'),
        ("__transaction_state", "TransactionLogMessageFormatter", '{"key":{"type":0,"data":{"transactionalId":'),
    ],
)
def test_internal_topics_are_shown_where_there_are_any(bootstrap: str, topic: str, formatter: str, words: str) -> None:
    with Peer(bootstrap) as peer:
        if topic not in peer.topic_names():
            pytest.skip(f"this broker has no {topic}")
    arguments = ("--topic", topic, "--from-beginning", "--timeout-ms", "1500", "--formatter", formatter)
    shown = run(CONSUMER, "--bootstrap-server", bootstrap, *arguments)
    assert shown.code == 0
    assert shown.out.startswith(words) or shown.out == ""


# ---- old options


def test_options_of_old_tutorials_still_work(bootstrap: str, topic: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("client.id=old\n")
    produced = run(
        PRODUCER, "--broker-list", bootstrap, "--topic", topic, "--producer.config", str(config), stdin=b"a\n"
    )
    assert produced.code == 0
    assert produced.out == (
        "Warning: --producer.config is deprecated and will be removed in a future version. "
        "Use --command-config instead.\n"
    )
    old = ("--new-consumer", "--consumer.config", str(config), "--property", "print.key=true")
    consumed = run(
        CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "1", *old
    )
    assert consumed.code == 0
    assert consumed.out.splitlines()[-1] == "null\ta"


def test_zookeeper_leads_to_the_broker_beside_it(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", bootstrap)
    run(PRODUCER, "--broker-list", bootstrap, "--topic", topic, stdin=b"This is a message\n")
    old = ("--zookeeper", "localhost:2181", "--topic", topic, "--from-beginning", "--max-messages", "1")
    consumed = run(CONSUMER, *old)
    assert (consumed.code, consumed.out) == (0, "This is a message\n")
    assert consumed.err.startswith("--zookeeper is deprecated: using the broker at ")


# ---- bad input


@pytest.mark.parametrize(
    "text",
    ["", "parse.key", "a\nb=c\nd", "key.separator=", "null.marker=\t", "headers.delimiter=,"],
)
def test_odd_properties_are_refused_or_taken_but_never_a_traceback(bootstrap: str, topic: str, text: str) -> None:
    produced = run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, "--reader-property", text, stdin=b"x\n")
    assert produced.code in (0, 1, 2)
    assert produced.err.count("\n") <= 1


def test_binary_garbage_goes_through_unharmed(bootstrap: str, topic: str) -> None:
    garbage = random.Random(3).randbytes(100_000)
    assert run(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, stdin=garbage).code == 0
    shown = run("ottla", "consume", topic, "--until-end", "--bootstrap-server", bootstrap)
    expected = b"\n".join(line.removesuffix(b"\r") for line in garbage.split(b"\n"))
    assert shown.out.encode("utf-8", "surrogateescape") == expected + b"\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("produce", "t", "--file", "/nowhere/file"), 1),
        (("produce", "t", "x", "--command-config", "/nowhere/file"), 1),
        (("produce", "t", "x", "--partition", "-1"), 2),
        (("produce", "t", "x", "--key-format", "what"), 2),
        (("produce", "t", "x", "--format", "json"), 1),
        (("produce", "t", "x", "--value-format", "int"), 1),
        (("consume", "t", "-n", "0"), 2),
        (("consume", "t", "--offset", "7"), 2),
        (("consume", "t", "--order", "size"), 2),
        (("consume", "t", "--to-topic", "t"), 2),
        (("consume", "t", "--to-partition", "1"), 2),
        (("consume", "t", "--order", "time", "--group", "g"), 2),
        (("consume", "t", "--value-format", "struct:a=what"), 2),
        (("consume", "t", "--output", "/nowhere/file"), 1),
        (("consume",), 2),
    ],
)
def test_ottlas_own_forms_refuse_bad_command_lines(
    bootstrap: str, topic: str, arguments: tuple[str, ...], code: int
) -> None:
    words = [topic if word == "t" else word for word in arguments]
    refused = run_here("ottla", *words, "--bootstrap-server", bootstrap)
    assert refused.code == code
    assert 1 <= refused.err.count("\n") <= 30


# ---- keys, values and structs


def ottla(bootstrap: str, *arguments: str, stdin: bytes = b"") -> Result:
    result = run("ottla", *arguments, "--bootstrap-server", bootstrap, stdin=stdin)
    assert result.code == 0, result
    return result


def test_structs_and_numbers_make_the_round_trip(bootstrap: str, topic: str) -> None:
    formats = ("--key-format", "int", "--value-format", "struct:price=double,unit=string,raw=hex")
    values = [{"price": 9.5, "unit": "EUR", "raw": "00ff"}, {"price": -0.25, "unit": "", "raw": ""}]
    ottla(bootstrap, "produce", topic, *formats, "--key", "7", *map(json.dumps, values))
    shown = ottla(bootstrap, "consume", topic, *formats, "--until-end", "--show", "key").out.splitlines()
    assert [(line.split("\t")[0], json.loads(line.split("\t")[1])) for line in shown] == [
        ("7", item) for item in values
    ]
    kafkas = ("--key-deserializer", "org.apache.kafka.common.serialization.IntegerDeserializer")
    place = ("--topic", topic, "--from-beginning", "--max-messages", "1")
    printed = ("--formatter-property", "print.key=true", "--formatter-property", "print.value=false")
    assert run(CONSUMER, "--bootstrap-server", bootstrap, *place, *kafkas, *printed).out == "7\n"
    wrong = run("ottla", "consume", topic, "--until-end", "--value-format", "long", "--bootstrap-server", bootstrap)
    assert (wrong.code, wrong.out) == (1, "")
    assert f"message at {topic}-0 offset 0" in wrong.err


def test_a_topic_goes_into_a_file_and_comes_back_the_same(bootstrap: str, new_topic: NewTopic, tmp_path: Path) -> None:
    first, second = new_topic(partitions=3), new_topic(partitions=3)
    lines = [
        {"key": f"k{number}", "value": {"n": number}, "headers": [["h", str(number)]], "partition": number % 3}
        | {"timestamp": START_MS + number}
        for number in range(30)
    ]
    lines.append({"key": None, "value": {"base64": "//4A"}, "partition": 0, "timestamp": 1_700_000_001_000})
    source, copy = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ottla(bootstrap, "produce", first, "--format", "json", "--file", str(source), "--compression", "zstd")
    ottla(bootstrap, "consume", first, "--until-end", "--json", "--output", str(copy))
    ottla(bootstrap, "produce", second, "--format", "json", "--file", str(copy))
    assert contents(bootstrap, first) == contents(bootstrap, second)
    assert len(contents(bootstrap, first)) == 31


def contents(bootstrap: str, topic: str) -> list[str]:
    shown = ottla(bootstrap, "consume", topic, "--until-end", "--json").out.splitlines()
    return sorted(json.dumps(json.loads(line) | {"topic": ""}) for line in shown)


# ---- an order over partitions


def test_records_of_all_partitions_are_sorted_by_time(bootstrap: str, new_topic: NewTopic) -> None:
    source, target = new_topic(partitions=4), new_topic(partitions=1)
    times = random.Random(5).sample(range(10_000), 3000)
    lines = [
        json.dumps({"value": str(time_), "partition": number % 4, "timestamp": START_MS + time_, "key": "k"})
        for number, time_ in enumerate(times)
    ]
    ottla(bootstrap, "produce", source, "--format", "json", stdin="\n".join(lines).encode())
    wanted = [str(time_) for time_ in sorted(times)]
    small = ("--order", "time", "--memory-mb", "1")  # several runs on disk
    assert ottla(bootstrap, "consume", source, *small).out.splitlines() == wanted
    assert ottla(bootstrap, "consume", source, *small, "--to-topic", target).out == ""
    copied = ottla(bootstrap, "consume", target, "--until-end", "--json").out.splitlines()
    assert [json.loads(line)["value"] for line in copied] == wanted
    assert [json.loads(line)["timestamp"] for line in copied] == [START_MS + number for number in sorted(times)]


# ---- terminals, signals, pipes


def test_colours_are_for_terminals_only(bootstrap: str, filled: str) -> None:
    arguments = ("consume", filled, "--bootstrap-server", bootstrap, "--until-end", "--show", "key,offset")
    assert "\x1b[36mk1\x1b[0m" in on_a_terminal("ottla", *arguments)
    assert "\x1b" not in run("ottla", *arguments).out


def test_ctrl_c_keeps_what_was_copied(bootstrap: str, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, file = new_topic(), tmp_path / "copy"
    ottla(bootstrap, "produce", topic, "one", "two")
    command = [*command_of("ottla"), "consume", topic, "--from-beginning", "--output", str(file)]
    with subprocess.Popen([*command, "--bootstrap-server", bootstrap], stderr=subprocess.PIPE) as tool:
        deadline = time.monotonic() + SECONDS_MAX
        while not (file.exists() and file.read_bytes().count(b"\n") == 2):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        tool.send_signal(signal.SIGINT)
        assert tool.wait(10) == 130
    assert file.read_text() == "one\ntwo\n"


def test_a_closed_stdout_ends_ottla_consume_quietly(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "produce", topic, *[f"message {number}" for number in range(50)])
    reading, writing = os.pipe()
    os.close(reading)
    command = [*command_of("ottla"), "consume", topic, "--until-end", "--bootstrap-server", bootstrap]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=SECONDS_MAX, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
