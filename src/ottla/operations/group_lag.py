"""What a group reads and how far it is behind, asked of a cluster: its commits beside where logs begin and end."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.coordinators import Answers
from ottla.client.errors import RefusedError
from ottla.client.groups import Committed, Group, Member, committed_offsets, committed_offsets_of
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.operations.lag import PartitionLag, seconds_behind
from ottla.operations.record_times import record_times

Lags = dict[TopicPartition, PartitionLag]


class GroupPartition(NamedTuple):
    """A partition that a group reads or has read; `member` is None where nobody reads it now."""

    group_id: str
    partition: TopicPartition
    lag: PartitionLag
    leader_epoch: int | None
    member: Member | None


def group_partitions(client: Client, group: Group) -> list[GroupPartition]:
    """Partitions of members first, busy members first; then those that only have a committed offset."""
    committed = committed_offsets(client, group.group_id)
    owned = {place for member in group.members for place in member.assigned}
    ends = end_offsets(client, owned | committed.keys())
    busy = [member for member in group.members if member.assigned]
    rows = []
    for member in sorted(busy, key=lambda member: -len(member.assigned)):
        rows += _rows(group.group_id, member.assigned, committed, ends, member)
    return rows + _rows(group.group_id, committed.keys() - owned, committed, ends, None)


def end_offsets(client: Client, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs end; a partition without a leader has no end for now, one that does not exist is refused."""
    if not partitions:
        return {}
    found, failures = list_offsets(client, partitions, LATEST)
    for problem in failures.values():
        if not problem.is_retriable:
            raise problem
    return {place: item.offset for place, item in found.items()}


def committed_lags(client: Client, group_ids: Iterable[str]) -> Answers[Lags]:
    """The lag of whatever groups have committed, as far as leaders tell where their logs end.

    Each end is asked for once, however many groups read there.
    """
    answers = committed_offsets_of(client, group_ids)
    places = {place for answer in answers.values() if not isinstance(answer, RefusedError) for place in answer}
    ends, _ = list_offsets(client, sorted(places), LATEST) if places else ({}, {})

    def lag_at(place: TopicPartition, at: Committed) -> PartitionLag:
        return PartitionLag(at.offset, ends[place].offset if place in ends else None)

    return {
        name: answer if isinstance(answer, RefusedError) else {place: lag_at(place, at) for place, at in answer.items()}
        for name, answer in answers.items()
    }


def with_seconds(client: Client, lags: Mapping[TopicPartition, PartitionLag], now_ms: int | None = None) -> Lags:
    """The same with starts of logs and time behind: one ListOffsets, and a fetch of the first unread records.

    Costs a broker one record batch for each partition that is behind: for pages and alerts, not for every commit.
    """
    starts, _ = list_offsets(client, lags, EARLIEST) if lags else ({}, {})
    started = {
        place: lag._replace(start=starts[place].offset if place in starts else lag.start) for place, lag in lags.items()
    }
    behind = {place: lag.first_unread for place, lag in started.items() if lag.records}
    times, _ = record_times(client, _known(behind.items())) if behind else ({}, {})
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    found: Lags = {}
    for place, lag in started.items():
        records = 0 if place in times and times[place] is None else lag.records  # only markers are left
        found[place] = lag._replace(seconds=seconds_behind(records, times.get(place), now_ms))
    return found


def _known(items: Iterable[tuple[TopicPartition, int | None]]) -> dict[TopicPartition, int]:
    return {place: offset for place, offset in items if offset is not None}


def _rows(
    group_id: str,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    ends: Mapping[TopicPartition, int],
    member: Member | None,
) -> list[GroupPartition]:
    rows = []
    for place in sorted(set(partitions)):
        known = committed.get(place)
        offset, epoch = (None, None) if known is None else (known.offset, known.leader_epoch)
        rows.append(GroupPartition(group_id, place, PartitionLag(offset, ends.get(place)), epoch, member))
    return rows
