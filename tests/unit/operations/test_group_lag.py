"""Lags of groups: the requests and their number, and the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.errors import error_from_code
from ottla.client.groups import CommittedOffset
from ottla.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp
from ottla.operations import group_lag
from ottla.operations import record_times as module
from ottla.operations.group_lag import add_time_lag, committed_lags
from ottla.operations.lag import PartitionLag

A, B, C = (TopicPartition("t", number) for number in range(3))
STARTS, ENDS = {A: 4, B: 0}, {A: 10, B: 5}  # C has no leader
TIMES = {A: 7_000}
NOW_MS = 10_000


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Answers like brokers, and records the requests."""
    found: list[Any] = []

    def list_offsets(_client: object, places: Iterable[TopicPartition], time: int) -> Any:
        found.append((time, sorted(places)))
        known = {EARLIEST: STARTS, LATEST: ENDS}[time]
        return {place: OffsetAndTimestamp(known[place], -1) for place in places if place in known}, {}

    def record_times(_client: object, offsets: Mapping[TopicPartition, int]) -> Any:
        found.append(dict(offsets))
        return {place: TIMES[place] for place in offsets if place in TIMES}, {}

    def committed_offsets_of(_client: object, groups: Iterable[str]) -> Any:
        offsets = {
            "one": {A: CommittedOffset(3, None, ""), C: CommittedOffset(7, None, "")},
            "two": {A: CommittedOffset(9, None, "")},
        }
        return {name: offsets.get(name, error_from_code(Error.GROUP_AUTHORIZATION_FAILED)) for name in groups}

    monkeypatch.setattr(group_lag, "list_offsets", list_offsets)
    monkeypatch.setattr(module, "record_times", record_times)
    monkeypatch.setattr(group_lag, "committed_offsets_of", committed_offsets_of)
    return found


def test_ends_are_asked_for_once_for_all_groups(asked: list[Any]) -> None:
    found = committed_lags(None, ["one", "two", "secret"])  # type: ignore[arg-type]
    assert found["one"] == {A: PartitionLag(3, 10), C: PartitionLag(7, None)}
    assert found["two"] == {A: PartitionLag(9, 10)}
    assert isinstance(found["secret"], Exception)
    assert asked == [(LATEST, [A, C])]


def test_only_records_that_wait_are_fetched_from_where_the_log_begins(asked: list[Any]) -> None:
    lags = {A: PartitionLag(3, 10), B: PartitionLag(5, 5), C: PartitionLag(7, None)}
    found = add_time_lag(None, lags, NOW_MS)  # type: ignore[arg-type]
    assert found == {
        A: PartitionLag(3, 10, 4, 3.0),
        B: PartitionLag(5, 5, 0, 0.0),
        C: PartitionLag(7, None, None, None),
    }
    assert asked == [(EARLIEST, [A, B, C]), {A: 4}]


def test_only_markers_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "record_times", lambda _client, offsets: (dict.fromkeys(offsets), {}))
    found = add_time_lag(None, {A: PartitionLag(9, 10)}, NOW_MS)  # type: ignore[arg-type]
    assert (found[A].records, found[A].seconds) == (1, 0.0)


def test_a_record_that_cannot_be_had_leaves_the_time_unknown() -> None:
    assert add_time_lag(None, {B: PartitionLag(2, 5)}, NOW_MS)[B].seconds is None  # type: ignore[arg-type]


def test_nothing_is_asked_for_nothing(asked: list[Any]) -> None:
    assert add_time_lag(None, {}, NOW_MS) == {}  # type: ignore[arg-type]
    assert committed_lags(None, []) == {}  # type: ignore[arg-type]
    assert asked == []
