"""Apache Kafka's own Java clients (producer, assigned consumer, AdminClient): one program, one line per check."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "java" / "Conformance.java"
RUN_SECONDS_MAX = 150
TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "2097152",  # set by the program
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

EXPECTED: dict[str, Any] = {
    **{f"round trip {codec}": [0, 199, 200, True] for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
    "acks 0": [-1, 1],
    "acks 1": [0, 1],
    "acks all": [0, 1],
    "idempotent pipelining": [500, True],
    "too large": ["RecordTooLargeException", 0],
    "topic created by sending": 0,
    "keys keep their partition": {"a": 0, "b": 0, "c": 2, "d": 1, "e": 2, "f": 3},
    "log append time": ["LogAppendTime", True, True],
    "compacted topic without key": "InvalidRecordException",
    "consumer offsets": {
        "beginning": 0,
        "end": 10,
        "by time": 5,
        "by time, epoch": 0,
        "by time, none": True,
        "position": 8,
        "value": "8",
        "again": "0",
        "end position": 10,
        "lag": 0,
        "partitions": 2,
        "listed": True,
    },
    "consumer out of range": 77,
    "consumer woken": ["news", True],
    "consumer many partitions": [1000, True],
    "consumer read_committed": 500,
    "consumer read_uncommitted": 500,
    "create with configs": [3, 1, True, "4321", "DYNAMIC_TOPIC_CONFIG", "compact,delete", "DEFAULT_CONFIG"],
    "create by assignment": 2,
    "validate only": [2, 1, False],
    "create refusals": {
        "exists": "TopicExistsException",
        "name": "InvalidTopicException",
        "partitions": "InvalidPartitionsException",
        "replication factor": "InvalidReplicationFactorException",
        "config value": "InvalidConfigurationException",
        "config name": "InvalidConfigurationException",
        "unknown broker": "InvalidReplicaAssignmentException",
        "gap": "InvalidReplicaAssignmentException",
        "listed": False,
    },
    "describe": {
        "name": True,
        "partitions": 2,
        "isr": True,
        "leader": 1,
        "internal": False,
        "listed id": True,
        "unknown name": "UnknownTopicOrPartitionException",
        "unknown id": "UnknownTopicIdException",
    },
    "create partitions": [
        "InvalidPartitionsException",
        "InvalidPartitionsException",
        "UnknownTopicOrPartitionException",
    ],
    "delete by name": False,
    "delete by id": False,
    "delete refusals": ["UnknownTopicOrPartitionException", "UnknownTopicIdException"],
    "describe topic configs": {
        "value": "2097152",
        "type": "INT",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "synonyms": [
            ["segment.bytes", "2097152", "DYNAMIC_TOPIC_CONFIG"],
            ["log.segment.bytes", "1073741824", "DEFAULT_CONFIG"],
        ],
        "has documentation": True,
        "default": True,
        "values": TOPIC_DEFAULTS,
    },
    "alter topic configs": [["999", "1048588"], "compact"],
    "alter refusals": [
        "InvalidConfigurationException",
        "InvalidConfigurationException",
        "InvalidConfigurationException",
        "UnknownTopicOrPartitionException",
        "UnknownTopicOrPartitionException",
    ],
    "describe broker configs": ["1073741824", "DEFAULT_CONFIG", "1048588", False, "STATIC_BROKER_CONFIG", True],
    "alter broker config": ["15000", "InvalidRequestException"],
    "list offsets": {
        "earliest": 0,
        "latest": 3,
        "max timestamp": [1, 9000, 0],
        "by time": 1,
        "after all": -1,
        "earliest local": 0,
        "latest tiered": -1,
        "unknown partition": "TimeoutException",
    },
    "describe features": True,
}


@pytest.fixture(scope="module")
def java_results(
    bootstrap: str, kafka_jars: Path, topic_names: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Every check's line, by name; the JVM is started once for all."""
    return run_checks(bootstrap, topic_names(), kafka_jars, tmp_path_factory.mktemp("java"))


def run_checks(
    bootstrap: str, prefix: str, jars: Path, folder: Path, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    messages = folder / "stderr.txt"
    command = ["java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command += ["-cp", f"{jars}/*", str(PROGRAM), bootstrap, prefix]
    with messages.open("w") as stderr:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    assert done.returncode == 0, messages.read_text()[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", EXPECTED)
def test_java(java_results: dict[str, Any], name: str) -> None:
    line = java_results[name]
    assert "error" not in line, line["error"]
    assert line["result"] == EXPECTED[name]


def test_java_describes_the_cluster(java_results: dict[str, Any], bootstrap: str) -> None:
    assert java_results["describe cluster"]["result"] == [[[1, bootstrap, False]], 1, True]
