"""What the controller has decided about one partition, as far as its replicas must know it."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_LEADER: Final = -1


class Role(NamedTuple):
    """Who leads a partition, who is in sync, who holds a copy. Each broker sees its own part in it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0  # counts every change; the leader epoch counts only those of the leader
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()  # out of sync, but with all that was committed (KIP-966)
    is_recovering: bool = False  # elected although it was not in sync: something may be lost
