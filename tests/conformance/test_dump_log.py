"""`kafka-dump-log.sh` and Apache Kafka's own tool over the same files, line by line: files that ottla wrote, files that
Apache Kafka wrote (in `kafka_segments/`, transactions and internal topics among them), and damaged ones."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conformance.in_process import run_here
from tests.conformance.java_tools import JavaTools
from tests.conformance.peer import Peer
from tests.conformance.test_tools import SECONDS_MAX, Result, command_of, run

KAFKAS_OWN = Path(__file__).parent / "kafka_segments"
FIRST = "00000000000000000000"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

BrokerFactory = Callable[..., Any]


def fill(bootstrap: str) -> None:
    """Every codec, headers, nulls, LogAppendTime, several segments, producers with and without idempotence."""
    with Peer(bootstrap) as peer:
        peer.create_topic("mixed", index_interval_bytes=500)
        peer.create_topic("stamped", message_timestamp_type="LogAppendTime", index_interval_bytes=500)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = {"compression.type": codec, "enable.idempotence": codec != "gzip", "linger.ms": 10}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for number in range(60):
            value = None if number % 7 == 0 else f"value {number} 中 \x1b[31m".encode() * 20
            key = None if number % 5 == 0 else f"key {number}"
            headers: Any = [("h1", b"x"), ("é", None)] if number % 3 == 0 else None
            for topic in ("mixed", "stamped"):
                producer.produce(topic, value, key, headers=headers)
        producer.flush()
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 100_000, "linger.ms": 10})
    for _ in range(2000):
        producer.produce("mixed", b"\xff\xfe" + b"x" * 1200)
    producer.flush()


def dump(*arguments: str) -> Result:
    return run_here("kafka-dump-log.sh", *arguments)


def assert_the_same(java: JavaTools, files: list[Path], *options: str) -> None:
    arguments = ("--files", ",".join(map(str, files)), *options)
    theirs = java.run("kafka-dump-log.sh", *arguments)
    found = dump(*arguments)
    assert found.out.splitlines() == theirs.out.splitlines()
    assert found.err.splitlines() == theirs.err.splitlines()
    assert (found.code, found.out) == (theirs.code, theirs.out)


def files_of(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


def test_files_of_ottla_are_printed_as_by_kafka(java: JavaTools, broker_factory: BrokerFactory) -> None:
    broker = broker_factory(log_segment_bytes=1 << 20)
    fill(broker.bootstrap)
    broker.stop()
    folders = [Path(broker.data_directory) / name for name in ("mixed-0", "stamped-0")]
    logs = [path for folder in folders for path in files_of(folder, ".log")]
    assert len(logs) == 4
    assert_the_same(java, logs, "--print-data-log")
    beside = [path for folder in folders for path in files_of(folder, *SUFFIXES[1:])]
    assert {path.suffix for path in beside} >= {".index", ".timeindex", ".snapshot"}
    assert_the_same(java, beside)
    assert_the_same(java, beside, "--index-sanity-check")


@pytest.mark.parametrize(
    ("folder", "options"),
    [
        ("orders-0", ()),
        ("orders-0", ("--deep-iteration",)),
        ("orders-0", ("--print-data-log", "--skip-record-metadata")),
        ("orders-0", ("--print-data-log", "--max-bytes", "500")),
        ("orders-0", ("--verify-index-only",)),
        ("__consumer_offsets-0", ("--offsets-decoder",)),
        ("__consumer_offsets-0", ("--offsets-decoder", "--skip-record-metadata")),
        ("__transaction_state-0", ("--transaction-log-decoder",)),
        ("__transaction_state-0", ("--deep-iteration",)),
    ],
)
def test_files_of_apache_kafka_are_printed_as_by_kafka(java: JavaTools, folder: str, options: tuple[str, ...]) -> None:
    assert_the_same(java, files_of(KAFKAS_OWN / folder, *SUFFIXES), *options)


def test_decoder_classes_are_kafkas(java: JavaTools, tmp_path: Path) -> None:
    log = KAFKAS_OWN / "orders-0" / f"{FIRST}.log"
    package = "org.apache.kafka.tools.api"
    assert_the_same(java, [log], "--value-decoder-class", f"{package}.StringDecoder", "--key-decoder-class")
    refused = dump("--files", str(log), "--value-decoder-class", f"{package}.IntegerDecoder")
    assert refused.code == 1
    assert refused.err.splitlines()[-1].startswith("kafka-dump-log.sh: Size of data received by IntegerDeserializer")
    unknown = dump("--files", str(log), "--value-decoder-class", "com.example.Mine")
    assert (unknown.code, unknown.err.count("\n")) == (1, 1)


def test_other_files_are_passed_over(java: JavaTools, tmp_path: Path) -> None:
    for name in ("leader-epoch-checkpoint", "partition.metadata", "x.bin"):
        (tmp_path / name).write_bytes(b"\x00\xff")
    assert_the_same(java, sorted(tmp_path.iterdir()))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A copy of Apache Kafka's segment, to be damaged."""
    return Path(shutil.copytree(KAFKAS_OWN / "orders-0", tmp_path / "orders-0"))


def test_a_torn_tail_and_a_flipped_bit_are_reported(java: JavaTools, damaged: Path) -> None:
    log = damaged / f"{FIRST}.log"
    data = bytearray(log.read_bytes()[:-10])
    data[100] ^= 1
    log.write_bytes(data)
    assert_the_same(java, [log])
    assert "isvalid: false" in dump("--files", str(log)).out


def test_indexes_that_do_not_fit_are_reported(java: JavaTools, damaged: Path) -> None:
    index, times = damaged / f"{FIRST}.index", damaged / f"{FIRST}.timeindex"
    data = bytearray(index.read_bytes())
    data[3] ^= 1  # another offset
    index.write_bytes(data)
    stamps = bytearray(times.read_bytes())
    stamps[7] ^= 1  # another time
    stamps[12:20] = stamps[0:8]  # not later than the one before
    stamps[35] ^= 1  # another offset
    times.write_bytes(stamps)
    assert_the_same(java, [index, times])
    assert_the_same(java, [index, times], "--verify-index-only")


def test_a_damaged_snapshot_is_reported(java: JavaTools, damaged: Path) -> None:
    (snapshot,) = files_of(damaged, ".snapshot")
    whole = snapshot.read_bytes()
    snapshot.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert_the_same(java, [snapshot])
    snapshot.write_bytes(b"\x00\x07" + whole[2:])
    assert_the_same(java, [snapshot])


def test_an_empty_index_is_named(java: JavaTools, damaged: Path) -> None:
    (damaged / f"{FIRST}.index").write_bytes(b"")
    (damaged / f"{FIRST}.txnindex").write_bytes(b"")
    assert_the_same(java, files_of(damaged, ".index", ".txnindex", ".timeindex"))


@pytest.mark.parametrize(
    ("suffix", "content", "options"),
    [
        (".log", bytes(200), ()),
        (".index", b"\xff" * 8, ("--index-sanity-check",)),
        (".timeindex", b"\x7f" * 12 + bytes(12), ("--index-sanity-check",)),
    ],
)
def test_an_exception_of_kafkas_tool_becomes_one_sentence(
    java: JavaTools, damaged: Path, suffix: str, content: bytes, options: tuple[str, ...]
) -> None:
    path = damaged / f"{FIRST}{suffix}"
    path.write_bytes(content)
    theirs = java.run("kafka-dump-log.sh", "--files", str(path), *options)
    found = dump("--files", str(path), *options)
    assert (found.code, found.out) == (theirs.code, theirs.out)
    assert found.code == 1
    sentence = theirs.err.partition("\n")[0].partition(": ")[2]
    assert found.err == f"kafka-dump-log.sh: {sentence}\n"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_random_bytes_never_end_in_a_traceback(damaged: Path, suffix: str) -> None:
    for number, content in enumerate((b"", b"\x00" * 33, b"\xff" * 500, bytes(range(256)) * 5)):
        path = damaged / f"{number:020d}{suffix}"
        path.write_bytes(content)
        if suffix in (".index", ".timeindex"):
            path.with_suffix(".log").write_bytes(content)
        result = dump("--files", str(path), "--print-data-log")  # Result refuses tracebacks
        assert result.code in (0, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--files", "/nowhere/00000000000000000000.log"),
        ("--files", "nofile.log"),
        ("--files", "x.log", "--max-bytes", "many"),
        ("--files", "x.log", "--cluster-metadata-decoder"),
    ],
)
def test_an_unreadable_file_is_reported_in_one_line(arguments: tuple[str, ...]) -> None:
    refused = dump(*arguments)
    assert (refused.code, refused.err.count("\n")) == (1, 1)


def test_files_are_required(java: JavaTools) -> None:
    theirs, found = java.run("kafka-dump-log.sh", "--deep-iteration"), dump("--deep-iteration")
    assert found.code == theirs.code == 1
    assert found.err.splitlines()[0] == theirs.err.splitlines()[0]


def test_the_installed_tool_is_the_same(java: JavaTools) -> None:
    arguments = ("--files", str(KAFKAS_OWN / "orders-0" / f"{FIRST}.log"), "--print-data-log")
    assert run("kafka-dump-log.sh", *arguments).out == java.run("kafka-dump-log.sh", *arguments).out


@pytest.mark.parametrize("command", [("kafka-dump-log.sh", "--files"), ("ottla", "dump-log")])
def test_a_closed_pipe_ends_it_quietly(damaged: Path, command: tuple[str, ...]) -> None:
    log = damaged / f"{FIRST}.log"
    log.write_bytes(log.read_bytes() * 200)
    words = [*command_of(command[0]), *command[1:], str(log)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        assert tool.stdout is not None
        tool.stdout.readline()
        tool.stdout.close()
        assert tool.wait(SECONDS_MAX) == 141
        assert tool.stderr is not None
        assert tool.stderr.read() == b""


# ---- ottla dump-log


def test_ottla_shows_a_whole_folder(damaged: Path) -> None:
    (damaged / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    shown = run_here("ottla", "dump-log", str(damaged))
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0] == str(damaged / f"{FIRST}.index")
    assert any(line.startswith("0-2\t3\t") and line.endswith("\ttransaction\tgood") for line in lines)


def test_ottla_shows_records_as_text_and_as_json(damaged: Path) -> None:
    log = str(damaged / f"{FIRST}.log")
    lines = run_here("ottla", "dump-log", log, "--records").out.splitlines()
    assert [line.split("\t")[::3] for line in lines[:1]] == [["0", "order 0.0"]]
    assert len(lines) == 14
    first = json.loads(run_here("ottla", "dump-log", "--records", "--json", log).out.splitlines()[0])
    assert (first["topic"], first["partition"], first["key"]) == ("orders", 0, "k0")
    assert first["headers"] == [["source", "shop"]]
    offsets = str(KAFKAS_OWN / "__consumer_offsets-0" / f"{FIRST}.log")
    shown = run_here("ottla", "dump-log", offsets, "--records", "--decoder", "offsets").out
    assert '"group":"readers-classic"' in shown


def test_ottla_names_damage_and_ends_with_1(damaged: Path) -> None:
    log = damaged / f"{FIRST}.log"
    log.write_bytes(log.read_bytes()[:-1])
    cut = run_here("ottla", "dump-log", str(log))
    assert (cut.code, cut.err.count("\n")) == (1, 1)
    assert "are not a whole batch" in cut.err
    for arguments in (
        ("nothing",),
        (str(damaged.parent),),
        (str(log), "--json"),
        (str(log), "--records", "--key-format", "x"),
    ):
        refused = run_here("ottla", "dump-log", *arguments)
        assert refused.code in (1, 2)
        assert refused.err.count("\n") == 1
