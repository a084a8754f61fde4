"""Brokers that log in at each other, and users that all of them know."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.cluster.conftest import SETTINGS

from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs
from ottla.client.errors import ClientError
from ottla.client.quotas import ScramUpsertion, alter_scram, describe_scram
from ottla.security.sasl.client_authenticator import client_login
from ottla.testing.cluster import Cluster

PASSWORD = "broker-geheim"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def secure(cluster: Cluster, mechanism: str, jaas: str, **more: str) -> None:
    """Brokers and clients use SASL_PLAINTEXT; the other listener is for the tests alone."""
    for broker in cluster.brokers:
        broker.settings |= {
            "listeners": f"PLAINTEXT://{broker.bootstrap_servers},SASL_PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": f"PLAINTEXT://{broker.bootstrap_servers},SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": mechanism,
            "sasl.enabled.mechanisms": mechanism,
            f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config": jaas,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


def secured_address(cluster: Cluster, brokers: Iterable[str] | None = None) -> str:
    """The SASL listeners of all brokers, or of these, as ZooKeeper knows them."""
    store = cluster.store
    found = []
    for broker in store.get_children("/brokers/ids") if brokers is None else brokers:
        text = store.get(f"/brokers/ids/{broker}")[0].decode()
        found.append(text.partition("SASL_PLAINTEXT://")[2].partition('"')[0])
    return ",".join(found)


def produce_and_consume(bootstrap: str, topic: str, **login: str) -> None:
    client = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT"}
    client |= {name.replace("_", "."): value for name, value in login.items()}
    producer = Producer({**client, "acks": "all"})
    for number in range(100):
        producer.produce(topic, str(number).encode())
    assert producer.flush(20) == 0
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        read = 0
        while read < 100:
            message = consumer.poll(20)
            assert message is not None, f"{read} of 100 after 20 s"
            assert message.error() is None
            read += 1
    finally:
        consumer.close()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[[int], Cluster]]:
    """Makes clusters that are not started yet."""
    made: list[Cluster] = []

    def make(brokers: int) -> Cluster:
        made.append(Cluster(brokers, SETTINGS, folder=tmp_path))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def test_brokers_log_in_with_plain_and_replicate(make_cluster: Callable[[int], Cluster]) -> None:
    cluster = make_cluster(3)
    users = f'username="broker" password="{PASSWORD}" user_broker="{PASSWORD}" user_alice="a"'
    secure(cluster, "PLAIN", f"{PLAIN} {users};", connections_max_reauth_ms="3000")
    cluster.start()
    cluster.create_topic("orders", 3)
    produce_and_consume(
        secured_address(cluster),
        "orders",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="a",
    )
    leader = cluster.leader_of("orders", 0)
    leader.kill()
    cluster.wait_for_leader("orders", 0, other_than=leader)
    leader.start()
    cluster.wait_until_whole()
    for broker in cluster.brokers:
        assert PASSWORD not in broker.logs


def test_the_first_user_stands_in_zookeeper_before_the_first_broker_starts(
    make_cluster: Callable[[int], Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(2)
    secure(cluster, "SCRAM-SHA-512", f'{SCRAM} username="broker" password="{PASSWORD}";')
    cluster.zookeeper.start()
    secrets = tmp_path / "broker.properties"
    secrets.write_text(f"SCRAM-SHA-512=password={PASSWORD}\n")
    secrets.chmod(0o600)
    tool = [str(Path(sys.executable).with_name("kafka-configs.sh")), "--zookeeper", cluster.zookeeper.connect]
    words = ["--alter", "--entity-type", "users", "--entity-name", "broker", "--add-config-file", str(secrets)]
    done = subprocess.run([*tool, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "Completed updating config for entity: user-principal 'broker'.\n", done.stderr
    assert done.returncode == 0
    cluster.start_brokers()
    cluster.create_topic("orders", 2)
    bootstrap = secured_address(cluster)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "broker",
        "sasl.password": PASSWORD,
    }
    with Client(bootstrap, login=client_login(properties)) as client:
        alter_scram(client, "alice", [ScramUpsertion("SCRAM-SHA-512", 4096, b"a,=b")], [])
        assert describe_scram(client, ["alice"]) == {"alice": [("SCRAM-SHA-512", 4096)]}
    alice = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "alice", "sasl_password": "a,=b"}
    for address in bootstrap.split(","):  # every broker knows her
        produce_and_consume(address, "orders", **alice)
    node = cluster.store.get("/config/users/alice")[0].decode()
    assert "a,=b" not in node
    assert "stored_key=" in node
    with Client(bootstrap, login=client_login(properties)) as client:
        alter_scram(client, "alice", [], ["SCRAM-SHA-512"])
    with pytest.raises(ClientError, match="invalid credentials"):
        Client(
            bootstrap, login=client_login({**properties, "sasl.username": "alice", "sasl.password": "a,=b"})
        ).cluster()


def test_the_brokers_own_password_is_changed_while_they_run(make_cluster: Callable[[int], Cluster]) -> None:
    """In three rounds, as with any password that two sides know; a broker that restarts knows the newest."""
    cluster = make_cluster(2)
    jaas = f'{PLAIN} username="broker" password="old" user_broker="old";'
    secure(cluster, "PLAIN", jaas, password_encoder_secret="what encrypts them")
    cluster.start()
    cluster.create_topic("orders", 2)
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    for options in (
        'username="broker" password="old" user_broker="old" user_renewed="new"',
        'username="renewed" password="new" user_broker="old" user_renewed="new"',
        'username="renewed" password="new" user_renewed="new"',
    ):
        for broker in cluster.brokers:
            with Client(broker.bootstrap_servers) as client:
                alter_configs(client, Resource.BROKER, str(broker.id), {key: f"{PLAIN} {options};"}, [])
    cluster.brokers[0].restart()  # its file has the old one
    cluster.wait_until_whole()
    address = secured_address(cluster)
    with pytest.raises(ClientError, match="Invalid username or password"):
        log_in(address, "broker", "old")
    log_in(address, "renewed", "new")


def log_in(bootstrap: str, name: str, password: str) -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login = client_login({**properties, "sasl.username": name, "sasl.password": password})
    with Client(bootstrap, login=login) as client:
        assert len(client.cluster().brokers) == 2
