"""How far moves are: bytes that the new replicas have of those that their leaders have.  The reckoning is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.log_dirs import Folder, PlacedReplica, describe_log_dirs
from ottla.client.reassignments import Reassignment


class MoveProgress(NamedTuple):
    """One partition: bytes that have to be there in the end, in all new replicas together, and bytes that are."""

    total_bytes: int
    done_bytes: int

    @property
    def share(self) -> float:
        return min(self.done_bytes / self.total_bytes, 1.0) if self.total_bytes else 1.0


def move_progress(
    moves: Mapping[TopicPartition, Reassignment], sizes: Mapping[PlacedReplica, int]
) -> dict[TopicPartition, MoveProgress]:
    """A replica that is copied to counts up to the size of the largest one that is copied from."""
    found = {}
    for partition, move in moves.items():
        sources = [replica for replica in move.replicas if replica not in move.adding]
        size = max((sizes.get(PlacedReplica(partition, broker), 0) for broker in sources), default=0)
        done = sum(min(size, sizes.get(PlacedReplica(partition, broker), 0)) for broker in move.adding)
        found[partition] = MoveProgress(size * len(move.adding), done)
    return found


def bytes_to_copy(
    wanted: Mapping[TopicPartition, Sequence[int]],
    now: Mapping[TopicPartition, Sequence[int]],
    sizes: Mapping[PlacedReplica, int],
) -> dict[TopicPartition, int | None]:
    """What a plan will copy: the largest replica that there is, for each new one; None where no size is known."""
    found: dict[TopicPartition, int | None] = {}
    for partition, row in wanted.items():
        new = set(row) - set(now[partition])
        known = [sizes[place] for broker in now[partition] if (place := PlacedReplica(partition, broker)) in sizes]
        found[partition] = len(new) * max(known) if known else None if new else 0
    return found


def replica_sizes(folders: Mapping[int, list[Folder]]) -> dict[PlacedReplica, int]:
    return {
        PlacedReplica(replica.partition, broker): replica.size_bytes
        for broker, found in folders.items()
        for folder in found
        for replica in folder.replicas
        if not replica.is_future
    }


def look(client: Client, moves: Mapping[TopicPartition, Reassignment]) -> dict[TopicPartition, MoveProgress]:
    """Ask the brokers that take part how far they are."""
    living = set(Admin(client).live_brokers())
    brokers = sorted({broker for move in moves.values() for broker in move.replicas} & living)
    return move_progress(moves, replica_sizes(describe_log_dirs(client, brokers, moves)))
