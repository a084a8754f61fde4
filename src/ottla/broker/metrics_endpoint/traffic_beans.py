"""MBeans of traffic: topics, requests, connections, quotas."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable, Iterator
from typing import Final

from ottla.base.errors import Error
from ottla.broker.delayed_fetch import DelayedFetch
from ottla.broker.fetch_sessions import FetchSessionCache
from ottla.broker.node import Node
from ottla.broker.quota_manager import ClientQuotaManager
from ottla.metrics.beans import (
    Bean,
    ObjectName,
    Source,
    Value,
    gauge,
    histogram_attributes,
    meter_attributes,
    named,
    quoted,
)
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.histogram import Histogram
from ottla.metrics.meters import MeterRegistry, RecentHistogram, WindowedRate
from ottla.metrics.prometheus import Family, Sample
from ottla.metrics.requests import RequestMeter
from ottla.metrics.traffic import TopicTraffic
from ottla.network.close_reason import CloseReason
from ottla.network.socket_server import SocketServer
from ottla.quotas.entities import CONSUMER_BYTES, MUTATIONS, PRODUCER_BYTES, REQUEST_SHARE
from ottla.quotas.meter import UNBOUNDED, TokenBucket
from ottla.quotas.meter_registry import QuotaMeter
from ottla.replication.replica_set import ReplicaSet

SERVER: Final = "kafka.server"
NETWORK: Final = "kafka.network"
TOPIC_METRICS: Final = "BrokerTopicMetrics"
REQUEST_METRICS: Final = "RequestMetrics"
SOCKET_METRICS: Final = "socket-server-metrics"
PRODUCE: Final = 0
FETCH: Final = 1
MS: Final = 1e6  # nanoseconds
BEANS_PER_PAUSE: Final = 50
ProcessorKeys = (("networkProcessor", "0"),)

# Kafka's name, the counter, the unit. Batches are stored as received: nothing is converted.
TOPIC_COUNTS: Final[tuple[tuple[str, Callable[[TopicTraffic], int], str], ...]] = (
    ("BytesInPerSec", lambda traffic: traffic.bytes_in, "bytes"),
    ("BytesOutPerSec", lambda traffic: traffic.bytes_out, "bytes"),
    ("BytesRejectedPerSec", lambda traffic: traffic.rejected_bytes, "bytes"),
    ("FailedFetchRequestsPerSec", lambda traffic: traffic.failed_reads, "requests"),
    ("FailedProduceRequestsPerSec", lambda traffic: traffic.failed_appends, "requests"),
    ("FetchMessageConversionsPerSec", lambda _: 0, "requests"),
    ("InvalidMessageCrcRecordsPerSec", lambda traffic: traffic.corrupt_batches, "requests"),
    ("InvalidOffsetOrSequenceRecordsPerSec", lambda traffic: traffic.misplaced_batches, "requests"),
    ("MessagesInPerSec", lambda traffic: traffic.messages_in, "messages"),
    ("ProduceMessageConversionsPerSec", lambda _: 0, "requests"),
    ("TotalFetchRequestsPerSec", lambda traffic: traffic.reads + traffic.refused_reads, "requests"),
    ("TotalProduceRequestsPerSec", lambda traffic: traffic.appends + traffic.refused_appends, "requests"),
)
# Kafka's name and the histogram; the last ones are sampled.
REQUEST_TIMES: Final[tuple[tuple[str, Callable[[RequestMeter], Histogram]], ...]] = (
    ("TotalTimeMs", lambda meter: meter.total_ns),
    ("RequestQueueTimeMs", lambda meter: meter.queue_ns),
    ("LocalTimeMs", lambda meter: meter.local_ns),
    ("RemoteTimeMs", lambda meter: meter.remote_ns),
    ("ResponseQueueTimeMs", lambda meter: meter.response_queue_ns),
    ("ResponseSendTimeMs", lambda meter: meter.response_send_ns),
)

SHOWN_MAX: Final = 500
TYPES: Final = {
    PRODUCER_BYTES: "Produce",
    CONSUMER_BYTES: "Fetch",
    REQUEST_SHARE: "Request",
    MUTATIONS: "ControllerMutation",
}
RATES: Final = {
    PRODUCER_BYTES: "byte-rate",
    CONSUMER_BYTES: "byte-rate",
    REQUEST_SHARE: "request-time",
    MUTATIONS: "mutation-rate",
}
_PLAIN: Final = re.compile(r"[-+%\w. \t]*")  # characters that Java does not quote

Labels = tuple[tuple[str, str], ...]

CLIENT_KINDS: Final = ("user", "client-id")
MEASURES: Final[tuple[tuple[str, str, str, Callable[[QuotaMeter, int], float | None]], ...]] = (
    (
        "ottla_quota_limit",
        "gauge",
        "Limit of the rule, per second.",
        lambda share, _: None if share.rule.bound == UNBOUNDED else share.rule.bound,
    ),
    ("ottla_quota_rate", "gauge", "Current rate, per second.", lambda share, now_ms: share.meter.rate(now_ms)),
    (
        "ottla_quota_peak_rate",
        "gauge",
        "The highest rate of the last hour.",
        lambda share, now_ms: share.meter.peak(now_ms),
    ),
    (
        "ottla_quota_held_seconds",
        "gauge",
        "Remaining throttle time of the share.",
        lambda share, now_ms: max(0, share.meter.throttled_until_ms - now_ms) / 1000,
    ),
    ("ottla_quota_held_total", "counter", "Throttled requests.", lambda share, _: share.meter.throttle_count),
    (
        "ottla_quota_held_seconds_total",
        "counter",
        "Total throttle time.",
        lambda share, _: share.meter.throttle_ms_sum / 1000,
    ),
)


class TrafficBeans:
    """Reads the counters of the hot path; stores only rates."""

    def __init__(
        self,
        node: Node,
        replicas: ReplicaSet,
        counters: BrokerCounters,
        sessions: FetchSessionCache,
        connections: SocketServer,
    ) -> None:
        self._node = node
        self._replicas = replicas
        self._counters = counters
        self._sessions = sessions
        self._connections = connections
        self._meters = MeterRegistry(time.monotonic())
        self._recent: dict[tuple[str, str], RecentHistogram] = {}
        self._rates: dict[tuple[str, str], WindowedRate] = {}

    @property
    def sources(self) -> list[Source]:
        return [
            Source(NETWORK, "RequestChannel", self._request_channel),
            Source(NETWORK, REQUEST_METRICS, self._requests),
            Source(NETWORK, "SocketServer", self._closed_connections),
            Source(SERVER, TOPIC_METRICS, self._topics),
            Source(SERVER, "DelayedOperationPurgatory", self._purgatories),
            Source(SERVER, "FetchSessionCache", self._fetch_sessions),
            Source(SERVER, SOCKET_METRICS, self._sockets),
        ]

    # ---- every few seconds

    def tick(self, elapsed_s: float) -> Iterator[None]:
        """Update all rates; yields where the caller may yield to the loop."""
        now_s = time.monotonic()
        book, traffic = self._meters, self._replicas.traffic
        book.begin(elapsed_s)
        total = traffic.total()
        for name, count, _ in TOPIC_COUNTS:
            book.note((name,), count(total), now_s)
        for topic, of_topic in list(traffic.topics.items()):
            if not of_topic.is_idle:
                for name, count, _ in TOPIC_COUNTS:
                    book.note((name, topic), count(of_topic), now_s)
                yield
        book.forget(lambda key: len(key) == 2 and key[1] not in traffic.topics)
        self._tick_requests(now_s)
        self._tick_sockets(now_s)

    def _tick_requests(self, now_s: float) -> None:
        for request, meter in self._named_meters():
            for version, count in enumerate(meter.versions):
                if count:
                    self._meters.note(("RequestsPerSec", request, str(version)), count, now_s)
        for request, error, count in self._errors():
            self._meters.note(("ErrorsPerSec", request, error), count, now_s)
        evictions = self._sessions.evictions
        self._meters.note(("IncrementalFetchSessionEvictionsPerSec",), evictions, now_s)
        for recent in self._recent.values():
            recent.tick(now_s)

    def _tick_sockets(self, now_s: float) -> None:
        for listener in self._connections.traffic:
            for name, count in self._socket_counts(listener).items():
                self._rate(listener, name).tick(count, now_s)

    # ---- topics

    def _topics(self) -> Iterator[Bean | None]:
        """Yield the totals of the broker, then each topic with traffic, name by name."""
        now_s, traffic = time.monotonic(), self._replicas.traffic
        total = traffic.total()
        used = [(topic, of_topic) for topic, of_topic in traffic.topics.items() if not of_topic.is_idle]
        yield None
        for name, count, unit in TOPIC_COUNTS:
            yield self._meter_bean(named(SERVER, TOPIC_METRICS, name), (name,), count(total), now_s, unit)
            for place, (topic, of_topic) in enumerate(used):
                number = count(of_topic)
                if number:
                    full = named(SERVER, TOPIC_METRICS, name, topic=topic)
                    yield self._meter_bean(full, (name, topic), number, now_s, unit)
                if place % BEANS_PER_PAUSE == 0:
                    yield None

    def _meter_bean(self, name: ObjectName, key: tuple[str, ...], count: int, now_s: float, unit: str) -> Bean:
        return Bean(name, meter_attributes(self._meters.get(key), count, now_s, unit))

    # ---- requests

    def _named_meters(self) -> list[tuple[str, RequestMeter]]:
        """Return the meters of all APIs. As in Kafka, fetches appear as Fetch and as FetchConsumer."""
        used = [(meter.request, meter) for meter in self._counters.requests.values() if meter.count]
        return used + [("FetchConsumer", meter) for name, meter in used if name == "Fetch"]

    def _requests(self) -> Iterator[Bean | None]:
        now_s, meters = time.monotonic(), self._named_meters()
        for request, meter in meters:
            for version, count in enumerate(meter.versions):
                if count:
                    full = named(NETWORK, REQUEST_METRICS, "RequestsPerSec", request=request, version=str(version))
                    key = ("RequestsPerSec", request, str(version))
                    yield self._meter_bean(full, key, count, now_s, "requests")
        yield None
        for request, error, count in self._errors():
            full = named(NETWORK, REQUEST_METRICS, "ErrorsPerSec", request=request, error=error)
            yield self._meter_bean(full, ("ErrorsPerSec", request, error), count, now_s, "requests")
        for name, histogram in REQUEST_TIMES:
            for request, meter in meters:
                zeros = meter.count - meter.parked_count if name == "RemoteTimeMs" else 0
                attributes = histogram_attributes(
                    self._recent_of(name, request, histogram(meter)), meter.count, MS, zeros=max(0, zeros)
                )
                yield Bean(named(NETWORK, REQUEST_METRICS, name, request=request), attributes)
            yield None
        for request, meter in meters:
            sizes = histogram_attributes(self._recent_of("RequestBytes", request, meter.sizes), meter.count)
            yield Bean(named(NETWORK, REQUEST_METRICS, "RequestBytes", request=request), sizes)

    def _recent_of(self, name: str, request: str, histogram: Histogram) -> RecentHistogram:
        found = self._recent.get((name, request))
        if found is None:
            found = self._recent[name, request] = RecentHistogram(histogram)
        return found

    def _errors(self) -> Iterator[tuple[str, str, int]]:
        """Yield counts by request and error. Produce and Fetch record only errors: successes are counted by topic."""
        counters = self._counters
        total = self._replicas.traffic.total()
        counts = {(PRODUCE, 0): total.appends, (FETCH, 0): total.reads, **counters.errors}
        for (api_key, code), count in counts.items():
            if count and api_key in counters.requests:
                yield counters.requests[api_key].request, Error(code).name, count

    # ---- connections

    def _sockets(self) -> Iterator[Bean | None]:
        now_s = time.monotonic()
        for listener, traffic in self._connections.traffic.items():
            attributes: dict[str, Value] = {"connection-count": traffic.open}
            for name, count in self._socket_counts(listener).items():
                attributes[f"{name}-total"] = count
                attributes[f"{name}-rate"] = self._rate(listener, name).rate(count, now_s)
            attributes["expired-connections-killed-count"] = traffic.closes[CloseReason.IDLE]
            keys = (("type", SOCKET_METRICS), ("listener", listener), *ProcessorKeys)
            yield Bean(ObjectName(SERVER, keys), attributes)
            yield None

    def _closed_connections(self) -> Iterator[Bean | None]:
        for listener, traffic in self._connections.traffic.items():
            for reason, count in traffic.closes.items():
                name = named(NETWORK, "SocketServer", "ConnectionsClosed", listener=listener, reason=reason.value)
                yield Bean(name, {"Count": count})
            yield None

    def _socket_counts(self, listener: str) -> dict[str, int]:
        traffic = self._connections.traffic[listener]
        received, sent = traffic.received_bytes, traffic.sent_bytes
        for connection in self._connections.connections:
            if connection.client.listener_name == listener:
                received += connection.received_bytes
                sent += connection.sent_bytes
        return {
            "connection-creation": traffic.opened,
            "connection-close": traffic.closed,
            "successful-authentication": traffic.logins,
            "failed-authentication": traffic.failed_logins,
            "successful-reauthentication": traffic.repeated_logins,
            "failed-reauthentication": traffic.failed_repeated_logins,
            "incoming-byte": received,
            "outgoing-byte": sent,
        }

    def _rate(self, listener: str, name: str) -> WindowedRate:
        found = self._rates.get((listener, name))
        if found is None:
            settings = self._node.settings
            found = WindowedRate(settings.metrics_num_samples, settings.metrics_sample_window_ms / 1000)
            self._rates[listener, name] = found
        return found

    # ---- queues

    def _request_channel(self) -> Iterator[Bean | None]:
        """Yield the sizes of queues, always 0: requests wait in their connections."""
        open_ = self._connections.connections
        waiting = sum(1 for connection in open_ if connection.has_deferred_frame)
        unsent = sum(1 for connection in open_ if connection.unsent_chunks)
        yield gauge(NETWORK, "RequestChannel", "RequestQueueSize", waiting)
        yield gauge(NETWORK, "RequestChannel", "ResponseQueueSize", unsent)

    def _purgatories(self) -> Iterator[Bean | None]:
        fetches = produces = 0
        for connection in self._connections.connections:
            for waiting in connection.waiting_requests:
                fetches += isinstance(waiting, DelayedFetch)
                produces += not isinstance(waiting, DelayedFetch)
        yield None
        for name in ("NumDelayedOperations", "PurgatorySize"):
            for operation, count in (("Fetch", fetches), ("Produce", produces)):
                yield gauge(SERVER, "DelayedOperationPurgatory", name, count, delayedOperation=operation)

    def _fetch_sessions(self) -> Iterator[Bean | None]:
        sessions = self._sessions
        type_, evictions = "FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec"
        key, now_s = (evictions,), time.monotonic()
        yield self._meter_bean(named(SERVER, type_, evictions), key, sessions.evictions, now_s, "evictions")
        yield gauge(SERVER, type_, "NumIncrementalFetchPartitionsCached", sessions.partition_count)
        yield gauge(SERVER, type_, "NumIncrementalFetchSessions", len(sessions))

    def __repr__(self) -> str:
        return f"<TrafficBeans {len(self._meters)} meters, {len(self._recent)} histograms>"


class QuotaBeans:
    """Kafka's MBeans of quotas, and additional Prometheus metrics.

    There may be tens of thousands of client ids: the newest `SHOWN_MAX` shares are shown, the others counted.
    """

    def __init__(self, gate: ClientQuotaManager) -> None:
        self._quota_manager = gate

    @property
    def sources(self) -> list[Source]:
        return [Source(SERVER, type_, self._beans_of(key)) for key, type_ in TYPES.items()]

    def _beans_of(self, key: str) -> Callable[[], Iterator[Bean | None]]:
        def beans() -> Iterator[Bean | None]:
            now_ms = self._quota_manager.now_ms()
            for share in self._shown_shares(
                lambda share: share.rule.key == key and share.rule.entity.kinds[0] in CLIENT_KINDS
            ):
                yield Bean(object_name(TYPES[key], share), attributes(share, now_ms))
            yield None

        return beans

    def _shown_shares(self, is_wanted: Callable[[QuotaMeter], bool]) -> list[QuotaMeter]:
        shares = (
            share
            for share in self._quota_manager.shares
            if is_wanted(share) and self._quota_manager.shares.is_current(share)
        )
        return heapq.nlargest(SHOWN_MAX, shares, key=lambda share: share.meter.last_ms)

    def families(self) -> Iterator[Family]:
        gate = self._quota_manager
        yield Family(
            "ottla_quota_is_observing",
            "gauge",
            "1 if quotas are only observed and no client is throttled.",
            [Sample((), int(gate.is_observing))],
        )
        if not gate.is_on and not len(gate.shares):
            return
        now_ms = gate.now_ms()
        shown = [(labels(share), share) for share in self._shown_shares(lambda _: True)]
        addresses = list(gate.connection_rates)[:SHOWN_MAX]
        shown += [((*labels(share)[:-1], ("rule", f"ip={host}")), share) for host, share in addresses]
        hidden = len(gate.shares) + len(gate.connection_rates) - len(shown)
        yield Family("ottla_quota_shares_hidden", "gauge", "Shares that are not shown.", [Sample((), max(0, hidden))])
        for name, kind, text, value in MEASURES:
            samples = [Sample(each, number) for each, share in shown if (number := value(share, now_ms)) is not None]
            yield Family(name, kind, text, samples)

    def __repr__(self) -> str:
        return f"<QuotaBeans {self._quota_manager!r}>"


def labels(share: QuotaMeter) -> Labels:
    rule = share.rule
    return (("key", rule.key), ("user", rule.user), ("client_id", rule.client_id), ("rule", str(rule.entity)))


def object_name(type_: str, share: QuotaMeter) -> ObjectName:
    """Return the MBean name. As in Kafka, it omits the parts that the share does not depend on."""
    named = (("user", share.rule.user), ("client-id", share.rule.client_id))
    keys = tuple((key, value if _PLAIN.fullmatch(value) else quoted(value)) for key, value in named if value)
    return ObjectName(SERVER, (("type", type_), *keys))


def attributes(share: QuotaMeter, now_ms: int) -> dict[str, Value]:
    meter = share.meter
    found: dict[str, Value] = {
        RATES[share.rule.key]: meter.rate(now_ms),
        "throttle-time": float(meter.recent_wait_ms(now_ms)),
    }
    if isinstance(meter, TokenBucket):
        found["tokens"] = meter.tokens(now_ms)
    return found
