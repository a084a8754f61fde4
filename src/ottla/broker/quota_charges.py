"""Quota charges of single requests: topic mutations (KIP-599), fetched records, and topics with their own quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.clock import Clock
from ottla.base.file_range import FileRange
from ottla.base.topic_settings import Rates, TopicQuota
from ottla.broker.context import Context
from ottla.broker.fetch_partition_data import NO_RECORDS
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.quotas.entities import CONSUMER_BYTES, CONSUMER_MESSAGES, PRODUCER_BYTES, PRODUCER_MESSAGES, Entity
from ottla.quotas.meter import UNBOUNDED
from ottla.quotas.meter_registry import NO_METERS, QuotaMeter, QuotaMeterRegistry, of_partition, of_topic
from ottla.quotas.rules import Rule
from ottla.replication.partition import Partition
from ottla.storage.batch_ranges import limit_records

if TYPE_CHECKING:
    from ottla.broker.quota_manager import ClientQuotaManager


QUOTA_EXCEEDED: Final = "The throttling quota has been exceeded."

NOTHING_ALLOWED: Final = -1

RATE_KEYS: Final = (PRODUCER_BYTES, PRODUCER_MESSAGES, CONSUMER_BYTES, CONSUMER_MESSAGES)


class ControllerMutationQuota:
    """The partition changes of one request under `controller_mutation_rate`.

    Above the quota, newer request versions get an error. Older versions do not support that error and are only
    throttled.
    """

    def __init__(self, gate: ClientQuotaManager, context: Context, share: QuotaMeter, is_strict: bool) -> None:
        self._quota_manager = gate
        self._context = context
        self._share = share
        self._is_strict = is_strict and not gate.is_observing

    def try_charge(self, partitions: int) -> bool:
        """Count one more change; False: THROTTLING_QUOTA_EXCEEDED."""
        meter, now_ms = self._share.meter, self._quota_manager.now_ms()
        wait_ms = meter.throttle_time_ms(now_ms)
        is_refused = self._is_strict and wait_ms > 0
        if not is_refused:
            wait_ms = meter.record(partitions, now_ms)
        if wait_ms > 0:
            self._quota_manager.throttle(self._context, self._share, wait_ms)
        return not is_refused


class FetchCharge:
    """The charges of one fetch: the quota of its client and those of its topics.

    Records are counted if a quota covers them; records above it stay for the next fetch.
    """

    def __init__(self, context: Context, is_client_measured: bool) -> None:
        """`is_client_measured`: a rule may cover this client; topics may have rules in any case."""
        self._context = context
        self._quotas = context.broker.quotas
        self._is_client_measured = is_client_measured
        self._messages_left = self._quotas.fetch_messages_left(context) if is_client_measured else None
        self._messages = 0
        self._bytes = 0
        self._withheld_ms = 0

    def bytes_left(self, partition: Partition, quota: TopicQuota, bytes_left: int) -> int:
        """Return the number of bytes that may be read from a partition of a topic with a quota; WITHHELD:

        nothing now.
        """
        size, _, wait_ms = self._quotas.topic_fetch_allowance(self._context, partition, quota)
        if wait_ms > 0:
            self._withheld_ms = max(self._withheld_ms, wait_ms)
            return NOTHING_ALLOWED
        return min(bytes_left, size)

    def charge_partition(self, partition: Partition, data: PartitionData) -> None:
        """Charge these records, which are in memory and about to be sent."""
        file_range = data.records
        if not isinstance(file_range, FileRange):
            return
        quota = partition.log.settings.quota
        left = self._messages_left
        if quota is not None:
            of_topic = self._quotas.topic_fetch_allowance(self._context, partition, quota)[1]
            left = min((each for each in (left, of_topic) if each is not None), default=None)
        messages = 0
        if left is not None:
            if self._messages and left <= self._messages:
                file_range.release()
                data.records = NO_RECORDS
                return
            messages = limit_records(file_range, left - self._messages)
        self._messages += messages
        self._bytes += file_range.length
        if quota is not None:
            self._quotas.charge_topic_fetch(partition, quota, file_range.length, messages)

    def finish(self, response: FetchResponse) -> None:
        """Charge the client's share at the end, and report the delay of withheld topics."""
        responder = self._context.responder
        if self._is_client_measured and self._bytes:
            self._quotas.charge_fetch(self._context, self._bytes, self._messages)
        if self._withheld_ms and not self._bytes:
            responder.throttle_ms = max(responder.throttle_ms, self._withheld_ms)
        response.throttle_time_ms = responder.throttle_ms


class TopicShares:
    """The shares of a topic and one of its partitions."""

    __slots__ = ("fetch_bytes", "fetch_messages", "produce_bytes", "produce_messages", "quota")

    def __init__(self, quota: TopicQuota, kinds: tuple[tuple[QuotaMeter, ...], ...]) -> None:
        self.quota = quota
        self.produce_bytes, self.produce_messages, self.fetch_bytes, self.fetch_messages = kinds


class TopicShareCache:
    """Shares of topics and partitions with their own quotas, common to all clients.

    Entries are cached as long as the topic's settings are the same object.
    """

    def __init__(self, book: QuotaMeterRegistry, clock: Clock) -> None:
        self._shares = book
        self._clock = clock
        self._topics: dict[tuple[str, int], TopicShares] = {}

    def get(self, partition: Partition, quota: TopicQuota) -> TopicShares:
        name = partition.name
        found = self._topics.get(name)
        if found is None or found.quota is not quota:
            topic = self._make_shares(of_topic(name.topic), quota.topic)
            own = self._make_shares(of_partition(name.topic, name.partition), quota.partition)
            found = TopicShares(quota, tuple((*first, *second) for first, second in zip(topic, own, strict=True)))
            self._topics[name] = found
        return found

    def clear(self) -> None:
        self._topics.clear()

    def _make_shares(self, entity: Entity, rates: Rates) -> list[tuple[QuotaMeter, ...]]:
        now_ms = self._clock.monotonic_ms()
        bounds = (rates.produce_bytes, rates.produce_messages, rates.fetch_bytes, rates.fetch_messages)
        return [
            (self._shares.share(Rule(key, bound, entity), now_ms),) if bound < UNBOUNDED else NO_METERS
            for key, bound in zip(RATE_KEYS, bounds, strict=True)
        ]

    def __repr__(self) -> str:
        return f"<TopicShareCache {len(self._topics)} partitions>"
