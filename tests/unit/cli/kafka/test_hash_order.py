"""The order of Java's hash maps; the expected orders were printed by Kafka's own tools."""

from __future__ import annotations

from ottla.cli.java.hash_order import hash_map_order, java_hash


def test_hash_codes_are_those_of_java() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("retention.ms") == java_hash("retention.m") * 31 + ord("s") & 0xFFFFFFFF


def test_topics_are_listed_as_kafka_lists_them() -> None:
    assert hash_map_order(["cli-a", "cli-b.x_y"], capacity=2) == ["cli-b.x_y", "cli-a"]


def test_a_map_grows_when_it_is_three_quarters_full() -> None:
    keys = [f"key-{number}" for number in range(13)]
    assert hash_map_order(keys) == hash_map_order(keys, capacity=32)
    assert sorted(hash_map_order(keys)) == sorted(keys)


def test_nothing_stays_nothing() -> None:
    assert hash_map_order([], capacity=0) == []
