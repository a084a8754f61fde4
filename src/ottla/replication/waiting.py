"""Requests that wait for a partition: fetches for new records, acks=all produces for the high watermark.

Kafka calls this the purgatory. A waiter hangs on each partition that can satisfy it, and on one deadline of the event
loop; whichever comes first answers it, and the others forget it. Nothing polls. What a waiter makes of it cannot hurt
whoever wakes it: that is mostly somebody else's produce or fetch.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.tasks import tell


class WaitingFetch:
    """A fetch that found fewer bytes than it asked for."""

    __slots__ = ("bytes_missing", "is_done", "on_ready")

    def __init__(self, bytes_missing: int, on_ready: Callable[[], None]) -> None:
        self.bytes_missing = bytes_missing
        self.on_ready = on_ready
        self.is_done = False

    def note(self, new_bytes: int) -> None:
        """Some partition of this fetch became readable further by so many bytes."""
        self.bytes_missing -= new_bytes
        if self.bytes_missing <= 0:
            self.wake()

    def wake(self) -> None:
        """Answer now: enough came, time is up, or a partition changed hands."""
        if not self.is_done:
            self.is_done = True
            tell(self.on_ready)

    def __repr__(self) -> str:
        return f"<WaitingFetch {'done' if self.is_done else f'{self.bytes_missing} bytes missing'}>"


class WaitingProduce:
    """An acks=all produce: answered when every partition's high watermark has passed its records.

    One that `minds_isr` is answered too when too few replicas are left in sync: its client can try again.
    """

    __slots__ = ("is_done", "minds_isr", "on_ready", "partitions_left")

    def __init__(self, partitions_left: int, on_ready: Callable[[], None], minds_isr: bool = False) -> None:
        self.partitions_left = partitions_left
        self.on_ready = on_ready
        self.minds_isr = minds_isr
        self.is_done = False

    def note(self) -> None:
        """One more partition has replicated its part, or can no longer do so."""
        self.partitions_left -= 1
        if self.partitions_left == 0:
            self.wake()

    def wake(self) -> None:
        if not self.is_done:
            self.is_done = True
            tell(self.on_ready)

    def __repr__(self) -> str:
        return f"<WaitingProduce {'done' if self.is_done else f'{self.partitions_left} partitions left'}>"
