"""A progress bar of replica moves."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from ottla.base.names import TopicPartition
from ottla.cli.terminal import is_terminal
from ottla.client.client import Client
from ottla.client.reassignments import Reassignment, list_reassignments
from ottla.operations.reassignment.moves import describe_progress
from ottla.operations.sizes import size_text

BAR_WIDTH = 32
LOOK_SECONDS = 0.5


def bar(share: float) -> str:
    filled = int(share * BAR_WIDTH)
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share * 100:3.0f} %"


def wait_for_moves(client: Client, partitions: set[TopicPartition], seconds_max: float | None = None) -> bool:
    """Wait until none of these partitions is moving, with a bar on a terminal; False after the time limit."""
    started = time.monotonic()
    most_bytes = 0
    is_shown = is_terminal(sys.stderr)
    try:
        while True:
            moves = {name: move for name, move in list_reassignments(client).items() if name in partitions}
            if not moves:
                return True
            if is_shown:
                most_bytes = draw_progress(client, moves, len(partitions), most_bytes, started)
            if seconds_max is not None and time.monotonic() - started > seconds_max:
                return False
            time.sleep(LOOK_SECONDS)
    finally:
        if is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def draw_progress(
    client: Client, moves: Mapping[TopicPartition, Reassignment], count: int, most_bytes: int, started: float
) -> int:
    """Redraw the progress line; returns the largest number of bytes left so far."""
    found = describe_progress(client, moves)
    left = sum(item.total_bytes - item.done_bytes for item in found.values())
    most_bytes = max(most_bytes, left)
    share = 1 - left / most_bytes if most_bytes else 1 - len(moves) / count
    seconds = max(time.monotonic() - started, 0.001)
    speed = size_text(int((most_bytes - left) / seconds))
    line = f"moving {bar(share)}  {count - len(moves)} of {count} partitions  {size_text(left)} left  {speed}/s"
    print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    return most_bytes
