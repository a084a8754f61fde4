"""What is known of a topic before anything is advised: asked by topic_gathering.py, judged by topic_rules.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.protocol.compression import CODEC_NAMES

LAST_MINUTE_RECORDS_MIN = 100  # fewer tell nothing about how records are spread: then the whole log does


class SampledBatch(NamedTuple):
    """A record batch as it lies in the log, its records decompressed."""

    partition: int
    producer_id: int  # -1: a producer without idempotence
    codec: int
    stored_bytes: int
    records: int
    span: int  # of offsets: more than its records where a cleaner has been
    first_ms: int
    payload: bytes
    is_transactional: bool = False


class Traffic(NamedTuple):
    """What brokers count for the topic, all partitions together, per second."""

    records: float
    bytes_in: float
    appends: float  # batches
    fetches: float  # reads of a partition by consumers
    bytes_out: float
    are_followers_counted: bool  # among the fetches, as Apache Kafka does


@dataclass
class TopicFacts:
    """Everything; what could not be asked is empty, and `unknown` says why."""

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[int, int] = field(default_factory=dict)  # offsets from start to end, by partition
    last_minute: Mapping[int, int] = field(default_factory=dict)  # of these, those of the last minute
    sampled: Sequence[int] = ()  # partitions that were read
    batches: Sequence[SampledBatch] = ()
    markers: int = 0  # of transactions, among the batches
    keys: Counter[bytes | None] = field(default_factory=Counter)  # of the busiest partition's records
    recompression_us: float | None = None  # CPU a record, of compressing the sample as the topic wants it, here
    traffic: Traffic | None = None
    unknown: list[str] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)

    @property
    def stored_bytes(self) -> int:
        return sum(batch.stored_bytes for batch in self.batches)

    @property
    def codecs(self) -> Counter[str]:
        """Stored bytes by the name of the codec."""
        found: Counter[str] = Counter()
        for batch in self.batches:
            found[CODEC_NAMES[batch.codec]] += batch.stored_bytes
        return found

    @property
    def is_recent(self) -> bool:
        return sum(self.last_minute.values()) >= LAST_MINUTE_RECORDS_MIN

    @property
    def shares(self) -> dict[int, float]:
        """The share of each partition in the records of the last minute, or of all where these are too few."""
        counts = self.last_minute if self.is_recent else self.stored
        total = sum(counts.values())
        return {partition: count / total for partition, count in counts.items()} if total else {}
