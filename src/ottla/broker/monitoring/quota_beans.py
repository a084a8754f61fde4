"""Who uses how much of which quota, and who is held up: Kafka's MBeans, and more than those for Prometheus.

There may be tens of thousands of client ids: the newest `SHOWN_MAX` shares are told, the others counted.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator
from typing import Final

from ottla.broker.quota_gate import QuotaGate
from ottla.metrics.beans import Bean, ObjectName, Source, Value, quoted
from ottla.metrics.prometheus import Family, Sample
from ottla.quotas.entities import CONSUMER_BYTES, MUTATIONS, PRODUCER_BYTES, REQUEST_SHARE
from ottla.quotas.meter import UNBOUNDED, Bucket
from ottla.quotas.shares import Share

SHOWN_MAX: Final = 500
SERVER: Final = "kafka.server"
TYPES: Final = {
    PRODUCER_BYTES: "Produce",
    CONSUMER_BYTES: "Fetch",
    REQUEST_SHARE: "Request",
    MUTATIONS: "ControllerMutation",
}
RATES: Final = {
    PRODUCER_BYTES: "byte-rate",
    CONSUMER_BYTES: "byte-rate",
    REQUEST_SHARE: "request-time",
    MUTATIONS: "mutation-rate",
}
_PLAIN: Final = re.compile(r"[-+%\w. \t]*")  # what Java writes without quotes

Labels = tuple[tuple[str, str], ...]


class QuotaBeans:
    """Reads the meters; keeps nothing."""

    def __init__(self, gate: QuotaGate) -> None:
        self._gate = gate

    @property
    def sources(self) -> list[Source]:
        return [Source(SERVER, type_, self._beans_of(key)) for key, type_ in TYPES.items()]

    def _beans_of(self, key: str) -> Callable[[], Iterator[Bean | None]]:
        def beans() -> Iterator[Bean | None]:
            now_ms = self._gate.now_ms()
            for share in self._shown(
                lambda share: share.rule.key == key and share.rule.entity.kinds[0] in CLIENT_KINDS
            ):
                yield Bean(object_name(TYPES[key], share), attributes(share, now_ms))
            yield None

        return beans

    def _shown(self, is_wanted: Callable[[Share], bool]) -> list[Share]:
        shares = (share for share in self._gate.book if is_wanted(share) and self._gate.book.is_current(share))
        return heapq.nlargest(SHOWN_MAX, shares, key=lambda share: share.meter.last_ms)

    def families(self) -> Iterator[Family]:
        gate = self._gate
        yield Family(
            "ottla_quota_is_observing",
            "gauge",
            "Whether quotas are only rehearsed: 1, and nobody is held up.",
            [Sample((), int(gate.is_observing))],
        )
        if not gate.is_on and not len(gate.book):
            return
        now_ms = gate.now_ms()
        shown = [(labels(share), share) for share in self._shown(lambda _: True)]
        addresses = list(gate.connecting)[:SHOWN_MAX]
        shown += [((*labels(share)[:-1], ("rule", f"ip={host}")), share) for host, share in addresses]
        hidden = len(gate.book) + len(gate.connecting) - len(shown)
        yield Family("ottla_quota_shares_hidden", "gauge", "Shares that are not told.", [Sample((), max(0, hidden))])
        for name, kind, text, value in MEASURES:
            samples = [Sample(each, number) for each, share in shown if (number := value(share, now_ms)) is not None]
            yield Family(name, kind, text, samples)

    def __repr__(self) -> str:
        return f"<QuotaBeans {self._gate!r}>"


CLIENT_KINDS: Final = ("user", "client-id")
MEASURES: Final[tuple[tuple[str, str, str, Callable[[Share, int], float | None]], ...]] = (
    (
        "ottla_quota_limit",
        "gauge",
        "What a rule allows in a second.",
        lambda share, _: None if share.rule.bound == UNBOUNDED else share.rule.bound,
    ),
    ("ottla_quota_rate", "gauge", "What is used in a second.", lambda share, now_ms: share.meter.rate(now_ms)),
    (
        "ottla_quota_peak_rate",
        "gauge",
        "The highest rate of the last hour.",
        lambda share, now_ms: share.meter.peak(now_ms),
    ),
    (
        "ottla_quota_held_seconds",
        "gauge",
        "For how long from now on somebody is held up.",
        lambda share, now_ms: max(0, share.meter.held_until_ms - now_ms) / 1000,
    ),
    ("ottla_quota_held_total", "counter", "Requests that were held up.", lambda share, _: share.meter.held_count),
    (
        "ottla_quota_held_seconds_total",
        "counter",
        "For how long, all together.",
        lambda share, _: share.meter.held_ms_sum / 1000,
    ),
)


def labels(share: Share) -> Labels:
    rule = share.rule
    return (("key", rule.key), ("user", rule.user), ("client_id", rule.client_id), ("rule", str(rule.entity)))


def object_name(type_: str, share: Share) -> ObjectName:
    """Kafka leaves out whom the share does not depend on."""
    named = (("user", share.rule.user), ("client-id", share.rule.client_id))
    keys = tuple((key, value if _PLAIN.fullmatch(value) else quoted(value)) for key, value in named if value)
    return ObjectName(SERVER, (("type", type_), *keys))


def attributes(share: Share, now_ms: int) -> dict[str, Value]:
    meter = share.meter
    found: dict[str, Value] = {
        RATES[share.rule.key]: meter.rate(now_ms),
        "throttle-time": float(meter.recent_wait_ms(now_ms)),
    }
    if isinstance(meter, Bucket):
        found["tokens"] = meter.tokens(now_ms)
    return found
