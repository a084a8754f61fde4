"""Which protocol a client's properties ask for: Kafka's words, and those of the documents that people bring along."""

from __future__ import annotations

import pytest

from ottla.client.errors import ClientError
from ottla.client.kafka_python import translated, wants_kerberos, wants_token
from ottla.client.librdkafka_properties import make_without_unknown, translate
from ottla.security.client_protocol import security_protocol
from ottla.security.sasl.client_authenticator import make_login

SERVICE = {"sasl.kerberos.service.name": "kafka"}
TLS = {"ssl.mode.enable": "true"}


@pytest.mark.parametrize(
    ("properties", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"security.protocol": "PLAINTEXT"}, "PLAINTEXT"),
        ({"security.protocol": " sasl_plaintext ", **SERVICE}, "SASL_PLAINTEXT"),
        ({"security.protocol": "SSL", **TLS}, "SSL"),
        ({**SERVICE, **TLS}, "SASL_SSL"),
        ({"security.protocol": "SASL_PLAINTEXT", **SERVICE, **TLS}, "SASL_SSL"),
        ({"security.protocol": "SASL_SSL", **SERVICE, **TLS}, "SASL_SSL"),
        ({"security.protocol": "SSL", **SERVICE, **TLS}, "SSL"),
        (TLS, "SSL"),
        ({"ssl.mode.enable": "false"}, "PLAINTEXT"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl.mode.enable": " False"}, "SASL_PLAINTEXT"),
        (SERVICE, "PLAINTEXT"),
        ({"security.protocol": "nonsense"}, "NONSENSE"),
    ],
)
def test_protocols(properties: dict[str, str], protocol: str) -> None:
    assert security_protocol(properties) == protocol
    if "security.protocol" in properties or "ssl.mode.enable" in properties:
        settings = translate(properties)
        assert settings["security.protocol"] == protocol
        assert "ssl.mode.enable" not in settings


def test_who_wants_kerberos() -> None:
    assert wants_kerberos({**SERVICE, **TLS})
    assert wants_kerberos({"security.protocol": "SASL_PLAINTEXT", "error_cb": print})
    assert wants_kerberos({"security.protocol": "SASL_SSL", "sasl.mechanisms": "gssapi"})
    assert not wants_kerberos({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    assert not wants_kerberos({"security.protocol": "SSL"})
    assert not wants_kerberos({})


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TOKEN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{SCRAM} username="id" password="hmac" tokenauth="true";',
}


def test_a_token_logs_in_by_our_own_exchange_and_never_by_librdkafka() -> None:
    """By the properties themselves, and by what becomes of them for librdkafka, in whose place kafka-python comes."""
    settings = translate(TOKEN)
    assert wants_token(settings)
    for properties in (TOKEN, settings):
        login = make_login("SCRAM-SHA-512", properties)
        assert login.make("host").first().endswith(b",tokenauth=true")
    with pytest.raises(ClientError, match="librdkafka cannot log in with a delegation token"):
        make_without_unknown(lambda _: None, settings, ValueError, print)
    user = {**TOKEN, "sasl.jaas.config": TOKEN["sasl.jaas.config"].replace('"true"', '"false"')}
    assert not wants_token(translate(user))
    assert b"tokenauth" not in make_login("SCRAM-SHA-512", user).make("host").first()


def test_keytabs_of_a_login_module_under_librdkafkas_names() -> None:
    jaas = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="a.keytab" principal="b@C";'
    found = translate({"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": jaas, **SERVICE})
    assert found == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.keytab": "a.keytab",
        "sasl.kerberos.principal": "b@C",
        "sasl.kerberos.service.name": "kafka",
    }


def test_settings_under_kafka_pythons_names() -> None:
    known = {
        "acks": -1,
        "compression_type": None,
        "linger_ms": 0,
        "enable_idempotence": True,
        "ssl_check_hostname": True,
    }
    known |= {"max_request_size": 1, "bootstrap_servers": "", "ssl_cafile": None, "partitioner": object()}
    unknown: list[str] = []
    given = {
        "bootstrap.servers": "a:1,b:2",
        "acks": "all",
        "compression.type": "none",
        "linger.ms": "5",
        "enable.idempotence": "False",
        "message.max.bytes": 1000,
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "partitioner": "murmur2_random",
        "sasl.kerberos.keytab": "a.keytab",
        "error_cb": print,
        "sticky.partitioning.linger.ms": "1",
    }
    assert translated(given, known, unknown.append) == {
        "bootstrap_servers": "a:1,b:2",
        "acks": "all",
        "compression_type": None,
        "linger_ms": 5,
        "enable_idempotence": False,
        "max_request_size": 1000,
    }
    assert unknown == ["sticky.partitioning.linger.ms"]
