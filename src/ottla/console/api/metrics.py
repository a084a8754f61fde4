"""Metrics of the brokers: load of the cluster and of each broker, now and over a day; and the metrics addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ottla.console.api.brokers import HOURS_MAX, POINTS_MAX, find_broker_row
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request
from ottla.console.auth import rights
from ottla.console.auth.rights import Role
from ottla.console.clusters.address_checks import UnusableAddressError, check_metrics
from ottla.console.clusters.cluster import MASK
from ottla.console.clusters.metrics import (
    BrokerMeasurement,
    InvalidAddressError,
    MetricAddresses,
    parse_addresses,
    read_broker,
    shared_addresses,
)
from ottla.console.clusters.snapshot import Broker, Snapshot
from ottla.console.clusters.time_series import TimeSeries
from ottla.console.store import Tables
from ottla.operations import broker_rates
from ottla.operations.errors import OperationError

HOUR_MS = 3_600_000
TESTED_BROKERS_MAX = 50  # brokers


class BrokerLoad(msgspec.Struct, frozen=True):
    """The load of a broker; null: not reported. `at_ms`: the time of the measurement, 0: none yet."""

    broker: int
    has_address: bool
    at_ms: int
    problem: str
    load: dict[str, float | None] | None  # Load's fields: rates a second, bytes, cores, ms


class MetricsAnswer(msgspec.Struct, frozen=True):
    """`is_told`: addresses are configured. `address` is empty for callers who may not change it."""

    is_told: bool
    is_changeable: bool
    address: str
    login: str
    brokers: list[BrokerLoad]


class RequestRow(msgspec.Struct, frozen=True):
    """One request type: rate, latency, error rate (null: not reported)."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    errors: float | None


class LoadHistory(msgspec.Struct, frozen=True):
    """Columns over time, named as in `load`. For a cluster: sums of rates, maxima of times and CPU."""

    at_ms: list[float]
    columns: dict[str, list[float]]


class BrokerMetrics(msgspec.Struct, frozen=True):
    broker: BrokerLoad
    is_told: bool
    requests: list[RequestRow]
    history: LoadHistory


class MetricsBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pattern for all brokers, or `1=URL, 2=URL`; `login` is NAME:PASSWORD."""

    address: str
    login: str = ""


class Tested(msgspec.Struct, frozen=True):
    """The result for one broker; an empty problem means success."""

    broker: int
    address: str
    problem: str


class TestAnswer(msgspec.Struct, frozen=True):
    brokers: list[Tested]


async def show_metrics(call: Call) -> MetricsAnswer:
    metrics = call.cluster.metrics
    is_admin = rights.has_role(call.caller.grants, Role.ADMIN, call.parameters["cluster"])
    return MetricsAnswer(
        metrics.has_addresses,
        not metrics.addresses.is_trusted,
        metrics.addresses.text if is_admin else "",
        MASK if is_admin and metrics.addresses.login else "",
        [_broker_load(call, broker) for broker in sorted({*call.snapshot.brokers, *metrics.measurements})],
    )


async def show_history(call: Call) -> LoadHistory:
    return _history(call, call.cluster.metrics.track)


async def show_broker(call: Call) -> BrokerMetrics:
    broker, metrics = find_broker_row(call).broker, call.cluster.metrics
    known = metrics.measurements.get(broker, BrokerMeasurement())
    return BrokerMetrics(
        _broker_load(call, broker),
        metrics.has_addresses,
        [RequestRow(*each) for each in known.requests],
        _history(call, metrics.track_of(broker)),
    )


async def put_addresses(call: Call) -> MetricsAnswer:
    cluster = call.cluster
    old = cluster.metrics.addresses
    if old.is_trusted:
        words = (
            "the metrics addresses are configured on the command line of the console (--metrics-url): change them there"
        )
        raise ApiError(409, "NAMED_AT_START", words)
    wanted = _addresses_from_body(call)
    call.audit(cluster.name, _audit_addresses(old), _audit_addresses(wanted))
    await call.console.store.run(Tables.put_metric_addresses, cluster.name, wanted)
    call.console.metric_addresses[cluster.name] = wanted
    cluster.metrics.set_addresses(wanted)
    call.console.notify()
    return await show_metrics(call)


async def test_addresses(call: Call) -> TestAnswer:
    """Read every broker once, without storing anything."""
    wanted, metrics = _addresses_from_body(call), call.cluster.metrics
    call.console.tests.check()
    if not call.snapshot.brokers:
        raise ApiError(503, "UNREACHABLE", "the cluster has not been reached yet: its brokers are unknown")
    asked = sorted(call.snapshot.brokers.values())[:TESTED_BROKERS_MAX]
    may_be_inside = [metrics.may_be_private(wanted.address_of(each.broker_id, each.host) or "") for each in asked]
    with call.console.tests.take():
        return TestAnswer(await asyncio.to_thread(_test_brokers, wanted, asked, may_be_inside))


def _test_brokers(wanted: MetricAddresses, brokers: Sequence[Broker], may_be_inside: Sequence[bool]) -> list[Tested]:
    found, shared = [], shared_addresses(wanted, brokers)
    for broker, may in zip(brokers, may_be_inside, strict=True):
        address = wanted.address_of(broker.broker_id, broker.host) or ""
        problem = ""
        try:
            if address in shared:
                raise OperationError("several brokers would share this address: give one address per broker")
            read_broker(wanted, broker, may)
        except OperationError as refused:
            problem = str(refused)
        found.append(Tested(broker.broker_id, address, problem))
    return found


def _addresses_from_body(call: Call) -> MetricAddresses:
    body: MetricsBody = call.body
    old = call.cluster.metrics.addresses
    login = body.login
    if login == MASK:
        if old.login and body.address.strip() != old.text:
            raise bad_request("enter the login again: it is stored for its old addresses only")
        login = old.login
    try:
        wanted = parse_addresses(body.address, login)
        check_metrics(wanted, allows_private=call.console.message_workers.allows_private)
    except InvalidAddressError as problem:
        raise bad_request(str(problem)) from None
    except UnusableAddressError as problem:
        raise bad_request("{0} can never work: {1}", problem.address, problem.reason) from None
    return wanted


def _audit_addresses(addresses: MetricAddresses) -> dict[str, str]:
    return {"address": addresses.text, "login": MASK if addresses.login else ""}


def _broker_load(call: Call, broker: int) -> BrokerLoad:
    metrics, live = call.cluster.metrics, call.snapshot.brokers.get(broker)
    known = metrics.measurements.get(broker, BrokerMeasurement())
    has_address = live is not None and metrics.addresses.address_of(broker, live.host) is not None
    load = _with_disk_from_log_dirs(known.load, call.snapshot, broker)
    return BrokerLoad(broker, has_address, known.at_ms, known.problem, load._asdict() if load is not None else None)


def _with_disk_from_log_dirs(
    load: broker_rates.BrokerLoadRates | None, snapshot: Snapshot, broker: int
) -> broker_rates.BrokerLoadRates | None:
    """Apache Kafka's metrics lack disk sizes; DescribeLogDirs reports them."""
    if load is None or load.disk_size_bytes is not None:
        return load
    reported = [folder for folder in snapshot.folders.get(broker, ()) if folder.total_bytes >= 0]
    if not reported:
        return load
    fullest = min(reported, key=lambda folder: folder.usable_bytes)
    return load._replace(disk_free_bytes=fullest.usable_bytes, disk_size_bytes=fullest.total_bytes)


def _history(call: Call, track: TimeSeries | None) -> LoadHistory:
    if track is None:
        return LoadHistory([], {})
    hours = max(1, call.int_query("hours", 1, HOURS_MAX))
    now_ms = call.console.clock.now_ms()
    times, columns = track.since(now_ms - hours * HOUR_MS, POINTS_MAX, now_ms)
    return LoadHistory(times, dict(zip(broker_rates.BrokerLoadRates._fields, columns, strict=True)))
