"""Logins by Kerberos: real clients at a real broker, with the tickets of a real KDC."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.certificates import Authority
from tests.conformance.kerberos_realm import (
    LOGIN,
    SERVICE,
    Answer,
    client_exchange,
    living_in,
    log_in,
    noted,
    settings,
)
from tests.conformance.peer import Peer

from ottla.client.client import open_client
from ottla.security.sasl.exchange import LoginError
from ottla.testing.broker import Broker
from ottla.testing.child import BrokerError
from ottla.testing.kdc import Kdc, is_installed

pytestmark = [pytest.mark.needs_ottla, pytest.mark.skipif(not is_installed(), reason="no krb5-kdc on this machine")]

FAKE_TIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
SASL_AUTHENTICATION_FAILED = 58
TOLD = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with Kdc() as realm, living_in(realm):
        realm.ticket("alice")
        yield realm


@pytest.fixture(scope="module")
def broker(kdc: Kdc) -> Iterator[Broker]:
    with Broker(settings(kdc)) as running:
        yield running


def test_kafka_python(broker: Broker) -> None:
    where = {"bootstrap_servers": broker.bootstrap_servers, **LOGIN}
    KafkaProducer(**where).send("python", b"socks").get(timeout=20)
    consumer = KafkaConsumer("python", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **where)
    assert next(consumer).value == b"socks"
    noted(broker, "<Identity User:alice> has logged in from 127.0.0.1 with GSSAPI")


def test_over_tls(kdc: Kdc, tmp_path: Path) -> None:
    """`sasl.kerberos.service.name = kafka` with `ssl.mode.enable=true`: SASL_SSL, with our own client too."""
    authority = Authority()
    trusted = authority.certificate_pem(tmp_path / "authority.pem")
    own = {name.replace("sasl_plaintext", "sasl_ssl"): value for name, value in settings(kdc).items()}
    tls = {"ssl.keystore.location": authority.issue("broker").pem(tmp_path / "broker.pem"), "ssl.keystore.type": "PEM"}
    tls |= {"ssl.truststore.location": trusted, "ssl.truststore.type": "PEM"}
    listener = {"listeners": "SASL_SSL://localhost:0", "security.inter.broker.protocol": "SASL_SSL"}
    with Broker({**own, **tls, **listener}) as secured:
        words = {**LOGIN, "security_protocol": "SASL_SSL", "ssl_cafile": trusted}
        producer = KafkaProducer(bootstrap_servers=secured.bootstrap_servers, **words)
        producer.send("orders", b"safe").get(timeout=20)
        producer.close()
        properties = {"ssl.mode.enable": "true", "sasl.kerberos.service.name": "kafka", "ssl.truststore.type": "PEM"}
        properties |= {"ssl.truststore.location": trusted, "sasl.jaas.config": kdc.jaas("alice")}
        with open_client(secured.bootstrap_servers, properties) as client:
            assert client.cluster().brokers


def test_aiokafka(broker: Broker) -> None:
    async def send() -> int:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **LOGIN) as producer:
            return (await producer.send_and_wait("asynchronous", b"socks")).offset

    assert asyncio.run(send()) == 0


def test_kcat(kdc: Kdc, broker: Broker) -> None:
    login = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanisms=GSSAPI", "sasl.kerberos.service.name=kafka"]
    login += [f"sasl.kerberos.keytab={kdc.keytab('bob')}", "sasl.kerberos.principal=bob"]
    words = ["kcat", "-b", broker.bootstrap_servers, "-t", "kcat", *(word for each in login for word in ("-X", each))]
    environment = {**os.environ, "KRB5CCNAME": f"FILE:{kdc.folder}/kcat.tickets"}
    subprocess.run([*words, "-P"], input=b"socks", env=environment, timeout=60, check=True)
    read = subprocess.run(
        [*words, "-C", "-e", "-o", "beginning"], env=environment, timeout=60, check=True, capture_output=True
    )
    assert read.stdout == b"socks\n"
    noted(broker, "<Identity User:bob> has logged in")


def test_the_console_tools_of_apache_kafka(kdc: Kdc, broker: Broker, kafka_jars: Path, tmp_path: Path) -> None:
    """With a JAAS file and a keytab in the working folder, as people have it."""
    (tmp_path / "user.keytab").write_bytes(kdc.keytab("carol").read_bytes())
    (tmp_path / "jaas.conf").write_text(
        "KafkaClient {\n  com.sun.security.auth.module.Krb5LoginModule required\n  useKeyTab=true\n  storeKey=true\n"
        f'  keyTab="user.keytab"\n  principal="carol@{kdc.realm}";\n}};\n'
    )
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name = kafka\n"
    )
    java = ["java", "-XX:TieredStopAtLevel=1", "-Djava.security.auth.login.config=jaas.conf", "-cp", f"{kafka_jars}/*"]
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "java"]
    subprocess.run(
        [*java, "org.apache.kafka.tools.ConsoleProducer", *where, "--command-config", "client.properties"],
        input=b"socks\n",
        cwd=tmp_path,
        timeout=120,
        check=True,
    )
    words = ["--command-config", "client.properties", "--from-beginning", "--max-messages", "1"]
    read = subprocess.run(
        [*java, "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *words],
        cwd=tmp_path,
        timeout=120,
        check=True,
        capture_output=True,
    )
    assert read.stdout == b"socks\n"
    noted(broker, "<Identity User:carol> has logged in")


# ---- logins that fail: 58 for the client, one line with cause and cure for the operator


def assert_refused(answer: Answer, broker: Broker, *words: str) -> None:
    """The broker tells the client nothing, and its log everything."""
    assert answer == (SASL_AUTHENTICATION_FAILED, TOLD)
    noted(broker, "failed login from 127.0.0.1", *words)


def test_our_own_side_of_the_exchange(kdc: Kdc, broker: Broker) -> None:
    assert log_in(kdc, broker, "dave").error_code == 0
    noted(broker, "<Identity User:dave> has logged in")


def test_tokens_without_requests_around_them(kdc: Kdc, broker: Broker) -> None:
    """As after a handshake of v0."""
    exchange = client_exchange(kdc, "erin")
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 0).error_code == 0
        token = exchange.first()
        while not exchange.is_done:
            peer.connection.send(len(token).to_bytes(4, "big") + token)
            token = exchange.step(bytes(peer.connection.read_frame()))
        assert "orders" not in peer.topic_names()


def test_a_service_name_that_kerberos_does_not_know(kdc: Kdc, broker: Broker) -> None:
    """The client gets no ticket, so the broker hears nothing of it."""
    with pytest.raises(LoginError, match=r"Kerberos knows no such service.*kafak/localhost@EXAMPLE"):
        log_in(kdc, broker, service="kafak")


def test_a_ticket_for_another_service(kdc: Kdc, broker: Broker) -> None:
    kdc.add("http/localhost")
    words = ("another service than this broker is", "http/localhost@EXAMPLE.COM", "sasl.kerberos.service.name")
    assert_refused(log_in(kdc, broker, service="http"), broker, *words)


def test_a_changed_key_is_refused_until_the_keytab_is_exported_again() -> None:
    with Kdc() as own, Broker(settings(own), environment=own.environment) as broker:
        assert log_in(own, broker).error_code == 0
        own.change_key(SERVICE)
        assert_refused(log_in(own, broker), broker, "the broker's keytab has only older ones", "kvno 2")
        own.keytab(SERVICE)  # the same file: it is read at the next login
        assert log_in(own, broker).error_code == 0


def test_a_keytab_of_another_realm_with_the_same_names(kdc: Kdc) -> None:
    with Kdc() as other, Broker(settings(kdc, other.keytab(SERVICE))) as broker:
        assert_refused(log_in(kdc, broker), broker, "made with another key than the keytab has")


@pytest.mark.skipif(FAKE_TIME is None, reason="no faketime on this machine")
@pytest.mark.parametrize(
    ("offset", "cause"), [("+1h", "the clocks of the two machines differ too much"), ("+11h", "the ticket has expired")]
)
def test_clocks_that_differ(kdc: Kdc, offset: str, cause: str) -> None:
    environment = {"LD_PRELOAD": str(FAKE_TIME), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with Broker(settings(kdc), environment=environment) as broker:
        assert_refused(log_in(kdc, broker), broker, cause)


def test_a_principal_without_a_short_name(kdc: Kdc) -> None:
    rules = {"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](alice)s/alice/bob/"}
    with Broker(settings(kdc) | rules) as broker:
        assert log_in(kdc, broker).error_code == 0
        noted(broker, "<Identity User:bob> has logged in")
        assert_refused(log_in(kdc, broker, "mallory"), broker, "No rules apply to mallory@EXAMPLE.COM")


@pytest.mark.parametrize("token", [b"", b"hello", bytes(1000), b"\x60\x82\xff\xff" + bytes(50)])
def test_tokens_that_are_none(broker: Broker, token: bytes) -> None:
    with Peer(broker.bootstrap_servers) as peer:
        peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert_refused(Answer(answer.error_code, answer.error_message), broker)


def test_half_a_login_gives_no_access(kdc: Kdc, broker: Broker) -> None:
    """The context alone, without the end of the exchange, is no login; nor is one with another client's last token."""
    exchange, other = client_exchange(kdc, "frank"), client_exchange(kdc, "alice")
    with Peer(broker.bootstrap_servers) as peer, Peer(broker.bootstrap_servers) as second:
        offers = []
        for each, login in ((peer, exchange), (second, other)):
            each.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
            answer = each.ask(SaslAuthenticateRequest(auth_bytes=login.first()), 2)
            offers.append(each.ask(SaslAuthenticateRequest(auth_bytes=login.step(answer.auth_bytes)), 2).auth_bytes)
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=other.step(offers[1])), 2)
        assert_refused(Answer(answer.error_code, answer.error_message), broker)


def test_sessions_continue_without_a_kdc() -> None:
    with Kdc() as own, Broker(settings(own), environment=own.environment) as broker, living_in(own):
        own.ticket("alice")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **LOGIN)
        producer.send("orders", b"before").get(timeout=20)
        own.stop()
        producer.send("orders", b"after").get(timeout=20)
        # A client with a ticket for this service logs in without another request to the KDC.
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **LOGIN).close()
        with pytest.raises(LoginError, match="no KDC of the realm answers"):
            log_in(own, broker)
        producer.close()


# ---- a broker that could accept no login does not start


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"keyTab": "/nowhere/kafka.keytab"}, "the keytab cannot be read (Key table file '/nowhere/kafka.keytab' not"),
        ({"principal": "kafka/other@EXAMPLE.COM"}, "the keytab has no key of this principal (No key table entry"),
        ({"principal": "kafka/localhost@OTHER"}, "the keytab has no key of this principal"),
        ({"keyTab": __file__}, "the file is not a keytab (Unsupported key table format version number)"),
    ],
)
def test_bad_keytabs(kdc: Kdc, change: dict[str, str], said: str) -> None:
    options = {"keyTab": str(kdc.keytab(SERVICE)), "principal": f"{SERVICE}@{kdc.realm}"} | change
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    jaas = " ".join([module, *(f'{name}="{value}"' for name, value in options.items())]) + ";"
    wrong = settings(kdc) | {"listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas}
    with pytest.raises(BrokerError) as told:
        Broker(wrong).start()
    assert said in str(told.value)
    assert "Traceback" not in str(told.value)


@pytest.mark.parametrize(
    ("settings_of_it", "said"),
    [
        ({"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1"}, "Invalid rule: RULE:[1:$1"),
        (
            {
                "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": "org.apache.kafka.common.security.plain."
                'PlainLoginModule required user_a="b";'
            },
            "GSSAPI needs com.sun.security.auth.module.Krb5LoginModule",
        ),
    ],
)
def test_bad_settings(kdc: Kdc, settings_of_it: dict[str, str], said: str) -> None:
    with pytest.raises(BrokerError) as told:
        Broker(settings(kdc) | settings_of_it).start()
    assert said in str(told.value)
    assert "Traceback" not in str(told.value)
