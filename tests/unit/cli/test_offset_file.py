"""The JSON file of kafka-delete-records.sh; the errors were printed by Kafka's own tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.names import TopicPartition
from ottla.cli.java.options import OptionError
from ottla.cli.records.offset_file import parse_offsets, read_offsets


def test_partitions_and_offsets_are_read() -> None:
    text = (
        b'{"partitions": [{"topic": "a", "partition": 1, "offset": 5}, {"topic": "b", "partition": 0, "offset": -1}]}'
    )
    assert parse_offsets(text) == {TopicPartition("a", 1): 5, TopicPartition("b", 0): -1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{nonsense", "The input string is not a valid JSON"),
        ("[" * 100_000, "The input string is not a valid JSON"),
        ("\x00\xff", "The input string is not a valid JSON"),
        ("[1]", "Expected JSON object, received [1]"),
        ('{"version": 2}', "Not supported version field value 2"),
        ('{"version": "1"}', 'Expected `Integer` value, received "1"'),
        ('{"version": 1}', "Missing partitions field"),
        ('{"partitions": 3}', "Expected JSON array, received 3"),
        ('{"partitions": [3]}', "Expected JSON object, received 3"),
        ('{"partitions": [{"topic": "a"}]}', "No such field exists: `partition`"),
        ('{"partitions": [{"topic": 5, "partition": 1, "offset": 9}]}', "Expected `String` value, received 5"),
        ('{"partitions": [{"topic": "a", "partition": 1.5, "offset": 9}]}', "Expected `Integer` value, received 1.5"),
        ('{"partitions": [{"topic": "a", "partition": true, "offset": 9}]}', "Expected `Integer` value, received true"),
        (
            '{"partitions":[{"topic":"a","partition":0,"offset":1},{"topic":"a","partition":0,"offset":2}]}',
            "Offset json file contains duplicate topic partitions: a-0",
        ),
    ],
)
def test_bad_files_are_refused_in_kafkas_words(text: str, words: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_offsets(text.encode())
    assert str(refused.value) == words


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"Unable to read file {tmp_path}"):
        read_offsets(str(tmp_path))
