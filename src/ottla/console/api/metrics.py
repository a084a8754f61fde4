"""What brokers tell of themselves: load of the cluster and of each broker, now and over a day; and where to read it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ottla.console.api.brokers import HOURS_MAX, POINTS_MAX, row_of
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request
from ottla.console.clusters.cluster import MASKED
from ottla.console.clusters.metric_addresses import BadAddressError, MetricAddresses, parse_addresses
from ottla.console.clusters.metrics import Measured, read_broker, shared_addresses
from ottla.console.clusters.snapshot import Broker, Snapshot
from ottla.console.clusters.tracks import Track
from ottla.console.people import rights
from ottla.console.people.rights import Role
from ottla.console.store import Tables
from ottla.operations.broker_load import Load
from ottla.operations.errors import OperationError

HOUR_MS = 3_600_000
TESTED_MAX = 50  # brokers
TESTS_MAX = 2  # at once


class BrokerLoad(msgspec.Struct, frozen=True):
    """A broker; null where nothing is told. `at_ms`: when it was true, 0 if nothing was read yet."""

    broker: int
    has_address: bool
    at_ms: int
    problem: str
    load: dict[str, float | None] | None  # Load's fields: rates a second, bytes, cores, ms


class MetricsAnswer(msgspec.Struct, frozen=True):
    """`is_told`: somebody has said where to read. `address` is for those who may change it."""

    is_told: bool
    is_changeable: bool
    address: str
    login: str
    brokers: list[BrokerLoad]


class RequestRow(msgspec.Struct, frozen=True):
    """One API: how often, how fast, how often in vain (null: not told)."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    errors: float | None


class LoadHistory(msgspec.Struct, frozen=True):
    """Columns over time, by the names of `load`; of a cluster the sum of its brokers, of times and CPU the worst."""

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
    """What one broker answered; no problem: it has told its metrics."""

    broker: int
    address: str
    problem: str


class TestAnswer(msgspec.Struct, frozen=True):
    brokers: list[Tested]


async def show(call: Call) -> MetricsAnswer:
    metrics = call.cluster.metrics
    is_admin = rights.may(call.caller.grants, Role.ADMIN, call.parameters["cluster"])
    return MetricsAnswer(
        metrics.is_told,
        not metrics.addresses.is_trusted,
        metrics.addresses.text if is_admin else "",
        MASKED if is_admin and metrics.addresses.login else "",
        [_broker_load(call, broker) for broker in sorted({*call.snapshot.brokers, *metrics.seen})],
    )


async def history(call: Call) -> LoadHistory:
    return _history(call, call.cluster.metrics.track)


async def show_broker(call: Call) -> BrokerMetrics:
    broker, metrics = row_of(call).broker, call.cluster.metrics
    known = metrics.seen.get(broker, Measured())
    return BrokerMetrics(
        _broker_load(call, broker),
        metrics.is_told,
        [RequestRow(*each) for each in known.requests],
        _history(call, metrics.track_of(broker)),
    )


async def put(call: Call) -> MetricsAnswer:
    cluster = call.cluster
    old = cluster.metrics.addresses
    if old.is_trusted:
        words = "the addresses of metrics were given when the console was started (--metrics-url): change them there"
        raise ApiError(409, "NAMED_AT_START", words)
    wanted = _wanted(call)
    call.note(cluster.name, _noted(old), _noted(wanted))
    await call.console.store.run(Tables.put_metric_addresses, cluster.name, wanted)
    call.console.metric_addresses[cluster.name] = wanted
    cluster.metrics.use(wanted)
    call.console.tell()
    return await show(call)


async def test(call: Call) -> TestAnswer:
    """Ask every broker once, without keeping anything."""
    wanted, metrics = _wanted(call), call.cluster.metrics
    if call.console.cluster_tests >= TESTS_MAX:
        raise ApiError(429, "TOO_MANY", f"{TESTS_MAX} tests are running: wait", {"Retry-After": "5"})
    if not call.snapshot.brokers:
        raise ApiError(503, "UNREACHABLE", "the cluster was not reached yet: nobody knows its brokers")
    call.console.cluster_tests += 1
    try:
        asked = sorted(call.snapshot.brokers.values())[:TESTED_MAX]
        may_be_inside = [metrics.may_be_inside(wanted.of(each.broker_id, each.host) or "") for each in asked]
        return TestAnswer(await asyncio.to_thread(_try, wanted, asked, may_be_inside))
    finally:
        call.console.cluster_tests -= 1


def _try(wanted: MetricAddresses, brokers: Sequence[Broker], may_be_inside: Sequence[bool]) -> list[Tested]:
    found, shared = [], shared_addresses(wanted, brokers)
    for broker, may in zip(brokers, may_be_inside, strict=True):
        address = wanted.of(broker.broker_id, broker.host) or ""
        problem = ""
        try:
            if address in shared:
                raise OperationError("several brokers would have this address: name them one by one")
            read_broker(wanted, broker, may)
        except OperationError as refused:
            problem = str(refused)
        found.append(Tested(broker.broker_id, address, problem))
    return found


def _wanted(call: Call) -> MetricAddresses:
    body: MetricsBody = call.body
    old = call.cluster.metrics.addresses
    login = body.login
    if login == MASKED:
        if old.login and body.address.strip() != old.text:
            raise bad_request("write the login again: it is kept for the addresses that it had")
        login = old.login
    try:
        return parse_addresses(body.address, login)
    except BadAddressError as problem:
        raise bad_request(str(problem)) from None


def _noted(addresses: MetricAddresses) -> dict[str, str]:
    return {"address": addresses.text, "login": MASKED if addresses.login else ""}


def _broker_load(call: Call, broker: int) -> BrokerLoad:
    metrics, live = call.cluster.metrics, call.snapshot.brokers.get(broker)
    known = metrics.seen.get(broker, Measured())
    has_address = live is not None and metrics.addresses.of(broker, live.host) is not None
    load = _with_disk(known.load, call.snapshot, broker)
    return BrokerLoad(broker, has_address, known.at_ms, known.problem, load._asdict() if load is not None else None)


def _with_disk(load: Load | None, snapshot: Snapshot, broker: int) -> Load | None:
    """Java's metrics know no disks: what the broker says over the wire is as good."""
    if load is None or load.disk_size_bytes is not None:
        return load
    told = [folder for folder in snapshot.folders.get(broker, ()) if folder.total_bytes >= 0]
    if not told:
        return load
    fullest = min(told, key=lambda folder: folder.usable_bytes)
    return load._replace(disk_free_bytes=fullest.usable_bytes, disk_size_bytes=fullest.total_bytes)


def _history(call: Call, track: Track | None) -> LoadHistory:
    if track is None:
        return LoadHistory([], {})
    hours = max(1, call.number("hours", 1, HOURS_MAX))
    times, columns = track.since(call.console.clock.now_ms() - hours * HOUR_MS, POINTS_MAX)
    return LoadHistory(times, dict(zip(Load._fields, columns, strict=True)))
