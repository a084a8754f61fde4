"""Rates and gauges of a broker, computed from two readings of its metrics. Pure.

A metric that the broker does not report is None, not 0: a JVM reports its heap but no disks, and a restarted broker has
no rates.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ottla.operations.metric_readings import Rates, Reading

STATES: Final = {1: "starting", 2: "recovering", 3: "running", 6: "stopping"}
TOPIC_METRICS: Final = "kafka_server_brokertopicmetrics_"
REQUEST_METRICS: Final = "kafka_network_requestmetrics_"
OTTLA_REQUEST_COUNTS: Final = "ottla_request_seconds_count"


class TopicRates(NamedTuple):
    """The rates of one topic, per second."""

    name: str
    messages: float
    bytes_in: float
    bytes_out: float


class RequestRates(NamedTuple):
    """One API: request rate, latencies, error rate."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    errors: float


class BrokerFigures(NamedTuple):
    """All values of one `ottla top` screen."""

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
    by_topic: list[TopicRates]
    by_request: list[RequestRates]


def broker_figures(before: Reading, now: Reading, now_s: float) -> BrokerFigures:
    """`now_s` is in seconds since the epoch."""
    rates = Rates(before, now)
    info = now.info()

    def rate(name: str) -> float:
        return rates.rate(name) or 0.0

    sockets = "kafka_server_socket_server_metrics_"
    disks = [
        (sample.value, now.value_or_zero("ottla_log_directory_size_bytes", **sample.labels))
        for sample in now.samples_of("ottla_log_directory_free_bytes")
    ]
    free, size = min(disks, default=(0.0, 0.0))
    by_request = request_rates(rates)
    return BrokerFigures(
        version=info.get("version", "?"),
        node_id=info.get("node_id", "?"),
        cluster_id=info.get("cluster_id", "?"),
        state=STATES.get(int(now.value_or_zero("kafka_server_kafkaserver_brokerstate")), "?"),
        uptime_s=now_s - now.value_or_zero("process_start_time_seconds"),
        topics=int(now.value_or_zero("kafka_controller_kafkacontroller_globaltopiccount")),
        partitions=int(now.value_or_zero("kafka_server_replicamanager_partitioncount")),
        leaders=int(now.value_or_zero("kafka_server_replicamanager_leadercount")),
        offline=int(now.value_or_zero("kafka_controller_kafkacontroller_offlinepartitionscount")),
        under_replicated=int(now.value_or_zero("kafka_server_replicamanager_underreplicatedpartitions")),
        messages_in=rate(f"{TOPIC_METRICS}messagesin_total"),
        bytes_in=rate(f"{TOPIC_METRICS}bytesin_total"),
        bytes_out=rate(f"{TOPIC_METRICS}bytesout_total"),
        requests=sum(line.rate for line in by_request),
        connections=int(now.total(f"{sockets}connection_count")),
        connections_per_s=rates.total_rate(f"{sockets}connection_creation_total") or 0.0,
        loop_busy=min(1.0, rate("ottla_loop_busy_seconds_total")),
        loop_longest_ms=now.value_or_zero("ottla_loop_recent_longest_seconds") * 1000,
        cpu=rate("process_cpu_seconds_total"),
        resident_bytes=now.value_or_zero("process_resident_memory_bytes"),
        open_files=int(now.value_or_zero("process_open_fds")),
        open_files_max=int(now.value_or_zero("process_max_fds")),
        disk_free_bytes=free,
        disk_size_bytes=size,
        by_topic=topic_rates(rates),
        by_request=by_request,
    )


def topic_rates(rates: Rates) -> list[TopicRates]:
    """Busiest topics first; topics without traffic in this interval last, ordered by their totals."""
    names = {
        sample.labels["topic"]
        for kind in ("bytesin", "bytesout")
        for sample in rates.now.samples_of(f"{TOPIC_METRICS}{kind}_total")
        if "topic" in sample.labels
    }

    def rate(kind: str, topic: str) -> float:
        return rates.rate(f"{TOPIC_METRICS}{kind}_total", topic=topic) or 0.0

    lines = [
        TopicRates(name, rate("messagesin", name), rate("bytesin", name), rate("bytesout", name)) for name in names
    ]
    return sorted(lines, key=lambda line: (-line.bytes_in - line.bytes_out, -line.messages, line.name))


def request_rates(rates: Rates) -> list[RequestRates]:
    """Latencies of this interval; without requests in it, those of the last minutes, as reported by a JVM."""
    before, now = rates.before, rates.now
    found = []
    counts = OTTLA_REQUEST_COUNTS if OTTLA_REQUEST_COUNTS in now.samples else f"{REQUEST_METRICS}totaltimems_count"
    for sample in now.samples_of(counts):
        name = sample.labels["request"]
        rate = rates.rate(counts, request=name) or 0.0
        p50, p99 = (_interval_quantile(before, now, name, share) for share in (0.5, 0.99))
        if math.isnan(p50):
            p50, p99 = (
                now.value_or_zero(f"{REQUEST_METRICS}totaltimems", request=name, quantile=label)
                for label in ("0.50", "0.99")
            )
        found.append(RequestRates(name, rate, p50, p99, _errors(before, now, name) / rates.seconds))
    return sorted(found, key=lambda line: (-line.rate, line.name))


def _errors(before: Reading, now: Reading, request: str) -> float:
    def count(reading: Reading) -> float:
        samples = reading.samples_of(f"{REQUEST_METRICS}errors_total", request=request)
        return sum(sample.value for sample in samples if sample.labels.get("error") != "NONE")

    return max(0.0, count(now) - count(before))


def _interval_quantile(before: Reading, now: Reading, request: str, share: float) -> float:
    """In milliseconds; NaN without requests in the interval."""
    name = "ottla_request_seconds_bucket"
    earlier = {sample.labels["le"]: sample.value for sample in before.samples_of(name, request=request)}
    buckets = [
        (float(sample.labels["le"].replace("+Inf", "inf")), sample.value - earlier.get(sample.labels["le"], 0.0))
        for sample in now.samples_of(name, request=request)
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


# ---- load
SOCKETS: Final = "kafka_server_socket_server_metrics_"
HEAP: Final = "java_lang_memory_heapmemoryusage_used"
# Prefixes of the metrics that `load` and `request_loads` need; a history of readings may drop all others.
METRIC_PREFIXES: Final = (
    "ottla_info",
    "ottla_request_seconds_",
    "ottla_log_directory_",
    "process_",
    TOPIC_METRICS,
    SOCKETS,
    f"{REQUEST_METRICS}totaltimems",
    f"{REQUEST_METRICS}errors_total",
    HEAP,
)
# the first one that is reported; a follower's fetch may wait, so it does not count
FETCHES: Final = ("FetchConsumer", "Fetch")


class BrokerLoadRates(NamedTuple):
    """Rates are per second; times are 99th percentiles in milliseconds."""

    records_in: float | None
    bytes_in: float | None
    bytes_out: float | None
    requests: float | None
    produce_ms: float | None
    fetch_ms: float | None
    network_in: float | None  # all bytes of the sockets, replication included
    network_out: float | None
    cpu: float | None  # cores
    memory_bytes: float | None
    disk_free_bytes: float | None  # of the fullest log directory
    disk_size_bytes: float | None
    connections: float | None


class RequestLoad(NamedTuple):
    """The load of one API; `errors` is None if the broker does not report errors."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    errors: float | None


def broker_load(before: Reading, now: Reading) -> BrokerLoadRates:
    rates = Rates(before, now)
    times = {line.name: line.p99_ms for line in request_loads(before, now)}
    resident = now.value_or_none("process_resident_memory_bytes")
    free, size = _fullest_disk(now)
    return BrokerLoadRates(
        records_in=rates.rate(f"{TOPIC_METRICS}messagesin_total"),
        bytes_in=rates.rate(f"{TOPIC_METRICS}bytesin_total"),
        bytes_out=rates.rate(f"{TOPIC_METRICS}bytesout_total"),
        requests=_requests(rates),
        produce_ms=times.get("Produce"),
        fetch_ms=next((times[name] for name in FETCHES if name in times), None),
        network_in=rates.total_rate(f"{SOCKETS}incoming_byte_total"),
        network_out=rates.total_rate(f"{SOCKETS}outgoing_byte_total"),
        cpu=rates.rate("process_cpu_seconds_total"),
        memory_bytes=resident if resident is not None else now.value_or_none(HEAP),
        disk_free_bytes=free,
        disk_size_bytes=size,
        connections=now.total(f"{SOCKETS}connection_count") if f"{SOCKETS}connection_count" in now.samples else None,
    )


def request_loads(before: Reading, now: Reading) -> list[RequestLoad]:
    """All APIs with at least one request, busiest first."""
    are_errors_told = f"{REQUEST_METRICS}errors_total" in now.samples
    counts = _counts(now)
    return [
        RequestLoad(line.name, line.rate, line.p50_ms, line.p99_ms, line.errors if are_errors_told else None)
        for line in request_rates(Rates(before, now))
        if now.value_or_zero(counts, request=line.name)  # a JVM also reports unused APIs, with times of 0
    ]


def _counts(now: Reading) -> str:
    return OTTLA_REQUEST_COUNTS if OTTLA_REQUEST_COUNTS in now.samples else f"{REQUEST_METRICS}totaltimems_count"


def _requests(rates: Rates) -> float | None:
    """Apache Kafka counts a fetch twice: as Fetch, and as FetchConsumer or FetchFollower."""
    counts = _counts(rates.now)
    names = {sample.labels["request"] for sample in rates.now.samples_of(counts)}
    counted = names - {"FetchConsumer", "FetchFollower"} if "Fetch" in names else names
    found = [rates.rate(counts, request=name) for name in counted]
    return sum(rate for rate in found if rate is not None) if any(rate is not None for rate in found) else None


def _fullest_disk(now: Reading) -> tuple[float | None, float | None]:
    disks = [
        (sample.value, now.value_or_none("ottla_log_directory_size_bytes", **sample.labels))
        for sample in now.samples_of("ottla_log_directory_free_bytes")
    ]
    return min(disks, key=lambda disk: disk[0], default=(None, None))
