"""Numbers that have no MBean name: the event loop, request times as real histograms, the process, the disks."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla import __version__
from ottla.base import tasks
from ottla.base.compiled import is_compiled
from ottla.base.logs import lost_lines
from ottla.broker.monitoring.client_families import client_families
from ottla.broker.monitoring.loop_watch import LoopWatch
from ottla.broker.node import Node
from ottla.broker.telemetry.client_metrics import ClientMetrics
from ottla.metrics import process
from ottla.metrics.audit import AuditCounters
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.histogram import Histogram
from ottla.metrics.prometheus import Family, Sample
from ottla.metrics.unsupported_requests import UnsupportedRequests
from ottla.network.listener import ConnectionSet

NS: Final = 1e9


class Disk(NamedTuple):
    """The file system of a log folder."""

    path: str
    size_bytes: int
    free_bytes: int


def read_disks(paths: list[str]) -> list[Disk]:
    """May wait for a file system that does not answer: not for the loop."""
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
    client_metrics: ClientMetrics,
    loop_watch: LoopWatch,
    disks: list[Disk],
    connections: ConnectionSet | None = None,
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
    yield _one("ottla_log_lines_lost_total", "counter", "Log lines that could not be written.", lost_lines())
    yield from _process_families()
    yield from _task_families()
    yield from _audit_families(counters.audit)
    client_metrics.forget_silent(node.clock.monotonic_ms())
    yield from client_families(client_metrics)
    if connections is not None and connections.tls:
        yield from _tls_families(connections)


def _loop_families(watch: LoopWatch) -> Iterator[Family]:
    yield _one("ottla_loop_busy_seconds_total", "counter", "Time that the event loop was at work.", watch.busy_s)
    yield _one("ottla_loop_slow_total", "counter", "Rounds of the loop that took over 10 ms.", watch.slow_count)
    spent = (("running", watch.slow.running_ns), ("waiting", watch.slow.waiting_ns), ("asleep", watch.slow.asleep_ns))
    samples = [Sample((("state", state),), nanoseconds / 1e9) for state, nanoseconds in spent]
    what = "Time of those rounds: at work, waiting for a core, asleep in the kernel."
    yield Family("ottla_loop_slow_seconds_total", "counter", what, samples)
    yield _one("ottla_loop_longest_seconds", "gauge", "Longest round of the loop since the start.", watch.longest_s)
    recent = watch.recent_longest_s
    yield _one("ottla_loop_recent_longest_seconds", "gauge", "Longest round of the loop within a minute.", recent)


def _tls_families(connections: ConnectionSet) -> Iterator[Family]:
    days = [Sample((("listener", name),), tls.days_left()) for name, tls in connections.tls.items()]
    failed = [Sample((("listener", name),), connections.traffic_of(name).failed_handshakes) for name in connections.tls]
    yield Family("ottla_tls_certificate_days_left", "gauge", "Days until a listener's certificate expires.", days)
    yield Family(
        "ottla_tls_handshakes_failed_total", "counter", "Connections that were refused before TLS stood.", failed
    )


def _task_families() -> Iterator[Family]:
    failed, restarted = tasks.counts.failed, tasks.counts.restarted
    yield _one("ottla_tasks_failed_total", "counter", "Work beside requests that ended with an error.", failed)
    yield _one("ottla_tasks_restarted_total", "counter", "Loops that were begun anew after an error.", restarted)


def _audit_families(audit: AuditCounters) -> Iterator[Family]:
    yield _one("ottla_audit_events_written_total", "counter", "Events of the audit trail.", audit.written)
    yield _one("ottla_audit_events_lost_total", "counter", "Events that were never written.", audit.lost)
    yield _one("ottla_audit_events_waiting", "gauge", "Events that are not written yet.", audit.waiting)
    yield _one("ottla_audit_writes_failed_total", "counter", "Attempts to write that failed.", audit.failed_writes)


def _request_family(counters: BrokerCounters) -> Family:
    """Prometheus' own kind of histogram: percentiles over any time and over several brokers can be made from it."""
    samples: list[Sample] = []
    for meter in counters.requests.values():
        if meter.count:
            samples.extend(_histogram_samples((("request", meter.request),), meter.total_ns))
    return Family("ottla_request_seconds", "histogram", "Time from a request's arrival to its answer.", samples)


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
    note = "Requests in versions that this broker does not speak, within a day: their connections were closed."
    return Family("ottla_unsupported_requests_total", "counter", note, samples)


def _histogram_samples(labels: tuple[tuple[str, str], ...], histogram: Histogram) -> Iterator[Sample]:
    """Every second bound: a factor of two between them is fine enough here."""
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
    yield Family("ottla_log_directory_size_bytes", "gauge", "Size of the file system of a log folder.", size)
    yield Family("ottla_log_directory_free_bytes", "gauge", "Space that is left for a log folder.", free)


def _process_families() -> Iterator[Family]:
    """Names of Prometheus' client libraries."""
    yield _one("process_cpu_seconds_total", "counter", "CPU time of the process.", process.cpu_seconds())
    yield _one("process_resident_memory_bytes", "gauge", "Memory of the process.", process.resident_bytes())
    yield _one("process_virtual_memory_bytes", "gauge", "Address space of the process.", process.virtual_bytes())
    yield _one("process_open_fds", "gauge", "Open files and connections.", process.open_files())
    yield _one("process_max_fds", "gauge", "Files that the process may have open.", process.open_files_max())
    yield _one("process_threads", "gauge", "Threads of the process.", process.thread_count())
    yield _one("process_start_time_seconds", "gauge", "When the process began.", process.started_s())
    collections = [
        Sample((("generation", str(place)),), numbers["collections"]) for place, numbers in enumerate(gc.get_stats())
    ]
    yield Family("python_gc_collections_total", "counter", "Garbage collections.", collections)


def _one(name: str, kind: str, note: str, value: float) -> Family:
    return Family(name, kind, note, [Sample((), value)])
