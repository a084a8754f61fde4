"""Beans in Prometheus' text format, named as the usual rules of jmx_exporter name Kafka's.

`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders` becomes
`kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}`, so that dashboards for Kafka work.

This does not use prometheus-client, whose import takes 65 ms and 5 MB (a broker starts in 140 ms and idles at 33 MB),
and which renders 10,000 partitions in one step of 270 ms that would block the event loop.

Merges the metrics pages of several brokers: each sample gets the label of its broker, each family appears once.

Pure. It parses Prometheus' text only as prometheus.py writes it: the samples of a family follow its head.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.metrics.beans import PERCENTILES, SUM, Bean, Source, Value, unquoted

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
CHUNK_LINES: Final = 200
_BAD_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_:]")
_QUANTILES: Final = {name: f"0.{name.removesuffix('thPercentile')}" for name, _ in PERCENTILES}
_PER_SECOND: Final = "PerSec"
_IDLE_PERCENT: Final = "Percent"


class Sample(NamedTuple):
    """One line: `suffix` is appended to the family's name."""

    labels: tuple[tuple[str, str], ...]
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """Samples of one name."""

    name: str
    kind: str  # counter, gauge, summary, histogram
    help: str
    samples: list[Sample]


def render(sources: Iterable[Source], *, with_large: bool) -> Iterator[str]:
    """Yield the beans of all sources as pieces of text; an empty piece marks a point to yield to the event loop."""
    for source in sources:
        if source.is_large and not with_large:
            continue
        yield from _render_source(source)


def render_families(families: Iterable[Family | None]) -> Iterator[str]:
    """Yield the families as pieces of text; None instead of a family also marks a point to yield."""
    for family in families:
        yield from ("",) if family is None else _family_lines(family)


def _render_source(source: Source) -> Iterator[str]:
    """Yield the samples of a source. Samples of a family must be adjacent: beans are ordered by name, and the families
    of a name are collected.
    """
    families: dict[str, Family] = {}
    name = None
    for bean in source.beans():
        if bean is None:
            yield ""
            continue
        if bean.name.get("name") != name:
            yield from render_families(families.values())
            families.clear()
            name = bean.name.get("name")
        for family in families_of(bean):
            known = families.setdefault(family.name, family)
            if known is not family:
                known.samples.extend(family.samples)
    yield from render_families(families.values())


def families_of(bean: Bean) -> Iterator[Family]:
    """Yield the metrics of one bean, under the names that jmx_exporter would give them."""
    keys = dict(bean.name.keys)
    type_, name = keys.pop("type", ""), keys.pop("name", "")
    labels = tuple((_label(key), unquoted(value)) for key, value in keys.items())
    what = f"{bean.name.domain}:type={type_}" + (f",name={name}" if name else "")
    base = f"{bean.name.domain}_{type_}"
    attributes = bean.attributes
    if "50thPercentile" in attributes:
        yield Family(_metric(base, name), "summary", what, _summary(attributes, labels))
    elif name.endswith(_PER_SECOND):
        counted = _metric(base, name.removesuffix(_PER_SECOND)) + "_total"
        yield Family(counted, "counter", what, [Sample(labels, _number(attributes["Count"]))])
    elif name.endswith(_IDLE_PERCENT) and "MeanRate" in attributes:
        share = _metric(base, name.removesuffix(_IDLE_PERCENT)) + "_percent"
        yield Family(share, "gauge", what, [Sample(labels, _number(attributes["OneMinuteRate"]))])
    else:
        yield from _plain_families(base, name, attributes.items(), labels, what)


def _plain_families(
    base: str, name: str, attributes: Iterable[tuple[str, Value]], labels: tuple[tuple[str, str], ...], what: str
) -> Iterator[Family]:
    for attribute, value in attributes:
        if isinstance(value, int | float):
            full = _metric(base, name) if attribute == "Value" else _metric(base, f"{name}_{attribute}".lstrip("_"))
            kind = "counter" if full.endswith("_total") else "gauge"
            yield Family(full, kind, what, [Sample(labels, value)])


def _summary(attributes: object, labels: tuple[tuple[str, str], ...]) -> list[Sample]:
    assert isinstance(attributes, dict)
    found = [Sample((*labels, ("quantile", label)), attributes[name]) for name, label in _QUANTILES.items()]
    return [*found, Sample(labels, attributes[SUM], "_sum"), Sample(labels, attributes["Count"], "_count")]


def _family_lines(family: Family) -> Iterator[str]:
    lines = [f"# HELP {family.name} {_escaped(family.help, quotes=False)}", f"# TYPE {family.name} {family.kind}"]
    for sample in family.samples:
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels)
        lines.append(f"{family.name}{sample.suffix}{'{' + labels + '}' if labels else ''} {_shown(sample.value)}")
        if len(lines) >= CHUNK_LINES:
            yield "\n".join(lines) + "\n"
            lines.clear()
    if lines:
        yield "\n".join(lines) + "\n"


def _metric(*parts: str) -> str:
    return _BAD_CHARACTERS.sub("_", "_".join(part for part in parts if part)).lower()


def _label(key: str) -> str:
    return _BAD_CHARACTERS.sub("_", key)


def _escaped(text: str, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value


def _shown(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))


LABEL: Final = "broker"
RENAMED: Final = f"exported_{LABEL}"  # Prometheus' name for a label whose name is taken
HELP: Final = "# HELP "


def merge_pages(pages: Mapping[int, str]) -> Iterator[str]:
    """Yield pieces of text, one for each family; `pages` are by broker."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for broker, page in pages.items():
        family, is_new = "", False
        for line in page.split("\n"):  # other line breaks do not end a line in this format
            if line.startswith("#"):
                if line.startswith(HELP):
                    family = line.split(" ", 3)[2]
                    is_new = family not in heads
                    samples.setdefault(family, [])
                if is_new:
                    heads.setdefault(family, []).append(line)
            elif line:
                samples[family].append(labelled(line, broker))
    for family, lines in samples.items():
        yield "\n".join([*heads[family], *lines]) + "\n"


def labelled(line: str, broker: int) -> str:
    """Return a sample with the label of its broker in front."""
    name, brace, rest = line.partition("{")
    if not brace:
        name, _, value = line.partition(" ")
        return f'{name}{{{LABEL}="{broker}"}} {value}'
    others = f",{rest}".replace(f',{LABEL}="', f',{RENAMED}="')  # a quote inside a value is escaped, so it cannot match
    return f'{name}{{{LABEL}="{broker}"{others}'


def up_family(answers: Mapping[int, bool], urls: Mapping[int, str]) -> Iterable[str]:
    """Return which brokers have responded, and the address of each one's own metrics."""
    yield "# HELP ottla_process_up Whether this broker's own metrics could be read; if not they are left out.\n"
    yield "# TYPE ottla_process_up gauge\n"
    for broker, is_there in answers.items():
        yield f'ottla_process_up{{{LABEL}="{broker}",url="{urls[broker]}"}} {int(is_there)}\n'
