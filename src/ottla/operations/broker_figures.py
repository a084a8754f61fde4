"""What a broker does, in figures made from two readings of its metrics. Pure."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ottla.operations.metric_readings import Rates, Reading

STATES: Final = {1: "starting", 2: "recovering", 3: "running", 6: "stopping"}
TOPIC: Final = "kafka_server_brokertopicmetrics_"
REQUESTS: Final = "kafka_network_requestmetrics_"
OWN_COUNTS: Final = "ottla_request_seconds_count"


class TopicLine(NamedTuple):
    """One topic, per second."""

    name: str
    messages: float
    bytes_in: float
    bytes_out: float


class RequestLine(NamedTuple):
    """One API: how often, how fast, how often in vain."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    errors: float


class Figures(NamedTuple):
    """One screen."""

    version: str
    node_id: str
    cluster_id: str
    state: str
    uptime_s: float
    topics: int
    partitions: int
    leaders: int
    offline: int
    under_replicated: int
    messages_in: float
    bytes_in: float
    bytes_out: float
    requests: float
    connections: int
    connections_per_s: float
    loop_busy: float
    loop_longest_ms: float
    cpu: float
    resident_bytes: float
    open_files: int
    open_files_max: int
    disk_free_bytes: float
    disk_size_bytes: float
    by_topic: list[TopicLine]
    by_request: list[RequestLine]


def figures(before: Reading, now: Reading, now_s: float) -> Figures:
    """`now_s` is the time since 1970."""
    rates = Rates(before, now)
    info = now.info()

    def rate(name: str) -> float:
        return rates.of(name) or 0.0

    sockets = "kafka_server_socket_server_metrics_"
    disks = [
        (sample.value, now.one("ottla_log_directory_size_bytes", **sample.labels))
        for sample in now.all("ottla_log_directory_free_bytes")
    ]
    free, size = min(disks, default=(0.0, 0.0))
    by_request = request_lines(rates)
    return Figures(
        version=info.get("version", "?"),
        node_id=info.get("node_id", "?"),
        cluster_id=info.get("cluster_id", "?"),
        state=STATES.get(int(now.one("kafka_server_kafkaserver_brokerstate")), "?"),
        uptime_s=now_s - now.one("process_start_time_seconds"),
        topics=int(now.one("kafka_controller_kafkacontroller_globaltopiccount")),
        partitions=int(now.one("kafka_server_replicamanager_partitioncount")),
        leaders=int(now.one("kafka_server_replicamanager_leadercount")),
        offline=int(now.one("kafka_controller_kafkacontroller_offlinepartitionscount")),
        under_replicated=int(now.one("kafka_server_replicamanager_underreplicatedpartitions")),
        messages_in=rate(f"{TOPIC}messagesin_total"),
        bytes_in=rate(f"{TOPIC}bytesin_total"),
        bytes_out=rate(f"{TOPIC}bytesout_total"),
        requests=sum(line.rate for line in by_request),
        connections=int(now.total(f"{sockets}connection_count")),
        connections_per_s=rates.total(f"{sockets}connection_creation_total") or 0.0,
        loop_busy=min(1.0, rate("ottla_loop_busy_seconds_total")),
        loop_longest_ms=now.one("ottla_loop_recent_longest_seconds") * 1000,
        cpu=rate("process_cpu_seconds_total"),
        resident_bytes=now.one("process_resident_memory_bytes"),
        open_files=int(now.one("process_open_fds")),
        open_files_max=int(now.one("process_max_fds")),
        disk_free_bytes=free,
        disk_size_bytes=size,
        by_topic=topic_lines(rates),
        by_request=by_request,
    )


def topic_lines(rates: Rates) -> list[TopicLine]:
    """The busiest first; those without traffic in this interval last, by what they have seen in all."""
    names = {
        sample.labels["topic"]
        for kind in ("bytesin", "bytesout")
        for sample in rates.now.all(f"{TOPIC}{kind}_total")
        if "topic" in sample.labels
    }

    def rate(kind: str, topic: str) -> float:
        return rates.of(f"{TOPIC}{kind}_total", topic=topic) or 0.0

    lines = [TopicLine(name, rate("messagesin", name), rate("bytesin", name), rate("bytesout", name)) for name in names]
    return sorted(lines, key=lambda line: (-line.bytes_in - line.bytes_out, -line.messages, line.name))


def request_lines(rates: Rates) -> list[RequestLine]:
    """Times of this interval where there were requests in it, else those of the last minutes: all that Java tells."""
    before, now = rates.before, rates.now
    found = []
    counts = OWN_COUNTS if OWN_COUNTS in now.samples else f"{REQUESTS}totaltimems_count"
    for sample in now.all(counts):
        name = sample.labels["request"]
        rate = rates.of(counts, request=name) or 0.0
        p50, p99 = (_interval_quantile(before, now, name, share) for share in (0.5, 0.99))
        if math.isnan(p50):
            p50, p99 = (now.one(f"{REQUESTS}totaltimems", request=name, quantile=label) for label in ("0.50", "0.99"))
        found.append(RequestLine(name, rate, p50, p99, _errors(before, now, name) / rates.seconds))
    return sorted(found, key=lambda line: (-line.rate, line.name))


def _errors(before: Reading, now: Reading, request: str) -> float:
    def count(reading: Reading) -> float:
        samples = reading.all(f"{REQUESTS}errors_total", request=request)
        return sum(sample.value for sample in samples if sample.labels.get("error") != "NONE")

    return max(0.0, count(now) - count(before))


def _interval_quantile(before: Reading, now: Reading, request: str, share: float) -> float:
    """Milliseconds; NaN when there was no request in between."""
    name = "ottla_request_seconds_bucket"
    earlier = {sample.labels["le"]: sample.value for sample in before.all(name, request=request)}
    buckets = [
        (float(sample.labels["le"].replace("+Inf", "inf")), sample.value - earlier.get(sample.labels["le"], 0.0))
        for sample in now.all(name, request=request)
    ]
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return math.nan
    low, seen = 0.0, 0.0
    for bound, count in buckets:
        if count >= share * total:
            high = bound if math.isfinite(bound) else 2 * low
            inside = count - seen
            return 1000 * (low + (high - low) * ((share * total - seen) / inside if inside else 0.0))
        low, seen = bound, count
    return math.nan
