"""Clients and brokers behind a link that loses packets: from the brokers' metrics. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.operations.doctor.findings import Finding, Severity, known
from ottla.operations.metric_readings import Reading

LOST_SHARE_MIN: Final = 0.002  # less costs nobody a pause that he would notice
WAITS_SECONDS_MIN: Final = 3.0
METRIC: Final = "ottla_tcp_worst_"
_BROKER: Final = re.compile(r"broker-(\d+)-")  # how brokers name themselves to each other


class Link(NamedTuple):
    """The worst connection of one client at one address."""

    waits_s: float
    lost_share: float
    round_trip_s: float
    unsent_bytes: float
    broker: str


def check_links(readings: Sequence[Reading]) -> Iterator[Finding]:
    """One finding a client and machine, however many connections it has."""
    worst: dict[tuple[str, str], Link] = {}
    for reading in readings:
        for sample in reading.all(f"{METRIC}retransmitted_ratio"):
            labels = sample.labels
            link = Link(
                reading.one(f"{METRIC}waits_seconds", **labels),
                sample.value,
                reading.one(f"{METRIC}round_trip_seconds", **labels),
                reading.one(f"{METRIC}unsent_bytes", **labels),
                reading.info().get("node_id", "?"),
            )
            client = (labels.get("client_id", ""), labels.get("address", "").rpartition(":")[0])
            worst[client] = max(link, worst.get(client, link))
    for (client_id, host), link in sorted(worst.items()):
        if link.waits_s >= WAITS_SECONDS_MIN or link.lost_share >= LOST_SHARE_MIN:
            yield _finding(_who(client_id, host), link)


def _finding(who: str, link: Link) -> Finding:
    if link.waits_s >= WAITS_SECONDS_MIN:
        seen = f"nothing that was sent to it in the last {link.waits_s:.0f} s has been acknowledged"
        severity = Severity.PROBLEM
    else:
        seen = f"{link.lost_share:.1%} of the packets to it had to be sent again"
        severity = Severity.WARNING
    size = f", {link.unsent_bytes / 1024:.0f} KiB wait" if link.unsent_bytes else ""
    trip = f"round trip {link.round_trip_s * 1000:.0f} ms{size}"
    what = f"{who} gets no data for a while, then it goes on: {seen} by broker {link.broker} ({trip})"
    return known(severity, "F15", what)


def _who(client_id: str, host: str) -> str:
    broker = _BROKER.match(client_id)
    if broker is not None:
        return f"broker {broker[1]} at {host}"
    return f"client {client_id!r} at {host}" if client_id else f"a client at {host}"
