"""What clients have pushed (KIP-714), as Prometheus wants it.

`org.apache.kafka.producer.record.send.total` is `ottla_client_producer_record_send_total`, with the client as labels.

Rule: clients name their metrics and attributes themselves, and nothing they say may spoil the page for the others:
names are cleaned, and of two that become the same the first counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from ottla.broker.telemetry.client_metrics import Sample as ClientSample
from ottla.metrics.prometheus import Family, Sample

PREFIX: Final = "ottla_client_"
KAFKA: Final = "org.apache.kafka."
SHOWN_FACTS: Final = ("client_id", "client_instance_id", "client_software_name", "client_software_version")
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9]+")

Labels = tuple[tuple[str, str], ...]


def client_families(samples: Iterable[ClientSample]) -> Iterator[Family]:
    """One family for each metric; the samples of a metric come together."""
    seen: set[str] = set()
    for name, group in groupby(samples, key=lambda sample: sample.name):
        family = PREFIX + cleaned(name.removeprefix(KAFKA))
        if family in seen:
            continue
        seen.add(family)
        found: dict[Labels, ClientSample] = {}
        for sample in group:
            found.setdefault(labels_of(sample), sample)
        kind = "counter" if all(sample.is_counter for sample in found.values()) else "gauge"
        values = [Sample(labels, sample.value) for labels, sample in found.items()]
        yield Family(family, kind, f"Told by clients as {name}.", values)


def labels_of(sample: ClientSample) -> Labels:
    labels = {name: sample.client.get(name, "") for name in SHOWN_FACTS}
    for key, value in sample.attributes:
        labels.setdefault(cleaned(key), value)
    return tuple(labels.items())


def cleaned(text: str) -> str:
    """A name that Prometheus takes: it begins with a letter and has no two underscores in a row."""
    name = _NOT_IN_NAMES.sub("_", text).strip("_").lower()
    return name if name[:1].isalpha() else f"x_{name}"
