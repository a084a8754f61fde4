"""Metrics under Kafka's MBean names: the JMX metrics of Apache Kafka, without a JVM.

A bean is a name (`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec`) and attributes. Beans are generated one by
one on request, so that the caller can yield to the event loop in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from ottla.metrics.histogram import deviation, quantile
from ottla.metrics.meters import Meter, RecentHistogram

Value: TypeAlias = "int | float | str | bool | dict[str, int]"
PERCENTILES: Final = (
    ("50thPercentile", 0.5),
    ("75thPercentile", 0.75),
    ("95thPercentile", 0.95),
    ("98thPercentile", 0.98),
    ("99thPercentile", 0.99),
    ("999thPercentile", 0.999),
)
NAME_LENGTH_MAX: Final = 1000
SUM: Final = "Sum"  # not an attribute in Kafka, but Prometheus needs it


class BadNameError(ValueError):
    """A text that is not an object name."""


class ObjectName(NamedTuple):
    """A domain and key properties, in Kafka's order."""

    domain: str
    keys: tuple[tuple[str, str], ...]

    def get(self, key: str) -> str | None:
        return next((value for name, value in self.keys if name == key), None)

    @property
    def canonical_keys(self) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(self.keys))

    @property
    def canonical(self) -> str:
        """The name with sorted keys, as Jolokia shows it."""
        return f"{self.domain}:{self.canonical_keys}"

    def __str__(self) -> str:
        return f"{self.domain}:{','.join(f'{key}={value}' for key, value in self.keys)}"


class Bean(NamedTuple):
    """One MBean at one moment."""

    name: ObjectName
    attributes: Mapping[str, Value]


class Source(NamedTuple):
    """Beans of one domain and type. A None among them marks a point to yield to the event loop."""

    domain: str
    type: str
    beans: Callable[[], Iterator[Bean | None]]
    is_large: bool = False  # one bean per partition: shown only if requested by name


def named(domain: str, type_: str, name: str, **keys: str) -> ObjectName:
    return ObjectName(domain, (("type", type_), ("name", name), *keys.items()))


def gauge(domain: str, type_: str, name: str, value: float | str, **keys: str) -> Bean:
    return Bean(named(domain, type_, name, **keys), {"Value": value})


def gauges(domain: str, type_: str, values: Mapping[str, float | str], **keys: str) -> Iterator[Bean]:
    for name, value in values.items():
        yield gauge(domain, type_, name, value, **keys)


def meter_attributes(meter: Meter, count: int, now_s: float, unit: str) -> dict[str, Value]:
    return {
        "Count": count,
        "MeanRate": meter.mean(count, now_s),
        "OneMinuteRate": meter.one_minute,
        "FiveMinuteRate": meter.five_minutes,
        "FifteenMinuteRate": meter.fifteen_minutes,
        "RateUnit": "SECONDS",
        "EventType": unit,
    }


def histogram_attributes(recent: RecentHistogram, count: int, divisor: float = 1.0, zeros: int = 0) -> dict[str, Value]:
    """Return percentiles of the last minutes, and totals since the start; adds `zeros` values of zero.

    `count` is the true number of values, because the histogram may have only a sample of them.
    """
    histogram = recent.histogram
    bounds, counts = histogram.bounds, recent.counts()
    if zeros:
        counts = [counts[0] + zeros, *counts[1:]]
    seen = histogram.total + zeros
    mean = histogram.sum / seen / divisor if seen else 0.0
    attributes: dict[str, Value] = {
        "Count": count,
        "Min": 0.0 if zeros else histogram.smallest / divisor,
        "Max": histogram.largest / divisor,
        "Mean": mean,
        "StdDev": deviation(bounds, counts) / divisor,
    }
    for name, share in PERCENTILES:
        is_zero = zeros > 0 and share * sum(counts) <= zeros
        value = 0.0 if is_zero else quantile(bounds, counts, share)
        attributes[name] = min(value, histogram.largest) / divisor
    attributes[SUM] = mean * count
    return attributes


# ---- patterns


class Pattern(NamedTuple):
    """A query for beans: wildcards in the domain and in values, `*` for any further keys."""

    domain: str
    keys: tuple[tuple[str, str], ...]
    has_wildcard_keys: bool  # further keys are allowed
    text: str

    @property
    def is_exact(self) -> bool:
        return not self.has_wildcard_keys and "*" not in self.text and "?" not in self.text

    def may_match(self, source: Source) -> bool:
        if not glob_matches(self.domain, source.domain):
            return False
        type_ = next((value for key, value in self.keys if key == "type"), None)
        return type_ is None or glob_matches(type_, source.type)

    def matches(self, name: ObjectName) -> bool:
        if not self.has_wildcard_keys and len(name.keys) != len(self.keys):
            return False
        values = dict(name.keys)
        return all(
            key in values and (wanted == values[key] or glob_matches(wanted, values[key])) for key, wanted in self.keys
        )


def parse_pattern(text: str) -> Pattern:
    """Parse `domain:key=value,key=value,*`. Raises BadNameError."""
    if len(text) > NAME_LENGTH_MAX:
        raise BadNameError(f"A name may have {NAME_LENGTH_MAX} characters")
    domain, colon, rest = text.partition(":")
    if not colon or not rest:
        raise BadNameError(
            f"Domain part must be specified: {text}" if not colon else f"Key properties are empty: {text}"
        )
    keys, is_open = [], False
    for item in _split_keys(rest):
        if item == "*":
            is_open = True
            continue
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise BadNameError(f"Key properties cannot be parsed: {text}")
        keys.append((key, value))
    return Pattern(domain, tuple(keys), is_open, text)


def find(sources: Iterable[Source], pattern: Pattern) -> Iterator[Bean | None]:
    """Yield the beans that match, with None at points to yield to the event loop."""
    for source in sources:
        if pattern.may_match(source):
            for bean in source.beans():
                yield bean if bean is not None and pattern.matches(bean.name) else None


def quoted(text: str) -> str:
    """Return a quoted value, as Java's ObjectName.quote writes it."""
    return '"' + re.sub(r'(["\\*?])', r"\\\1", text).replace("\n", "\\n") + '"'


def unquoted(text: str) -> str:
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text[1:-1])


def _split_keys(text: str) -> list[str]:
    """Split at the commas outside of quotes."""
    items, start, is_quoted, place = [], 0, False, 0
    while place < len(text):
        if text[place] == '"':
            is_quoted = not is_quoted
        elif text[place] == "\\" and is_quoted:
            place += 1
        elif text[place] == "," and not is_quoted:
            items.append(text[start:place])
            start = place + 1
        place += 1
    return [*items, text[start:]]


def glob_matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern with * and ?. The time is at most the product of their lengths."""
    at, place, star, mark = 0, 0, -1, 0
    while place < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, mark = at, place
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[place]):
            at += 1
            place += 1
        elif star >= 0:
            mark += 1
            at, place = star + 1, mark
        else:
            return False
    return pattern[at:].strip("*") == ""
