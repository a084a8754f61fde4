"""Client quotas: charges requests to their shares and throttles clients that exceed a quota (Kafka's
ClientQuotaManager).

Rules:
1. KIP-219: a client over its quota gets its response at once, with throttle_time_ms. The broker reads nothing from its
   connection for that time, even if the client does not wait. A produce on another connection of the same share starts
   only afterwards: a thousand connections get no more than one.
2. A fetch of a share over its quota gets an empty response. A fetch that exceeds the quota gets its records, and the
   client is throttled.
3. Requests of followers and other inter-broker requests are never charged.
4. When a rule changes, clients that it throttles continue at once.
5. Each share that throttles a client logs that once per minute, with its rule.
6. `ottla.quota.mode=observe` charges all clients and throttles none.
7. Without any rule a request costs one check of `is_on`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.setting_types import LONG_MAX
from ottla.base.topic_settings import TopicQuota
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.quota_charges import RATE_KEYS, ControllerMutationQuota, TopicShareCache
from ottla.controller.image import MetadataImage
from ottla.controller.quota_nodes import quota_entity
from ottla.network.connection import ConnectedClient, Connection
from ottla.quotas.connection_rate import ConnectionRates
from ottla.quotas.entities import PRODUCER_BYTES, PRODUCER_MESSAGES, of_user
from ottla.quotas.meter_registry import TOPIC, ClientQuotaMeters, QuotaMeter, QuotaMeterRegistry, Windows, of_broker
from ottla.quotas.request_time import RequestTimeCharge
from ottla.quotas.rules import Rule, Rules
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

LOG_INTERVAL_MS: Final = 60_000
IDLE_CHECK_MS: Final = 60_000
ADD_PARTITIONS_TO_TXN: Final = 24
BROKERS_VERIFY_SINCE: Final = 4
MANY_BYTES: Final = 2**31 - 1
MESSAGE_FETCH_BYTES: Final = 1 << 20  # upper limit where records are counted: their batches are parsed on the loop


class ClientQuotaManager:
    """One per broker; runs on the event loop."""

    def __init__(self, node: Node) -> None:
        self._clock = node.clock
        self._node_id = node.id
        self.rules = Rules()
        self.shares = QuotaMeterRegistry(self.rules)
        self.connection_rates = ConnectionRates(self.rules)
        self.is_on = False
        self.is_observing = False
        self.connections: Iterable[Connection] = ()
        self.inter_broker_listener: str | None = None  # a listener for brokers only, if there is one
        self._rejects_produce = False
        self._topic_shares = TopicShareCache(self.shares, node.clock)
        self.apply_settings(node.settings)
        node.dynamic_config.on_change(self.apply_settings)
        node.images.add_listener(self.on_image)

    # ---- rules

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        before = self.rules.generation
        for name in new.changed_users_since(old):
            self.rules.change(of_user(name or None), new.user_configs.get(name, {}))
        for path in new.changed_quotas_since(old):
            entity = quota_entity(path)
            if entity is not None:
                self.rules.change(entity, new.quota_configs.get(path, {}))
        if self.rules.generation != before:
            self._on_change()
        changed = {
            name for name in new.changed_topics_since(old) if new.topic_configs.get(name) != old.topic_configs.get(name)
        }
        if changed:
            self._drop_topic_shares(changed)

    def apply_settings(self, settings: BrokerSettings) -> None:
        book = self.shares
        windows = Windows(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
        controller = Windows(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000)
        book.change_windows(windows, controller)
        self.connection_rates.change_windows(windows)
        rates = (
            settings.ottla_quota_produce_bytes,
            settings.ottla_quota_produce_messages,
            settings.ottla_quota_fetch_bytes,
            settings.ottla_quota_fetch_messages,
        )
        entity = of_broker(self._node_id)
        book.of_broker = {
            key: Rule(key, float(rate), entity) for key, rate in zip(RATE_KEYS, rates, strict=True) if rate < LONG_MAX
        }
        self._rejects_produce = settings.ottla_quota_action == "reject"
        self.is_observing = book.is_observing = settings.ottla_quota_mode == "observe"
        self._on_change()

    def _on_change(self) -> None:
        book = self.shares
        book.generation += 1
        self.connection_rates.forget_rules()
        self.is_on = bool(len(self.rules) or book.of_broker or self.is_observing)
        for connection in self.connections:
            if connection.throttle_timer is None:
                continue
            held_by = connection.client.last_throttled_by
            if self.is_observing or (isinstance(held_by, QuotaMeter) and not book.is_current(held_by)):
                end_throttle(connection)

    def _drop_topic_shares(self, names: set[str]) -> None:
        for connection in self.connections:
            held_by = connection.client.last_throttled_by if connection.throttle_timer is not None else None
            entity = held_by.rule.entity if isinstance(held_by, QuotaMeter) else None
            if entity is not None and entity.kinds[0] == TOPIC and entity.names[0] in names:
                end_throttle(connection)

    async def drop_idle_shares(self) -> None:
        """Periodic task: drop shares that were idle for an hour."""
        now_ms = self._clock.monotonic_ms()
        self.shares.forget_idle(now_ms)
        self.connection_rates.forget_idle(now_ms)
        self._topic_shares.clear()

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def stop(self) -> None:
        """Complete all throttled requests now, before the broker stops."""
        self.is_on = False
        for connection in self.connections:
            end_throttle(connection)

    # ---- shares of a client

    def client_shares(self, client: ConnectedClient, client_id: str | None) -> ClientQuotaMeters:
        shares = client.quota_shares
        if (
            not isinstance(shares, ClientQuotaMeters)
            or shares.generation != self.shares.generation
            or shares.client_id != client_id
            or shares.principal != client.principal
        ):
            shares = client.quota_shares = self.shares.resolve(client.principal, client_id, self._clock.monotonic_ms())
        return shares

    # ---- connections

    def connection_delay_seconds(self, host: str, listener_name: str) -> float:
        """Return the delay before a new connection is closed; 0.0: it is accepted."""
        if not self.is_on or listener_name == self.inter_broker_listener:
            return 0.0
        now_ms = self._clock.monotonic_ms()
        wait_ms = self.connection_rates.wait_ms(host, now_ms)
        if wait_ms == 0:
            return 0.0
        share = self.connection_rates.meter_of(host)
        if share is not None:
            self._log_throttling(share, wait_ms, now_ms, host)
        return 0.0 if self.is_observing else wait_ms / 1000

    # ---- all requests

    def begin_request(self, context: Context, is_produce: bool) -> float:
        """Begin a request. 0.0: it starts, and is charged if a rule covers its time. Otherwise the delay in seconds."""
        shares = self.client_shares(context.client, context.client_id)
        if is_produce:
            for share in shares.producing:
                if share.meter.free_ms > 0 and (seconds := self._produce_delay_seconds(context.client, share)) > 0:
                    return seconds
        requests = shares.requests
        if requests is not None and not self._is_inter_broker(context):
            charge = context.responder.charge = RequestTimeCharge(
                lambda percent: self._charge_request_time(context, requests, percent)
            )
            charge.begin()
        return 0.0

    def _is_inter_broker(self, context: Context) -> bool:
        """Return whether only brokers send this request. A quota on these would delay transactions of other clients."""
        is_verifying = context.api_key == ADD_PARTITIONS_TO_TXN and context.api_version >= BROKERS_VERIFY_SINCE
        return is_verifying or context.client.listener_name == self.inter_broker_listener

    def _charge_request_time(self, context: Context, share: QuotaMeter, percent: float) -> None:
        now_ms = self._clock.monotonic_ms()
        wait_ms = share.meter.record(percent, now_ms)
        if wait_ms > 0:
            self._throttle(
                context, share, min(wait_ms, share.meter.window_ms), now_ms
            )  # never longer than a window: group members would lose their session

    # ---- topic mutations

    def controller_mutations(self, context: Context, strict_since: int) -> ControllerMutationQuota | None:
        """Return the quota of a request that changes topics; None: unlimited."""
        if not self.is_on:
            return None
        share = self.client_shares(context.client, context.client_id).mutations
        return (
            ControllerMutationQuota(self, context, share, context.api_version >= strict_since)
            if share is not None
            else None
        )

    # ---- produce

    def _produce_delay_seconds(self, client: ConnectedClient, share: QuotaMeter) -> float:
        """Return how long a produce is delayed because other connections used up its share."""
        now_ms = self._clock.monotonic_ms()
        wait_ms = share.meter.throttle_time_ms(now_ms)
        if wait_ms <= 0 or self.is_observing or self._rejects(share):
            return 0.0
        self._count_throttled(share, wait_ms, now_ms)
        client.last_throttled_by = share
        return wait_ms / 1000

    def check_append(self, partition: Partition, quota: TopicQuota | None) -> None:
        """Check the quotas before a batch is appended. Raises KafkaError(POLICY_VIOLATION)."""
        if self.is_observing or not (self._rejects_produce or (quota is not None and quota.is_rejecting)):
            return
        now_ms = self._clock.monotonic_ms()
        if self._rejects_produce:
            for rule in self.shares.of_broker.values():
                if rule.key in (PRODUCER_BYTES, PRODUCER_MESSAGES):
                    self._check_quota(self.shares.share(rule, now_ms), now_ms)
        if quota is not None and quota.is_rejecting:
            topic = self._topic_shares.get(partition, quota)
            for share in (*topic.produce_bytes, *topic.produce_messages):
                self._check_quota(share, now_ms)

    def _check_quota(self, share: QuotaMeter, now_ms: int) -> None:
        wait_ms = share.meter.throttle_time_ms(now_ms)
        if wait_ms > 0:
            self._count_throttled(share, wait_ms, now_ms)
            message = f"The quota {describe_rule(share.rule)} is used up; retry in {wait_ms} ms."
            raise KafkaError(Error.POLICY_VIOLATION, message)

    def charge_append(
        self, context: Context, partition: Partition, quota: TopicQuota, size: int, messages: int
    ) -> None:
        """Charge a stored batch of a topic with a quota."""
        topic = self._topic_shares.get(partition, quota)
        now_ms = self._clock.monotonic_ms()
        self._charge(context, topic.produce_bytes, size, now_ms, is_held=not quota.is_rejecting)
        self._charge(context, topic.produce_messages, messages, now_ms, is_held=not quota.is_rejecting)

    def charge_produce(self, context: Context, size: int, messages: int) -> None:
        """Charge a produce request with its size and its number of records."""
        shares = self.client_shares(context.client, context.client_id)
        if not shares.producing:
            return
        now_ms = self._clock.monotonic_ms()
        self._charge(context, shares.produce_bytes, size, now_ms)
        if shares.produce_messages:
            self._charge(context, shares.produce_messages, messages, now_ms)

    def _charge(
        self, context: Context, shares: tuple[QuotaMeter, ...], amount: int, now_ms: int, *, is_held: bool = True
    ) -> None:
        for share in shares:
            wait_ms = share.meter.record(amount, now_ms)
            if wait_ms > 0 and is_held and not self._rejects(share):
                self._throttle(context, share, wait_ms, now_ms)

    def _rejects(self, share: QuotaMeter) -> bool:
        """Return whether a produce over this share is rejected instead of throttled."""
        is_total = share.rule.key in (PRODUCER_BYTES, PRODUCER_MESSAGES) and share.rule.entity.kinds == ("broker",)
        return is_total and self._rejects_produce

    # ---- fetch

    def is_fetch_throttled(self, context: Context) -> bool:
        """Return whether a consumer's fetch gets no records because its share is used up."""
        shares = self.client_shares(context.client, context.client_id)
        if self.is_observing or not (shares.fetch_bytes or shares.fetch_messages):
            return False
        now_ms = self._clock.monotonic_ms()
        is_over = False
        for share in (*shares.fetch_bytes, *shares.fetch_messages):
            wait_ms = share.meter.throttle_time_ms(now_ms)
            if wait_ms > 0:
                is_over = True
                self._throttle(context, share, wait_ms, now_ms)
        return is_over

    def fetch_bytes_left(self, context: Context) -> int:
        """Return the bytes that a consumer's fetch may return:

        the rest of its share, but at least one window's amount.
        """
        if self.is_observing:
            return MANY_BYTES
        shares = self.client_shares(context.client, context.client_id)
        most = MESSAGE_FETCH_BYTES if shares.fetch_messages else MANY_BYTES
        now_ms = self._clock.monotonic_ms()
        return int(min([most, *(share.meter.left(now_ms) for share in shares.fetch_bytes)]))

    def fetch_messages_left(self, context: Context) -> float | None:
        """Return the number of records that a consumer's fetch may return; None if records are not counted."""
        shares = self.client_shares(context.client, context.client_id).fetch_messages
        now_ms = self._clock.monotonic_ms()
        return min(share.meter.left(now_ms) for share in shares) if shares else None

    def charge_fetch(self, context: Context, size: int, messages: int) -> None:
        shares = self.client_shares(context.client, context.client_id)
        now_ms = self._clock.monotonic_ms()
        self._charge(context, shares.fetch_bytes, size, now_ms)
        if shares.fetch_messages:
            self._charge(context, shares.fetch_messages, messages, now_ms)

    def topic_fetch_allowance(
        self, context: Context, partition: Partition, quota: TopicQuota
    ) -> tuple[int, float | None, int]:
        """Return the bytes and records (None: not counted) that a fetch may read from a partition, and its delay."""
        topic = self._topic_shares.get(partition, quota)
        now_ms = self._clock.monotonic_ms()
        shares = (*topic.fetch_bytes, *topic.fetch_messages)
        over = [(share.meter.throttle_time_ms(now_ms), share) for share in shares] if not self.is_observing else []
        wait_ms, slowest = max(over, key=lambda each: each[0], default=(0, None))
        if wait_ms > 0 and slowest is not None:
            self._count_throttled(slowest, wait_ms, now_ms)
            context.client.last_throttled_by = slowest
            return 0, None, min(wait_ms, slowest.meter.window_ms)
        size = min((share.meter.left(now_ms) for share in topic.fetch_bytes), default=float(MANY_BYTES))
        messages = min((share.meter.left(now_ms) for share in topic.fetch_messages), default=None)
        return int(min(size, MANY_BYTES)), messages, 0

    def charge_topic_fetch(self, partition: Partition, quota: TopicQuota, size: int, messages: int) -> None:
        """Charge sent records of a topic with a quota."""
        topic = self._topic_shares.get(partition, quota)
        now_ms = self._clock.monotonic_ms()
        for share in topic.fetch_bytes:
            share.meter.record(size, now_ms)
        for share in topic.fetch_messages:
            share.meter.record(messages, now_ms)

    # ---- throttling

    def throttle(self, context: Context, share: QuotaMeter, wait_ms: int) -> None:
        """Throttle a client for a share that the caller has charged."""
        self._throttle(context, share, wait_ms, self._clock.monotonic_ms())

    def _throttle(self, context: Context, share: QuotaMeter, wait_ms: int, now_ms: int) -> None:
        self._count_throttled(share, wait_ms, now_ms)
        if not self.is_observing and wait_ms > context.responder.throttle_ms:
            context.responder.throttle_ms = wait_ms
            context.client.last_throttled_by = share

    def _count_throttled(self, share: QuotaMeter, wait_ms: int, now_ms: int) -> None:
        share.meter.record_throttle(wait_ms, now_ms)
        self._log_throttling(share, wait_ms, now_ms, describe_clients(share.rule))

    def _log_throttling(self, share: QuotaMeter, wait_ms: int, now_ms: int, who: str) -> None:
        meter = share.meter
        if meter.reported_ms < 0 or now_ms - meter.reported_ms >= LOG_INTERVAL_MS:
            meter.reported_ms = now_ms
            logger.info(
                "%s%s throttled for %d ms by the quota %s: %.0f/s measured",
                who,
                " would be" if self.is_observing else " is",
                wait_ms,
                describe_rule(share.rule),
                meter.rate(now_ms),
            )

    def __repr__(self) -> str:
        return f"<ClientQuotaManager {'on' if self.is_on else 'off'} {self.rules!r} {self.shares!r}>"


def end_throttle(connection: Connection) -> None:
    """End all throttling of this client early."""
    if connection.throttle_timer is not None:
        connection.throttle_timer.cancel()
        connection.throttle_timer = None
        connection.resume()


def describe_rule(rule: Rule) -> str:
    """Return the rule as users configure it: key, value and entity."""
    return f"{rule.key}={rule.bound:.12g} of {rule.entity}"


def describe_clients(rule: Rule) -> str:
    """Return the clients that share the rule."""
    who = [f"user {rule.user}"] if rule.user else []
    who += [f"client id {rule.client_id}"] if rule.client_id else []
    return " with ".join(who) or str(rule.entity)
