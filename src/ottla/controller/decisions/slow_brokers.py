"""Brokers that are alive and too slow to keep up: they give their leaderships away before they cost more. Pure.

What is seen is the image, a broker that is out of the ISR in half of what it holds (or more), and what brokers tell of
their disks: even the fastest sync takes longer than ottla.heal.slow.sync.ms. Who is like that without a break for
ottla.heal.slow.after.ms is slow, and well again when it has been better than that for as long. So one that hovers at
the edge does not get and lose leaders all the time.

1. What is being copied to a broker for the first time (a move) says nothing about it; nor does what it holds alone.
2. A broker that is away is not slow. One that comes back has its time to catch up before it is.
3. When so many keep up no longer that no majority does, it is not the brokers: nobody is taken for slow then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.controller.image import MetadataImage

NEVER: Final = -1  # as ottla.heal.slow.after.ms


class Share(NamedTuple):
    """Of the replicas that a broker holds beside others: how many there are, and how many are out of sync.

    broker_index.py counts them: rule 1, and partitions whose state cannot be read say nothing, either.
    """

    held: int = 0
    behind: int = 0
    slow_sync_ms: int = 0  # that its disk takes, if that is too long

    @property
    def is_behind(self) -> bool:
        return self.slow_sync_ms > 0 or (self.held > 0 and 2 * self.behind >= self.held)

    @property
    def reason(self) -> str:
        if self.slow_sync_ms:
            return f"its disk takes {self.slow_sync_ms} ms or longer for every sync"
        return f"out of sync in {self.behind} of its {self.held} replicas"


def with_disks(found: Mapping[int, Share], sync_ms: Mapping[int, int], sync_ms_max: int) -> Mapping[int, Share]:
    """The same with the disks that are too slow, by what their brokers have told; NEVER: no disk is."""
    if sync_ms_max == NEVER:
        return found
    slow = {broker: ms for broker, ms in sync_ms.items() if ms > sync_ms_max and broker in found}
    return {**found, **{broker: found[broker]._replace(slow_sync_ms=ms) for broker, ms in slow.items()}}


class SlowBrokers:
    """What a controller has seen of the brokers since it was elected; `now_ms` is that of a monotonic clock."""

    def __init__(self) -> None:
        self.slow: frozenset[int] = frozenset()
        self._since_ms: dict[int, tuple[int, int]] = {}  # by broker: its epoch, and since when it differs from `slow`

    def look(self, image: MetadataImage, found: Mapping[int, Share], now_ms: int, after_ms: int) -> frozenset[int]:
        """Take note of what is seen now; the answer is who is slow."""
        if after_ms == NEVER:
            self.forget()
            return self.slow
        slow = {broker for broker in self.slow if broker in image.brokers}
        changing: dict[int, tuple[int, int]] = {}
        for broker, share in found.items():
            epoch = image.brokers[broker].epoch
            if share.is_behind == (broker in slow):
                continue
            since_epoch, since_ms = self._since_ms.get(broker, (epoch, now_ms))
            if since_epoch != epoch:  # rule 2
                since_ms = now_ms
            changing[broker] = (epoch, since_ms)
        due = {broker for broker, (_, since_ms) in changing.items() if now_ms - since_ms >= after_ms}
        behind = sum(share.is_behind for share in found.values())
        if 2 * behind >= len(image.brokers):  # rule 3
            due &= slow
        # What has changed just now begins anew; what was not allowed to goes on waiting.
        self._since_ms = {broker: since for broker, since in changing.items() if broker not in due}
        self.slow = frozenset(slow ^ due)
        return self.slow

    def forget(self) -> None:
        self.slow = frozenset()
        self._since_ms.clear()

    def __repr__(self) -> str:
        return f"<SlowBrokers {sorted(self.slow)} watched={sorted(self._since_ms)}>"
