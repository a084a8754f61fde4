"""Topic descriptions; the expected lines were printed by Kafka's own tool."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.base.names import TopicPartition, id_text, parse_id
from ottla.cli.reports.topic_report import DescribeFilter, describe_lines, kafka_order, overrides
from ottla.client.admin import Partition, Topic
from ottla.client.configs import Config, Source
from ottla.client.reassignments import Reassignment

ID = UUID("b365f7b5-4f83-4364-b9fd-f1abfb2e65a9")
DYNAMIC_TOPIC = 1
OWN_CONFIGS = "Configs: min.insync.replicas=1"


def topic(*partitions: Partition, name: str = "a", topic_id: UUID = ID) -> Topic:
    return Topic(name, topic_id, False, list(partitions))


def settings(**values: str) -> list[Config]:
    own = [Config(name.replace("_", "."), value, DYNAMIC_TOPIC, False) for name, value in values.items()]
    return [*own, Config("flush.ms", "9", Source.DEFAULT_CONFIG, False)]


HEALTHY = Partition(0, 1, [1, 2], [1, 2], [], [])
SHRUNK = Partition(1, 1, [1, 2], [1], [], [])
LEADERLESS = Partition(2, -1, [1, 2], [], [2], [1])


def lines(wanted: DescribeFilter | None = None, least_isr: str = "1") -> list[str]:
    configs = {"a": settings(min_insync_replicas=least_isr)}
    return list(describe_lines([topic(HEALTHY, SHRUNK, LEADERLESS)], configs, [1], wanted))


def test_a_topic_and_its_partitions_are_described_in_kafkas_layout() -> None:
    assert lines() == [
        "Topic: a\tTopicId: s2X3tU-DQ2S5_fGr-y5lqQ\tPartitionCount: 3\tReplicationFactor: 2\t" + OWN_CONFIGS,
        "\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: ",
        "\tTopic: a\tPartition: 1\tLeader: 1\tReplicas: 1,2\tIsr: 1\tElr: \tLastKnownElr: ",
        "\tTopic: a\tPartition: 2\tLeader: none\tReplicas: 1,2\tIsr: \tElr: 2\tLastKnownElr: 1",
    ]


def test_missing_information_is_shown_as_not_available() -> None:
    described = list(describe_lines([topic(Partition(0, 1, [1], [1]), topic_id=UUID(int=0))], {}, [1]))
    assert described == [
        "Topic: a\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: ",
        "\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A",
    ]


@pytest.mark.parametrize(
    ("wanted", "least_isr", "numbers"),
    [
        (DescribeFilter(under_replicated=True), "1", [1, 2]),
        (DescribeFilter(unavailable=True), "1", [2]),
        (DescribeFilter(under_min_isr=True), "2", [1, 2]),
        (DescribeFilter(at_min_isr=True), "2", [0]),
        (DescribeFilter(at_min_isr=True, unavailable=True), "1", [1, 2]),
    ],
)
def test_filters_show_only_partitions(wanted: DescribeFilter, least_isr: str, numbers: list[int]) -> None:
    shown = lines(wanted, least_isr)
    assert [int(line.split("\t")[2].removeprefix("Partition: ")) for line in shown] == numbers


@pytest.mark.parametrize(
    ("replicas", "isr", "move", "is_short"),
    [
        ([1, 2, 3], [1, 2], Reassignment([1, 2, 3], [3], []), False),  # the third is still being added
        ([1, 2, 3], [1], Reassignment([1, 2, 3], [3], []), True),
        ([1, 2, 3], [1, 3], Reassignment([1, 2, 3], [3], [2]), False),
        ([1, 3], [1], Reassignment([1, 3, 4], [4], [2]), True),  # ended in the meantime: only its replicas count
        ([1, 2], [1], None, True),
    ],
)
def test_replicas_on_their_way_are_not_missing(
    replicas: list[int], isr: list[int], move: Reassignment | None, is_short: bool
) -> None:
    """As isUnderReplicated of Kafka's TopicCommand."""
    moves = {} if move is None else {TopicPartition("a", 0): move}
    moving = topic(Partition(0, 1, replicas, isr, [], []))
    shown = list(describe_lines([moving], {}, [1], DescribeFilter(under_replicated=True), moves))
    assert bool(shown) is is_short


def test_topics_with_overrides_are_shown_without_partitions() -> None:
    plain = topic(HEALTHY, name="plain")
    configs = {"a": settings(retention_ms="1000"), "plain": settings()}
    shown = list(describe_lines([topic(HEALTHY), plain], configs, [1], DescribeFilter(only_overrides=True)))
    assert len(shown) == 1
    assert shown[0].endswith("Configs: retention.ms=1000")


def test_settings_are_in_kafkas_order_without_defaults() -> None:
    names = [
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    ]
    own = {"min.insync.replicas": "1", "cleanup.policy": "compact", "retention.ms": "1000"}
    configs = [
        Config(name, own.get(name, "x"), DYNAMIC_TOPIC if name in own else Source.DEFAULT_CONFIG, False)
        for name in names
    ]
    assert overrides(configs) == ["min.insync.replicas=1", "cleanup.policy=compact", "retention.ms=1000"]


def test_a_secret_value_is_shown_as_null() -> None:
    assert overrides([Config("secret", None, DYNAMIC_TOPIC, True)]) == ["secret=null"]


def test_topics_are_in_kafkas_order() -> None:
    names = [item.name for item in kafka_order([topic(name="cli-a"), topic(name="cli-b.x_y")])]
    assert names == ["cli-b.x_y", "cli-a"]


def test_ids_are_written_and_read_as_kafka_does() -> None:
    assert id_text(ID) == "s2X3tU-DQ2S5_fGr-y5lqQ"
    assert parse_id("s2X3tU-DQ2S5_fGr-y5lqQ") == ID


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bad", "Input string `bad` decoded as 2 bytes, which is not equal to the expected 16 bytes"),
        ("!!!!", "Illegal base64 character 21"),
        ("A" * 40, "is too long to be decoded as a base64 UUID"),
        ("A", "is not a base64-encoded UUID"),
    ],
)
def test_an_invalid_id_is_rejected_in_kafkas_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_id(text)
