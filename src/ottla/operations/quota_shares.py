"""Who uses how much of which quota, and who is held up: from a broker's metrics. Pure.

A share is what one rule gives to somebody; without a rule (rehearsal) it is what a client of a user has used. Its
figures are those of the broker (`ottla_quota_*`), each broker measures for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from shlex import quote
from typing import Final, NamedTuple

from ottla.client.quota_words import number_text
from ottla.operations.metric_readings import Reading
from ottla.quotas.entities import FRACTIONAL

PREFIX: Final = "ottla_quota_"
HELD_SHARE_MAX: Final = 0.9  # of the time: beyond it nobody can tell how much somebody would use
DIGITS: Final = 2

Place = tuple[str, str, str, str]  # key, user, client id, rule


class Share(NamedTuple):
    """One share on one broker; rates are per second."""

    broker: str
    key: str
    user: str  # "": all of them together
    client_id: str
    rule: str
    limit: float | None  # None: there is no rule
    rate: float
    peak_rate: float  # of the last hour
    held_for_s: float  # from now on
    held_count: float  # requests, between the two readings
    held_share: float  # of the time between the two readings
    is_rehearsed: bool = False  # nobody is really held up

    @property
    def is_used(self) -> bool:
        return self.peak_rate > 0 or self.is_held

    @property
    def is_held(self) -> bool:
        return self.held_for_s > 0 or self.held_count > 0

    @property
    def needed(self) -> float:
        """What it would use if nobody held it up: it goes on as fast as it is while nobody does. An estimate."""
        share = 0.0 if self.is_rehearsed else min(self.held_share, HELD_SHARE_MAX)
        return rounded_up(max(self.rate / (1 - share), self.peak_rate))


def is_observing(reading: Reading) -> bool:
    return reading.one(f"{PREFIX}is_observing") > 0


def shares_of(before: Reading, now: Reading) -> list[Share]:
    """All shares of a broker, those that are held up most first."""
    seconds = max(0.001, now.taken_s - before.taken_s)
    broker, is_rehearsed = now.info().get("node_id", "?"), is_observing(now)
    names = ("limit", "rate", "peak_rate", "held_seconds", "held_total", "held_seconds_total")
    figures = {name: _by_place(now, name) for name in names}
    earlier = {name: _by_place(before, name) for name in ("held_seconds", "held_total", "held_seconds_total")}

    def grown(name: str, place: Place) -> float:
        return max(0.0, figures[name].get(place, 0.0) - earlier[name].get(place, 0.0))

    def held_s(place: Place) -> float:
        """Of the time in between: a wait is counted as a whole when it begins, whether it is over or not."""
        begun = grown("held_seconds_total", place)
        left = figures["held_seconds"].get(place, 0.0)
        return max(0.0, min(seconds, earlier["held_seconds"].get(place, 0.0) + begun - left))

    found = [
        Share(
            broker,
            *place,
            limit=figures["limit"].get(place),
            rate=rate,
            peak_rate=figures["peak_rate"].get(place, 0.0),
            held_for_s=figures["held_seconds"].get(place, 0.0),
            held_count=grown("held_total", place),
            held_share=held_s(place) / seconds,
            is_rehearsed=is_rehearsed,
        )
        for place, rate in figures["rate"].items()
    ]
    return sorted(found, key=lambda share: (-share.held_share, -share.held_for_s, -_fullness(share), share[:5]))


def _by_place(reading: Reading, name: str) -> dict[Place, float]:
    return {
        (labels.get("key", ""), labels.get("user", ""), labels.get("client_id", ""), labels.get("rule", "")): value
        for labels, value in reading.all(f"{PREFIX}{name}")
    }


def _fullness(share: Share) -> float:
    return share.rate / share.limit if share.limit else 0.0


def rounded_up(number: float) -> float:
    """To two digits, so that nobody takes it for exact: 1,234,567 becomes 1,300,000."""
    if number <= 0 or not math.isfinite(number):
        return 0.0
    exponent = math.floor(math.log10(number)) - DIGITS + 1
    return float(f"{math.ceil(round(number / 10.0**exponent, 6))}e{exponent}")


# ---- what somebody would have to be given


class Suggestion(NamedTuple):
    """Limits that would have held nobody up; "" stands for no user or no client."""

    user: str
    client_id: str
    limits: dict[str, float]


PAIR, USER, CLIENT = "pair", "user", "client"
BY: Final = (PAIR, USER, CLIENT)


def suggestions(shares: Iterable[Share], headroom: float, by: str = PAIR) -> list[Suggestion]:
    """One for each who was measured, by the busiest broker; of users or clients it is enough for all parts at once."""
    seen: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for share in shares:
        place = _place(share, by)
        if place is not None and share.needed > 0:
            by_broker = seen.setdefault(place, {}).setdefault(share.key, {})
            by_broker[share.broker] = by_broker.get(share.broker, 0.0) + share.needed
    return [
        Suggestion(
            user, client_id, {key: _limit(key, max(used.values()) * headroom) for key, used in sorted(by_key.items())}
        )
        for (user, client_id), by_key in sorted(seen.items())
    ]


def command(suggestion: Suggestion) -> str:
    """The command that sets what is suggested."""
    words = ["ottla quotas set"]
    if suggestion.user:
        words.append(f"--user {quote(suggestion.user)}")
    if suggestion.client_id:
        words.append(f"--client {quote(suggestion.client_id)}")
    return " ".join([*words, *(f"{key}={number_text(limit)}" for key, limit in suggestion.limits.items())])


def _place(share: Share, by: str) -> tuple[str, str] | None:
    if by == USER:
        return (share.user, "") if share.user else None
    if by == CLIENT:
        return ("", share.client_id) if share.client_id else None
    return (share.user, share.client_id) if share.user or share.client_id else None


def _limit(key: str, rate: float) -> float:
    limit = rounded_up(rate)
    return limit if key in FRACTIONAL else float(math.ceil(limit))
