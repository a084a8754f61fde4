"""What Burrow itself says of groups, and what `ottla monitor` says of the same groups at the same time."""

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.conformance.peer import Peer
from tests.conformance.test_monitor import Monitor
from tests.conformance.waiting import eventually
from tests.faults.real_burrow import COPY, Burrow, CommitCopier, ListOffsetsProxy, unpack

from ottla.testing.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

TOPIC, GROWING, RECORDS = "orders", "growing", 10_000
PATIENCE_SECONDS = 60
INTERVALS = 4
MONITOR = """
intervals: {intervals}
min-distance: 0
offset-refresh: 1s
topic-refresh: 1s
http: {{port: 0}}
clusters:
  default: {{bootstrap-server: '{bootstrap}'}}
"""
EXPECTED = {"caught-up": "OK", "catching-up": "OK", "stalled": "STALL", "rewound": "REWIND", "stopped": "STOP"}
FALLING = "slow"  # commits more often than the log is looked at: Burrow says OK again and again
# Burrow 1.2.1 has no first one; the next are not in the copy; the last is our own verdict.
OURS_ALONE = {"observedAt", "owner", "client_id", "ottla_status"}
FALLING_SECONDS = 120
PATHS = [
    "", "/default/topic/orders", "/default/topic/nothing", "/nothing", "/nothing/consumer", "/default/consumer/nobody",
    "/default/consumer/nobody/lag", "/default/topic/nothing/consumers",
]  # fmt: skip
LISTS = ["/default/consumer", "/default/topic", "/default/topic/orders/consumers"]  # in any order


class Committer(threading.Thread):
    """A member that commits as its role requires, again and again until it is stopped."""

    def __init__(self, bootstrap: str, protocol: str, role: str) -> None:
        super().__init__(daemon=True)
        self.role, self.group = role, f"{role}-{protocol}"
        self.topic = GROWING if role == FALLING else TOPIC
        self.may_commit = False
        self._is_ended = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": self.group, "group.protocol": protocol}
            | {"enable.auto.commit": False, "auto.offset.reset": "latest"}
        )
        self._consumer.subscribe([self.topic])

    def run(self) -> None:
        commits = 0
        while not self._is_ended.wait(0.5):
            self._consumer.poll(0)
            if self.may_commit and not (self.role == "stopped" and commits >= INTERVALS):
                commits += 1
                places = {"caught-up": RECORDS, "stalled": 7, "rewound": 20 + commits % 2}
                place = TopicPartition(self.topic, 0, places.get(self.role, commits))
                with contextlib.suppress(KafkaException):  # the coordinator is only looked for yet
                    self._consumer.commit(offsets=[place], asynchronous=False)

    @property
    def is_assigned(self) -> bool:
        return bool(self._consumer.assignment())

    def close(self) -> None:
        self._is_ended.set()
        self.join(30)
        self._consumer.close()


class Both:
    """Burrow and the monitor, asked the same."""

    def __init__(self, burrow: Burrow, monitor: Monitor) -> None:
        self._addresses = (burrow.address, monitor.address)

    def ask(self, path: str) -> list[tuple[int, Any]]:
        return [get(address, f"/v3/kafka{path}") for address in self._addresses]

    def ends(self, path: str) -> list[Any]:
        return [answer.get("offsets") for _, answer in self.ask(path)]

    def verdicts(self, group: str) -> list[Any]:
        return [common(answer.get("status")) for _, answer in self.ask(f"/default/consumer/{group}/lag")]


def get(address: str, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())


def common(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: common(value) for name, value in told.items() if name not in OURS_ALONE}
    return [common(each) for each in told] if isinstance(told, list) else told


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("burrow"))


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperProcess]:
    """Burrow does not start without one."""
    with ZooKeeperProcess() as started:
        yield started


@pytest.fixture
def cluster(broker_factory: Any) -> Iterator[str]:
    """A broker with a proxy in front of its only listener."""
    with ListOffsetsProxy() as proxy:
        advertised = f"PLAINTEXT://127.0.0.1:{proxy.port}"
        broker = broker_factory(group_initial_rebalance_delay_ms=0, advertised_listeners=advertised)
        host, port = broker.bootstrap.rsplit(":", 1)
        proxy.target = (host, int(port))
        yield f"127.0.0.1:{proxy.port}"


def test_verdicts_and_answers_are_those_of_burrow(
    cluster: str, program: Path, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    with Peer(cluster) as peer:
        for name in (TOPIC, GROWING, COPY):
            peer.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": cluster})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number))
    assert producer.flush(30) == 0
    config = tmp_path / "monitor.yaml"
    config.write_text(MONITOR.format(bootstrap=cluster, intervals=INTERVALS))
    with contextlib.ExitStack() as ends:
        members = [
            Committer(cluster, protocol, role) for role in (*EXPECTED, FALLING) for protocol in ("classic", "consumer")
        ]
        for member in members:
            ends.callback(member.close)
            member.start()
        assert eventually(lambda: all(member.is_assigned for member in members), PATIENCE_SECONDS)
        ends.callback(CommitCopier(cluster).close)
        burrow = Burrow(program, tmp_path / "burrow", cluster, zookeeper.connect, offsets_topic=COPY)
        ends.callback(burrow.close)
        monitor = Monitor(config)
        ends.callback(monitor.process.kill)
        both = Both(burrow, monitor)
        for name, end in ((TOPIC, RECORDS), (GROWING, 0)):  # the lag of a commit from before is not known
            assert eventually(lambda path=f"/default/topic/{name}", end=end: both.ends(path) == [[end], [end]], 90)
        for member in members:
            member.may_commit = True

        def is_as_expected(member: Committer) -> bool:
            for number in range(10):
                producer.produce(GROWING, str(number))
            producer.flush(30)
            if member.role == FALLING:  # when each of them has looked at the log decides what Burrow's rules say of it
                return monitor.status(member.group).get("ottla_status") == "WARN"
            burrows, ours = both.verdicts(member.group)
            seen = [each and each["partitions"] and each["partitions"][0]["status"] for each in (burrows, ours)]
            return seen == [EXPECTED[member.role]] * 2 and burrows == ours and ours["complete"] == 1

        for member in members:
            patience = FALLING_SECONDS if member.role == FALLING else PATIENCE_SECONDS
            assert eventually(lambda asked=member: is_as_expected(asked), patience), json.dumps(
                both.verdicts(member.group)
            )
        for path in PATHS:
            burrows, ours = both.ask(path)
            assert burrows == ours, path
        for path in LISTS:
            (status, burrows), (our_status, ours) = both.ask(path)
            assert (status, *map(sorted_values, burrows.values())) == (our_status, *map(sorted_values, ours.values()))


def sorted_values(told: Any) -> Any:
    return sorted(told) if isinstance(told, list) else told


def test_without_help_burrow_121_sees_nothing_as_with_apache_kafka_43(
    broker_factory: Any, program: Path, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    broker = broker_factory(group_initial_rebalance_delay_ms=0)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC, 1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "any", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
    consumer.close()
    burrow = Burrow(program, tmp_path / "burrow", broker.bootstrap, zookeeper.connect)
    try:
        assert eventually(lambda: "failed to fetch offsets from broker" in burrow.log, PATIENCE_SECONDS), burrow.log
        assert "it requests ListOffsets v0, and this broker supports v1" in broker.log_text
        assert eventually(lambda: '"reason":"value version","version":4' in burrow.log, PATIENCE_SECONDS), burrow.log
        assert get(burrow.address, "/v3/kafka/default/topic")[1]["topics"] == []
    finally:
        burrow.close()
