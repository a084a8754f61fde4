"""Client metrics (KIP-714) with clients that really push them: librdkafka and Java.

Apache Kafka serves these APIs only with a plug-in; the codes in `test_the_protocol` were proven on one that has it.
"""

import re
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conformance.config_requests import CLIENT_METRICS, DELETE, OK, SET, change, wait_for
from tests.conformance.peer import Peer
from tests.conformance.waiting import eventually

from ottla.client.client import Client
from ottla.client.connection import Connection
from ottla.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

GET_SUBSCRIPTIONS = 71
INVALID_REQUEST, INVALID_RECORD, TOO_EARLY, UNKNOWN_SUBSCRIPTION, TOO_LARGE = 42, 87, 89, 117, 118
UNSUPPORTED_COMPRESSION = 76
SECONDS_MAX = 20


def subscribe(bootstrap: str, name: str, **settings: str) -> None:
    wanted = [(key.replace("_", "."), SET, value) for key, value in settings.items()]
    with Peer(bootstrap) as peer:
        assert change(peer, (CLIENT_METRICS, name, wanted)) == [OK]
        for key, _, value in wanted:
            wait_for(peer, CLIENT_METRICS, name, key, value)


def announced(bootstrap: str) -> bool:
    with Client(bootstrap) as client:
        return GET_SUBSCRIPTIONS in client._any_broker().versions


# ---- the protocol, message by message


class Telemetry:
    """One client, by hand."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.id = uuid.UUID(int=0)
        self.subscription = 0

    def get(self) -> Any:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.id)
        answer = self.connection.call(request, GetTelemetrySubscriptionsResponse, 0, 5000)
        if not answer.error_code:
            self.id, self.subscription = answer.client_instance_id, answer.subscription_id
        return answer

    def push(self, data: bytes = b"", *, compression: int = 0, is_last: bool = False, subscription: int = 0) -> int:
        request = PushTelemetryRequest(
            client_instance_id=self.id,
            subscription_id=subscription or self.subscription,
            terminating=is_last,
            compression_type=compression,
            metrics=data,
        )
        return self.connection.call(request, PushTelemetryResponse, 0, 5000).error_code


def test_the_protocol(bootstrap: str) -> None:
    name = f"conformance-{uuid.uuid4().hex[:8]}"
    client_id = f"client-{name}"
    subscribe(bootstrap, name, interval_ms="60000", metrics="b.,a.", match=f"client_id={client_id}")
    try:
        if not announced(bootstrap):
            pytest.skip("this broker has no plug-in for client metrics")
        with Client(bootstrap, client_id=client_id) as client:
            play(client._any_broker())
    finally:
        with Peer(bootstrap) as peer:
            change(peer, (CLIENT_METRICS, name, [(key, DELETE, None) for key in ("interval.ms", "match", "metrics")]))


def play(connection: Connection) -> None:
    client = Telemetry(connection)
    assert client.push() == INVALID_REQUEST  # no id yet
    answer = client.get()
    assert (answer.error_code, answer.push_interval_ms, answer.requested_metrics) == (0, 60_000, ["b.", "a."])
    assert (answer.accepted_compression_types, answer.telemetry_max_bytes) == ([4, 3, 1, 2], 1_048_576)
    assert answer.delta_temporality
    assert client.get().error_code == TOO_EARLY
    assert client.push() == 0
    assert client.push() == TOO_EARLY
    assert client.push(is_last=True) == 0
    assert client.push() == INVALID_REQUEST
    for wrong, code in (
        ({"subscription": 12345}, UNKNOWN_SUBSCRIPTION),
        ({"compression": 9}, UNSUPPORTED_COMPRESSION),
        ({"data": b"x" * 1_048_577}, TOO_LARGE),
        ({"data": b"no zstd", "compression": 4}, INVALID_RECORD),
    ):
        other = Telemetry(connection)
        other.get()
        assert other.push(**wrong) == code


def test_a_push_may_have_as_many_bytes_as_telemetry_max_bytes_says(broker_factory: Callable[..., Any]) -> None:
    broker = broker_factory(telemetry_max_bytes=100)
    subscribe(broker.bootstrap, "all", interval_ms="100", metrics="*")
    with Client(broker.bootstrap) as client:
        for size, code in ((101, TOO_LARGE), (100, INVALID_RECORD)):  # the smaller one is taken in, and is no metrics
            one = Telemetry(client._any_broker())
            assert one.get().telemetry_max_bytes == 100
            assert one.push(b"\xff" * size) == code


# ---- real clients


@pytest.fixture
def watched(broker_factory: Callable[..., Any]) -> Any:
    """A broker that wants all metrics twice a second and shows them."""
    made = broker_factory(ottla_metrics_port=0)
    subscribe(made.bootstrap, "all", interval_ms="500", metrics="*")
    return made


def page(broker: Any) -> str:
    address = re.findall(r"metrics on (\S+)", broker.log_text)[-1]
    with urllib.request.urlopen(address) as answer:
        return str(answer.read().decode())


def test_librdkafka_pushes_and_its_numbers_are_shown(watched: Any) -> None:
    producer = Producer({"bootstrap.servers": watched.bootstrap, "client.id": "orders", "log_level": 4})
    producer.produce("orders", b"x")
    producer.flush(10)
    assert eventually(lambda: "ottla_client_producer_" in page(watched), SECONDS_MAX)
    lines = [line for line in page(watched).splitlines() if line.startswith("ottla_client_")]
    assert all('client_id="orders"' in line and 'client_software_name="confluent' in line for line in lines)
    assert any(line.startswith("ottla_client_producer_node_request_latency_avg{") for line in lines)


@pytest.mark.parametrize("is_watched", [False, True], ids=["not subscribed", "subscribed"])
def test_starting_and_closing_a_client_takes_no_longer(broker_factory: Callable[..., Any], is_watched: bool) -> None:
    broker = broker_factory()
    if is_watched:
        subscribe(broker.bootstrap, "all", interval_ms="300000", metrics="*")
    assert announced(broker.bootstrap) == is_watched
    began = time.monotonic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 4})
    producer.produce("orders", b"x")
    assert producer.flush(10) == 0
    del producer
    assert time.monotonic() - began < 3


def test_a_java_producer_pushes_and_its_numbers_are_shown(watched: Any, kafka_jars: Path) -> None:
    command = ["java", "-cp", f"{kafka_jars}/*", "org.apache.kafka.tools.ProducerPerformance", "--topic", "orders"]
    command += ["--num-records", "2000", "--record-size", "10", "--throughput", "1000"]
    command += ["--bootstrap-server", watched.bootstrap, "--command-property", "client.id=java"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "2000 records sent" in done.stdout, done.stdout + done.stderr
    sent = re.search(r'ottla_client_producer_record_send_total\{client_id="java".*\} (\S+)', page(watched))
    assert sent is not None
    assert 0 < float(sent[1]) <= 2000
    assert 'client_software_name="apache-kafka-java"' in sent[0]


def test_subscriptions_survive_a_restart(watched: Any) -> None:
    subscribe(watched.bootstrap, "any name/at all ü", metrics="a")
    watched.restart()
    with Peer(watched.bootstrap) as peer:
        wait_for(peer, CLIENT_METRICS, "all", "interval.ms", "500")
        wait_for(peer, CLIENT_METRICS, "any name/at all ü", "metrics", "a")
