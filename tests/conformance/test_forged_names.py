"""Names with control characters made lines of their own in what tools print into pipes, and escapes for terminals."""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from tests.conformance.conftest import ALL_RIGHTS, broker_of_module
from tests.conformance.in_process import run_here
from tests.conformance.waiting import eventually
from tests.conftest import FOREIGN_BOOTSTRAP, Broker

from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.groups import commit_offsets

pytestmark = pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="the tools are ours, and need a broker of their own")

BAD = "x\nforged\r\x1b[31m\x9b\u202eend"
TOPIC = "orders"
ALL = "--all-groups"
COMMANDS = [
    "ottla groups list", "ottla groups describe", "ottla groups describe --members", "ottla groups describe --state",
    "ottla groups describe --time", "ottla transactions list", "ottla transactions hanging",
    "ottla transactions producers orders-0", "ottla acls list", "ottla acls list --json", "ottla quotas list",
    "ottla quotas list --json", "ottla doctor", "ottla doctor --json", "ottla topics list",
    "ottla topics describe orders",
    "ottla users list", "ottla users list --json", "ottla cluster info",
    "ottla security export", "ottla apply --export",
    "kafka-consumer-groups.sh --list", "kafka-consumer-groups.sh --list --state --type",
    f"kafka-consumer-groups.sh --describe {ALL}", f"kafka-consumer-groups.sh --describe {ALL} --members --verbose",
    f"kafka-consumer-groups.sh --describe {ALL} --state", "kafka-groups.sh --list", "kafka-transactions.sh list",
    "kafka-transactions.sh describe-producers --topic orders --partition 0", "kafka-acls.sh --list",
    "kafka-configs.sh --describe --entity-type groups", "kafka-configs.sh --describe --entity-type clients",
    "kafka-configs.sh --describe --entity-type users", "kafka-configs.sh --describe --entity-type client-metrics",
    "kafka-client-metrics.sh --list", "kafka-client-metrics.sh --describe", "kafka-topics.sh --describe",
    "kafka-broker-api-versions.sh", "kafka-log-dirs.sh --describe",
]  # fmt: skip
CHANGES = [  # what gives the cluster such names, by the tools themselves; a broker may refuse some of them
    ("kafka-acls.sh", "--add", "--allow-principal", f"User:{BAD}", "--operation", "Read", "--group", BAD),
    ("kafka-acls.sh", "--add", "--allow-principal", "User:a", "--operation", "Read", "--transactional-id", BAD),
    ("kafka-configs.sh", "--alter", "--add-config", "producer_byte_rate=1000000", "--entity-type", "clients",
     "--entity-name", BAD),
    ("kafka-configs.sh", "--alter", "--add-config", "producer_byte_rate=1000000", "--entity-type", "users",
     "--entity-name", BAD),
    ("kafka-configs.sh", "--alter", "--add-config", "consumer.session.timeout.ms=50000", "--entity-type", "groups",
     "--entity-name", BAD),
    ("kafka-client-metrics.sh", "--alter", "--name", BAD, "--metrics", "org.apache", "--interval", "100000"),
]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    yield from broker_of_module(tmp_path_factory, {**ALL_RIGHTS, "group.initial.rebalance.delay.ms": "0"})


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[str]:
    """With a group, a member, a transactional id, rules and quotas of such names."""
    address = broker.bootstrap
    with Client(address) as client:
        Admin(client).create_topic(TOPIC, partitions=1, replication_factor=1)
        commit_offsets(client, BAD, {TopicPartition(TOPIC, 0): 0})
    producer = Producer({"bootstrap.servers": address, "transactional.id": BAD, "client.id": BAD})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"a record")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": f"{BAD}-live", "client.id": BAD})
    consumer.subscribe([TOPIC])
    assert eventually(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), 60)
    for words in CHANGES:
        run_here(words[0], "--bootstrap-server", address, *words[1:])
    yield address
    consumer.close()
    producer.abort_transaction(30)


def is_forged(text: str) -> bool:
    return re.search("^forged|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text, re.MULTILINE) is not None


@pytest.mark.parametrize("command", COMMANDS)
def test_no_name_makes_a_line_of_its_own(cluster: str, command: str) -> None:
    name, *words = command.split()
    is_first = name in ("kafka-transactions.sh",)  # takes its address before the command
    address = ("--bootstrap-server", cluster)
    result = run_here(name, *address, *words) if is_first else run_here(name, *words, *address)
    assert not is_forged(result.out), result.out
    assert not is_forged(result.err), result.err
    assert "usage" not in result.err.lower(), result.err


def test_the_names_are_really_there(cluster: str) -> None:
    with Client(cluster) as client, pytest.raises(ClientError):
        commit_offsets(client, f"{BAD}-live", {TopicPartition(TOPIC, 0): 0})
    shown = r"x\nforged\r\x1b[31m\x9b\u202eend"
    for words in (
        ("kafka-consumer-groups.sh", "--list"), ("kafka-acls.sh", "--list"),
        ("kafka-configs.sh", "--describe", "--entity-type", "clients"), ("ottla", "groups", "list"),
        ("ottla", "transactions", "list"), ("ottla", "acls", "list"), ("ottla", "quotas", "list"),
    ):  # fmt: skip
        assert shown in run_here(*words, "--bootstrap-server", cluster).out, words


def test_a_log_line_is_one_line(broker: Broker, cluster: str) -> None:
    assert not re.search("^forged", broker.log_text, re.MULTILINE)
