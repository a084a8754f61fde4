"""Feature levels of Kafka's releases; every expectation was printed by Kafka 4.3.1's own tools."""

from __future__ import annotations

import pytest

from ottla.cli.java.options import OptionError
from ottla.cli.reports.feature_levels import (
    default_levels,
    dependency_lines,
    level_text,
    mapping_lines,
    metadata_level,
    parse_level,
)


@pytest.mark.parametrize(
    ("text", "level"), [("3.3", 7), ("3.5", 11), ("3.7.1", 19), ("4.0", 25), ("4.0-IV1", 23), ("4.3.1", 30)]
)
def test_a_release_has_a_metadata_version(text: str, level: int) -> None:
    assert metadata_level(text) == level


@pytest.mark.parametrize("text", ["9", "3.3-IV0", "4.4", "", "4", "x"])
def test_other_releases_are_refused(text: str) -> None:
    with pytest.raises(
        OptionError, match=f"Unknown metadata.version '{text}'. Supported metadata.version are: 3.3-IV3"
    ):
        metadata_level(text)


def test_levels_follow_the_release() -> None:
    assert default_levels(25) == {
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 0,
        "share.version": 0,
        "streams.version": 0,
    }
    assert set(default_levels(20).values()) == {0}


def test_the_mapping_names_the_release_as_it_was_asked_for() -> None:
    assert next(iter(mapping_lines("4.0"))) == "metadata.version=25 (4.0)"
    assert next(iter(mapping_lines(None))) == "metadata.version=30 (4.3-IV0)"


def test_dependencies() -> None:
    assert list(dependency_lines(["eligible.leader.replicas.version=1", "kraft.version=1"])) == [
        "eligible.leader.replicas.version=1 requires:",
        "    metadata.version=23 (4.0-IV1)",
        "kraft.version=1 has no dependencies.",
    ]
    for pair, words in (
        ("nope=1", "Unknown feature: nope"),
        ("group.version=9", "No feature:group.version with feature"),
    ):
        with pytest.raises(OptionError, match=words):
            list(dependency_lines([pair]))


def test_levels_are_shown_by_name_where_they_have_one() -> None:
    assert level_text("metadata.version", 30) == "4.3-IV0"
    assert level_text("metadata.version", 99) == "UNKNOWN 99"
    assert level_text("group.version", 1) == "1"


@pytest.mark.parametrize(("text", "words"), [("a", "equals sign not found"), ("a=x", "unable to parse x as a short")])
def test_levels_are_pairs(text: str, words: str) -> None:
    assert parse_level("a = 5") == ("a", 5)
    with pytest.raises(OptionError, match=words):
        parse_level(text)
