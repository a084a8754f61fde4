"""Where requests meet their quotas: notes what they use, and holds up whoever has used too much.

Rules:
1. KIP-219: who is over is answered at once and told how long he is held up; for so long nothing is read from his
   connection, whether he minds the number or not. A produce on another connection of the same share is not begun
   until then: a thousand connections get no more than one.
2. A fetch of a share that is over gets an empty answer; one that brings it over gets its records, and is held up.
3. Followers, and what brokers ask each other, is never measured.
4. When a rule changes, whoever is held up by it goes on at once.
5. Nothing is silent: each share that holds somebody up says so in the log, once a minute, with its rule.
6. `ottla.quota.mode=observe` measures everybody and holds nobody up.
7. Without any rule a request costs one look at `is_on`.
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
from ottla.broker.mutations import Mutations
from ottla.broker.node import Node
from ottla.broker.topic_sharing import RATE_KEYS, TopicSharing
from ottla.controller.image import MetadataImage
from ottla.controller.quota_nodes import quota_entity
from ottla.network.client_facts import ClientFacts
from ottla.network.connection import Connection
from ottla.quotas.charging import Charge
from ottla.quotas.connecting import ConnectionRates
from ottla.quotas.entities import PRODUCER_BYTES, PRODUCER_MESSAGES, of_user
from ottla.quotas.rules import Rule, Rules
from ottla.quotas.shares import TOPIC, Share, ShareBook, Shares, Windows, of_broker
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

TOLD_MS: Final = 60_000
FORGET_MS: Final = 60_000
ADD_PARTITIONS_TO_TXN: Final = 24
BROKERS_VERIFY_SINCE: Final = 4
MANY_BYTES: Final = 2**31 - 1
MESSAGE_FETCH_BYTES: Final = 1 << 20  # at most, for whom records are counted: their batches are looked at on the loop


class QuotaGate:
    """One a broker; on the loop."""

    def __init__(self, node: Node) -> None:
        self._clock = node.clock
        self._node_id = node.id
        self.rules = Rules()
        self.book = ShareBook(self.rules)
        self.connecting = ConnectionRates(self.rules)
        self.is_on = False
        self.is_observing = False
        self.connections: Iterable[Connection] = ()
        self.brokers_listener: str | None = None  # through which no clients come, if there is such a one
        self._is_rejecting = False
        self._topics = TopicSharing(self.book, node.clock)
        self.follow_settings(node.settings)
        node.live.on_change(self.follow_settings)
        node.images.on_image(self.on_image)

    # ---- what the rules are

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
            self._release_topics(changed)

    def follow_settings(self, settings: BrokerSettings) -> None:
        book = self.book
        windows = Windows(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
        controller = Windows(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000)
        book.change_windows(windows, controller)
        self.connecting.change_windows(windows)
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
        self._is_rejecting = settings.ottla_quota_action == "reject"
        self.is_observing = book.is_observing = settings.ottla_quota_mode == "observe"
        self._on_change()

    def _on_change(self) -> None:
        book = self.book
        book.generation += 1
        self.connecting.forget_rules()
        self.is_on = bool(len(self.rules) or book.of_broker or self.is_observing)
        for connection in self.connections:
            if connection.throttled is None:
                continue
            held_by = connection.client.held_by
            if self.is_observing or (isinstance(held_by, Share) and not book.is_current(held_by)):
                end_throttle(connection)

    def _release_topics(self, names: set[str]) -> None:
        for connection in self.connections:
            held_by = connection.client.held_by if connection.throttled is not None else None
            entity = held_by.rule.entity if isinstance(held_by, Share) else None
            if entity is not None and entity.kinds[0] == TOPIC and entity.names[0] in names:
                end_throttle(connection)

    async def forget_idle(self) -> None:
        """A chore: whoever was silent for an hour."""
        now_ms = self._clock.monotonic_ms()
        self.book.forget_idle(now_ms)
        self.connecting.forget_idle(now_ms)
        self._topics.forget()

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def stop(self) -> None:
        """The broker is about to stop: what was sent already is answered now, whoever sent it."""
        self.is_on = False
        for connection in self.connections:
            end_throttle(connection)

    # ---- who is asking

    def shares_of(self, client: ClientFacts, client_id: str | None) -> Shares:
        shares = client.shares
        if (
            not isinstance(shares, Shares)
            or shares.generation != self.book.generation
            or shares.client_id != client_id
            or shares.principal != client.principal
        ):
            shares = client.shares = self.book.resolve(client.principal, client_id, self._clock.monotonic_ms())
        return shares

    # ---- connections

    def seconds_to_refuse(self, host: str, listener_name: str) -> float:
        """How long somebody who has just connected waits until he is turned away; 0.0: he may come in."""
        if not self.is_on or listener_name == self.brokers_listener:
            return 0.0
        now_ms = self._clock.monotonic_ms()
        wait_ms = self.connecting.wait_ms(host, now_ms)
        if wait_ms == 0:
            return 0.0
        share = self.connecting.share_of(host)
        if share is not None:
            self._tell(share, wait_ms, now_ms, host)
        return 0.0 if self.is_observing else wait_ms / 1000

    # ---- all requests

    def begin(self, context: Context, is_produce: bool) -> float:
        """A request has come. 0.0: it may begin, and its time counts, if some rule is about that; else it is held back
        for so many seconds.
        """
        shares = self.shares_of(context.client, context.client_id)
        if is_produce:
            for share in shares.producing:
                if share.meter.free_ms > 0 and (seconds := self._seconds_to_hold(context.client, share)) > 0:
                    return seconds
        requests = shares.requests
        if requests is not None and not self._is_of_broker(context):
            charge = context.responder.charge = Charge(lambda percent: self._settle(context, requests, percent))
            charge.begin()
        return 0.0

    def _is_of_broker(self, context: Context) -> bool:
        """Whether only brokers ask so: a quota of their time would hold up others' transactions."""
        is_verifying = context.api_key == ADD_PARTITIONS_TO_TXN and context.api_version >= BROKERS_VERIFY_SINCE
        return is_verifying or context.client.listener_name == self.brokers_listener

    def _settle(self, context: Context, share: Share, percent: float) -> None:
        now_ms = self._clock.monotonic_ms()
        wait_ms = share.meter.note(percent, now_ms)
        if wait_ms > 0:
            self._hold(context, share, min(wait_ms, share.meter.window_ms), now_ms)  # never a member's session

    # ---- changes of topics

    def mutations(self, context: Context, strict_since: int) -> Mutations | None:
        """What a request may change; None: as much as it likes."""
        if not self.is_on:
            return None
        share = self.shares_of(context.client, context.client_id).mutations
        return Mutations(self, context, share, context.api_version >= strict_since) if share is not None else None

    # ---- producing

    def _seconds_to_hold(self, client: ClientFacts, share: Share) -> float:
        """How long a produce may not begin: its share is over by what came on other connections."""
        now_ms = self._clock.monotonic_ms()
        wait_ms = share.meter.wait_ms(now_ms)
        if wait_ms <= 0 or self.is_observing or self._refuses(share):
            return 0.0
        self._note_held(share, wait_ms, now_ms)
        client.held_by = share
        return wait_ms / 1000

    def check_append(self, partition: Partition, quota: TopicQuota | None) -> None:
        """Raises KafkaError(POLICY_VIOLATION) for a batch that a quota refuses: it is not stored."""
        if self.is_observing or not (self._is_rejecting or (quota is not None and quota.is_rejecting)):
            return
        now_ms = self._clock.monotonic_ms()
        if self._is_rejecting:
            for rule in self.book.of_broker.values():
                if rule.key in (PRODUCER_BYTES, PRODUCER_MESSAGES):
                    self._refuse_if_over(self.book.share(rule, now_ms), now_ms)
        if quota is not None and quota.is_rejecting:
            topic = self._topics.of(partition, quota)
            for share in (*topic.produce_bytes, *topic.produce_messages):
                self._refuse_if_over(share, now_ms)

    def _refuse_if_over(self, share: Share, now_ms: int) -> None:
        wait_ms = share.meter.wait_ms(now_ms)
        if wait_ms > 0:
            self._note_held(share, wait_ms, now_ms)
            message = f"The quota {named(share.rule)} is used up; there is room again in {wait_ms} ms."
            raise KafkaError(Error.POLICY_VIOLATION, message)

    def note_append(self, context: Context, partition: Partition, quota: TopicQuota, size: int, messages: int) -> None:
        """A batch of a topic that has a quota was stored."""
        topic = self._topics.of(partition, quota)
        now_ms = self._clock.monotonic_ms()
        self._note(context, topic.produce_bytes, size, now_ms, is_held=not quota.is_rejecting)
        self._note(context, topic.produce_messages, messages, now_ms, is_held=not quota.is_rejecting)

    def note_produce(self, context: Context, size: int, messages: int) -> None:
        """A produce request is done, with so many bytes of request and so many records."""
        shares = self.shares_of(context.client, context.client_id)
        if not shares.producing:
            return
        now_ms = self._clock.monotonic_ms()
        self._note(context, shares.produce_bytes, size, now_ms)
        if shares.produce_messages:
            self._note(context, shares.produce_messages, messages, now_ms)

    def _note(
        self, context: Context, shares: tuple[Share, ...], amount: int, now_ms: int, *, is_held: bool = True
    ) -> None:
        for share in shares:
            wait_ms = share.meter.note(amount, now_ms)
            if wait_ms > 0 and is_held and not self._refuses(share):
                self._hold(context, share, wait_ms, now_ms)

    def _refuses(self, share: Share) -> bool:
        """Whether a share of producers refuses them instead of holding them up."""
        is_total = share.rule.key in (PRODUCER_BYTES, PRODUCER_MESSAGES) and share.rule.entity.kinds == ("broker",)
        return is_total and self._is_rejecting

    # ---- fetching

    def holds_fetch(self, context: Context) -> bool:
        """Whether a consumer's fetch gets nothing now, because its share is over."""
        shares = self.shares_of(context.client, context.client_id)
        if self.is_observing or not (shares.fetch_bytes or shares.fetch_messages):
            return False
        now_ms = self._clock.monotonic_ms()
        is_over = False
        for share in (*shares.fetch_bytes, *shares.fetch_messages):
            wait_ms = share.meter.wait_ms(now_ms)
            if wait_ms > 0:
                is_over = True
                self._hold(context, share, wait_ms, now_ms)
        return is_over

    def fetch_bytes_left(self, context: Context) -> int:
        """How much a consumer's fetch may bring: what its share has left, but at least what one window may bring."""
        if self.is_observing:
            return MANY_BYTES
        shares = self.shares_of(context.client, context.client_id)
        most = MESSAGE_FETCH_BYTES if shares.fetch_messages else MANY_BYTES
        now_ms = self._clock.monotonic_ms()
        return int(min([most, *(share.meter.left(now_ms) for share in shares.fetch_bytes)]))

    def fetch_messages_left(self, context: Context) -> float | None:
        """The same for records; None if they are not counted."""
        shares = self.shares_of(context.client, context.client_id).fetch_messages
        now_ms = self._clock.monotonic_ms()
        return min(share.meter.left(now_ms) for share in shares) if shares else None

    def note_fetch(self, context: Context, size: int, messages: int) -> None:
        shares = self.shares_of(context.client, context.client_id)
        now_ms = self._clock.monotonic_ms()
        self._note(context, shares.fetch_bytes, size, now_ms)
        if shares.fetch_messages:
            self._note(context, shares.fetch_messages, messages, now_ms)

    def topic_left(self, context: Context, partition: Partition, quota: TopicQuota) -> tuple[int, float | None, int]:
        """Bytes and records (None: not counted) that a fetch may bring of a partition; and for how long none at all."""
        topic = self._topics.of(partition, quota)
        now_ms = self._clock.monotonic_ms()
        shares = (*topic.fetch_bytes, *topic.fetch_messages)
        over = [(share.meter.wait_ms(now_ms), share) for share in shares] if not self.is_observing else []
        wait_ms, slowest = max(over, key=lambda each: each[0], default=(0, None))
        if wait_ms > 0 and slowest is not None:
            self._note_held(slowest, wait_ms, now_ms)
            context.client.held_by = slowest
            return 0, None, min(wait_ms, slowest.meter.window_ms)
        size = min((share.meter.left(now_ms) for share in topic.fetch_bytes), default=float(MANY_BYTES))
        messages = min((share.meter.left(now_ms) for share in topic.fetch_messages), default=None)
        return int(min(size, MANY_BYTES)), messages, 0

    def note_read(self, partition: Partition, quota: TopicQuota, size: int, messages: int) -> None:
        """Records of a topic that has a quota are sent."""
        topic = self._topics.of(partition, quota)
        now_ms = self._clock.monotonic_ms()
        for share in topic.fetch_bytes:
            share.meter.note(size, now_ms)
        for share in topic.fetch_messages:
            share.meter.note(messages, now_ms)

    # ---- holding up

    def hold(self, context: Context, share: Share, wait_ms: int) -> None:
        """Somebody has used too much of a share that he has noted himself."""
        self._hold(context, share, wait_ms, self._clock.monotonic_ms())

    def _hold(self, context: Context, share: Share, wait_ms: int, now_ms: int) -> None:
        self._note_held(share, wait_ms, now_ms)
        if not self.is_observing and wait_ms > context.responder.throttle_ms:
            context.responder.throttle_ms = wait_ms
            context.client.held_by = share

    def _note_held(self, share: Share, wait_ms: int, now_ms: int) -> None:
        share.meter.note_held(wait_ms, now_ms)
        self._tell(share, wait_ms, now_ms, shown_client(share.rule))

    def _tell(self, share: Share, wait_ms: int, now_ms: int, who: str) -> None:
        meter = share.meter
        if meter.told_ms < 0 or now_ms - meter.told_ms >= TOLD_MS:
            meter.told_ms = now_ms
            logger.info(
                "%s%s held up for %d ms by the quota %s: %.0f/s seen",
                who,
                " would be" if self.is_observing else " is",
                wait_ms,
                named(share.rule),
                meter.rate(now_ms),
            )

    def __repr__(self) -> str:
        return f"<QuotaGate {'on' if self.is_on else 'off'} {self.rules!r} {self.book!r}>"


def end_throttle(connection: Connection) -> None:
    """Whatever this client was held up for is over before its time."""
    if connection.throttled is not None:
        connection.throttled.cancel()
        connection.throttled = None
        connection.resume()


def named(rule: Rule) -> str:
    """As people set it: the key, its value and for whom."""
    return f"{rule.key}={rule.bound:.12g} of {rule.entity}"


def shown_client(rule: Rule) -> str:
    """Who shares it."""
    who = [f"user {rule.user}"] if rule.user else []
    who += [f"client id {rule.client_id}"] if rule.client_id else []
    return " with ".join(who) or str(rule.entity)
