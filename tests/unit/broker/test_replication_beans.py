"""Beans about replication, from counters that a test fills."""

from types import SimpleNamespace

import pytest

from ottla.base.names import TopicPartition
from ottla.broker.monitoring.replication_beans import ReplicationBeans
from ottla.metrics.beans import find, parse_pattern
from unit.broker.nodes import node


def replication_beans(clustering=None):
    total = SimpleNamespace(replication_bytes_in=700, replication_bytes_out=30)
    replicas = SimpleNamespace(traffic=SimpleNamespace(total=lambda: total))
    return ReplicationBeans(node(), replicas, clustering)


def clustered(isr_changes=None, replica_fetchers=None):
    return SimpleNamespace(isr_changes=isr_changes, replica_fetchers=replica_fetchers)


def read(beans, pattern):
    found = [bean for bean in find(beans.sources, parse_pattern(pattern)) if bean is not None]
    return [bean.attributes for bean in found]


def test_changes_of_in_sync_replicas_are_counted_and_have_rates():
    beans = replication_beans(clustered(isr_changes=SimpleNamespace(failures=2, expands=10, shrinks=5)))
    beans.tick(5.0)
    (expands,) = read(beans, "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec")
    (shrinks,) = read(beans, "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec")
    assert (expands["Count"], expands["OneMinuteRate"], expands["EventType"]) == (10, 2.0, "expands")
    assert shrinks["Count"] == 5


@pytest.mark.parametrize("clustering", [None, clustered()], ids=["alone", "before it serves"])
def test_a_broker_that_is_alone_has_no_fetchers_and_its_in_sync_replicas_never_change(clustering):
    beans = replication_beans(clustering)
    assert read(beans, "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec")[0]["Count"] == 0
    assert read(beans, "kafka.server:type=ReplicaFetcherManager,*") == []
    assert read(beans, "kafka.server:type=BrokerTopicMetrics,*") == []


def test_fetchers_tell_how_far_behind_they_are():
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
