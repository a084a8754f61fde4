"""The throttle of replication during reassignments: bytes a second that throttled replicas copy (KIP-73).

Which replicas are throttled says the topic (`leader.replication.throttled.replicas`, the same for followers), how fast
they may be the broker (`leader.replication.throttled.rate`). Replicas that are in sync are never held up: that would
make producers wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.base.clock import Clock
from ottla.base.setting_types import LONG_MAX
from ottla.quotas.copying import CopyRate
from ottla.quotas.shares import Windows
from ottla.replication.partition import Partition

WAIT_MS_MAX: Final = 100  # settings may change meanwhile


class ReplicationQuota:
    """What throttled replicas have copied lately, against the rate in force. One answer may be more than it allows."""

    def __init__(
        self,
        clock: Clock,
        bytes_per_second: Callable[[], int],
        is_throttled: Callable[[Partition], bool],
        windows: Windows,
    ) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._is_throttled = is_throttled
        self._rate = CopyRate(windows)
        self.bytes = 0  # copied under the throttle

    @property
    def is_on(self) -> bool:
        return self._bytes_per_second() < LONG_MAX

    def wait_ms(self, partition: Partition, is_behind: bool) -> int:
        """How long this partition may not be copied; 0: it may be now.

        Not longer than it must: a high rate would not be reached with reads of 1 MiB.
        """
        if not is_behind or not self.is_on or not self._is_throttled(partition):
            return 0
        return min(WAIT_MS_MAX, self._rate.wait_ms(self._bytes_per_second(), self._clock.monotonic_ms()))

    def note(self, partition: Partition, size: int, is_behind: bool = True) -> None:
        """So many bytes of a partition were copied.

        Only who catches up is charged. What replicas in sync copy of a fast producer would use up the rate, and who is
        behind would stay behind for ever.
        """
        if is_behind and self.is_on and self._is_throttled(partition):
            self._rate.note(size, self._clock.monotonic_ms())
            self.bytes += size

    def __repr__(self) -> str:
        return f"<ReplicationQuota {self._bytes_per_second()} bytes/s, {self._rate!r}>"


def throttles(replicas: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """What the topic's list of throttled replicas says: `*`, or pairs of partition and broker."""
    return "*" in replicas or f"{partition}:{broker_id}" in replicas
