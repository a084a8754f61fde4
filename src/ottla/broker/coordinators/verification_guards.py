"""Guards of verified transactions (KIP-890).

The transaction coordinator is asked whether a partition takes part in a transaction; when its answer comes, a marker
may have ended that transaction here. A record that is written then would belong to no transaction, and hang in the log
for ever. So a guard is raised before the question, and every marker, and every change of leadership, lowers it.
"""

from __future__ import annotations

from ottla.replication.partition import Partition


class VerificationGuard:
    """What was asked about one producer in one partition still holds while this is up."""

    __slots__ = ("holders", "is_cancelled", "partition", "since")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.since = partition.leading_since
        self.is_cancelled = False
        self.holders = 0

    @property
    def has_moved(self) -> bool:
        """Another broker may have written a marker meanwhile; nobody knows."""
        return not self.partition.is_leader or self.partition.leading_since != self.since

    def __repr__(self) -> str:
        return f"<VerificationGuard of {self.partition.name} {'cancelled' if self.is_cancelled else 'up'}>"


class VerificationGuards:
    """All guards of this broker that are up."""

    def __init__(self) -> None:
        self._up: dict[tuple[str, int, int], VerificationGuard] = {}  # topic, partition, producer id

    def begin(self, partition: Partition, producer_id: int) -> VerificationGuard:
        """Requests of one producer share a guard; each of them ends it."""
        key = (*partition.name, producer_id)
        guard = self._up.get(key)
        if guard is None or guard.partition is not partition or guard.has_moved:
            guard = self._up[key] = VerificationGuard(partition)
        guard.holders += 1
        return guard

    def end(self, guard: VerificationGuard, producer_id: int) -> None:
        """What it guarded is written, or will not be."""
        guard.holders -= 1
        key = (*guard.partition.name, producer_id)
        if guard.holders == 0 and self._up.get(key) is guard:
            del self._up[key]

    def cancel(self, partition: Partition, producer_id: int) -> None:
        """A marker of this producer is about to be written."""
        guard = self._up.pop((*partition.name, producer_id), None)
        if guard is not None:
            guard.is_cancelled = True

    def __repr__(self) -> str:
        return f"<VerificationGuards: {len(self._up)} up>"
