"""How far moves are: bytes that the new replicas have of those that their leaders have.  The reckoning is pure."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.cli.tables import size_text
from ottla.cli.terminal import is_terminal
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.log_dirs import Folder, PlacedReplica, describe_log_dirs
from ottla.client.reassignments import Reassignment, list_reassignments

BAR_WIDTH = 32
LOOK_SECONDS = 0.5


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
    return move_progress(moves, replica_sizes(describe_log_dirs(client, brokers)))


def bar(share: float) -> str:
    filled = int(share * BAR_WIDTH)
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share * 100:3.0f} %"


def wait_for_moves(client: Client, partitions: set[TopicPartition], seconds_max: float | None = None) -> bool:
    """Wait until none of these partitions moves any more, with a bar on a terminal; False when the time is up."""
    started = time.monotonic()
    most_bytes = 0
    is_shown = is_terminal(sys.stderr)
    try:
        while True:
            moves = {name: move for name, move in list_reassignments(client).items() if name in partitions}
            if not moves:
                return True
            if is_shown:
                most_bytes = draw(client, moves, len(partitions), most_bytes, started)
            if seconds_max is not None and time.monotonic() - started > seconds_max:
                return False
            time.sleep(LOOK_SECONDS)
    finally:
        if is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def draw(
    client: Client, moves: Mapping[TopicPartition, Reassignment], count: int, most_bytes: int, started: float
) -> int:
    """One line in place of the last one; the answer is the most bytes that were ever left to copy."""
    found = look(client, moves)
    left = sum(item.total_bytes - item.done_bytes for item in found.values())
    most_bytes = max(most_bytes, left)
    share = 1 - left / most_bytes if most_bytes else 1 - len(moves) / count
    seconds = max(time.monotonic() - started, 0.001)
    speed = size_text(int((most_bytes - left) / seconds))
    line = f"moving {bar(share)}  {count - len(moves)} of {count} partitions  {size_text(left)} left  {speed}/s"
    print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    return most_bytes
