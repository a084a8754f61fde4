"""Reads the metrics of a cluster's brokers in the background, where somebody has told their addresses.

Rules:
1. A few threads of its own ask, never the reader's: a broker that does not answer delays nobody else. An answer is
   bounded in size and time; a broker that fails is asked less often.
2. Nothing of another broker is shown: an ottla broker says which one it is, and two brokers never have one address.
3. An address that was typed into a page leads to the brokers' own hosts, or out into the world; to others inside only
   if that is allowed.
4. What failed keeps the numbers of before, with their age and the reason. What is published is immutable; tracks
   belong to the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.console.clusters.metric_addresses import MetricAddresses
from ottla.console.clusters.snapshot import Broker, Snapshot
from ottla.console.clusters.tracks import Track
from ottla.operations.broker_load import WANTED, Load, RequestLoad, load, request_loads
from ottla.operations.errors import OperationError
from ottla.operations.jolokia_readings import is_jolokia, read_jolokia
from ottla.operations.metric_readings import PasswordNeededError, Reading, read_metrics
from ottla.operations.public_addresses import first_inside, look_up

PERIOD_MS: Final = 5_000
FIRST_MS: Final = 1_000  # rates need a second reading: the first ones come soon
REST_MS_MAX: Final = 60_000  # between two tries with a broker that does not answer
ANSWER_SECONDS_MAX: Final = 3.0
THREADS: Final = 4
BROKERS_MAX: Final = 1_000
FRESH_MS: Final = 3 * PERIOD_MS  # older numbers are no part of a sum
SUMMED: Final = ("records_in", "bytes_in", "bytes_out", "requests", "network_in", "network_out", "connections")


class Measured(NamedTuple):
    """What is known of a broker: `at_ms` is the wall time of `load`, 0 if there is none yet."""

    at_ms: int = 0
    load: Load | None = None
    requests: tuple[RequestLoad, ...] = ()
    problem: str = ""


class _Broker:
    """A broker that is asked."""

    def __init__(self) -> None:
        self.reading: Reading | None = None
        self.failures = 0
        self.due_ms = 0
        self.track = Track(len(Load._fields))


class Metrics:
    """The metrics of one cluster: `seen` from everywhere, the rest on the event loop."""

    def __init__(self, name: str, clock: Clock, snapshot: Callable[[], Snapshot], on_news: Callable[[], None]) -> None:
        self.name = name
        self.clock = clock
        self.addresses = MetricAddresses()
        self.allows_private = False
        self.seen: Mapping[int, Measured] = {}
        self.version = 0
        self.track = Track(len(Load._fields))  # of all brokers together
        self._snapshot = snapshot
        self._on_news = on_news
        self._brokers: dict[int, _Broker] = {}
        self._task: asyncio.Task[None] | None = None
        self._threads: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"<Metrics of {self.name}: {len(self.seen)} brokers>"

    @property
    def is_told(self) -> bool:
        """Whether anybody has said where to read."""
        return bool(self.addresses.text)

    @property
    def at_ms(self) -> int:
        return max((each.at_ms for each in self.seen.values()), default=0)

    def use(self, addresses: MetricAddresses) -> None:
        """Read from there, from now on."""
        self.stop()
        self.addresses = addresses
        self._brokers, self.seen = {}, {}
        self.version += 1
        if self.is_told:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="console-metrics")
            self._task = tasks.keep_running(self._run, f"metrics of cluster {self.name}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def track_of(self, broker: int) -> Track | None:
        found = self._brokers.get(broker)
        return found.track if found is not None else None

    async def _run(self) -> None:
        while True:
            began_ms = self.clock.monotonic_ms()
            await self.read_once()
            is_new = not self._brokers or any(
                state.reading is not None and not self.seen[number].at_ms for number, state in self._brokers.items()
            )
            wait_ms = began_ms + (FIRST_MS if is_new else PERIOD_MS) - self.clock.monotonic_ms()
            await asyncio.sleep(max(FIRST_MS, wait_ms) / 1000)

    async def read_once(self) -> None:
        """One round: every broker that is due."""
        live = self._snapshot().brokers
        for gone in [each for each in self._brokers if each not in live][: max(0, len(self._brokers) - BROKERS_MAX)]:
            del self._brokers[gone]
        now_ms = self.clock.monotonic_ms()
        due = [broker for broker in live.values() if self._state(broker).due_ms <= now_ms]
        shared = shared_addresses(self.addresses, live.values())
        found = await asyncio.gather(*(self._read(broker, shared) for broker in due[:BROKERS_MAX]))
        if due:
            seen = {number: each for number, each in self.seen.items() if number in self._brokers}
            self.seen = {**seen, **{broker.broker_id: each for broker, each in zip(due, found, strict=False)}}
            self._sum_up()
            self.version += 1
            self._on_news()

    def _state(self, broker: Broker) -> _Broker:
        return self._brokers.setdefault(broker.broker_id, _Broker())

    async def _read(self, broker: Broker, shared: Collection[str]) -> Measured:
        state, before = self._state(broker), self.seen.get(broker.broker_id, Measured())
        address = self.addresses.of(broker.broker_id, broker.host)
        if address is None:
            return Measured()
        at_ms = self.clock.now_ms()
        try:
            if address in shared:
                raise OperationError(f"{address} would be that of several brokers: name them one by one")
            reading = await asyncio.get_running_loop().run_in_executor(
                self._threads, read_broker, self.addresses, broker, self.may_be_inside(address)
            )
        except OperationError as problem:
            state.failures += 1
            state.reading = None
            state.due_ms = self.clock.monotonic_ms() + min(REST_MS_MAX, PERIOD_MS * 2 ** min(state.failures, 10) // 2)
            return before._replace(problem=str(problem))
        state.failures = 0
        earlier, state.reading = state.reading, reading
        if earlier is None or reading.taken_s <= earlier.taken_s:
            return before._replace(problem="")
        found = load(earlier, reading)
        state.track.add(at_ms, found)
        return Measured(at_ms, found, tuple(request_loads(earlier, reading)))

    def may_be_inside(self, address: str) -> bool:
        hosts = {broker.host for broker in self._snapshot().brokers.values()}
        return self.allows_private or self.addresses.is_trusted or urlsplit(address).hostname in hosts

    def _sum_up(self) -> None:
        """Rates of all brokers together, the worst of all times, the room on the fullest disk."""
        now_ms = self.clock.now_ms()
        fresh = [each.load for each in self.seen.values() if each.load and now_ms - each.at_ms < FRESH_MS]
        if not fresh:
            return
        whole: list[float | None] = []
        for name, column in zip(Load._fields, zip(*fresh, strict=True), strict=True):
            known = [number for number in column if number is not None]
            if not known:
                whole.append(None)
            elif name in SUMMED:
                whole.append(sum(known))
            else:
                whole.append(min(known) if name.startswith("disk") else max(known))
        self.track.add(now_ms, whole)


def read_broker(addresses: MetricAddresses, broker: Broker, may_be_inside: bool) -> Reading:
    """Ask one broker, in a thread. Raises OperationError."""
    address = addresses.of(broker.broker_id, broker.host)
    if address is None:
        raise OperationError(f"broker {broker.broker_id} has no address")
    if not may_be_inside:
        _check_public(address)
    read = read_jolokia if is_jolokia(address) else read_metrics
    try:
        reading = read(addresses.with_login(address), "", ANSWER_SECONDS_MAX, WANTED)
    except PasswordNeededError:
        raise OperationError(f"{address} wants a login") from None
    told = reading.info().get("node_id", str(broker.broker_id))  # Java does not say
    if told != str(broker.broker_id):
        raise OperationError(f"{address} belongs to broker {told}")
    return reading


def shared_addresses(addresses: MetricAddresses, live: Iterable[Broker]) -> set[str]:
    """Those that several brokers would have, none of which can be believed."""
    counts = Counter(addresses.of(broker.broker_id, broker.host) for broker in live)
    return {address for address, count in counts.items() if address is not None and count > 1}


def _check_public(address: str) -> None:
    host = urlsplit(address).hostname or ""
    try:
        found = look_up(host, None)
    except OSError:
        raise OperationError(f"{host} is not known") from None
    if first_inside(found) is not None:
        raise OperationError(
            f"{host} is an address inside and no broker's own: allow such with ottla console --allow-private-addresses"
        )
