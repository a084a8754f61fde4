"""Reading ranges of a real broker, without Spark: faults during a read, and requests to each listener."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.conftest import BrokerFactory

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.operations import range_fetcher
from ottla.operations.range_fetcher import OffsetRange
from ottla.pipelines.source.cluster import KafkaCluster, open_cluster
from ottla.pipelines.source.data_loss import DataLossError, SourceError
from ottla.pipelines.source.options import Options, read_options
from ottla.pipelines.source.planner import Planner
from ottla.pipelines.source.range_reader import read_range
from ottla.testing import Broker

SMALL_FETCHES = {"kafka.max.partition.fetch.bytes": "65536"}
# A producer that the machine holds still for a moment would put everything into two batches: one for each fetch.
SMALL_BATCHES = {"batch.num.messages": 500}


def make_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    name = f"s-reading-{uuid.uuid4().hex[:8]}"
    with Client(bootstrap) as client:
        Admin(client).create_topic(name, partitions=partitions, configs={"retention.ms": "-1", **configs})
    return name


def produce(bootstrap: str, topic: str, count: int, value: Callable[[int], bytes | None], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for number in range(count):
        headers = [("n", b"%d" % number), ("none", None)] if number % 3 == 0 else []
        key = None if number % 5 == 0 else b"k%d" % number
        producer.produce(topic, value(number), key=key, headers=headers, timestamp=number + 1)
    assert producer.flush(30) == 0


def options(bootstrap: str, topic: str, **more: str) -> Options:
    return read_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **more}, is_stream=False)


def only_range(wanted: Options) -> OffsetRange:
    cluster = KafkaCluster(wanted)
    (found,) = Planner(wanted, cluster).batch_ranges()
    cluster.close()
    return found


@pytest.mark.parametrize("security", [None, "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_what_was_written_is_read_whatever_the_listener_asks_for(security: str | None) -> None:
    with Broker(security=security, topics={"t": 1}) as broker:
        library = {} if broker.security is None else broker.security.librdkafka
        login = {} if broker.security is None else broker.security.properties
        value = [None if number % 7 == 0 else b"v%d" % number * (number % 20) for number in range(3000)]
        produce(broker.bootstrap_servers, "t", 3000, value.__getitem__, **library)
        given = {f"kafka.{name}": text for name, text in login.items()}
        wanted = options(broker.bootstrap_servers, "t", includeHeaders="true", **given)
        found = only_range(wanted)
        assert found == OffsetRange("t", 0, 0, 3000)
        by_wire = pa.Table.from_batches(read_range(found._replace(start=17, end=2981), wanted))
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **library}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", 0, 17)])
        by_library = consumer.consume(2964, timeout=60)
        consumer.close()
    assert by_wire["offset"].to_pylist() == [message.offset() for message in by_library] == list(range(17, 2981))
    assert by_wire["key"].to_pylist() == [message.key() for message in by_library]
    assert by_wire["value"].to_pylist() == [message.value() for message in by_library] == value[17:2981]
    headers = [[(each["key"], each["value"]) for each in row or []] for row in by_wire["headers"].to_pylist()]
    assert headers == [message.headers() or [] for message in by_library]


def test_settings_that_no_client_can_be_made_of_are_told(bootstrap: str) -> None:
    with pytest.raises(SourceError, match=r"security.protocol=TLS is not known"):
        open_cluster(options(bootstrap, "t", **{"kafka.security.protocol": "TLS"}))


def test_large_records_are_read_even_when_fetches_are_small(bootstrap: str) -> None:
    topic = make_topic(bootstrap, **{"max.message.bytes": "12000000"})
    produce(bootstrap, topic, 3, lambda number: bytes([number]) * 10_000_000, **{"message.max.bytes": 12_000_000})
    wanted = options(bootstrap, topic, **SMALL_FETCHES)
    values = [row["value"] for batch in read_range(only_range(wanted), wanted) for row in batch.to_pylist()]
    assert values == [bytes([number]) * 10_000_000 for number in range(3)]


@pytest.mark.needs_ottla
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_broker_that_restarts_costs_time_but_no_record(broker_factory: BrokerFactory, is_killed: bool) -> None:
    broker = broker_factory()
    topic = make_topic(broker.bootstrap)
    produce(broker.bootstrap, topic, 50_000, lambda number: b"v%d" % number, **SMALL_BATCHES)
    wanted = options(broker.bootstrap, topic, **SMALL_FETCHES)
    offsets: list[int] = []
    for index, batch in enumerate(read_range(only_range(wanted), wanted)):
        offsets += batch.column("offset").to_pylist()
        if index == 2:
            if is_killed:
                broker.kill9()
                broker.start()
            else:
                broker.restart()
    assert offsets == list(range(50_000))


def test_a_topic_that_is_deleted_meanwhile_is_a_loss(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_fetcher, "UNKNOWN_TOPIC_TIMEOUT_S", 0.3)
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, 20_000, lambda number: b"v%d" % number, **SMALL_BATCHES)
    wanted = options(bootstrap, topic, **SMALL_FETCHES)
    batches = read_range(only_range(wanted), wanted)
    next(batches)
    with Client(bootstrap) as client:
        Admin(client).delete_topics([topic])
    with pytest.raises(DataLossError, match=f"{topic}-0 offsets 0 to 20000: the topic or partition does not exist"):
        list(batches)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_made_anew_since_the_plan_is_not_taken_for_the_old_one(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(range_fetcher, "UNKNOWN_TOPIC_TIMEOUT_S", 0.3)
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, 100, lambda _: b"old")
    wanted = options(bootstrap, topic, failOnDataLoss=fails)
    cluster = open_cluster(wanted)
    (found,) = Planner(wanted, cluster).batch_ranges()
    with Client(bootstrap) as client:
        Admin(client).delete_topics([topic])
        Admin(client).create_topic(topic, partitions=1)
    produce(bootstrap, topic, 200, lambda _: b"new")
    batches = read_range(found, wanted, cluster.topic_ids()[topic])
    cluster.close()
    if fails == "false":
        assert list(batches) == []
        return
    with pytest.raises(DataLossError, match=f"{topic}-0 offsets 0 to 100: the topic was deleted and recreated"):
        list(batches)


def test_what_was_on_its_way_when_the_topic_was_deleted_is_read_whole(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, 20_000, lambda number: b"v%d" % number, **{"linger.ms": 60_000})  # two full batches
    wanted = options(bootstrap, topic, **SMALL_FETCHES)
    batches = read_range(only_range(wanted), wanted)
    first = next(batches)
    with Client(bootstrap) as client:
        Admin(client).delete_topics([topic])
    assert [len(each) for each in (first, *batches)] == [10_000, 10_000]


def test_the_rest_of_a_deleted_topic_is_left_out_when_that_is_allowed(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_fetcher, "UNKNOWN_TOPIC_TIMEOUT_S", 0.3)
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, 100, lambda number: b"v%d" % number)
    wanted = options(bootstrap, topic, failOnDataLoss="false")
    found = only_range(wanted)
    with Client(bootstrap) as client:
        Admin(client).delete_topics([topic])
    assert list(read_range(found, wanted)) == []


def test_a_range_beyond_the_end_of_the_log_is_a_loss(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    produce(bootstrap, topic, 10, lambda number: b"v%d" % number)
    wanted = options(bootstrap, topic, **{"kafkaConsumer.pollTimeoutMs": "700"})
    with pytest.raises(DataLossError, match=r"no data from offset 10 for 0\.7 s; the log ends at 10"):
        list(read_range(OffsetRange(topic, 0, 5, 20), wanted))
    with pytest.raises(DataLossError, match="offset 50 is not in the log, which holds 0 to 10"):
        list(read_range(OffsetRange(topic, 0, 50, 60), wanted))
