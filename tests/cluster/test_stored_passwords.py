"""Passwords of brokers that are changed while they run: what ZooKeeper's clients see of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import SETTINGS
from tests.cluster.test_sasl import PLAIN, secured_address

from ottla.base.password_encoder import decode_password
from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs, describe_configs
from ottla.client.errors import ClientError
from ottla.security.sasl.client_authenticator import client_login
from ottla.testing.cluster import Cluster

KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SECONDS_MAX = 60.0


def module(password: str) -> str:
    return f'{PLAIN} user_alice="{password}";'


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two brokers; clients log in on a listener of their own."""
    cluster = Cluster(2, SETTINGS, folder=tmp_path)  # type: ignore[arg-type]
    for broker in cluster.brokers:
        address = broker.bootstrap_servers
        broker.settings |= {
            "listeners": f"PLAINTEXT://{address},SASL_PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": f"PLAINTEXT://{address},SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            KEY: module("first"),
        }
    yield cluster
    cluster.close()


def stored(cluster: Cluster, broker_id: int) -> dict[str, str]:
    found: dict[str, str] = json.loads(cluster.store.get(f"/config/brokers/{broker_id}")[0])["config"]
    return found


def change(cluster: Cluster, broker_id: int, password: str) -> None:
    with Client(cluster.bootstrap) as client:
        alter_configs(client, Resource.BROKER, str(broker_id), {KEY: module(password)}, [])


def logs_in(cluster: Cluster, broker_id: int, password: str) -> bool:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
    }
    try:
        with Client(secured_address(cluster, [str(broker_id)]), login=client_login(properties)) as client:
            describe_configs(client, Resource.BROKER, [str(broker_id)], keys=["num.partitions"])
    except ClientError:
        return False
    return True


def wait_for_password(cluster: Cluster, broker_id: int, password: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not logs_in(cluster, broker_id, password):
        assert time.monotonic() < deadline


def test_a_password_could_be_read_by_every_client_of_zookeeper(cluster: Cluster) -> None:
    cluster.start()
    with pytest.raises(ClientError) as refused:
        change(cluster, 1, "geheim")
    assert "password.encoder.secret" in str(refused.value)
    assert "zookeeper.set.acl=true" in str(refused.value)
    assert "geheim" not in str(refused.value)
    assert cluster.store.exists("/config/brokers/1") is None


def test_passwords_are_encrypted_by_every_controller_and_valid_after_a_restart(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        broker.settings["password.encoder.secret"] = f"secret {broker.id}"  # each broker may have its own
    cluster.start()
    for broker in cluster.brokers:
        change(cluster, broker.id, f"geheim {broker.id}")
        text = stored(cluster, broker.id)[KEY]
        assert "geheim" not in text
        assert decode_password(text, f"secret {broker.id}") == module(f"geheim {broker.id}")
        wait_for_password(cluster, broker.id, f"geheim {broker.id}")
        assert not logs_in(cluster, broker.id, "first")
    for broker in cluster.brokers:
        broker.restart()
        assert logs_in(cluster, broker.id, f"geheim {broker.id}")
        assert "geheim" not in broker.logs


def test_passwords_stay_valid_and_are_encrypted_again_when_the_secret_changes(cluster: Cluster) -> None:
    cluster.zookeeper.start()
    for path, data in (
        ("/config", b""),
        ("/config/brokers", b""),
        ("/config/brokers/2", json.dumps({"version": 1, "config": {KEY: module("plain")}}).encode()),
    ):
        cluster.store.create(path, data)
    cluster.start_brokers()
    broker = cluster.brokers[1]
    assert logs_in(cluster, 2, "plain")
    assert f"every client of ZooKeeper can read {KEY}" in broker.logs
    for new, old in (("one", None), ("two", "one")):
        broker.stop()
        broker.settings["password.encoder.secret"] = new
        if old is not None:
            broker.settings["password.encoder.old.secret"] = old
        broker.start()
        assert logs_in(cluster, 2, "plain")
        deadline = time.monotonic() + SECONDS_MAX
        while decode_password(stored(cluster, 2)[KEY], new) != module("plain"):
            assert time.monotonic() < deadline
    change(cluster, 2, "changed")
    wait_for_password(cluster, 2, "changed")
