"""Delegation tokens in a cluster: asked for anywhere, good everywhere, kept in ZooKeeper as Kafka 3.9 has them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from tests.cluster.conftest import SETTINGS
from tests.cluster.test_sasl import PLAIN, SCRAM, secured_address

from ottla.base.errors import Error
from ottla.client.client import Client, open_client
from ottla.client.errors import ClientError
from ottla.client.tokens import create_token, describe_tokens, expire_token, renew_token
from ottla.security.delegation_tokens import DelegationToken, password_of_hmac, token_hmac
from ottla.testing.cluster import Cluster, ClusterBroker

SECRET = "the-same-everywhere"
TOKENS = "/delegation_token/tokens"
HOUR_MS = 3_600_000
ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} username="alice" password="a";',
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(3, SETTINGS, folder=tmp_path_factory.mktemp("tokens"))  # type: ignore[arg-type]
    for broker in made.brokers:
        own = broker.bootstrap_servers
        broker.settings |= {
            "listeners": f"PLAINTEXT://{own},SASL_PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": f"PLAINTEXT://{own},SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_alice="a";',
            "delegation.token.secret.key": SECRET,
        }
    with made:
        yield made


def token_of(token_id: str, hmac: bytes) -> dict[str, str]:
    login = f'username="{token_id}" password="{password_of_hmac(hmac)}" tokenauth="true"'
    return {**ALICE, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f"{SCRAM} {login};"}


def client_at(cluster: Cluster, broker: ClusterBroker, login: dict[str, str]) -> Client:
    """Connected to this broker alone."""
    return open_client(secured_address(cluster, [str(broker.id)]), login, timeout_ms=10_000)


def test_tokens_that_kafka_has_written_into_zookeeper_are_valid(cluster: Cluster) -> None:
    """A token that a broker of Kafka 3.9 has made, renewed and removed, with its notices."""
    now_ms = int(time.time() * 1000)
    token = DelegationToken("kafkas", "User:alice", "User:alice", (), now_ms, now_ms + HOUR_MS, now_ms + HOUR_MS)
    text = (
        f'{{"owner":"User%3Aalice","tokenRequester":"User%3Aalice","renewers":[],"issueTimestamp":{token.issue_ms},'
        f'"maxTimestamp":{token.max_ms},"expiryTimestamp":{token.expiry_ms},"tokenId":"kafkas","version":3}}'
    )
    notice = "/delegation_token/token_changes/token_change_"
    cluster.store.create(f"{TOKENS}/kafkas", text.encode())
    cluster.store.create(notice, b"kafkas", sequence=True)
    hmac = token_hmac(SECRET, "kafkas")
    broker = cluster.brokers[0]
    with client_at(cluster, broker, ALICE) as alice:
        seen = cluster.wait_for(lambda: describe_tokens(alice) or None, "Kafka's token")
        assert seen == [(token, hmac)]
        with client_at(cluster, broker, token_of("kafkas", hmac)) as client:
            assert client.cluster().brokers
        expire_token(alice, hmac)
        assert cluster.read_node(f"{TOKENS}/kafkas") is None
        cluster.store.create(f"{TOKENS}/kafkas", text.encode())
        cluster.store.create(notice, b"kafkas", sequence=True)
        cluster.wait_for(lambda: describe_tokens(alice) or None, "Kafka's token")
        cluster.store.delete(f"{TOKENS}/kafkas")
        cluster.store.create(notice, b"kafkas", sequence=True)
        cluster.wait_for(lambda: not describe_tokens(alice) or None, "no token")


def test_tokens_are_asked_for_anywhere_and_good_everywhere(cluster: Cluster) -> None:
    controller = cluster.controller()
    others = [broker for broker in cluster.brokers if broker is not controller]
    with client_at(cluster, others[0], ALICE) as alice:
        made = create_token(alice, renewers=["User:bob"])
        assert made in describe_tokens(alice)
    node = json.loads(cluster.read_node(f"{TOKENS}/{made.token.token_id}") or b"")
    assert (node["version"], node["owner"], node["renewers"]) == (3, "User%3Aalice", ["User%3Abob"])
    login = token_of(made.token.token_id, made.hmac)
    for broker in cluster.brokers:
        with client_at(cluster, broker, login) as client:
            assert len(client.cluster().brokers) == 3
            with pytest.raises(ClientError) as caught:  # what is passed on is still asked for by a token
                create_token(client)
            assert caught.value.error is Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    refuses_with_another_secret(cluster, others[1], login)
    controller.kill()
    new = cluster.controller(other_than=controller)
    last = next(broker for broker in others if broker is not new)
    with client_at(cluster, last, ALICE) as alice:
        assert renew_token(alice, made.hmac, HOUR_MS) < made.token.expiry_ms
    controller.start()


def refuses_with_another_secret(cluster: Cluster, broker: ClusterBroker, login: dict[str, str]) -> None:
    start_with(broker, "another one")
    with client_at(cluster, broker, login) as client, pytest.raises(ClientError, match="invalid credentials"):
        client.cluster()
    cluster.wait_for(
        lambda: "do all brokers have the same delegation.token.secret.key?" in broker.logs or None, "a line in the log"
    )
    start_with(broker, SECRET)


def start_with(broker: ClusterBroker, secret: str) -> None:
    broker.stop()
    broker.settings["delegation.token.secret.key"] = secret
    broker.start()
