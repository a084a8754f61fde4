"""Lag of consumer groups, read from a cluster: committed offsets compared with the start and end of each log."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.coordinators import Answers
from ottla.client.errors import BrokerError
from ottla.client.groups import CommittedOffset, Group, Member, committed_offsets, committed_offsets_of
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.operations.lag import PartitionLag, seconds_behind

Lags = dict[TopicPartition, PartitionLag]


class GroupPartition(NamedTuple):
    """A partition that a group reads or has read; `member` is None if no member is assigned to it."""

    group_id: str
    partition: TopicPartition
    lag: PartitionLag
    leader_epoch: int | None
    member: Member | None


def group_partitions(client: Client, group: Group) -> list[GroupPartition]:
    """Assigned partitions first, by members with most partitions; then those with only a committed offset."""
    committed = committed_offsets(client, group.group_id)
    owned = {place for member in group.members for place in member.assigned}
    ends = end_offsets(client, owned | committed.keys())
    busy = [member for member in group.members if member.assigned]
    rows = []
    for member in sorted(busy, key=lambda member: -len(member.assigned)):
        rows += _rows(group.group_id, member.assigned, committed, ends, member)
    return rows + _rows(group.group_id, committed.keys() - owned, committed, ends, None)


def end_offsets(client: Client, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The log end offsets. A partition without a leader is left out; one that does not exist raises."""
    if not partitions:
        return {}
    found, failures = list_offsets(client, partitions, LATEST)
    for problem in failures.values():
        if not problem.is_retriable:
            raise problem
    return {place: item.offset for place, item in found.items()}


def committed_lags(client: Client, group_ids: Iterable[str]) -> Answers[Lags]:
    """The lag of each group's committed offsets, where the leader returns a log end offset.

    Each log end offset is read once, however many groups read the partition.
    """
    answers = committed_offsets_of(client, group_ids)
    places = {place for answer in answers.values() if not isinstance(answer, BrokerError) for place in answer}
    ends, _ = list_offsets(client, sorted(places), LATEST) if places else ({}, {})

    def lag_at(place: TopicPartition, at: CommittedOffset) -> PartitionLag:
        return PartitionLag(at.offset, ends[place].offset if place in ends else None)

    return {
        name: answer if isinstance(answer, BrokerError) else {place: lag_at(place, at) for place, at in answer.items()}
        for name, answer in answers.items()
    }


def add_time_lag(client: Client, lags: Mapping[TopicPartition, PartitionLag], now_ms: int | None = None) -> Lags:
    """The lags with log start offsets and time lag: one ListOffsets, and a fetch of the first unread records.

    This costs a broker one record batch for each partition with lag: for pages and alerts, not for every commit.
    """
    from ottla.operations.record_times import record_times  # noqa: PLC0415 (start-up of tools that need no time)

    starts, _ = list_offsets(client, lags, EARLIEST) if lags else ({}, {})
    started = {
        place: lag._replace(start=starts[place].offset if place in starts else lag.start) for place, lag in lags.items()
    }
    behind = {place: lag.first_unread for place, lag in started.items() if lag.records}
    times, _ = record_times(client, _without_unknown(behind.items())) if behind else ({}, {})
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    found: Lags = {}
    for place, lag in started.items():
        records = 0 if place in times and times[place] is None else lag.records  # only transaction markers remain
        found[place] = lag._replace(seconds=seconds_behind(records, times.get(place), now_ms))
    return found


def _without_unknown(items: Iterable[tuple[TopicPartition, int | None]]) -> dict[TopicPartition, int]:
    return {place: offset for place, offset in items if offset is not None}


def _rows(
    group_id: str,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
    member: Member | None,
) -> list[GroupPartition]:
    rows = []
    for place in sorted(set(partitions)):
        known = committed.get(place)
        offset, epoch = (None, None) if known is None else (known.offset, known.leader_epoch)
        rows.append(GroupPartition(group_id, place, PartitionLag(offset, ends.get(place)), epoch, member))
    return rows
