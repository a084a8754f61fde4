"""Batch markers and their partitions."""

import pytest

from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.batch_markers import Marker, _apply_marker, marker_partition, marker_value, parse_marker


class Message:
    def __init__(self, value: bytes | None, offset: int = 0, partition: int = 0) -> None:
        self._value, self._offset, self._partition = value, offset, partition

    def key(self) -> bytes:
        return b"q.out.0"

    def value(self) -> bytes | None:
        return self._value

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return self._partition


def test_a_marker_comes_back_as_it_was() -> None:
    marker = parse_marker(marker_value(LastBatch(7, "abc"), 12, "out"), 3, 44)
    assert marker is not None
    assert (marker[:3], marker.target) == ((LastBatch(7, "abc"), 3, 44), "out")


@pytest.mark.parametrize("value", [None, b"", b"7", b"{}", b"\xff", b'{"batch": "x", "identity": 1, "at_ms": 2}'])
def test_an_invalid_marker_is_none(value: bytes | None) -> None:
    assert parse_marker(value, 0, 0) is None


def test_neighbours_lie_in_different_partitions() -> None:
    assert len({marker_partition("q.out", number, 32) for number in range(32)}) == 32


def test_the_last_marker_of_a_partition_counts_also_when_its_number_is_smaller() -> None:
    found: dict[str, Marker] = {}
    _apply_marker(Message(marker_value(LastBatch(57, "old"), 1, "out"), 1), found)
    _apply_marker(Message(marker_value(LastBatch(0, "new"), 1, "out"), 2), found)
    assert found["q.out.0"].recorded == LastBatch(0, "new")


def test_a_tombstone_removes_a_marker() -> None:
    found: dict[str, Marker] = {}
    _apply_marker(Message(marker_value(LastBatch(57, "old"), 1, "out"), 1), found)
    _apply_marker(Message(None, 2), found)
    assert found == {}


def test_between_partitions_the_later_marker_counts() -> None:
    found: dict[str, Marker] = {}
    _apply_marker(Message(b'{"batch": 5, "identity": "b", "at_ms": 20}', 1, partition=1), found)
    _apply_marker(Message(b'{"batch": 4, "identity": "a", "at_ms": 10}', 9, partition=0), found)
    assert found["q.out.0"].recorded == LastBatch(5, "b")
