"""Brokers and clients of tests with Kerberos."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.conformance.peer import Peer

from ottla.security.jaas import parse_value
from ottla.security.kerberos import Krb5Options, TicketCache
from ottla.security.sasl.gssapi_mechanism import GssapiClientExchange
from ottla.testing.broker import Broker
from ottla.testing.kdc import Kdc

SERVICE = "kafka/localhost"
NOTED_SECONDS_MAX = 10
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_service_name": "kafka",
}  # as kafka-python and aiokafka write it


class Answer(NamedTuple):
    """The last answer of a broker to a client that logs in."""

    error_code: int
    error_message: str | None


def settings(kdc: Kdc, keytab: Path | None = None, principal: str = SERVICE) -> dict[str, str]:
    """Settings of a broker that asks for a login by Kerberos."""
    return {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": kdc.jaas(principal, keytab),
        "connection.failed.authentication.delay.ms": "0",
        "ottla.log.level": "DEBUG",
    }


@contextmanager
def living_in(kdc: Kdc) -> Iterator[None]:
    """This process has the realm's krb5.conf."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        yield


def client_exchange(kdc: Kdc, principal: str, service: str = "kafka") -> GssapiClientExchange:
    options = Krb5Options.of(parse_value(kdc.jaas(principal)))
    return GssapiClientExchange(TicketCache(options), service, "localhost")


def log_in(kdc: Kdc, broker: Broker, principal: str = "alice", *, service: str = "kafka") -> Answer:
    """A login with a new ticket, by our side of the exchange."""
    with living_in(kdc):
        exchange = client_exchange(kdc, principal, service)
        with Peer(broker.bootstrap_servers) as peer:
            assert peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
            token = exchange.first()
            while True:
                answer = peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
                if not answer.error_code:
                    token = exchange.step(bytes(answer.auth_bytes))
                if answer.error_code or exchange.is_done:
                    return Answer(answer.error_code, answer.error_message)


def noted(broker: Broker, *words: str) -> None:
    """Returns when a line of the broker's log has all these words: it is written a moment after the answer."""
    deadline = time.monotonic() + NOTED_SECONDS_MAX
    while not any(all(word in line for word in words) for line in broker.logs.splitlines()):
        assert time.monotonic() < deadline, f"no line with {words} in:\n{broker.logs[-3000:]}"
        time.sleep(0.01)
