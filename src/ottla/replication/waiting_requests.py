"""Requests that wait for a partition: fetches for new records, acks=all produces for the high watermark.

This is Kafka's purgatory. A waiter is registered with each partition that can satisfy it, and with one deadline of the
event loop; the first of them completes it. There is no polling. An exception in a waiter must not affect the code that
wakes it, which usually handles another client's request.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.tasks import notify_safely


class WaitingFetch:
    """A fetch that found fewer bytes than its minimum."""

    __slots__ = ("bytes_missing", "is_completed", "on_ready")

    def __init__(self, bytes_missing: int, on_ready: Callable[[], None]) -> None:
        self.bytes_missing = bytes_missing
        self.on_ready = on_ready
        self.is_completed = False

    def add_bytes(self, new_bytes: int) -> None:
        """Add bytes that became readable in one of its partitions."""
        self.bytes_missing -= new_bytes
        if self.bytes_missing <= 0:
            self.complete()

    def complete(self) -> None:
        """Respond now: enough bytes, a timeout, or a partition with another leader."""
        if not self.is_completed:
            self.is_completed = True
            notify_safely(self.on_ready)

    def __repr__(self) -> str:
        return f"<WaitingFetch {'done' if self.is_completed else f'{self.bytes_missing} bytes missing'}>"


class WaitingProduce:
    """An acks=all produce: it completes when every partition's high watermark has passed its records. With
    `fails_below_min_isr` it also completes when too few replicas are in sync: its client can retry.
    """

    __slots__ = ("fails_below_min_isr", "is_completed", "on_ready", "partitions_left")

    def __init__(self, partitions_left: int, on_ready: Callable[[], None], fails_below_min_isr: bool = False) -> None:
        self.partitions_left = partitions_left
        self.on_ready = on_ready
        self.fails_below_min_isr = fails_below_min_isr
        self.is_completed = False

    def complete_partition(self) -> None:
        """Record that one more partition has replicated its part, or can no longer do so."""
        self.partitions_left -= 1
        if self.partitions_left == 0:
            self.complete()

    def complete(self) -> None:
        if not self.is_completed:
            self.is_completed = True
            notify_safely(self.on_ready)

    def __repr__(self) -> str:
        return f"<WaitingProduce {'done' if self.is_completed else f'{self.partitions_left} partitions left'}>"
