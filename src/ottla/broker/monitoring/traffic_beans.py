"""Beans about what goes through: topics, requests, connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from ottla.base.errors import Error
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.fetching import Fetch
from ottla.broker.node import Node
from ottla.metrics.beans import Bean, ObjectName, Source, Value, gauge, histogram_attributes, meter_attributes, named
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.histogram import Histogram
from ottla.metrics.meters import MeterBook, RecentHistogram, WindowedRate
from ottla.metrics.requests import RequestMeter
from ottla.metrics.traffic import TopicTraffic
from ottla.network.listener import ConnectionSet
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

# Kafka's name, what is counted, the unit. Batches are stored as they came: nothing is ever converted.
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
# Kafka's name and the histogram; the last ones are made from a sample.
REQUEST_TIMES: Final[tuple[tuple[str, Callable[[RequestMeter], Histogram]], ...]] = (
    ("TotalTimeMs", lambda meter: meter.total_ns),
    ("RequestQueueTimeMs", lambda meter: meter.queue_ns),
    ("LocalTimeMs", lambda meter: meter.local_ns),
    ("RemoteTimeMs", lambda meter: meter.remote_ns),
    ("ResponseQueueTimeMs", lambda meter: meter.response_queue_ns),
    ("ResponseSendTimeMs", lambda meter: meter.response_send_ns),
)


class TrafficBeans:
    """Reads the counters of the hot path; keeps nothing but rates."""

    def __init__(
        self,
        node: Node,
        replicas: ReplicaSet,
        counters: BrokerCounters,
        sessions: FetchSessions,
        connections: ConnectionSet,
    ) -> None:
        self._node = node
        self._replicas = replicas
        self._counters = counters
        self._sessions = sessions
        self._connections = connections
        self._book = MeterBook(time.monotonic())
        self._recent: dict[tuple[str, str], RecentHistogram] = {}
        self._rates: dict[tuple[str, str], WindowedRate] = {}

    @property
    def sources(self) -> list[Source]:
        return [
            Source(NETWORK, "RequestChannel", self._request_channel),
            Source(NETWORK, REQUEST_METRICS, self._requests),
            Source(SERVER, TOPIC_METRICS, self._topics),
            Source(SERVER, "DelayedOperationPurgatory", self._purgatories),
            Source(SERVER, "FetchSessionCache", self._fetch_sessions),
            Source(SERVER, SOCKET_METRICS, self._sockets),
        ]

    # ---- every few seconds

    def tick(self, elapsed_s: float) -> Iterator[None]:
        """Bring all rates up to date; yields where others may go on."""
        now_s = time.monotonic()
        book, traffic = self._book, self._replicas.traffic
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
                    self._book.note(("RequestsPerSec", request, str(version)), count, now_s)
        for request, error, count in self._errors():
            self._book.note(("ErrorsPerSec", request, error), count, now_s)
        evictions = self._sessions.evictions
        self._book.note(("IncrementalFetchSessionEvictionsPerSec",), evictions, now_s)
        for recent in self._recent.values():
            recent.tick(now_s)

    def _tick_sockets(self, now_s: float) -> None:
        for listener in self._connections.traffic:
            for name, count in self._socket_counts(listener).items():
                self._rate(listener, name).tick(count, now_s)

    # ---- topics

    def _topics(self) -> Iterator[Bean | None]:
        """First the whole broker, then each topic for which there is anything to tell, name by name."""
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
        return Bean(name, meter_attributes(self._book.get(key), count, now_s, unit))

    # ---- requests

    def _named_meters(self) -> list[tuple[str, RequestMeter]]:
        """Fetches count twice, as with Kafka: under their own name and as those of consumers (nobody else fetches)."""
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
        """By request and error. Produce and Fetch note only errors: what went well is counted by topic."""
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
            attributes["expired-connections-killed-count"] = traffic.expired
            keys = (("type", SOCKET_METRICS), ("listener", listener), *ProcessorKeys)
            yield Bean(ObjectName(SERVER, keys), attributes)
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

    # ---- what waits

    def _request_channel(self) -> Iterator[Bean | None]:
        """No queue stands between the sockets and the handlers: what waits, waits in its connection."""
        open_ = self._connections.connections
        waiting = sum(1 for connection in open_ if connection.is_waiting)
        unsent = sum(1 for connection in open_ if connection.out)
        yield gauge(NETWORK, "RequestChannel", "RequestQueueSize", waiting)
        yield gauge(NETWORK, "RequestChannel", "ResponseQueueSize", unsent)

    def _purgatories(self) -> Iterator[Bean | None]:
        fetches = produces = 0
        for connection in self._connections.connections:
            for waiting in connection.waiting:
                fetches += isinstance(waiting, Fetch)
                produces += not isinstance(waiting, Fetch)
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
        return f"<TrafficBeans {len(self._book)} meters, {len(self._recent)} histograms>"
