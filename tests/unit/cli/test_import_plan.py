"""Parsing the topic descriptions of Kafka's tools."""

from ottla.cli.migration.import_plan import parse_configs, parse_described

TOPICS = """\
Topic: orders\tTopicId: UOwg-Y-7S6KJmVD3ZGi3vA\tPartitionCount: 3\tReplicationFactor: 1\t\
Configs: cleanup.policy=compact,delete,segment.bytes=1048576
\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A
Topic: plain\tTopicId: xxxx-Y-7S6KJmVD3ZGi3vA\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:
Topic: old \tPartitionCount:2\tReplicationFactor:1\tConfigs:retention.ms=5
"""
CONFIGS = """\
Dynamic configs for topic orders are:
  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete}
  retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1}
Dynamic configs for topic plain are:
"""


def test_topics_with_ids_counts_and_settings() -> None:
    found = parse_described(TOPICS)

    assert found["orders"] == (
        "UOwg-Y-7S6KJmVD3ZGi3vA",
        3,
        {"cleanup.policy": "compact,delete", "segment.bytes": "1048576"},
    )
    assert found["plain"] == ("xxxx-Y-7S6KJmVD3ZGi3vA", 1, {})


def test_lines_of_kafka_before_topic_ids() -> None:
    assert parse_described(TOPICS)["old"] == ("", 2, {"retention.ms": "5"})


def test_output_of_the_settings_tool_is_parsed() -> None:
    found = parse_described(CONFIGS)

    assert found["orders"].configs == {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
    assert found["plain"].configs == {}


def test_other_text_is_ignored() -> None:
    assert parse_described("hello\n  retention.ms=5 sensitive=false synonyms={}\n") == {}
    assert parse_configs("") == {}
    assert parse_configs("x,y") == {}
