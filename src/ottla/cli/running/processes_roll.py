"""A rolling restart of the processes of one machine: who is next. Pure: what happens comes in, a broker's id goes out.

Rules:
1. One at a time, and only while the replicas of all processes are in sync: a partition that has two of its replicas on
   this machine, because there are too few machines, loses one of them at most.
2. Nobody is given up: a roll that waits goes on when what it waits for has come, and says so whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence


class ProcessesRoll:
    """The brokers of this machine, by id, and how far the roll is, if there is one."""

    def __init__(self, brokers: Sequence[int]) -> None:
        self.brokers = tuple(brokers)
        self.in_sync: set[int] = set()
        self.left: list[int] = []  # to be restarted
        self.at: int | None = None  # being restarted

    @property
    def is_under_way(self) -> bool:
        return bool(self.left) or self.at is not None

    def begin(self) -> None:
        """Restart all of them, but not twice the one that an earlier roll is at."""
        self.left = [broker for broker in self.brokers if broker != self.at]

    def ended(self, broker: int) -> None:
        """A process has ended, whoever ended it."""
        self.in_sync.discard(broker)

    def synced(self, broker: int) -> None:
        """A process has said that all its replicas are in sync."""
        assert broker in self.brokers
        self.in_sync.add(broker)
        if broker == self.at:
            self.at = None

    def next_to_restart(self) -> int | None:
        """Whose turn it is now; None: nobody's, or not yet."""
        if self.at is not None or not self.left or self.waits_for:
            return None
        self.at = self.left.pop(0)
        self.in_sync.discard(self.at)  # what it said counts no more
        return self.at

    @property
    def waits_for(self) -> list[int]:
        """The brokers that are away, or have replicas that are not in sync."""
        return [broker for broker in self.brokers if broker not in self.in_sync]

    def __repr__(self) -> str:
        return f"<ProcessesRoll at={self.at} left={self.left} waits_for={self.waits_for}>"
