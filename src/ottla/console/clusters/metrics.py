"""Reads the metrics of a cluster's brokers over HTTP in the background.

Rules:
1. Separate threads send the requests, so a broker that does not respond delays nothing else. Responses are bounded in
   size and time; a failing broker is read less often (exponential backoff).
2. Metrics are never attributed to the wrong broker: ottla brokers report their id, and no two brokers share an address.
3. An address from a page may be the host of a broker or a public address; other private addresses need permission.
4. After a failure the last numbers remain, with their age and the reason. Published data is immutable; time series
   belong to the event loop.

Addresses are one pattern for all brokers, or one address for each. `http://{host}:9404` is ottla's own endpoint,
`http://{host}:8778/jolokia` the Jolokia agent; `1=http://10.0.0.1:9404, 2=…` sets single brokers and overrides a
pattern.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.console.clusters.snapshot import Broker, Snapshot
from ottla.console.clusters.time_series import TimeSeries
from ottla.operations.broker_rates import METRIC_PREFIXES, BrokerLoadRates, RequestLoad, broker_load, request_loads
from ottla.operations.errors import OperationError
from ottla.operations.jolokia_readings import is_jolokia, read_jolokia
from ottla.operations.metric_readings import PasswordNeededError, Reading, read_metrics
from ottla.operations.public_addresses import first_internal, look_up

HOST_PLACEHOLDER, ID_PLACEHOLDER = "{host}", "{id}"
ADDRESSES_MAX = 1_000
TEXT_MAX = 100_000
_BROKER = re.compile(r"(\d{1,10})=(.*)")
EXAMPLE_ADDRESS = f"http://{HOST_PLACEHOLDER}:9404"


class InvalidAddressError(ValueError):
    """The text is not a list of metrics addresses; the message has the reason."""


class MetricAddresses(NamedTuple):
    """Checked by `parse_addresses`; `login` is `name:password`, or empty."""

    text: str = ""
    login: str = ""
    pattern: str | None = None
    by_broker: Mapping[int, str] = {}
    is_trusted: bool = False  # from the command line: private addresses are allowed

    def address_of(self, broker: int, host: str) -> str | None:
        """The address of a broker, without the login; None if there is none."""
        found = self.by_broker.get(broker, self.pattern)
        shown = f"[{host}]" if ":" in host else host
        return None if found is None else found.replace(HOST_PLACEHOLDER, shown).replace(ID_PLACEHOLDER, str(broker))

    def with_login(self, address: str) -> str:
        scheme, _, place = address.partition("://")
        return f"{scheme}://{quote(self.login, safe=':')}@{place}" if self.login else address


def parse_addresses(text: str, login: str = "", *, is_trusted: bool = False) -> MetricAddresses:
    """Parse addresses separated by commas or white space. Raises InvalidAddressError."""
    if len(text) > TEXT_MAX:
        raise InvalidAddressError(f"metrics addresses have at most {TEXT_MAX} characters")
    pattern, by_broker = None, {}
    for word in re.split(r"[,\s]+", text.strip()):
        if not word:
            continue
        named = _BROKER.fullmatch(word)
        if named is not None:
            by_broker[int(named[1])] = _checked_address(named[2])
        elif pattern is not None:
            raise InvalidAddressError(f"give one pattern for all brokers, or one address per broker: 1={word}")
        else:
            pattern = _checked_address(word)
    if len(by_broker) > ADDRESSES_MAX:
        raise InvalidAddressError(f"{ADDRESSES_MAX} brokers at most")
    if login and ":" not in login:
        raise InvalidAddressError("a login has the form NAME:PASSWORD")
    return MetricAddresses(text.strip(), login, pattern, by_broker, is_trusted)


def _checked_address(address: str) -> str:
    words = f"{address} is not a metrics address: write {EXAMPLE_ADDRESS}, or http://{HOST_PLACEHOLDER}:8778/jolokia"
    if not address.isprintable():
        raise InvalidAddressError("a metrics address must be printable")
    try:
        parts = urlsplit(address.replace(HOST_PLACEHOLDER, "host").replace(ID_PLACEHOLDER, "1"))
        parts.port  # noqa: B018 (raises for what is none)
    except ValueError:
        raise InvalidAddressError(words) from None
    if "@" in parts.netloc:  # it would be shown with the address
        raise InvalidAddressError("enter the login in its own field, not in the address")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidAddressError(words)
    return address


PERIOD_MS: Final = 5_000
FIRST_MS: Final = 1_000  # rates need two readings: the second one follows soon
BACKOFF_MS_MAX: Final = 60_000  # between requests to a broker that does not respond
ANSWER_SECONDS_MAX: Final = 3.0
THREADS: Final = 4
BROKERS_MAX: Final = 1_000
FRESH_MS: Final = 3 * PERIOD_MS  # older numbers are not summed
SUMMED: Final = ("records_in", "bytes_in", "bytes_out", "requests", "network_in", "network_out", "connections")


class BrokerMeasurement(NamedTuple):
    """The last measurement of a broker: `at_ms` is the wall time of `load`, 0 if there is none yet."""

    at_ms: int = 0
    load: BrokerLoadRates | None = None
    requests: tuple[RequestLoad, ...] = ()
    problem: str = ""


class _BrokerState:
    """The reading state of one broker."""

    def __init__(self) -> None:
        self.reading: Reading | None = None
        self.failures = 0
        self.due_ms = 0
        self.track = TimeSeries(len(BrokerLoadRates._fields))


class ClusterMetrics:
    """The metrics of one cluster. `seen` may be read in any thread; everything else belongs to the event loop."""

    def __init__(self, name: str, clock: Clock, snapshot: Callable[[], Snapshot], on_news: Callable[[], None]) -> None:
        self.name = name
        self.clock = clock
        self.addresses = MetricAddresses()
        self.allows_private = False
        self.measurements: Mapping[int, BrokerMeasurement] = {}
        self.version = 0
        self.track = TimeSeries(len(BrokerLoadRates._fields))  # of all brokers together
        self._snapshot = snapshot
        self._on_news = on_news
        self._brokers: dict[int, _BrokerState] = {}
        self._task: asyncio.Task[None] | None = None
        self._threads: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"<ClusterMetrics of {self.name}: {len(self.measurements)} brokers>"

    @property
    def has_addresses(self) -> bool:
        """Whether metrics addresses are configured."""
        return bool(self.addresses.text)

    @property
    def at_ms(self) -> int:
        return max((each.at_ms for each in self.measurements.values()), default=0)

    def set_addresses(self, addresses: MetricAddresses) -> None:
        """Use these addresses from now on."""
        self.stop()
        self.addresses = addresses
        self._brokers, self.measurements = {}, {}
        self.version += 1
        if self.has_addresses:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="console-metrics")
            self._task = tasks.spawn_restarting(self._run, f"metrics of cluster {self.name}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def track_of(self, broker: int) -> TimeSeries | None:
        found = self._brokers.get(broker)
        return found.track if found is not None else None

    async def _run(self) -> None:
        while True:
            began_ms = self.clock.monotonic_ms()
            await self.read_once()
            is_new = not self._brokers or any(
                state.reading is not None and not self.measurements[number].at_ms
                for number, state in self._brokers.items()
            )
            wait_ms = began_ms + (FIRST_MS if is_new else PERIOD_MS) - self.clock.monotonic_ms()
            await asyncio.sleep(max(FIRST_MS, wait_ms) / 1000)

    async def read_once(self) -> None:
        """Read every broker that is due."""
        live = self._snapshot().brokers
        for gone in [each for each in self._brokers if each not in live][: max(0, len(self._brokers) - BROKERS_MAX)]:
            del self._brokers[gone]
        now_ms = self.clock.monotonic_ms()
        due = [broker for broker in live.values() if self._state(broker).due_ms <= now_ms]
        shared = shared_addresses(self.addresses, live.values())
        found = await asyncio.gather(*(self._read(broker, shared) for broker in due[:BROKERS_MAX]))
        if due:
            seen = {number: each for number, each in self.measurements.items() if number in self._brokers}
            self.measurements = {**seen, **{broker.broker_id: each for broker, each in zip(due, found, strict=False)}}
            self._add_total()
            self.version += 1
            self._on_news()

    def _state(self, broker: Broker) -> _BrokerState:
        return self._brokers.setdefault(broker.broker_id, _BrokerState())

    async def _read(self, broker: Broker, shared: Collection[str]) -> BrokerMeasurement:
        state, before = self._state(broker), self.measurements.get(broker.broker_id, BrokerMeasurement())
        address = self.addresses.address_of(broker.broker_id, broker.host)
        if address is None:
            return BrokerMeasurement()
        at_ms = self.clock.now_ms()
        try:
            if address in shared:
                raise OperationError(f"several brokers would share {address}: give one address per broker")
            reading = await asyncio.get_running_loop().run_in_executor(
                self._threads, read_broker, self.addresses, broker, self.may_be_private(address)
            )
        except OperationError as problem:
            state.failures += 1
            state.reading = None
            state.due_ms = self.clock.monotonic_ms() + min(
                BACKOFF_MS_MAX, PERIOD_MS * 2 ** min(state.failures, 10) // 2
            )
            return before._replace(problem=str(problem))
        state.failures = 0
        earlier, state.reading = state.reading, reading
        if earlier is None or reading.taken_s <= earlier.taken_s:
            return before._replace(problem="")
        found = broker_load(earlier, reading)
        state.track.add(at_ms, found)
        return BrokerMeasurement(at_ms, found, tuple(request_loads(earlier, reading)))

    def may_be_private(self, address: str) -> bool:
        hosts = {broker.host for broker in self._snapshot().brokers.values()}
        return self.allows_private or self.addresses.is_trusted or urlsplit(address).hostname in hosts

    def _add_total(self) -> None:
        """Add a point to the cluster series: the sum of rates, the maximum of times, the least free disk space."""
        now_ms = self.clock.now_ms()
        fresh = [each.load for each in self.measurements.values() if each.load and now_ms - each.at_ms < FRESH_MS]
        if not fresh:
            return
        whole: list[float | None] = []
        for name, column in zip(BrokerLoadRates._fields, zip(*fresh, strict=True), strict=True):
            known = [number for number in column if number is not None]
            if not known:
                whole.append(None)
            elif name in SUMMED:
                whole.append(sum(known))
            else:
                whole.append(min(known) if name.startswith("disk") else max(known))
        self.track.add(now_ms, whole)


def read_broker(addresses: MetricAddresses, broker: Broker, may_be_private: bool) -> Reading:
    """Read one broker; blocking. Raises OperationError."""
    address = addresses.address_of(broker.broker_id, broker.host)
    if address is None:
        raise OperationError(f"broker {broker.broker_id} has no address")
    if not may_be_private:
        _check_public(address)
    read = read_jolokia if is_jolokia(address) else read_metrics
    try:
        reading = read(addresses.with_login(address), "", ANSWER_SECONDS_MAX, METRIC_PREFIXES)
    except PasswordNeededError:
        raise OperationError(f"{address} requires a login") from None
    reported_id = reading.info().get("node_id", str(broker.broker_id))  # Apache Kafka does not report it
    if reported_id != str(broker.broker_id):
        raise OperationError(f"{address} is the address of broker {reported_id}")
    return reading


def shared_addresses(addresses: MetricAddresses, live: Iterable[Broker]) -> set[str]:
    """Addresses that several brokers would share; their metrics cannot be attributed."""
    counts = Counter(addresses.address_of(broker.broker_id, broker.host) for broker in live)
    return {address for address, count in counts.items() if address is not None and count > 1}


def _check_public(address: str) -> None:
    host = urlsplit(address).hostname or ""
    try:
        found = look_up(host, None)
    except OSError:
        raise OperationError(f"{host} cannot be resolved") from None
    if first_internal(found) is not None:
        raise OperationError(
            f"{host} has a private address and is no broker: allow it with ottla console --allow-private-addresses"
        )
