"""Apache Kafka's own tool over our files: every segment and index must be read without a word of complaint."""

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch

DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# What the tool prints when an index and its log do not agree, or a log cannot be read to its end.
COMPLAINTS = (
    "Mismatches in",
    "Index timestamp mismatch",
    "out of order timestamp",
    " is followed by ",
    "not found",
    "invalid bytes",
    "Exception",
    "isvalid: false",
)


BrokerFactory = Callable[..., Any]


def dump(kafka_jars: Path, files: list[Path], *options: str) -> str:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars}/*", DUMP_TOOL]
    command += ["--files", ",".join(map(str, files)), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + "\n".join(line for line in done.stderr.splitlines() if "WARN" not in line)


def complaints(output: str) -> list[str]:
    """The lines that tell of a fault; "-1 is followed by N" is said of every segment that does not start at 0."""
    lines = [line for line in output.splitlines() if not line.startswith("  -1 is followed by ")]
    return [line for line in lines if any(words in line for words in COMPLAINTS)]


def fill(bootstrap: str) -> None:
    """Two topics: many small segments in every codec with idempotent batches, and LogAppendTime."""
    with Peer(bootstrap) as peer:
        peer.create_topic("rolled", segment_bytes=1 << 20, index_interval_bytes=512)
        peer.create_topic("stamped", message_timestamp_type="LogAppendTime", index_interval_bytes=512)
        for number in range(50):
            assert peer.produce("stamped", batch([b"%d" % number] * 20, codec=number % 5)).error_code == 0
    randoms = random.Random(7)  # does not compress well, so that the log rolls
    for codec in CODECS:
        settings = {"compression.type": codec, "enable.idempotence": codec == "none", "batch.size": 20_000}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for number in range(3000):
            producer.produce("rolled", randoms.randbytes(250).hex(), key=b"%d" % number, headers={"codec": codec})
            producer.poll(0)
        assert producer.flush(20) == 0


@pytest.fixture
def data_directory(broker_factory: BrokerFactory) -> Path:
    broker = broker_factory()
    fill(broker.bootstrap)
    broker.stop()  # closing cuts the indexes to their real size
    return Path(broker.data_directory)


def test_apache_kafka_reads_every_segment_and_index(data_directory: Path, kafka_jars: Path) -> None:
    logs = sorted(data_directory.glob("rolled-0/*.log")) + sorted(data_directory.glob("stamped-0/*.log"))
    indexes = sorted(data_directory.glob("*-0/*.index")) + sorted(data_directory.glob("*-0/*.timeindex"))
    snapshots = sorted(data_directory.glob("*-0/*.snapshot"))
    assert len(logs) >= 3, "the log has rolled"
    assert all(re.fullmatch(r"\d{20}", path.stem) for path in [*logs, *indexes, *snapshots])

    records = dump(kafka_jars, logs, "--deep-iteration", "--print-data-log")
    assert complaints(records) == []
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", records, re.MULTILINE)]
    assert offsets[: 3000 * len(CODECS)] == list(range(3000 * len(CODECS)))
    assert len(offsets) == 3000 * len(CODECS) + 50 * 20
    for codec in ("gzip", "snappy", "lz4", "zstd", "none"):
        assert f"compresscodec: {codec}" in records

    sane = dump(kafka_jars, indexes, "--index-sanity-check")
    assert complaints(sane) == []
    assert sane.count("passed sanity check.") + sane.count("is empty.") == len(indexes)
    assert sane.count("passed sanity check.") >= len(indexes) // 2
    assert complaints(dump(kafka_jars, indexes, "--verify-index-only")) == []
    producers = dump(kafka_jars, snapshots)
    assert complaints(producers) == []
    assert "producerId: " in producers
