"""Partition filters and times, as kafka-get-offsets.sh parses them."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.cli.java.options import OptionError
from ottla.cli.records.partition_filter import (
    PartitionFilter,
    matching_partitions,
    parse_partitions,
    parse_rules,
    parse_time,
    parse_timestamp,
)
from ottla.cli.terminal import UsageError
from ottla.client.admin import Partition, Topic


def topic(name: str, partitions: int, is_internal: bool = False) -> Topic:
    return Topic(name, UUID(int=1), is_internal, [Partition(number, 1, [1], [1]) for number in range(partitions)])


TOPICS = [topic("__consumer_offsets", 1, is_internal=True), topic("audit", 2), topic("orders", 4)]


def chosen(choice: PartitionFilter) -> str:
    return " ".join(map(str, matching_partitions(TOPICS, choice)))


@pytest.mark.parametrize(
    ("rules", "partitions"),
    [
        ("orders", "orders-0 orders-1 orders-2 orders-3"),
        ("orders:2", "orders-2"),
        ("orders:1-3", "orders-1 orders-2"),
        ("orders:2-", "orders-2 orders-3"),
        ("orders:-2", "orders-0 orders-1"),
        (":0", "audit-0 orders-0"),
        ("o.*:1,audit:0", "audit-0 orders-1"),
        ("orders:", "orders-0 orders-1 orders-2 orders-3"),
        ("nothing", ""),
    ],
)
def test_patterns_choose_partitions(rules: str, partitions: str) -> None:
    assert chosen(parse_rules(rules, with_internal=False)) == partitions


def test_internal_topics_are_included_by_default() -> None:
    assert chosen(PartitionFilter.of_topic(".*", frozenset({0}), True)) == "__consumer_offsets-0 audit-0 orders-0"
    assert chosen(PartitionFilter.of_topic(".*", frozenset({0}), False)) == "audit-0 orders-0"


@pytest.mark.parametrize("rules", ["a:b", "a:1:2", "orders:1-2-3"])
def test_bad_patterns_are_refused(rules: str) -> None:
    with pytest.raises(OptionError, match=f"Invalid rule specification: {rules}"):
        parse_rules(rules, with_internal=True)


def test_partitions_are_numbers() -> None:
    assert parse_partitions("0,2") == {0, 2}
    assert parse_partitions(None) == parse_partitions("") == frozenset()
    with pytest.raises(OptionError, match="but received: a"):
        parse_partitions("a")


@pytest.mark.parametrize(
    ("text", "time"), [("latest", -1), ("-2", -2), ("max-timestamp", -3), ("1794700000000", 1794700000000), ("+5", 5)]
)
def test_times_have_names_and_numbers(text: str, time: int) -> None:
    assert parse_time(text) == time


@pytest.mark.parametrize("text", ["", "xyz", "1.5", "9" * 20, "٣"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="Malformed time argument"):
        parse_time(text)


def test_dates_are_accepted() -> None:
    assert parse_timestamp("1970-01-01T00:00:01+00:00") == 1000
    assert parse_timestamp("earliest") == -2
    for text in ("99999-01-01", "2026-13-01", "yesterday"):
        with pytest.raises(UsageError, match="is not a time"):
            parse_timestamp(text)
