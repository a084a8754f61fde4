"""The load of a broker and of its machine, out of two readings of its metrics, whoever told them. Pure.

What was not told is None and not 0: Java tells its heap and no disk, a broker that was started in between has no rates.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.operations.broker_figures import OWN_COUNTS, REQUESTS, TOPIC, request_lines
from ottla.operations.metric_readings import Rates, Reading

SOCKETS: Final = "kafka_server_socket_server_metrics_"
HEAP: Final = "java_lang_memory_heapmemoryusage_used"
# What `load` and `request_loads` look at: of all that a broker tells, whoever keeps readings keeps this.
WANTED: Final = (
    "ottla_info",
    "ottla_request_seconds_",
    "ottla_log_directory_",
    "process_",
    TOPIC,
    SOCKETS,
    f"{REQUESTS}totaltimems",
    f"{REQUESTS}errors_total",
    HEAP,
)
FETCHES: Final = ("FetchConsumer", "Fetch")  # the first that is told: followers wait as long as they like


class Load(NamedTuple):
    """Rates a second; times are those that 99 of 100 requests stayed below, in ms."""

    records_in: float | None
    bytes_in: float | None
    bytes_out: float | None
    requests: float | None
    produce_ms: float | None
    fetch_ms: float | None
    network_in: float | None  # all that comes through the sockets, that of other brokers too
    network_out: float | None
    cpu: float | None  # cores
    memory_bytes: float | None
    disk_free_bytes: float | None  # of the fullest log directory
    disk_size_bytes: float | None
    connections: float | None


class RequestLoad(NamedTuple):
    """One API; None: errors are not told."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    errors: float | None


def load(before: Reading, now: Reading) -> Load:
    rates = Rates(before, now)
    times = {line.name: line.p99_ms for line in request_loads(before, now)}
    resident = now.known("process_resident_memory_bytes")
    free, size = _fullest(now)
    return Load(
        records_in=rates.of(f"{TOPIC}messagesin_total"),
        bytes_in=rates.of(f"{TOPIC}bytesin_total"),
        bytes_out=rates.of(f"{TOPIC}bytesout_total"),
        requests=_requests(rates),
        produce_ms=times.get("Produce"),
        fetch_ms=next((times[name] for name in FETCHES if name in times), None),
        network_in=rates.total(f"{SOCKETS}incoming_byte_total"),
        network_out=rates.total(f"{SOCKETS}outgoing_byte_total"),
        cpu=rates.of("process_cpu_seconds_total"),
        memory_bytes=resident if resident is not None else now.known(HEAP),
        disk_free_bytes=free,
        disk_size_bytes=size,
        connections=now.total(f"{SOCKETS}connection_count") if f"{SOCKETS}connection_count" in now.samples else None,
    )


def request_loads(before: Reading, now: Reading) -> list[RequestLoad]:
    """All APIs that were ever asked for, the busiest first."""
    are_errors_told = f"{REQUESTS}errors_total" in now.samples
    counts = _counts(now)
    return [
        RequestLoad(line.name, line.rate, line.p50_ms, line.p99_ms, line.errors if are_errors_told else None)
        for line in request_lines(Rates(before, now))
        if now.one(counts, request=line.name)  # Java tells also those that nobody has asked for, with times of 0
    ]


def _counts(now: Reading) -> str:
    return OWN_COUNTS if OWN_COUNTS in now.samples else f"{REQUESTS}totaltimems_count"


def _requests(rates: Rates) -> float | None:
    """Apache Kafka counts fetches twice: as such, and by who fetches."""
    counts = _counts(rates.now)
    names = {sample.labels["request"] for sample in rates.now.all(counts)}
    counted = names - {"FetchConsumer", "FetchFollower"} if "Fetch" in names else names
    found = [rates.of(counts, request=name) for name in counted]
    return sum(rate for rate in found if rate is not None) if any(rate is not None for rate in found) else None


def _fullest(now: Reading) -> tuple[float | None, float | None]:
    disks = [
        (sample.value, now.known("ottla_log_directory_size_bytes", **sample.labels))
        for sample in now.all("ottla_log_directory_free_bytes")
    ]
    return min(disks, key=lambda disk: disk[0], default=(None, None))
