"""`ottla topics describe --summary`: CMAK's topic figures as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ottla.base.names import TopicPartition
from ottla.cli.tables import print_table
from ottla.client.admin import Admin, Topic
from ottla.client.offsets import LATEST, list_offsets
from ottla.operations.topic_summary import TopicSummary, summarize

NONE = "-"
FIGURE_COLUMNS = ("Topic", "Figure", "Value", "Level")
BROKER_COLUMNS = ("Topic", "Broker", "# of Partitions", "# as Leader", "Partitions", "Skewed?", "Leader Skewed?")


def show_summaries(admin: Admin, topics: Sequence[Topic], as_json: bool) -> None:
    summaries = read_summaries(admin, topics)
    if as_json:
        print(json.dumps([summary_json(summary) for summary in summaries], indent=2))
        return
    for summary in summaries:
        print_table(FIGURE_COLUMNS, figure_rows(summary), ("Value",))
        print_table(BROKER_COLUMNS, broker_rows(summary), ("Broker", "# of Partitions", "# as Leader"))


def read_summaries(admin: Admin, topics: Sequence[Topic]) -> list[TopicSummary]:
    """Read the summaries. A partition without a leader has no known end offset, so neither has the sum of its topic."""
    partitions = [TopicPartition(topic.name, item.number) for topic in topics for item in topic.partitions]
    found, _ = list_offsets(admin.client, partitions, LATEST) if partitions else ({}, {})
    brokers = admin.live_brokers()
    ends: dict[str, dict[int, int]] = {topic.name: {} for topic in topics}
    for partition, item in found.items():
        ends[partition.topic][partition.partition] = item.offset
    return [summarize(topic, ends[topic.name], brokers) for topic in topics]


def figure_rows(summary: TopicSummary) -> list[tuple[str, ...]]:
    return [
        (summary.topic, figure.name, NONE if figure.value is None else str(figure.value), figure.level.value)
        for figure in summary.figures
    ]


def broker_rows(summary: TopicSummary) -> list[tuple[str, ...]]:
    return [
        (
            summary.topic,
            str(row.broker),
            str(len(row.partitions)),
            str(row.leader_count),
            f"({','.join(map(str, row.partitions))})",
            str(row.is_skewed).lower(),
            str(row.is_leader_skewed).lower(),
        )
        for row in summary.brokers
    ]


def summary_json(summary: TopicSummary) -> dict[str, object]:
    return {
        "topic": summary.topic,
        "figures": {figure.name: figure.value for figure in summary.figures},
        "levels": {figure.name: figure.level.value for figure in summary.figures},
        "brokers": [
            {
                "broker": row.broker,
                "partitions": list(row.partitions),
                "leaders": row.leader_count,
                "skewed": row.is_skewed,
                "leader_skewed": row.is_leader_skewed,
            }
            for row in summary.brokers
        ],
    }
