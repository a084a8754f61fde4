"""What topics and partitions that have quotas of their own are measured by: everybody who uses them shares that."""

from __future__ import annotations

from typing import Final

from ottla.base.clock import Clock
from ottla.base.topic_settings import Rates, TopicQuota
from ottla.quotas.entities import CONSUMER_BYTES, CONSUMER_MESSAGES, PRODUCER_BYTES, PRODUCER_MESSAGES, Entity
from ottla.quotas.meter import UNBOUNDED
from ottla.quotas.rules import Rule
from ottla.quotas.shares import NOBODY, Share, ShareBook, of_partition, of_topic
from ottla.replication.partition import Partition

RATE_KEYS: Final = (PRODUCER_BYTES, PRODUCER_MESSAGES, CONSUMER_BYTES, CONSUMER_MESSAGES)


class TopicShares:
    """Of a topic and one partition of it."""

    __slots__ = ("fetch_bytes", "fetch_messages", "produce_bytes", "produce_messages", "quota")

    def __init__(self, quota: TopicQuota, kinds: tuple[tuple[Share, ...], ...]) -> None:
        self.quota = quota
        self.produce_bytes, self.produce_messages, self.fetch_bytes, self.fetch_messages = kinds


class TopicSharing:
    """Finds them; what was found counts as long as the topic's settings are the same object."""

    def __init__(self, book: ShareBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._topics: dict[tuple[str, int], TopicShares] = {}

    def of(self, partition: Partition, quota: TopicQuota) -> TopicShares:
        name = partition.name
        found = self._topics.get(name)
        if found is None or found.quota is not quota:
            topic = self._made(of_topic(name.topic), quota.topic)
            own = self._made(of_partition(name.topic, name.partition), quota.partition)
            found = TopicShares(quota, tuple((*first, *second) for first, second in zip(topic, own, strict=True)))
            self._topics[name] = found
        return found

    def forget(self) -> None:
        self._topics.clear()

    def _made(self, entity: Entity, rates: Rates) -> list[tuple[Share, ...]]:
        now_ms = self._clock.monotonic_ms()
        bounds = (rates.produce_bytes, rates.produce_messages, rates.fetch_bytes, rates.fetch_messages)
        return [
            (self._book.share(Rule(key, bound, entity), now_ms),) if bound < UNBOUNDED else NOBODY
            for key, bound in zip(RATE_KEYS, bounds, strict=True)
        ]

    def __repr__(self) -> str:
        return f"<TopicSharing {len(self._topics)} partitions>"
