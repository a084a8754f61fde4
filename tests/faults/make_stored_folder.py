"""Rewrites tests/data/kafka-3.9: `python -m tests.faults.make_stored_folder` (needs Java and Maven).

What Apache Kafka 3.9 left on disk after an orderly stop, what its topic tool said, and what a consumer saw.
"""

import base64
import gzip
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.conformance.conftest import find_jars
from tests.faults.mixed_records import ReadPartition, read_all, write_all
from tests.faults.zookeeper_kafka import KAFKA_VERSION, ZooKeeperKafka

TARGET = Path(__file__).parent.parent / "data" / "kafka-3.9"
RECORDS = 30
TAR = ["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--exclude=*.deleted", "-czf"]


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        ZooKeeperKafka(Path(folder) / "kafka", find_jars(KAFKA_VERSION)) as kafka,
    ):
        kafka.start()
        write_all(kafka.bootstrap, RECORDS)
        kafka.stop()
        subprocess.run([*TAR, TARGET / "log-folder.tar.gz", "-C", kafka.data, "."], check=True)
        kafka.start()
        time.sleep(1)
        command = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, "--describe")
        (TARGET / "topics.txt").write_text(kafka.tool(*command))
        write_expected(read_all(kafka.bootstrap))


def write_expected(found: dict[tuple[str, str, int], ReadPartition]) -> None:
    rows = {" ".join(map(str, key)): as_json(partition) for key, partition in found.items()}
    (TARGET / "expected.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode(), mtime=0))


def read_expected() -> dict[tuple[str, str, int], Any]:
    rows = json.loads(gzip.decompress((TARGET / "expected.json.gz").read_bytes()))
    return {(isolation, topic, int(number)): row for (isolation, topic, number), row in split_keys(rows)}


def split_keys(rows: dict[str, Any]) -> list[tuple[list[str], Any]]:
    return [(key.split(), row) for key, row in rows.items()]


def as_json(partition: ReadPartition) -> dict[str, Any]:
    """Bytes as base64, tuples as lists: what comes back from a file."""
    records = []
    for offset, (_, timestamp), key, value, headers, epoch in partition.records:
        shown = None if headers is None else [[name, as_text(content)] for name, content in headers]
        records.append([offset, timestamp, as_text(key), as_text(value), shown, epoch])
    return {"low": partition.low, "high": partition.high, "records": records}


def as_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


if __name__ == "__main__":
    main()
