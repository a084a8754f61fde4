"""From a fault to the receiver in at most fifteen seconds, by the console: a consumer and a broker that are killed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.browser.conftest import ConsoleProcess
from tests.conftest import Broker, BrokerFactory
from tests.webhooks import Inbox

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.groups import committed_offsets

pytestmark = pytest.mark.faults
TOLD_SECONDS_MAX = 15.0
GIVE_UP_SECONDS = 60.0
CONSUMER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "billing", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
while True:
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        consumer.commit(asynchronous=False)
"""


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    yield made
    made.close()


def put(console: ConsoleProcess, path: str, body: object) -> None:
    console.ask(path, body, "PUT")


def seconds_until(inbox: Inbox, rule: str, told: list[str]) -> float:
    began = time.monotonic()
    while inbox.told(rule) != told:
        assert time.monotonic() - began < GIVE_UP_SECONDS, inbox.bodies
        time.sleep(0.02)
    return time.monotonic() - began


class Traffic:
    """A record every tenth of a second, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            self._producer.produce("orders", b"an order")
            self._producer.poll(0)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.purge()


def test_kills_are_reported_within_fifteen_seconds(broker_factory: BrokerFactory, inbox: Inbox, tmp_path: Path) -> None:
    broker: Broker = broker_factory(group_initial_rebalance_delay_ms=0)
    with Client(broker.bootstrap) as client:
        Admin(client).create_topic("orders", partitions=2, replication_factor=1)
    console = ConsoleProcess(tmp_path / "c", "--bootstrap-server", broker.bootstrap, "--allow-private-addresses")
    traffic = Traffic(broker.bootstrap)
    try:
        put(console, "/api/receivers/ops", {"type": "slack", "url": inbox.address})
        rules = "/api/clusters/default/alert-rules"
        put(console, f"{rules}/late", {"rule": {"when": "lag", "above": 10, "to": ["ops"]}})
        put(console, f"{rules}/gone", {"rule": {"when": "broker-gone", "to": ["ops"]}})
        with subprocess.Popen([sys.executable, "-c", CONSUMER, broker.bootstrap]) as consumer:
            with Client(broker.bootstrap) as client:
                while not committed_offsets(client, "billing"):
                    time.sleep(0.1)
            consumer.kill()
        late = seconds_until(inbox, "late", ["OPEN"])
        broker.kill9()
        gone = seconds_until(inbox, "gone", ["OPEN"])
        broker.start()
        back = seconds_until(inbox, "gone", ["OPEN", "CLOSED"])
        assert max(late, gone, back) <= TOLD_SECONDS_MAX, (late, gone, back)
    finally:
        traffic.stop()
        console.stop()
