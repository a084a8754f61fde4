"""Replication throttle during reassignments, in bytes per second (KIP-73; Kafka's ReplicationQuotaManager).

The topic lists the throttled replicas (`leader.replication.throttled.replicas`, likewise for followers); the broker has
the rate (`leader.replication.throttled.rate`). In-sync replicas are never throttled: that would delay producers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.base.clock import Clock
from ottla.base.setting_types import LONG_MAX
from ottla.quotas.meter_registry import Windows
from ottla.quotas.replication_rate import ReplicationQuotaRate
from ottla.replication.partition import Partition

WAIT_MS_MAX: Final = 100  # settings may change meanwhile
PENDING_RESPONSE_WAIT_MS: Final = 10  # until a pending response has arrived, which may use up the rest


class ReplicationQuotaManager:
    """The recent bytes of throttled replicas and the current rate. One response may exceed it."""

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
        self._rate = ReplicationQuotaRate(windows)
        self.bytes = 0  # copied under the throttle

    @property
    def is_on(self) -> bool:
        return self._bytes_per_second() < LONG_MAX

    def wait_ms(self, partition: Partition, is_behind: bool) -> int:
        """Return the delay of this partition; 0: it may be copied now. The delay is as short as possible, because
        otherwise reads of 1 MiB could not reach a high rate.
        """
        if not self.is_charged(partition, is_behind):
            return 0
        return min(WAIT_MS_MAX, self._rate.wait_ms(self._bytes_per_second(), self._clock.monotonic_ms()))

    def shared_wait_ms(self, partition: Partition, is_behind: bool, is_first: bool, bytes_promised: int) -> int:
        """Return the delay while other fetches are in flight, whose responses may contain `bytes_promised` in total.
        The first partition is fetched as soon as any bytes may be copied: a response is never smaller than a batch.
        """
        wait_ms = self.wait_ms(partition, is_behind)
        if wait_ms or is_first or not self.is_charged(partition, is_behind):
            return wait_ms
        left = self._rate.bytes_left(self._bytes_per_second(), self._clock.monotonic_ms())
        return PENDING_RESPONSE_WAIT_MS if bytes_promised > left else 0

    def is_charged(self, partition: Partition, is_behind: bool) -> bool:
        """Return whether copies of this partition are charged."""
        return is_behind and self.is_on and self._is_throttled(partition)

    def record(self, partition: Partition, size: int, is_behind: bool = True) -> None:
        """Charge copied bytes of a partition.

        Only replicas that catch up are charged. In-sync replicas of a fast producer would use up the rate, and the
        others would never catch up.
        """
        if self.is_charged(partition, is_behind):
            self._rate.record(size, self._clock.monotonic_ms())
            self.bytes += size

    def __repr__(self) -> str:
        return f"<ReplicationQuotaManager {self._bytes_per_second()} bytes/s, {self._rate!r}>"


def throttles(replicas: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """Return whether the topic's list contains the replica: `*`, or pairs of partition and broker."""
    return "*" in replicas or f"{partition}:{broker_id}" in replicas
