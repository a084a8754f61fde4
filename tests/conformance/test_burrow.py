"""Burrow reads commits with a Sarama client on __consumer_offsets: it sees those of all (`-m other_languages`)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.conformance.recipes import numbered, send
from tests.conformance.test_other_languages import run, workshop  # noqa: F401 (a fixture)
from tests.conftest import FOREIGN_BOOTSTRAP

from ottla.client.client import Client
from ottla.client.groups import committed_offsets

pytestmark = pytest.mark.other_languages

PIPELINE = """\
name: {topic}
bootstrap.servers: {bootstrap}
dead_letters: false
from: {{topic: {topic}, max_per_batch: 40}}
to: {{json: rows}}
"""
OFFSETS = [3, 17, 17, 60]  # of partition 0, in the order in which they are committed


def commit_all(bootstrap: str, topic: str, protocol: str) -> str:
    group = f"{topic}-{protocol}"
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    for offset in OFFSETS:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
    return group


def run_pipeline(bootstrap: str, topic: str, folder: Path) -> str:
    """Spark, which commits its offsets for monitoring."""
    file = folder / "rows.yaml"
    file.write_text(PIPELINE.format(topic=topic, bootstrap=bootstrap))
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(file), "--once", "--master", "local[1]"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return f"ottla-pipeline-{topic}"


@pytest.mark.parametrize("workshop", ["burrow"], indirect=True)
def test_burrow_sees_every_commit_of_both_protocols_and_of_spark(
    workshop: Path,  # noqa: F811
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> None:
    send(bootstrap, topic, numbered(100))
    groups = [commit_all(bootstrap, topic, protocol) for protocol in ("classic", "consumer")]
    if not FOREIGN_BOOTSTRAP:
        groups.append(run_pipeline(bootstrap, topic, tmp_path))
    run(["go", "mod", "tidy"], workshop)
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in run(["go", "run", ".", bootstrap], workshop).splitlines()
    ]
    seen = {group: [line["offset"] for line in lines[:-1] if line["group"] == group] for group in groups}
    assert seen[groups[0]] == seen[groups[1]] == OFFSETS
    assert {line["version"] for line in lines[:-1] if not line["deleted"]} == {4}  # of Apache Kafka 4.3, too
    assert lines[-1]["others"] > 0  # groups themselves, which Burrow leaves out or reads for the owners of partitions
    with Client(bootstrap) as client:
        for group in groups:
            answered = {place: each.offset for place, each in committed_offsets(client, group).items()}
            newest = {(line["topic"], line["partition"]): line for line in lines[:-1] if line["group"] == group}
            assert {place: line["offset"] for place, line in newest.items()} == answered
            assert all(line["timestamp"] > 0 for line in newest.values())
    if not FOREIGN_BOOTSTRAP:
        assert seen[groups[2]][-1] == 100
        assert len(seen[groups[2]]) >= 2  # one commit a batch
