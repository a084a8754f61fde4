"""The perf tests: Kafka's lines, to be parsed by scripts, and ottla's own tables."""

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.in_process import run_here
from tests.conformance.java_tools import JavaTools
from tests.conformance.peer import Peer
from tests.conformance.test_tools import Result, command_of, on_a_terminal, run

PRODUCER_PERF = "kafka-producer-perf-test.sh"
CONSUMER_PERF = "kafka-consumer-perf-test.sh"
NUMBER = r"\d+\.\d"
WINDOW = re.compile(
    rf"\d+ records sent, {NUMBER} records/sec \({NUMBER}\d MB/sec\), {NUMBER} ms avg latency, {NUMBER} ms max latency\."
)
TOTAL = re.compile(
    rf"(\d+)( steady state)? records sent, {NUMBER}{{6}} records/sec \({NUMBER}{{2}} MB/sec\), "
    rf"{NUMBER}\d ms avg latency, {NUMBER}\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
RATE = r"\d+\.\d{4}"
ROW = re.compile(rf"{DATE}, {DATE}, {RATE}, {RATE}, (\d+), {RATE}, \d+, \d+, {RATE}, {RATE}")
DETAIL = re.compile(rf"{DATE}, 0, {RATE}, {RATE}, (\d+), {RATE}, \d+, -?\d+, {RATE}, {RATE}")
HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


@pytest.fixture(scope="module")
def loaded(bootstrap: str, topic_names: Callable[[], str]) -> str:
    """A topic with 2,000 records of 100 bytes."""
    name = topic_names()
    with Peer(bootstrap) as peer:
        peer.create_topic(name, 2)
    produced = produce_load(bootstrap, name, "--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    assert produced.code == 0
    return name


def produce_load(bootstrap: str, topic: str, *arguments: str) -> Result:
    return run(PRODUCER_PERF, "--bootstrap-server", bootstrap, "--topic", topic, *arguments)


def consume_load(bootstrap: str, topic: str, *arguments: str) -> Result:
    return run(CONSUMER_PERF, "--bootstrap-server", bootstrap, "--topic", topic, *arguments)


# ---- producer


def test_lines_of_the_producer_have_kafkas_form(java: JavaTools, bootstrap: str, topic: str) -> None:
    load = ("--num-records", "3000", "--record-size", "50", "--throughput", "5000")
    arguments = (*load, "--reporting-interval", "50", "--warmup-records", "1000")
    theirs = java.run(PRODUCER_PERF, "--bootstrap-server", bootstrap, "--topic", topic, *arguments)
    found = produce_load(bootstrap, topic, *arguments)
    for result in (theirs, found):
        lines = [line for line in result.out.splitlines() if " WARN " not in line]
        assert result.code == 0
        assert lines[0] == (
            "Warmup first 1000 records. Steady state results will print after the complete test summary."
        )
        assert [match.group(1, 2) for match in map(TOTAL.fullmatch, lines[-2:]) if match] == [
            ("3000", None),
            ("2000", " steady state"),
        ]
        assert all(WINDOW.fullmatch(line) or line == "In steady state." for line in lines[1:-2])
    assert len(found.out.splitlines()) >= 4


def test_the_throughput_is_kept(bootstrap: str, topic: str) -> None:
    started = time.monotonic()
    produced = produce_load(bootstrap, topic, "--num-records", "1500", "--payload-monotonic", "--throughput", "1000")
    assert produced.code == 0
    assert time.monotonic() - started > 1.4
    shown = run("ottla", "consume", topic, "--until-end", "--bootstrap-server", bootstrap).out.splitlines()
    assert shown == [str(number) for number in range(1500)]


def test_payloads_come_from_a_file_and_old_options_work(bootstrap: str, topic: str, tmp_path: Path) -> None:
    payloads = tmp_path / "payloads"
    payloads.write_text("red;green;blue")
    config = tmp_path / "producer.properties"
    config.write_text(f"bootstrap.servers={bootstrap}\nacks=1\n")
    words = ("--payload-file", str(payloads), "--payload-delimiter", ";", "--producer.config", str(config))
    produced = run(PRODUCER_PERF, "--topic", topic, "--num-records", "100", "--throughput", "-1", *words)
    assert produced.out.splitlines()[:3] == [
        f"Reading payloads from: {payloads}",
        "Number of records read: 3",
        (
            "Option --producer.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        ),
    ]
    shown = run("ottla", "consume", topic, "--until-end", "--bootstrap-server", bootstrap).out.splitlines()
    assert (len(shown), set(shown)) == (100, {"red", "green", "blue"})


def test_metrics_are_printed_in_kafkas_form(bootstrap: str, topic: str) -> None:
    load = ("--num-records", "10", "--record-size", "9", "--throughput", "-1", "--print-metrics")
    lines = produce_load(bootstrap, topic, *load, "--producer-props", "client.id=me").out.splitlines()
    assert re.fullmatch(r"Metric Name +Value", lines[3])
    assert any(re.fullmatch(r"producer-metrics:record-send-total:\{client-id=me\} +: 10\.000", line) for line in lines)


def test_records_are_written_in_transactions(bootstrap: str, topic: str) -> None:
    load = ("--num-records", "10", "--record-size", "9", "--throughput", "-1", "--transactional-id", f"id-{topic}")
    produced = produce_load(bootstrap, topic, *load)
    assert (produced.code, produced.err) == (0, "")
    assert TOTAL.fullmatch(produced.out.strip())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--topic t --num-records 5", "argument --throughput is required"),
        ("--num-records 5 --throughput 1 --record-size 1", "argument --topic is required"),
        ("--topic t --num-records 0 --throughput 1 --record-size 1", "--num-records should be greater than zero."),
        ("--topic t --num-records 5 --throughput 1 --record-size 0", "--record-size should be greater than zero."),
        (
            "--topic t --num-records 5 --throughput 1 --record-size 1 --bootstrap-server b --reporting-interval 0",
            "--reporting-interval should be greater than zero.",
        ),
        (
            "--topic t --num-records 5 --throughput 1 --record-size 1 --bootstrap-server b --transaction-duration-ms 0",
            "--transaction-duration-ms should be greater than zero.",
        ),
        (
            "--topic t --num-records 5 --throughput 1 --record-size 1 --warmup-records 5",
            (
                "The value for --warmup-records must be strictly fewer than the number of records in the test, "
                "--num-records."
            ),
        ),
        (
            "--topic t --num-records 5 --throughput 1 --record-size 1",
            (
                "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or "
                "--command-config must be specified."
            ),
        ),
        (
            "--topic t --num-records 5 --throughput 1 --record-size 1 --producer-props a=b --command-property a=b",
            "--command-property and --producer-props cannot be specified together.",
        ),
        ("--topic t --num-records x --throughput 1 --record-size 1", "could not convert 'x' to Long"),
        ("--topic t --num-records 1 --throughput x --record-size 1", "could not convert 'x' to Double"),
    ],
)
def test_bad_command_lines_of_the_producer_are_refused_in_kafkas_words(
    java: JavaTools, arguments: str, words: str
) -> None:
    refused = run_here(PRODUCER_PERF, *arguments.split())
    theirs = java.run(PRODUCER_PERF, *arguments.split())
    assert (refused.code, theirs.code) == (1, 1)
    for result in (refused, theirs):  # Kafka's tool breaks its lines
        assert "".join(words.split()) in "".join(result.err.split())


def test_without_arguments_the_help_is_shown() -> None:
    shown = run(PRODUCER_PERF)
    assert (shown.code, shown.err) == (0, "")
    assert "examples:" in shown.out


# ---- consumer


def test_the_consumers_row_has_kafkas_form(java: JavaTools, bootstrap: str, loaded: str) -> None:
    found = consume_load(bootstrap, loaded, "--num-records", "2000")
    header, row = found.out.splitlines()
    match = ROW.fullmatch(row)
    assert (header, match and match.group(1)) == (HEADER, "2000")
    assert java.run(CONSUMER_PERF, "--topic", "t").out == run(CONSUMER_PERF, "--topic", "t").out == ""
    hidden = consume_load(bootstrap, loaded, "--messages", "10", "--hide-header").out.splitlines()
    assert hidden[0] == "Warning: --messages is deprecated. Use --num-records instead."
    assert ROW.fullmatch(hidden[1])


def test_too_few_records_are_reported_after_the_timeout(bootstrap: str, loaded: str) -> None:
    found = consume_load(bootstrap, loaded, "--num-records", "5000", "--timeout", "300", "--hide-header")
    assert found.code == 0
    assert found.out.splitlines()[0] == (
        "WARNING: Exiting before consuming the expected number of records: timeout (300 ms) exceeded. "
        "You can use the --timeout option to increase the timeout."
    )


def test_details_are_shown_for_every_interval(bootstrap: str, loaded: str) -> None:
    words = ("--show-detailed-stats", "--reporting-interval", "1", "--date-format", "yyyy-MM-dd HH:mm:ss:SSS")
    found = consume_load(bootstrap, loaded, "--num-records", "2000", *words).out.splitlines()
    assert found[0] == HEADER.replace("start.time, end.time", "time, threadId")
    assert all(DETAIL.fullmatch(line) for line in found[1:])


def test_topics_are_chosen_by_a_pattern(bootstrap: str, loaded: str) -> None:
    arguments = ("--include", f"{loaded[:-1]}.", "--num-records", "2000", "--hide-header", "--print-metrics")
    lines = run(CONSUMER_PERF, "--bootstrap-server", bootstrap, *arguments).out.splitlines()
    assert ROW.fullmatch(lines[0])
    assert any(line.startswith("consumer-fetch-manager-metrics:records-consumed-total:") for line in lines)


def test_a_group_is_used(bootstrap: str, loaded: str) -> None:
    found = consume_load(bootstrap, loaded, "--num-records", "2000", "--group", f"perf-{loaded}", "--hide-header")
    match = ROW.fullmatch(found.out.strip())
    assert (found.code, match and match.group(1), found.err) == (0, "2000", "")


@pytest.mark.parametrize(
    "arguments",
    [
        "--num-records 5 --bootstrap-server b",
        "--topic t --include t --num-records 5 --bootstrap-server b",
        "--topic t --bootstrap-server b",
        "--topic t --num-records 5 --messages 5 --bootstrap-server b",
        "--topic t --num-records 5",
        "--topic t --num-records 5 --bootstrap-server b --bogus",
    ],
)
def test_bad_command_lines_of_the_consumer_are_refused_in_kafkas_words(java: JavaTools, arguments: str) -> None:
    refused, theirs = run_here(CONSUMER_PERF, *arguments.split()), java.run(CONSUMER_PERF, *arguments.split())
    assert (refused.code, theirs.code) == (1, 1)
    assert refused.err.splitlines()[0] == theirs.err.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (PRODUCER_PERF, "--topic t --num-records 5 --throughput 1 --record-size 1 --bootstrap-server 127.0.0.1:1"),
        (PRODUCER_PERF, "--topic t --num-records 5 --throughput 1 --record-size 1 --command-config /nowhere"),
        (CONSUMER_PERF, "--topic t --num-records 5 --bootstrap-server 127.0.0.1:1"),
        (CONSUMER_PERF, "--topic t --num-records x --bootstrap-server 127.0.0.1:1"),
        (CONSUMER_PERF, "--topic t --num-records 5 --bootstrap-server 127.0.0.1:1 --date-format q"),
        ("ottla", "perf produce t --bootstrap-server 127.0.0.1:1"),
        ("ottla", "perf consume t --bootstrap-server 127.0.0.1:1"),
    ],
)
def test_impossible_runs_end_with_one_line(name: str, arguments: str) -> None:
    refused = run(name, *arguments.split())
    assert (refused.code, refused.err.count("\n")) == (1, 1)


def test_ctrl_c_ends_a_load_in_order(bootstrap: str, topic: str) -> None:
    load = ("--topic", topic, "--num-records", "1000000", "--record-size", "10", "--throughput", "100")
    words = (*load, "--reporting-interval", "100", "--bootstrap-server", bootstrap)
    with subprocess.Popen([*command_of(PRODUCER_PERF), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        assert tool.stdout is not None
        assert WINDOW.fullmatch(tool.stdout.readline().decode().strip())
        tool.send_signal(signal.SIGINT)
        assert tool.stderr is not None
        assert (tool.wait(10), tool.stderr.read()) == (130, b"")


# ---- ottla perf


def test_ottla_perf_prints_a_table_of_figures(bootstrap: str, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    written = run(
        "ottla", "perf", "produce", topic, "--records", "1000", "--size", "20", "--compression", "lz4", *server
    )
    figures = dict(line.split("\t") for line in written.out.splitlines())
    assert (written.code, figures["records"]) == (0, "1000")
    assert {"records/s", "MiB/s", "latency 99 % ms"} <= set(figures)
    read = run("ottla", "perf", "consume", topic, "--records", "1000", *server)
    assert dict(line.split("\t") for line in read.out.splitlines())["records"] == "1000"
    everything = run("ottla", "perf", "consume", topic, *server)
    assert dict(line.split("\t") for line in everything.out.splitlines())["records"] == "1000"
    assert everything.err == ""


def test_ottla_perf_shows_a_bar_on_a_terminal(bootstrap: str, topic: str) -> None:
    shown = on_a_terminal(
        "ottla", "perf", "produce", topic, "--records", "400", "--rate", "1000", "--bootstrap-server", bootstrap
    )
    assert "writing [" in shown
    assert "records/s" in shown
