"""What a group reads and how far it is: its members' partitions beside what it has committed and where logs end."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.base.names import TopicPartition
from ottla.cli.groups.report import PartitionRow
from ottla.client.client import Client
from ottla.client.groups import Committed, Group, Member, committed_offsets
from ottla.client.offsets import LATEST, list_offsets


def partition_rows(client: Client, group: Group) -> list[PartitionRow]:
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


def _rows(
    group_id: str,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    ends: Mapping[TopicPartition, int],
    member: Member | None,
) -> list[PartitionRow]:
    rows = []
    for place in sorted(set(partitions)):
        known = committed.get(place)
        offset, epoch = (None, None) if known is None else (known.offset, known.leader_epoch)
        rows.append(PartitionRow(group_id, place, offset, epoch, ends.get(place), member))
    return rows
