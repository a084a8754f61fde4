"""The quota meters of one broker, and the meters that apply to each client.

Rules:
1. The meters of a client id and user are resolved once (`ClientQuotaMeters`) and cached until the generation changes: a
   check costs the same with ten rules and with a hundred thousand.
2. A meter that was idle for an hour is removed. There are at most `METERS_MAX`: the longest idle one is removed first,
   so that a client that changes its id with each request does not affect other clients.
3. Rates of the whole broker, of topics and of partitions are measured in the same way as rules of entities.
4. When a rule is removed its meter is no longer used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from ottla.quotas.entities import (
    CONSUMER_BYTES,
    CONSUMER_MESSAGES,
    MUTATIONS,
    PRODUCER_BYTES,
    PRODUCER_MESSAGES,
    REQUEST_SHARE,
    Entity,
    of_user_and_client,
)
from ottla.quotas.meter import UNBOUNDED, Meter, TokenBucket
from ottla.quotas.rules import Rule, Rules

METERS_MAX: Final = 20_000
IDLE_MS: Final = 3_600_000  # as in Kafka
MINUTE_MS: Final = 60_000
EVICTION_SAMPLE: Final = 8
OBSERVED_KEYS: Final = (PRODUCER_BYTES, CONSUMER_BYTES, PRODUCER_MESSAGES, CONSUMER_MESSAGES)
NO_METERS: Final[tuple[QuotaMeter, ...]] = ()


class QuotaMeter:
    """A rule and its meter, shared by several requests."""

    __slots__ = ("meter", "rule")

    def __init__(self, rule: Rule, meter: Meter) -> None:
        self.rule = rule
        self.meter = meter

    def __repr__(self) -> str:
        return f"<QuotaMeter of {self.rule.key} by {self.rule.entity}: {self.meter!r}>"


class ClientQuotaMeters:
    """The meters of one client id and user, shared with other clients or not."""

    __slots__ = (
        "client_id",
        "fetch_bytes",
        "fetch_messages",
        "generation",
        "mutations",
        "principal",
        "produce_bytes",
        "produce_messages",
        "producing",
        "requests",
    )

    def __init__(self, generation: int, principal: str, client_id: str | None) -> None:
        self.generation = generation
        self.principal = principal
        self.client_id = client_id
        self.produce_bytes = NO_METERS
        self.produce_messages = NO_METERS
        self.producing = NO_METERS  # for both
        self.fetch_bytes = NO_METERS
        self.fetch_messages = NO_METERS
        self.requests: QuotaMeter | None = None
        self.mutations: QuotaMeter | None = None


class Windows(NamedTuple):
    """The windows that rates are measured over."""

    num: int = 11
    ms: int = 1000


class QuotaMeterRegistry:
    """All meters of a broker."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.windows = Windows()
        self.controller_windows = Windows()
        self.generation = 0  # incremented when clients must be resolved again
        self.is_observing = False  # measure every client, with or without a rule
        self.of_broker: dict[str, Rule] = {}  # by the kind of quota that they resemble
        # In the order of the last lookup.
        self._shares: OrderedDict[tuple[str, Entity | None, str, str], QuotaMeter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shares)

    def __iter__(self) -> Iterator[QuotaMeter]:
        return iter(list(self._shares.values()))

    def resolve(self, principal: str, client_id: str | None, now_ms: int) -> ClientQuotaMeters:
        """Return the meters of a client. A principal is a type and a name; quotas use the name only."""
        user, client = principal.partition(":")[2], client_id or ""
        rules = self.rules.of_client(user, client)
        shares = ClientQuotaMeters(self.generation, principal, client_id)

        def both(key: str) -> tuple[QuotaMeter, ...]:
            own = rules.get(key)
            if own is None and self.is_observing and key in OBSERVED_KEYS:
                own = Rule(key, UNBOUNDED, of_user_and_client(user, client), user, client)
            total = self.of_broker.get(key)
            return tuple(self.share(rule, now_ms) for rule in (own, total) if rule is not None)

        shares.produce_bytes = both(PRODUCER_BYTES)
        shares.produce_messages = both(PRODUCER_MESSAGES)
        shares.producing = (*shares.produce_bytes, *shares.produce_messages)
        shares.fetch_bytes = both(CONSUMER_BYTES)
        shares.fetch_messages = both(CONSUMER_MESSAGES)
        if REQUEST_SHARE in rules:
            shares.requests = self.share(rules[REQUEST_SHARE], now_ms)
        if MUTATIONS in rules:
            shares.mutations = self.share(rules[MUTATIONS], now_ms)
        return shares

    def share(self, rule: Rule, now_ms: int) -> QuotaMeter:
        """Return the meter of a rule, updated to the rule's bound."""
        is_client = bool(rule.user or rule.client_id)
        place = (rule.key, None if is_client else rule.entity, rule.user, rule.client_id)
        windows = self.controller_windows if rule.key == MUTATIONS else self.windows
        found = self._shares.get(place)
        if found is None:
            self._evict_idle(now_ms)
            make = TokenBucket if rule.key == MUTATIONS else Meter
            found = QuotaMeter(rule, make(rule.bound, windows.num, windows.ms))
            found.meter.last_ms = now_ms
            self._shares[place] = found
        elif found.rule != rule:
            found.rule = rule
            found.meter.change(rule.bound, windows.num, windows.ms)
        self._shares.move_to_end(place)
        return found

    def change_windows(self, windows: Windows, controller_windows: Windows) -> None:
        if (windows, controller_windows) == (self.windows, self.controller_windows):
            return  # Meter.change() would end the current throttle times
        self.windows, self.controller_windows = windows, controller_windows
        for share in self._shares.values():
            now = controller_windows if share.rule.key == MUTATIONS else windows
            share.meter.change(share.rule.bound, now.num, now.ms)

    def is_current(self, share: QuotaMeter) -> bool:
        """Return whether the rule of a share is unchanged."""
        rule = share.rule
        total = self.of_broker.get(rule.key)
        if total is not None and total.entity == rule.entity:
            return total.bound == rule.bound
        if rule.bound == UNBOUNDED:
            return self.is_observing
        return rule.entity.kinds[0] == TOPIC or self.rules.bound_of(rule.entity, rule.key) == rule.bound

    def forget_idle(self, now_ms: int) -> None:
        """Remove idle meters. Called periodically."""
        idle = [place for place, share in self._shares.items() if now_ms - share.meter.last_ms >= IDLE_MS]
        for place in idle:
            del self._shares[place]
        if idle:
            self.generation += 1  # clients with a removed meter resolve it again

    def _evict_idle(self, now_ms: int) -> None:
        """Remove meters from the front of the lookup order, except those in use: their last lookup may be long ago."""
        if len(self._shares) < METERS_MAX:
            return
        oldest = list(islice(self._shares.items(), EVICTION_SAMPLE))
        idle = [place for place, share in oldest if now_ms - share.meter.last_ms >= MINUTE_MS]
        del self._shares[idle[0] if idle else oldest[0][0]]

    def __repr__(self) -> str:
        return f"<QuotaMeterRegistry {len(self)} meters>"


TOPIC: Final = "topic"
PARTITION: Final = "partition"
BROKER: Final = "broker"


def of_topic(topic: str) -> Entity:
    return Entity((TOPIC,), (topic,))


def of_partition(topic: str, partition: int) -> Entity:
    return Entity((TOPIC, PARTITION), (topic, str(partition)))


def of_broker(node_id: int) -> Entity:
    return Entity((BROKER,), (str(node_id),))
