"""Counters of one topic's traffic. Compiled with mypyc where possible.

All partitions of a topic share one object, so that the hot path adds without a lookup. The numbers of the whole broker
are sums over its topics, computed on request.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error

# Kafka does not count these as failed requests, because the client can correct them.
CLIENT_ERRORS: Final = frozenset(
    (
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.MESSAGE_TOO_LARGE,
        Error.RECORD_LIST_TOO_LARGE,
        Error.KAFKA_STORAGE_ERROR,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.OFFSET_OUT_OF_RANGE,
    )
)
TOO_LARGE: Final = frozenset((Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE))
BAD_SEQUENCES: Final = frozenset((Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH))


class TopicTraffic:
    """Totals since the topic was created, or since the broker started."""

    def __init__(self) -> None:
        self.partitions = 0  # the number of partitions that share this object
        self.appends = 0  # appended batches; Kafka's produce requests are these plus the rejected ones
        self.messages_in = 0
        self.bytes_in = 0
        self.refused_appends = 0
        self.failed_appends = 0
        self.rejected_bytes = 0
        self.corrupt_batches = 0
        self.misplaced_batches = 0  # batches with wrong sequence numbers
        self.reads = 0
        self.bytes_out = 0
        self.refused_reads = 0
        self.failed_reads = 0
        self.replication_bytes_in = 0  # copied by this broker from leaders
        self.replication_bytes_out = 0  # copied by followers from this broker

    def refuse_append(self, error: Error, size_bytes: int) -> None:
        """Record a rejected batch."""
        self.refused_appends += 1
        if error in TOO_LARGE:
            self.rejected_bytes += size_bytes
        elif error == Error.CORRUPT_MESSAGE:
            self.corrupt_batches += 1
        elif error in BAD_SEQUENCES:
            self.misplaced_batches += 1
        if error not in CLIENT_ERRORS and error != Error.CORRUPT_MESSAGE:
            self.failed_appends += 1

    def refuse_read(self, error: Error) -> None:
        self.refused_reads += 1
        if error not in CLIENT_ERRORS:
            self.failed_reads += 1

    def add(self, other: TopicTraffic) -> None:
        """Add another topic's counters to these."""
        self.partitions += other.partitions
        self.appends += other.appends
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.refused_appends += other.refused_appends
        self.failed_appends += other.failed_appends
        self.rejected_bytes += other.rejected_bytes
        self.corrupt_batches += other.corrupt_batches
        self.misplaced_batches += other.misplaced_batches
        self.reads += other.reads
        self.bytes_out += other.bytes_out
        self.refused_reads += other.refused_reads
        self.failed_reads += other.failed_reads
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out

    @property
    def is_idle(self) -> bool:
        """Whether the topic had no traffic so far."""
        return self.appends + self.refused_appends + self.reads + self.refused_reads == 0

    def __repr__(self) -> str:
        return f"<TopicTraffic {self.messages_in} records in, {self.bytes_out} bytes out>"


class TrafficSet:
    """All topics with partitions on this broker, and the totals of deleted ones."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()

    def join(self, topic: str) -> TopicTraffic:
        """Return the counters for one more partition of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        found.partitions += 1
        return found

    def leave(self, topic: str) -> None:
        """Remove one partition; the counters of the last one stay in the total."""
        found = self.topics.get(topic)
        if found is None:
            return
        found.partitions -= 1
        if found.partitions == 0:
            self._gone.add(found)
            del self.topics[topic]

    def total(self) -> TopicTraffic:
        """Return the totals of the broker: 0.1 microseconds per topic."""
        total = TopicTraffic()
        total.add(self._gone)
        for traffic in self.topics.values():
            total.add(traffic)
        return total

    def __repr__(self) -> str:
        return f"<TrafficSet {len(self.topics)} topics>"
