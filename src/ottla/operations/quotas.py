"""Quotas: limits as rows and words, which of them apply to a client, and their use by a broker's metrics. Pure.

A share is one quota's limit applied to one user and client; in a rehearsal, without a quota, it is what a client has
used. Its values come from a broker's `ottla_quota_*` metrics; each broker measures for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Final, NamedTuple

from ottla.client.quotas import Entity, Quota, entity_words, number_text
from ottla.operations.metric_readings import Reading
from ottla.quotas import entities
from ottla.quotas import rules as rules_of
from ottla.quotas.entities import FRACTIONAL

COLUMNS: Final = ("USER", "CLIENT", "IP", "QUOTA", "LIMIT")
KINDS: Final = ("user", "client-id", "ip")
DEFAULT: Final = "<default>"  # as in Kafka's znodes and metrics
NONE: Final = "-"


def sort_key(entity: Entity) -> list[tuple[bool, bool, str]]:
    """The order in which Kafka looks up quotas: named entities first, users before clients."""
    return [(kind not in entity, entity.get(kind) is None, entity.get(kind) or "") for kind in KINDS]


def quota_rows(quotas: Iterable[Quota]) -> list[tuple[str, ...]]:
    """One row for each limit."""
    return [
        (*entity_columns(quota.entity), key, number_text(value))
        for quota in sorted(quotas, key=lambda quota: sort_key(quota.entity))
        for key, value in sorted(quota.limits.items())
    ]


def entity_columns(entity: Entity) -> tuple[str, ...]:
    names = (entity.get(kind, NONE) for kind in KINDS)
    return tuple(DEFAULT if name is None else name for name in names)


def quota_words(quotas: Sequence[Quota]) -> list[Mapping[str, object]]:
    """Quotas as mappings, for files and tests."""
    found = sorted(quotas, key=lambda quota: sort_key(quota.entity))
    return [{**entity_words(quota.entity), **dict(sorted(quota.limits.items()))} for quota in found]


# ---- limits that apply to a client


class AppliedQuota(NamedTuple):
    """A limit that matches a client. The first one of a key applies; the others would, if it did not exist.

    `user` and `client_id` name the requests that share the limit; "" where they do not matter.
    """

    key: str
    limit: float
    entity: dict[str, str | None]
    is_effective: bool
    user: str = ""
    client_id: str = ""


def quotas_for(quotas: Iterable[Quota], user: str = "", client_id: str = "", host: str = "") -> list[AppliedQuota]:
    """The limits for a user with a client ID and for connections from an address, by Kafka's precedence.

    A user or client ID of "" matches only the default.
    """
    known = {_entity(quota.entity): quota.limits for quota in quotas}
    asked: list[entities.Entity] = [*rules_of.levels(user, client_id)] if user or client_id else []
    if host:
        asked += [entities.of_address(entities.address(host) or host), entities.of_address(None)]
    found: list[AppliedQuota] = []
    seen: set[str] = set()
    for entity in asked:
        for key, limit in sorted(known.get(entity, {}).items()):
            sharing = rules_of.shares_limit(entity, user, client_id)
            found.append(AppliedQuota(key, limit, dict(entity.parts), key not in seen, *sharing))
            seen.add(key)
    return sorted(found, key=lambda each: each.key)


def _entity(entity: Entity) -> entities.Entity:
    kinds = tuple(kind for kind in KINDS if kind in entity)
    names = tuple(entity[kind] for kind in kinds)
    if kinds == (entities.IP,) and names[0] is not None:
        return entities.of_address(entities.address(names[0]) or names[0])
    return entities.Entity(kinds, names)


# ---- use of quotas
METRIC_PREFIX: Final = "ottla_quota_"
THROTTLED_SHARE_MAX: Final = 0.9  # of the time: beyond it demand cannot be estimated
DIGITS: Final = 2

QuotaKey = tuple[str, str, str, str]  # key, user, client ID, quota


class QuotaUse(NamedTuple):
    """The use of one quota on one broker; rates are per second."""

    broker: str
    key: str
    user: str  # "": shared by all
    client_id: str
    rule: str
    limit: float | None  # None: there is no quota
    rate: float
    peak_rate: float  # of the last hour
    throttle_time_s: float  # remaining throttle time
    throttled_requests: float  # throttled requests between the two readings
    throttled_share: float  # of the time between the two readings
    is_rehearsed: bool = False  # a rehearsal: requests are not throttled

    @property
    def is_used(self) -> bool:
        return self.peak_rate > 0 or self.is_throttled

    @property
    def is_throttled(self) -> bool:
        return self.throttle_time_s > 0 or self.throttled_requests > 0

    @property
    def estimated_demand(self) -> float:
        """The estimated rate without throttling; the current rate if nothing is throttled."""
        share = 0.0 if self.is_rehearsed else min(self.throttled_share, THROTTLED_SHARE_MAX)
        return rounded_up(max(self.rate / (1 - share), self.peak_rate))


def is_observing(reading: Reading) -> bool:
    return reading.value_or_zero(f"{METRIC_PREFIX}is_observing") > 0


def quota_uses(before: Reading, now: Reading) -> list[QuotaUse]:
    """All shares of a broker, most throttled first."""
    seconds = max(0.001, now.taken_s - before.taken_s)
    broker, is_rehearsed = now.info().get("node_id", "?"), is_observing(now)
    names = ("limit", "rate", "peak_rate", "held_seconds", "held_total", "held_seconds_total")
    figures = {name: _values_by_quota(now, name) for name in names}
    earlier = {name: _values_by_quota(before, name) for name in ("held_seconds", "held_total", "held_seconds_total")}

    def grown(name: str, place: QuotaKey) -> float:
        return max(0.0, figures[name].get(place, 0.0) - earlier[name].get(place, 0.0))

    def held_s(place: QuotaKey) -> float:
        """Throttle time between the readings. The broker counts a throttle time as a whole when it begins."""
        begun = grown("held_seconds_total", place)
        left = figures["held_seconds"].get(place, 0.0)
        return max(0.0, min(seconds, earlier["held_seconds"].get(place, 0.0) + begun - left))

    found = [
        QuotaUse(
            broker,
            *place,
            limit=figures["limit"].get(place),
            rate=rate,
            peak_rate=figures["peak_rate"].get(place, 0.0),
            throttle_time_s=figures["held_seconds"].get(place, 0.0),
            throttled_requests=grown("held_total", place),
            throttled_share=held_s(place) / seconds,
            is_rehearsed=is_rehearsed,
        )
        for place, rate in figures["rate"].items()
    ]
    return sorted(
        found, key=lambda share: (-share.throttled_share, -share.throttle_time_s, -_fullness(share), share[:5])
    )


def _values_by_quota(reading: Reading, name: str) -> dict[QuotaKey, float]:
    return {
        (labels.get("key", ""), labels.get("user", ""), labels.get("client_id", ""), labels.get("rule", "")): value
        for labels, value in reading.samples_of(f"{METRIC_PREFIX}{name}")
    }


def _fullness(share: QuotaUse) -> float:
    return share.rate / share.limit if share.limit else 0.0


def rounded_up(number: float) -> float:
    """Rounded up to two digits, so that an estimate does not look exact: 1,234,567 becomes 1,300,000."""
    if number <= 0 or not math.isfinite(number):
        return 0.0
    exponent = math.floor(math.log10(number)) - DIGITS + 1
    return float(f"{math.ceil(round(number / 10.0**exponent, 6))}e{exponent}")


# ---- suggested limits


class Suggestion(NamedTuple):
    """Limits that would not have throttled any request; "" means no user or no client."""

    user: str
    client_id: str
    limits: dict[str, float]


PAIR, USER, CLIENT = "pair", "user", "client"
BY: Final = (PAIR, USER, CLIENT)


def suggest_quotas(shares: Iterable[QuotaUse], headroom: float, by: str = PAIR) -> list[Suggestion]:
    """One suggestion for each measured entity, sized for its busiest broker."""
    seen: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for share in shares:
        place = _place(share, by)
        if place is not None and share.estimated_demand > 0:
            by_broker = seen.setdefault(place, {}).setdefault(share.key, {})
            by_broker[share.broker] = by_broker.get(share.broker, 0.0) + share.estimated_demand
    return [
        Suggestion(
            user, client_id, {key: _limit(key, max(used.values()) * headroom) for key, used in sorted(by_key.items())}
        )
        for (user, client_id), by_key in sorted(seen.items())
    ]


def quota_command(suggestion: Suggestion) -> str:
    """The command that sets the suggested limits."""
    words = ["ottla quotas set"]
    if suggestion.user:
        words.append(f"--user {quote(suggestion.user)}")
    if suggestion.client_id:
        words.append(f"--client {quote(suggestion.client_id)}")
    return " ".join([*words, *(f"{key}={number_text(limit)}" for key, limit in suggestion.limits.items())])


def _place(share: QuotaUse, by: str) -> tuple[str, str] | None:
    if by == USER:
        return (share.user, "") if share.user else None
    if by == CLIENT:
        return ("", share.client_id) if share.client_id else None
    return (share.user, share.client_id) if share.user or share.client_id else None


def _limit(key: str, rate: float) -> float:
    limit = rounded_up(rate)
    return limit if key in FRACTIONAL else float(math.ceil(limit))
