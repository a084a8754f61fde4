"""Who has used how much of what he may: all meters of one broker, and who looks at which.

Rules:
1. A client id of a user is resolved once (`Shares`) and keeps its answer as long as the generation stays: a check costs
   the same with ten rules and with a hundred thousand.
2. A meter that nobody has used for an hour is forgotten. There are never more than `METERS_MAX`: whoever was idle for
   longest makes room, so that a client that renames itself with each request costs others nothing.
3. Besides rules of entities there are rates of the whole broker, of topics and of partitions; they are measured alike.
4. When a rule is gone its meter lapses: nobody asks it any more.
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
from ottla.quotas.meter import UNBOUNDED, Bucket, Meter
from ottla.quotas.rules import Rule, Rules

METERS_MAX: Final = 20_000
IDLE_MS: Final = 3_600_000  # as Kafka
MINUTE_MS: Final = 60_000
LOOKED_AT: Final = 8
OBSERVED_KEYS: Final = (PRODUCER_BYTES, CONSUMER_BYTES, PRODUCER_MESSAGES, CONSUMER_MESSAGES)
NOBODY: Final[tuple[Share, ...]] = ()


class Share:
    """What several requests share: a rule and how much of it is used."""

    __slots__ = ("meter", "rule")

    def __init__(self, rule: Rule, meter: Meter) -> None:
        self.rule = rule
        self.meter = meter

    def note(self, amount: float, now_ms: int) -> int:
        return self.meter.note(amount, now_ms)

    def __repr__(self) -> str:
        return f"<Share of {self.rule.key} by {self.rule.entity}: {self.meter!r}>"


class Shares:
    """All that one client id of one user shares with others, or has alone."""

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
        self.produce_bytes = NOBODY
        self.produce_messages = NOBODY
        self.producing = NOBODY  # both
        self.fetch_bytes = NOBODY
        self.fetch_messages = NOBODY
        self.requests: Share | None = None
        self.mutations: Share | None = None


class Windows(NamedTuple):
    """Over which time rates are made."""

    num: int = 11
    ms: int = 1000


class ShareBook:
    """Every meter of a broker."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.windows = Windows()
        self.controller_windows = Windows()
        self.generation = 0  # goes up whenever somebody has to be resolved anew
        self.is_observing = False  # everybody is measured, rule or not
        self.of_broker: dict[str, Rule] = {}  # by the kind of quota that it is like
        self._shares: OrderedDict[tuple[str, Entity | None, str, str], Share] = OrderedDict()  # asked for last: last

    def __len__(self) -> int:
        return len(self._shares)

    def __iter__(self) -> Iterator[Share]:
        return iter(list(self._shares.values()))

    def resolve(self, principal: str, client_id: str | None, now_ms: int) -> Shares:
        """Whom a client belongs to. A principal is a type and a name; quotas know names only."""
        user, client = principal.partition(":")[2], client_id or ""
        rules = self.rules.of_client(user, client)
        shares = Shares(self.generation, principal, client_id)

        def both(key: str) -> tuple[Share, ...]:
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

    def share(self, rule: Rule, now_ms: int) -> Share:
        """The meter under a rule; the rule's bound counts from now on."""
        is_client = bool(rule.user or rule.client_id)
        place = (rule.key, None if is_client else rule.entity, rule.user, rule.client_id)
        windows = self.controller_windows if rule.key == MUTATIONS else self.windows
        found = self._shares.get(place)
        if found is None:
            self._make_room(now_ms)
            make = Bucket if rule.key == MUTATIONS else Meter
            found = Share(rule, make(rule.bound, windows.num, windows.ms))
            found.meter.last_ms = now_ms
            self._shares[place] = found
        elif found.rule != rule:
            found.rule = rule
            found.meter.change(rule.bound, windows.num, windows.ms)
        self._shares.move_to_end(place)
        return found

    def change_windows(self, windows: Windows, controller_windows: Windows) -> None:
        if (windows, controller_windows) == (self.windows, self.controller_windows):
            return  # whoever is held up stays so
        self.windows, self.controller_windows = windows, controller_windows
        for share in self._shares.values():
            now = controller_windows if share.rule.key == MUTATIONS else windows
            share.meter.change(share.rule.bound, now.num, now.ms)

    def is_current(self, share: Share) -> bool:
        """Whether the rule of a share is still what it was."""
        rule = share.rule
        total = self.of_broker.get(rule.key)
        if total is not None and total.entity == rule.entity:
            return total.bound == rule.bound
        if rule.bound == UNBOUNDED:
            return self.is_observing
        return rule.entity.kinds[0] == TOPIC or self.rules.bound_of(rule.entity, rule.key) == rule.bound

    def forget_idle(self, now_ms: int) -> None:
        """Called now and then."""
        idle = [place for place, share in self._shares.items() if now_ms - share.meter.last_ms >= IDLE_MS]
        for place in idle:
            del self._shares[place]
        if idle:
            self.generation += 1  # whoever still holds one of them asks for it anew

    def _make_room(self, now_ms: int) -> None:
        """The first ones were not asked for lately; but whoever is in use may have been asked for long ago."""
        if len(self._shares) < METERS_MAX:
            return
        oldest = list(islice(self._shares.items(), LOOKED_AT))
        idle = [place for place, share in oldest if now_ms - share.meter.last_ms >= MINUTE_MS]
        del self._shares[idle[0] if idle else oldest[0][0]]

    def __repr__(self) -> str:
        return f"<ShareBook {len(self)} meters>"


TOPIC: Final = "topic"
PARTITION: Final = "partition"
BROKER: Final = "broker"


def of_topic(topic: str) -> Entity:
    return Entity((TOPIC,), (topic,))


def of_partition(topic: str, partition: int) -> Entity:
    return Entity((TOPIC, PARTITION), (topic, str(partition)))


def of_broker(node_id: int) -> Entity:
    return Entity((BROKER,), (str(node_id),))
