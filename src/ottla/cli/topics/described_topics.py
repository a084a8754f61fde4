"""Reads what Kafka's own tools print about topics: their ids, their numbers of partitions, their settings.

    kafka-topics.sh --bootstrap-server old:9092 --describe            > topics.txt
    kafka-configs.sh --bootstrap-server old:9092 --describe --entity-type topics > topics.txt

Both forms are understood, also mixed in one file; lines that say nothing about settings are passed over.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOPIC = re.compile(r"^Topic:\s*(?P<name>\S+)\s.*?\bPartitionCount:\s*(?P<count>\d+)")
_TOPIC_ID = re.compile(r"\bTopicId:\s*(\S+)")
_CONFIGS = re.compile(r"\bConfigs:\s*(\S*)")
_HEADING = re.compile(r"^Dynamic configs for topic '?(?P<name>[^\s']+)'? are:")
_CONFIG_LINE = re.compile(r"^\s+(?P<key>[a-z][a-z0-9.]*)=(?P<value>.*?) sensitive=\S+ synonyms=")


class DescribedTopic(NamedTuple):
    """What a tool said about one topic; an empty id and no partitions where it did not say."""

    topic_id: str
    partition_count: int
    configs: dict[str, str]


def parse_described(text: str) -> dict[str, DescribedTopic]:
    """Topics by name."""
    found: dict[str, DescribedTopic] = {}
    current: DescribedTopic | None = None
    for line in text.splitlines():
        if match := _TOPIC.match(line):
            topic_id = _TOPIC_ID.search(line)
            configs = _CONFIGS.search(line)
            pairs = parse_configs(configs.group(1)) if configs else {}
            found[match["name"]] = DescribedTopic(topic_id.group(1) if topic_id else "", int(match["count"]), pairs)
            current = None
        elif match := _HEADING.match(line):
            current = found.setdefault(match["name"], DescribedTopic("", 0, {}))
        elif current is not None and (match := _CONFIG_LINE.match(line)):
            current.configs[match["key"]] = match["value"]
    return found


def parse_configs(text: str) -> dict[str, str]:
    """`a=1,b=x,y` is a=1 and b=x,y: a piece without a "=" belongs to the value before it."""
    pairs: dict[str, str] = {}
    key = ""
    for piece in text.split(","):
        name, equals, value = piece.partition("=")
        if equals:
            key = name
            pairs[key] = value
        elif key and piece:
            pairs[key] += f",{piece}"
    return pairs
