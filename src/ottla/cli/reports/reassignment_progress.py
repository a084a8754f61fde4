"""A progress bar of replica moves."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from ottla.base.names import TopicPartition
from ottla.cli.terminal import is_terminal
from ottla.client.client import Client
from ottla.client.reassignments import Reassignment
from ottla.operations.reassignment.moves import describe_progress
from ottla.operations.sizes import size_text

BAR_WIDTH = 32


def bar(share: float) -> str:
    filled = int(share * BAR_WIDTH)
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share * 100:3.0f} %"


class ProgressLine:
    """The progress of moves in one line of a terminal; elsewhere it prints nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_shown = is_terminal(sys.stderr)
        self._started = time.monotonic()
        self._most_bytes = 0  # the largest number of bytes left so far

    def draw(self, moves: Mapping[TopicPartition, Reassignment], count: int) -> None:
        """`count`: the partitions that move or have moved."""
        if not self._is_shown or not moves:
            return
        found = describe_progress(self._client, moves)
        left = sum(item.total_bytes - item.done_bytes for item in found.values())
        most = self._most_bytes = max(self._most_bytes, left)
        share = 1 - left / most if most else 1 - len(moves) / count
        speed = size_text(int((most - left) / max(time.monotonic() - self._started, 0.001)))
        line = f"moving {bar(share)}  {count - len(moves)} of {count} partitions  {size_text(left)} left  {speed}/s"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __repr__(self) -> str:
        return f"<ProgressLine {self._most_bytes} bytes>"
