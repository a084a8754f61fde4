"""Filters for topic partitions, and timestamps: `orders:0,audit:1-3,:0`, `-2` or `earliest`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from ottla.base.names import INTERNAL_TOPICS, TopicPartition
from ottla.cli.java.options import INTEGER_MAX, OptionError, topic_pattern
from ottla.cli.terminal import ToolError, UsageError
from ottla.client.admin import Topic
from ottla.client.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)

TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}
LONG_MAX = 2**63 - 1
_RULE = re.compile("([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")


class PartitionRule(NamedTuple):
    """Partitions of the topics whose name matches a pattern."""

    topics: re.Pattern[str]
    is_wanted: Callable[[int], bool]


class PartitionFilter(NamedTuple):
    """Accepts a partition if one of the rules matches."""

    rules: list[PartitionRule]
    with_internal: bool

    @classmethod
    def of_topic(cls, pattern: str, partitions: frozenset[int], with_internal: bool) -> Self:
        """Accept these partitions (empty: all) of the topics that match a pattern."""
        rule = PartitionRule(topic_pattern(pattern), lambda number: not partitions or number in partitions)
        return cls([rule], with_internal)


def matching_partitions(topics: Sequence[Topic], choice: PartitionFilter) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics
        if choice.with_internal or not (topic.is_internal or topic.name in INTERNAL_TOPICS)
        for partition in topic.partitions
        if any(rule.topics.fullmatch(topic.name) and rule.is_wanted(partition.number) for rule in choice.rules)
    ]


def parse_rules(text: str, with_internal: bool) -> PartitionFilter:
    """Parse `topic`, `topic:2`, `topic:0-3` (without 3), `topic:2-`, `topic:-2`, `:0`, separated by commas."""
    return PartitionFilter([_parse_rule(part) for part in text.split(",")], with_internal)


def parse_partitions(text: str | None) -> frozenset[int]:
    if not text:
        return frozenset()
    try:
        return frozenset(map(int, text.split(",")))
    except ValueError:
        raise OptionError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {text}"
        ) from None


def parse_time(text: str) -> int:
    """Parse a name, a special number or milliseconds since 1970."""
    if text in TIMES:
        return TIMES[text]
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -LONG_MAX <= int(text) <= LONG_MAX:
        words = " / ".join(f"{number} or {name}" for name, number in TIMES.items())
        raise OptionError(f"Malformed time argument {text}. Please use {words}, or a specified long format timestamp")
    return int(text)


def _parse_rule(text: str) -> PartitionRule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise OptionError(f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}")
    topic, single, low, high = match.groups()
    topics = topic_pattern(topic or ".*")
    if single:
        only = int(single)
        return PartitionRule(topics, lambda number: number == only)
    least, below = int(low or 0), int(high or INTEGER_MAX)
    return PartitionRule(topics, lambda number: least <= number < below)


def parse_timestamp(text: str) -> int:
    """Parse a time as get-offsets does, or a date."""
    from datetime import datetime  # noqa: PLC0415 (only needed for dates)

    try:
        return parse_time(text)
    except ToolError:
        pass
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.astimezone()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text!r} is not a time: write 2026-11-15T08:00:00, milliseconds since 1970, earliest or latest"
        ) from None
