"""Prometheus metrics without an MBean name: event loop, requests, process, disks, client metrics, TCP."""

from __future__ import annotations

import gc
import heapq
import os
import platform
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from ottla import __version__
from ottla.base import tasks
from ottla.base.compiled import is_compiled
from ottla.base.logs import lost_lines
from ottla.broker.metrics_endpoint.event_loop_load import EventLoopLoad
from ottla.broker.node import Node
from ottla.broker.telemetry.client_metrics import ClientMetricsManager
from ottla.broker.telemetry.client_metrics import Sample as ClientSample
from ottla.controller.self_balancing.healer import HealingStatus
from ottla.metrics import process
from ottla.metrics.counters import AuditCounters, BrokerCounters
from ottla.metrics.histogram import Histogram
from ottla.metrics.prometheus import Family, Sample
from ottla.metrics.tcp_info import TcpInfo, read_tcp_info
from ottla.metrics.unsupported_requests import UnsupportedRequests, shown
from ottla.network.connection import ConnectedClient
from ottla.network.socket_server import SocketServer

NS: Final = 1e9

PREFIX: Final = "ottla_client_"
KAFKA_PREFIX: Final = "org.apache.kafka."
CLIENT_LABELS: Final = ("client_id", "client_instance_id", "client_software_name", "client_software_version")
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9]+")

Labels = tuple[tuple[str, str], ...]

CONNECTIONS_PER_SLICE: Final = 200  # connections per slice: less than a millisecond
WORST_MAX: Final = 20
ACK_WAIT_MS_MIN: Final = 1000  # for an acknowledgement: longer than any retransmission that succeeds at once
BOUNDS_MS: Final = (1, 5, 20, 50, 100, 200, 500, 1000)


class Disk(NamedTuple):
    """The file system of a log directory."""

    path: str
    size_bytes: int
    free_bytes: int


def read_disks(paths: list[str]) -> list[Disk]:
    """Return the file systems. May block on a file system that does not respond: not for the loop."""
    found = []
    for path in paths:
        try:
            numbers = os.statvfs(path)
        except OSError:
            continue
        found.append(Disk(path, numbers.f_blocks * numbers.f_frsize, numbers.f_bavail * numbers.f_frsize))
    return found


def own_families(
    node: Node,
    counters: BrokerCounters,
    client_metrics: ClientMetricsManager,
    loop_watch: EventLoopLoad,
    disks: list[Disk],
    connections: SocketServer | None = None,
) -> Iterator[Family]:
    labels = (
        ("version", __version__),
        ("node_id", str(node.id)),
        ("cluster_id", node.image.cluster_id),
        ("python", platform.python_version()),
        ("compiled", str(is_compiled()).lower()),
    )
    yield Family("ottla_info", "gauge", "What runs here.", [Sample(labels, 1)])
    yield from _loop_families(loop_watch)
    yield _request_family(counters)
    yield _unsupported_family(counters.unsupported, node.clock.monotonic_ms())
    yield from _disk_families(disks)
    yield from _single_families(
        ("ottla_log_lines_lost_total", "counter", "Log lines that could not be written.", lost_lines())
    )
    yield from _process_families()
    yield from _task_families()
    yield from _audit_families(counters.audit)
    client_metrics.remove_silent_clients(node.clock.monotonic_ms())
    yield from client_families(client_metrics)
    if connections is not None:
        yield _closes_family(connections)
        if connections.tls:
            yield from _tls_families(connections)


def _loop_families(watch: EventLoopLoad) -> Iterator[Family]:
    yield from _single_families(
        ("ottla_loop_busy_seconds_total", "counter", "Time that the event loop was at work.", watch.busy_s),
        ("ottla_loop_slow_total", "counter", "Rounds of the loop that took over 10 ms.", watch.slow_count),
    )
    spent = (("running", watch.slow.running_ns), ("waiting", watch.slow.waiting_ns), ("asleep", watch.slow.asleep_ns))
    samples = [Sample((("state", state),), nanoseconds / 1e9) for state, nanoseconds in spent]
    what = "Time of those rounds: running, waiting for a core, blocked in the kernel."
    yield Family("ottla_loop_slow_seconds_total", "counter", what, samples)
    recent_s = watch.recent_longest_s
    yield from _single_families(
        ("ottla_loop_longest_seconds", "gauge", "Longest round of the loop since the start.", watch.longest_s),
        ("ottla_loop_recent_longest_seconds", "gauge", "Longest round of the loop within a minute.", recent_s),
    )


def _closes_family(connections: SocketServer) -> Family:
    samples = [
        Sample((("listener", listener), ("reason", reason.value)), count)
        for listener, traffic in connections.traffic.items()
        for reason, count in traffic.closes.items()
    ]
    return Family("ottla_connections_closed_total", "counter", "Closed connections, by reason.", samples)


def _tls_families(connections: SocketServer) -> Iterator[Family]:
    days = [Sample((("listener", name),), tls.days_left()) for name, tls in connections.tls.items()]
    failed = [Sample((("listener", name),), connections.traffic_of(name).failed_handshakes) for name in connections.tls]
    yield Family("ottla_tls_certificate_days_left", "gauge", "Days until a listener's certificate expires.", days)
    yield Family("ottla_tls_handshakes_failed_total", "counter", "Connections whose TLS handshake failed.", failed)


def _task_families() -> Iterator[Family]:
    failed, restarted = tasks.counts.failed, tasks.counts.restarted
    return _single_families(
        ("ottla_tasks_failed_total", "counter", "Background tasks that ended with an error.", failed),
        ("ottla_tasks_restarted_total", "counter", "Background tasks that were restarted after an error.", restarted),
    )


def _audit_families(audit: AuditCounters) -> Iterator[Family]:
    return _single_families(
        ("ottla_audit_events_written_total", "counter", "Events of the audit trail.", audit.written),
        ("ottla_audit_events_lost_total", "counter", "Events that were never written.", audit.lost),
        ("ottla_audit_events_waiting", "gauge", "Events that are not written yet.", audit.waiting),
        ("ottla_audit_writes_failed_total", "counter", "Attempts to write that failed.", audit.failed_writes),
    )


def _request_family(counters: BrokerCounters) -> Family:
    """Return a native Prometheus histogram, for percentiles over any time and several brokers."""
    samples: list[Sample] = []
    for meter in counters.requests.values():
        if meter.count:
            samples.extend(_histogram_samples((("request", meter.request),), meter.total_ns))
    return Family("ottla_request_seconds", "histogram", "Time from a request's arrival to its response.", samples)


def _unsupported_family(unsupported: UnsupportedRequests, now_ms: int) -> Family:
    unsupported.forget_old(now_ms)
    samples = [
        Sample(
            (
                ("client_id", asked.client_id),
                ("client_software_name", asked.software_name),
                ("client_software_version", asked.software_version),
                ("request", asked.request),
                ("version", str(asked.version)),
            ),
            row.count,
        )
        for asked, row in unsupported.rows.items()
    ]
    note = "Requests in unsupported versions, within a day: their connections were closed."
    return Family("ottla_unsupported_requests_total", "counter", note, samples)


def _histogram_samples(labels: tuple[tuple[str, str], ...], histogram: Histogram) -> Iterator[Sample]:
    """Yield every second bound: a factor of two is precise enough."""
    seen = 0
    for place, count in enumerate(histogram.counts[:-1]):
        seen += count
        if place % 2 == 0:
            yield Sample((*labels, ("le", f"{histogram.bounds[place] / NS:.6g}")), seen, "_bucket")
    yield Sample((*labels, ("le", "+Inf")), histogram.total, "_bucket")
    yield Sample(labels, histogram.sum / NS, "_sum")
    yield Sample(labels, histogram.total, "_count")


def _disk_families(disks: list[Disk]) -> Iterator[Family]:
    size = [Sample((("directory", disk.path),), disk.size_bytes) for disk in disks]
    free = [Sample((("directory", disk.path),), disk.free_bytes) for disk in disks]
    yield Family("ottla_log_directory_size_bytes", "gauge", "Size of the file system of a log directory.", size)
    yield Family("ottla_log_directory_free_bytes", "gauge", "Free space of a log directory.", free)


def _process_families() -> Iterator[Family]:
    """The names of Prometheus client libraries."""
    yield from _single_families(
        ("process_cpu_seconds_total", "counter", "CPU time of the process.", process.cpu_seconds()),
        ("process_resident_memory_bytes", "gauge", "Memory of the process.", process.resident_bytes()),
        ("process_virtual_memory_bytes", "gauge", "Address space of the process.", process.virtual_bytes()),
        ("process_open_fds", "gauge", "Open files and connections.", process.open_files()),
        ("process_max_fds", "gauge", "Files that the process may have open.", process.open_files_max()),
        ("process_threads", "gauge", "Threads of the process.", process.thread_count()),
        ("process_start_time_seconds", "gauge", "Start time of the process.", process.started_s()),
    )
    collections = [
        Sample((("generation", str(place)),), numbers["collections"]) for place, numbers in enumerate(gc.get_stats())
    ]
    yield Family("python_gc_collections_total", "counter", "Garbage collections.", collections)


def _single_families(*rows: tuple[str, str, str, float]) -> Iterator[Family]:
    """Families of one value each: name, kind, note and value."""
    for name, kind, note, value in rows:
        yield Family(name, kind, note, [Sample((), value)])


def client_families(samples: Iterable[ClientSample]) -> Iterator[Family]:
    """Yield one family per metric that clients pushed (KIP-714); its samples are contiguous.

    `org.apache.kafka.producer.record.send.total` becomes `ottla_client_producer_record_send_total`, with the client as
    labels. Clients choose names of metrics and attributes. Invalid characters are replaced, and the first of two equal
    names is used.
    """
    seen: set[str] = set()
    for name, group in groupby(samples, key=lambda sample: sample.name):
        family = PREFIX + prometheus_name(name.removeprefix(KAFKA_PREFIX))
        if family in seen:
            continue
        seen.add(family)
        found: dict[Labels, ClientSample] = {}
        for sample in group:
            found.setdefault(client_labels(sample), sample)
        kind = "counter" if all(sample.is_counter for sample in found.values()) else "gauge"
        values = [Sample(labels, sample.value) for labels, sample in found.items()]
        yield Family(family, kind, f"Reported by clients as {name}.", values)


def client_labels(sample: ClientSample) -> Labels:
    labels = {name: sample.client.get(name, "") for name in CLIENT_LABELS}
    for key, value in sample.attributes:
        labels.setdefault(prometheus_name(key), value)
    return tuple(labels.items())


def prometheus_name(text: str) -> str:
    """Return a valid Prometheus name: starts with a letter, without consecutive underscores."""
    name = _NOT_IN_NAMES.sub("_", text).strip("_").lower()
    return name if name[:1].isalpha() else f"x_{name}"


def healing_families(status: HealingStatus | None) -> Iterator[Family]:
    """Return the metrics of healing on the controller; `status` is None on all other brokers."""
    if status is None:
        return
    away = [Sample((("broker", str(broker)),), ms / 1000) for broker, ms in sorted(status.away_ms.items())]
    yield Family("ottla_healing_away_seconds", "gauge", "How long brokers with replicas have been offline.", away)
    moves = [Sample((), status.moves)]
    yield Family("ottla_healing_moves", "gauge", "Partitions whose replicas healing is moving.", moves)
    waits = [Sample((("reason", reason),), 1) for reason in status.waits]
    yield Family("ottla_healing_waits", "gauge", "Why healing starts no further move.", waits)


class TcpConnection(NamedTuple):
    """A connection to show by name."""

    client: ConnectedClient
    info: TcpInfo

    @property
    def badness(self) -> tuple[bool, float]:
        return self.info.retransmission_wait_ms >= ACK_WAIT_MS_MIN, self.info.retransmitted_share

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        client = self.client
        address = f"{client.host}:{client.port}"
        return ("client_id", shown(client.client_id)), ("address", address), ("listener", client.listener_name)


class TcpTotals:
    """Sums over all read connections."""

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


def tcp_families(connections: SocketServer) -> Iterator[Family | None]:
    totals = TcpTotals()
    links: list[TcpConnection] = []
    for count, connection in enumerate(list(connections.connections)):
        if count % CONNECTIONS_PER_SLICE == CONNECTIONS_PER_SLICE - 1:
            yield None
        info = None if connection.is_closed else read_tcp_info(connection.descriptor)
        if info is None:
            continue
        totals.add(info)
        if info.retransmitted_segments or info.retransmission_wait_ms >= ACK_WAIT_MS_MIN:
            links.append(TcpConnection(connection.client, info))
    yield from _total_families(totals)
    yield from _worst_families(heapq.nlargest(WORST_MAX, links, key=lambda link: link.badness))


def _total_families(totals: TcpTotals) -> Iterator[Family]:
    for name, note, value in (
        ("connections", "Number", totals.connections),
        ("sent_segments", "Data packets since their start", totals.sent),
        ("retransmitted_segments", "Retransmitted packets since their start", totals.retransmitted),
        ("unsent_bytes", "Bytes that the kernel has not sent yet", totals.unsent_bytes),
    ):
        yield Family(f"ottla_tcp_{name}", "gauge", f"{note} of all open connections.", [Sample((), value)])
    samples, seen = [], 0
    for bound_ms, count in zip(BOUNDS_MS, totals.by_round_trip, strict=False):
        seen += count
        samples.append(Sample((("le", f"{bound_ms / 1000:g}"),), seen, "_bucket"))
    samples.append(Sample((("le", "+Inf"),), totals.connections, "_bucket"))
    samples.append(Sample((), totals.round_trip_us / 1e6, "_sum"))
    samples.append(Sample((), totals.connections, "_count"))
    yield Family("ottla_tcp_round_trip_seconds", "histogram", "Open connections, by round trip time.", samples)


def _worst_families(links: list[TcpConnection]) -> Iterator[Family]:
    values: tuple[tuple[str, str, Callable[[TcpInfo], float]], ...] = (
        ("retransmitted_ratio", "Share of retransmitted packets", lambda info: info.retransmitted_share),
        ("round_trip_seconds", "Round trip", lambda info: info.round_trip_us / 1e6),
        ("unsent_bytes", "Bytes not sent yet", lambda info: info.unsent_bytes),
        ("waits_seconds", "Time without an acknowledgement", lambda info: info.retransmission_wait_ms / 1000),
    )
    for name, note, value in values:
        samples = [Sample(link.labels, value(link.info)) for link in links]
        yield Family(f"ottla_tcp_worst_{name}", "gauge", f"{note} of the connections with the most losses.", samples)
