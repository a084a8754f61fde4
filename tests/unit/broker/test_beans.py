"""MBeans of traffic and replication, from counters that the tests set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.nodes import node

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.broker.metrics_endpoint import traffic_beans
from ottla.broker.metrics_endpoint.state_beans import ReplicationBeans
from ottla.broker.metrics_endpoint.traffic_beans import TrafficBeans
from ottla.metrics.beans import Bean, find, parse_pattern
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.traffic import TrafficSet
from ottla.network.socket_server import ListenerTraffic


class Stand:
    """Counters, and the beans that read them at a given time."""

    def __init__(self, monkeypatch: Any, **settings: int) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(traffic_beans, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.traffic = TrafficSet()
        self.counters = BrokerCounters()
        self.listener = ListenerTraffic()
        self.waiting: list[object] = []
        connection = SimpleNamespace(
            client=SimpleNamespace(listener_name="PLAINTEXT"),
            received_bytes=500,
            sent_bytes=70,
            has_deferred_frame=True,
            unsent_chunks=[b"x"],
            waiting_requests=self.waiting,
        )
        texts = {"metrics.num.samples": "2", "metrics.sample.window.ms": "30000"}
        texts |= {key.replace("_", "."): str(value) for key, value in settings.items()}
        replicas: Any = SimpleNamespace(traffic=self.traffic)
        sessions: Any = SimpleNamespace(evictions=3, partition_count=9, __len__=lambda: 2)
        connections: Any = SimpleNamespace(traffic={"PLAINTEXT": self.listener}, connections=[connection])
        self.beans = TrafficBeans(node(texts), replicas, self.counters, sessions, connections)

    def tick(self, seconds: float = 5.0) -> None:
        self.now_s += seconds
        for _ in self.beans.tick(seconds):
            pass

    def read(self, name: str) -> Bean:
        found = [bean for bean in find(self.beans.sources, parse_pattern(name)) if bean is not None]
        assert len(found) == 1, found
        return found[0]


def test_topics_and_their_sum_have_counts_and_rates(monkeypatch: Any) -> None:
    stand = Stand(monkeypatch)
    stand.traffic.join("orders").messages_in += 30
    stand.traffic.join("clicks").messages_in += 70
    for topic in stand.traffic.topics.values():
        topic.appends += 1
    stand.tick()
    total = stand.read("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec").attributes
    orders = stand.read("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=orders").attributes
    assert (total["Count"], total["OneMinuteRate"], total["EventType"]) == (100, 20.0, "messages")
    assert (orders["Count"], orders["OneMinuteRate"]) == (30, 6.0)


def test_a_topic_without_traffic_has_no_beans(monkeypatch: Any) -> None:
    stand = Stand(monkeypatch)
    stand.traffic.join("idle")
    stand.tick()
    pattern = parse_pattern("kafka.server:type=BrokerTopicMetrics,name=*,topic=*")
    assert [bean for bean in find(stand.beans.sources, pattern) if bean is not None] == []


def test_requests_errors_and_times(monkeypatch: Any) -> None:
    stand = Stand(monkeypatch)
    meter = stand.counters.meter(1, "Fetch", 18)
    for _ in range(10):
        meter.count_request(17)
        meter.record(received_ns=0, now_ns=2_000_000)
    meter.record_deferred(received_ns=0, parked_ns=1_000_000, now_ns=501_000_000)
    stand.counters.note_error(1, Error.OFFSET_OUT_OF_RANGE)
    stand.traffic.join("orders").reads += 9
    stand.tick()
    rate = stand.read("kafka.network:type=RequestMetrics,name=RequestsPerSec,request=FetchConsumer,version=17")
    assert (rate.attributes["Count"], rate.attributes["OneMinuteRate"]) == (10, 2.0)
    times = stand.read("kafka.network:type=RequestMetrics,name=RemoteTimeMs,request=Fetch").attributes
    assert (times["50thPercentile"], times["Max"]) == (0.0, 500.0)
    errors = "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Fetch,error="
    assert stand.read(f"{errors}OFFSET_OUT_OF_RANGE").attributes["Count"] == 1
    assert stand.read(f"{errors}NONE").attributes["Count"] == 9


def test_connections_are_counted_by_listener(monkeypatch: Any) -> None:
    stand = Stand(monkeypatch)
    stand.listener.opened, stand.listener.closed, stand.listener.received_bytes = 60, 59, 1000
    stand.tick()
    found = stand.read("kafka.server:type=socket-server-metrics,listener=PLAINTEXT,networkProcessor=0").attributes
    assert (found["connection-count"], found["connection-creation-total"]) == (1, 60)
    assert found["incoming-byte-total"] == 1500, "closed connections and the open one"
    assert found["connection-creation-rate"] == 2.0, "60 in the 30 seconds of a window"


def test_the_window_settings_apply_to_rates(monkeypatch: Any) -> None:
    stand = Stand(monkeypatch, metrics_num_samples=3, metrics_sample_window_ms=1000)
    stand.listener.opened = 60
    stand.tick()
    found = stand.read("kafka.server:type=socket-server-metrics,listener=PLAINTEXT,networkProcessor=0").attributes
    assert found["connection-creation-rate"] == 30.0, "two windows of a second before the present one"


def test_waiting_requests_are_counted_by_type(monkeypatch: Any) -> None:
    stand = Stand(monkeypatch)
    stand.waiting.extend([object(), object()])
    produce = "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Produce"
    assert stand.read(produce).attributes == {"Value": 2}
    assert stand.read(produce.replace("Produce", "Fetch")).attributes == {"Value": 0}
    assert stand.read("kafka.network:type=RequestChannel,name=RequestQueueSize").attributes == {"Value": 1}


# ---- replication


def replication_beans(clustering=None):
    total = SimpleNamespace(replication_bytes_in=700, replication_bytes_out=30)
    replicas = SimpleNamespace(traffic=SimpleNamespace(total=lambda: total))
    return ReplicationBeans(node(), replicas, clustering)


def clustered(isr_changes=None, replica_fetchers=None):
    return SimpleNamespace(alter_partition_manager=isr_changes, replica_fetchers=replica_fetchers)


def read(beans, pattern):
    found = [bean for bean in find(beans.sources, parse_pattern(pattern)) if bean is not None]
    return [bean.attributes for bean in found]


def test_isr_changes_are_counted_and_have_rates():
    beans = replication_beans(clustered(isr_changes=SimpleNamespace(failures=2, expands=10, shrinks=5)))
    beans.tick(5.0)
    (expands,) = read(beans, "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec")
    (shrinks,) = read(beans, "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec")
    assert (expands["Count"], expands["OneMinuteRate"], expands["EventType"]) == (10, 2.0, "expands")
    assert shrinks["Count"] == 5


@pytest.mark.parametrize("clustering", [None, clustered()], ids=["alone", "before it serves"])
def test_a_standalone_broker_has_no_fetchers_and_no_isr_changes(clustering):
    beans = replication_beans(clustering)
    assert read(beans, "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec")[0]["Count"] == 0
    assert read(beans, "kafka.server:type=ReplicaFetcherManager,*") == []
    assert read(beans, "kafka.server:type=BrokerTopicMetrics,*") == []


def test_fetchers_report_their_lag():
    followed = SimpleNamespace(lag=42, partition=SimpleNamespace(name=TopicPartition("orders", 3)))
    plan = SimpleNamespace(followed={0: followed}, failed_count=1)
    fetcher = SimpleNamespace(number=0, leader_id=2, plan=plan)
    beans = replication_beans(clustered(replica_fetchers=SimpleNamespace(fetchers={0: fetcher}, lag_max=42)))
    beans.tick(5.0)
    fetcher_keys = "clientId=ReplicaFetcherThread-0-2,topic=orders,partition=3"
    assert read(beans, f"kafka.server:type=FetcherLagMetrics,name=ConsumerLag,{fetcher_keys}") == [{"Value": 42}]
    manager = "kafka.server:type=ReplicaFetcherManager,name={},clientId=Replica"
    assert read(beans, manager.format("MaxLag")) == [{"Value": 42}]
    assert read(beans, manager.format("FailedPartitionsCount")) == [{"Value": 1}]
    (copied,) = read(beans, "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec")
    assert (copied["Count"], copied["OneMinuteRate"]) == (700, 140.0)
