"""TCP as the kernel sees it, over all open connections: sums, a histogram, and the worst few by name.

Read when somebody scrapes, a slice at a time. Ten thousand connections do not become ten thousand labels: whoever looks
for a bad link wants to know whose is the worst.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.metrics.prometheus import Family, Sample
from ottla.metrics.tcp_info import TcpInfo, read_tcp_info
from ottla.metrics.unsupported_requests import shown
from ottla.network.client_facts import ClientFacts
from ottla.network.listener import ConnectionSet

SLICE: Final = 200  # connections between two moments in which others go on: less than a millisecond
WORST_MAX: Final = 20
WAITS_MS_MIN: Final = 1000  # for an acknowledgement: more than any retransmission that succeeds at once
BOUNDS_MS: Final = (1, 5, 20, 50, 100, 200, 500, 1000)


class Link(NamedTuple):
    """One connection that is worth telling of."""

    client: ClientFacts
    info: TcpInfo

    @property
    def badness(self) -> tuple[bool, float]:
        return self.info.waits_ms >= WAITS_MS_MIN, self.info.retransmitted_share

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        client = self.client
        address = f"{client.host}:{client.port}"
        return ("client_id", shown(client.client_id)), ("address", address), ("listener", client.listener_name)


class Totals:
    """Over all connections that were read."""

    def __init__(self) -> None:
        self.connections = self.sent = self.retransmitted = self.unsent_bytes = self.round_trip_us = 0
        self.by_round_trip = [0] * (len(BOUNDS_MS) + 1)

    def add(self, info: TcpInfo) -> None:
        self.connections += 1
        self.sent += info.sent_segments
        self.retransmitted += info.retransmitted_segments
        self.unsent_bytes += info.unsent_bytes
        self.round_trip_us += info.round_trip_us
        self.by_round_trip[bisect_left(BOUNDS_MS, info.round_trip_us / 1000)] += 1


def tcp_families(connections: ConnectionSet) -> Iterator[Family | None]:
    totals = Totals()
    links: list[Link] = []
    for count, connection in enumerate(list(connections.connections)):
        if count % SLICE == SLICE - 1:
            yield None
        info = None if connection.is_closed else read_tcp_info(connection.descriptor)
        if info is None:
            continue
        totals.add(info)
        if info.retransmitted_segments or info.waits_ms >= WAITS_MS_MIN:
            links.append(Link(connection.client, info))
    yield from _total_families(totals)
    yield from _worst_families(heapq.nlargest(WORST_MAX, links, key=lambda link: link.badness))


def _total_families(totals: Totals) -> Iterator[Family]:
    def one(name: str, note: str, value: float) -> Family:
        return Family(f"ottla_tcp_{name}", "gauge", f"{note} of all connections that are open.", [Sample((), value)])

    yield one("connections", "Number", totals.connections)
    yield one("sent_segments", "Packets with data since their begin", totals.sent)
    yield one("retransmitted_segments", "Packets that were sent again since their begin", totals.retransmitted)
    yield one("unsent_bytes", "Bytes that the kernel holds and has not sent", totals.unsent_bytes)
    samples, seen = [], 0
    for bound_ms, count in zip(BOUNDS_MS, totals.by_round_trip, strict=False):
        seen += count
        samples.append(Sample((("le", f"{bound_ms / 1000:g}"),), seen, "_bucket"))
    samples.append(Sample((("le", "+Inf"),), totals.connections, "_bucket"))
    samples.append(Sample((), totals.round_trip_us / 1e6, "_sum"))
    samples.append(Sample((), totals.connections, "_count"))
    yield Family("ottla_tcp_round_trip_seconds", "histogram", "Connections that are open, by round trip.", samples)


def _worst_families(links: list[Link]) -> Iterator[Family]:
    def each(name: str, note: str, values: list[float]) -> Family:
        samples = [Sample(link.labels, value) for link, value in zip(links, values, strict=True)]
        return Family(f"ottla_tcp_worst_{name}", "gauge", f"{note} of the connections that lose most.", samples)

    infos = [link.info for link in links]
    yield each("retransmitted_ratio", "Part of the packets sent again", [info.retransmitted_share for info in infos])
    yield each("round_trip_seconds", "Round trip", [info.round_trip_us / 1e6 for info in infos])
    yield each("unsent_bytes", "Bytes not sent yet", [info.unsent_bytes for info in infos])
    yield each("waits_seconds", "Time without an acknowledgement", [info.waits_ms / 1000 for info in infos])
