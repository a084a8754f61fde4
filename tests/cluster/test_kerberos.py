"""Brokers that log in at each other by Kerberos."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaProducer
from tests.cluster.conftest import SETTINGS

from ottla.testing.cluster import Cluster
from ottla.testing.kdc import Kdc, is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="no krb5-kdc on this machine")


def test_brokers_log_in_with_their_keytab_and_replicate(ottla_kdc: Kdc, tmp_path: Path) -> None:
    jaas = ottla_kdc.jaas("kafka/localhost")
    cluster = Cluster(2, SETTINGS, folder=tmp_path)  # type: ignore[arg-type]
    try:
        for broker in cluster.brokers:
            addresses = f"PLAINTEXT://{broker.bootstrap_servers},SASL_PLAINTEXT://localhost:0"
            broker.settings |= {
                "listeners": addresses,
                "advertised.listeners": addresses,
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
                "connections.max.reauth.ms": "3000",  # so that logins are repeated under the test's eyes
                "ottla.log.level": "DEBUG",
            }
        cluster.start()
        cluster.create_topic("orders", 2, 2)
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        for number in range(100):
            producer.send("orders", str(number).encode()).get(timeout=20)
        leader = cluster.leader_of("orders", 0)
        leader.kill()
        cluster.wait_for_leader("orders", 0, other_than=leader)
        leader.start()
        cluster.wait_until_whole()
        producer.close()
        cluster.wait_for(
            lambda: all("<Identity User:kafka> has logged in" in broker.logs for broker in cluster.brokers),
            "each broker has let the other one in",
        )
    finally:
        cluster.close()
