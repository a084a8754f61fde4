"""`ottla monitor` beside a broker and a real consumer group: verdicts over HTTP, and alerts at an address of ours."""

import json
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families
from tests.conformance.conftest import NewTopic
from tests.conformance.waiting import eventually
from tests.conftest import ottla_command
from tests.webhooks import Inbox

ADDRESS = re.compile(r"monitor of default \(\S+\): (http://\S+)")
SECONDS_MAX = 30.0
ALERT_SECONDS_MAX = 120.0  # something must be left to read for more than a minute
CONFIG = """
intervals: 3
min-distance: 0
offset-refresh: 200ms
topic-refresh: 500ms
http: {{port: 0}}
clusters:
  default: {{bootstrap-server: '{bootstrap}'}}
state: {folder}/monitor.db
channels:
  here: {{type: slack, url: 'http://127.0.0.1:{port}/hook', allow-private: true}}
alerts:
  - {{name: stuck, when: verdict, group: '{group}', to: [here]}}
"""


class Monitor:
    """The tool as a process of its own."""

    def __init__(self, config: Path) -> None:
        command = [*ottla_command(), "monitor", "--config", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = ADDRESS.match(self.process.stdout.readline())
        assert found is not None
        self.address = found[1]

    def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        request = urllib.request.Request(f"{self.address}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, _read(answer)
        except urllib.error.HTTPError as refusal:
            return refusal.code, _read(refusal)

    def status(self, group: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/v3/kafka/default/consumer/{group}/lag")[1].get("status", {})
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


def _read(answer: Any) -> Any:
    text = answer.read().decode()
    return json.loads(text) if answer.headers["content-type"] == "application/json" else text


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    yield made
    made.close()


def test_verdicts_of_a_real_group_change_and_are_reported_once(
    bootstrap: str, new_topic: NewTopic, coordinator: None, inbox: Inbox, tmp_path: Path
) -> None:
    topic = new_topic()
    group = f"{topic}-readers"
    config = tmp_path / "monitor.yaml"
    port = inbox.port
    config.write_text(CONFIG.format(bootstrap=bootstrap, folder=tmp_path, port=port, group=group))
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})

    def produce(count: int) -> None:
        for number in range(count):
            producer.produce(topic, f"record {number}")
        assert producer.flush(30) == 0

    def commit(offset: int) -> None:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    monitor = Monitor(config)
    try:

        def partition_is(status: str, place: int | None = None) -> bool:
            """While a consumer commits `place` again and again, if one is given."""
            if place is not None:
                commit(place)
            partitions = monitor.status(group).get("partitions")
            return bool(partitions) and partitions[0]["status"] == status

        produce(10)
        commit(10)
        assert eventually(lambda: partition_is("OK", 10), SECONDS_MAX)
        assert eventually(lambda: monitor.status(group)["complete"] == 1.0 or bool(commit(10)), SECONDS_MAX)
        assert (monitor.status(group)["status"], monitor.status(group)["totallag"]) == ("OK", 0)

        produce(5)  # no consumer reads them, though one commits
        assert eventually(lambda: partition_is("STALL", 10), SECONDS_MAX)
        found = monitor.status(group)
        assert (found["status"], found["totallag"], found["maxlag"]["topic"]) == ("ERR", 5, topic)
        assert eventually(lambda: partition_is("STOP"), SECONDS_MAX)  # the commits have ended
        metrics = {
            (sample.name, sample.labels.get("consumer_group") or sample.labels.get("group")): sample.value
            for family in text_string_to_metric_families(monitor.get("/metrics")[1])
            for sample in family.samples
        }
        assert metrics["consumer_lag", group] == metrics["burrow_kafka_consumer_lag_total", group] == 5
        assert metrics["burrow_kafka_topic_partition_status", group] == 4
        assert eventually(lambda: len(inbox.texts) == 1, ALERT_SECONDS_MAX)
        assert inbox.texts[0].startswith(f"OPEN stuck: group {group} (default): ERR")

        assert monitor.stop() == 0  # a restart tells nothing twice, and forgets nothing
        monitor = Monitor(config)
        assert eventually(lambda: monitor.get("/burrow/admin/ready") == (200, "READY"), SECONDS_MAX)
        assert eventually(lambda: partition_is("STOP"), SECONDS_MAX)
        commit(15)
        assert eventually(lambda: monitor.status(group)["status"] == "OK", SECONDS_MAX)
        assert eventually(lambda: len(inbox.texts) == 2, SECONDS_MAX)
        assert inbox.texts[1].startswith(f"CLOSED stuck: group {group} (default) is over")
        alerts = monitor.get("/v3/alerts")[1]
        assert alerts["open"] == []
        assert [(item["rule"], item["subject"]) for item in alerts["history"]] == [("stuck", f"group {group}")]

        assert group in monitor.get(f"/v3/kafka/default/topic/{topic}/consumers")[1]["consumers"]
        assert monitor.get(f"/v3/kafka/default/topic/{topic}")[1]["offsets"] == [15]
        assert monitor.get(f"/v3/kafka/default/consumer/{group}", "DELETE")[0] == 200
        assert monitor.get(f"/v3/kafka/default/consumer/{group}/status")[0] == 404
        assert monitor.stop() == 0
    finally:
        monitor.process.kill()
        monitor.process.wait(timeout=30)
        consumer.close()


def test_transactions_count_when_committed_and_what_is_deleted_goes(
    bootstrap: str, new_topic: NewTopic, coordinator: None, inbox: Inbox, tmp_path: Path
) -> None:
    topic = new_topic()
    group = f"{topic}-readers"
    config = tmp_path / "monitor.yaml"
    port = inbox.port
    config.write_text(CONFIG.format(bootstrap=bootstrap, folder=tmp_path, port=port, group="nobody"))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), SECONDS_MAX)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(30)
    monitor = Monitor(config)
    try:
        for place in (1, 2):
            producer.begin_transaction()
            for number in range(5):
                producer.produce(topic, f"record {number}")
            offsets = [TopicPartition(topic, 0, place)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            if place == 1:
                producer.abort_transaction()
        producer.commit_transaction()
        assert eventually(lambda: bool(monitor.status(group).get("partitions")), SECONDS_MAX)
        (partition,) = monitor.status(group)["partitions"]
        assert (partition["start"]["offset"], partition["end"]["offset"]) == (2, 2)
        assert partition["client_id"] == "rdkafka"
        consumer.close()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_consumer_groups([group])[group].result()
        assert eventually(lambda: group not in monitor.get("/v3/kafka/default/consumer")[1]["consumers"], SECONDS_MAX)
        assert monitor.stop() == 0
    finally:
        monitor.process.kill()
        monitor.process.wait(timeout=30)


def test_half_open_connections_block_no_other_client(bootstrap: str, inbox: Inbox, tmp_path: Path) -> None:
    """More than the server takes at all, and none of them asks anything."""
    config = tmp_path / "monitor.yaml"
    port = inbox.port
    config.write_text(CONFIG.format(bootstrap=bootstrap, folder=tmp_path, port=port, group="nobody"))
    monitor = Monitor(config)
    silent: list[socket.socket] = []
    try:
        host, _, number = monitor.address.removeprefix("http://").partition(":")
        for each in range(600):
            silent.append(socket.create_connection((host, int(number)), timeout=30))
            if each % 2:
                silent[-1].sendall(b"GET /burrow/admin HTTP/1.1\r\n")
        assert [monitor.get("/burrow/admin") for _ in range(10)] == [(200, "GOOD")] * 10
        silent[0].settimeout(30)
        assert silent[0].recv(1_000).startswith(b"HTTP/1.1 408 ")  # the oldest, at once
        assert monitor.stop() == 0
    finally:
        for connection in silent:
            connection.close()
        monitor.process.kill()
        monitor.process.wait(timeout=30)
