"""The login of a broker at other brokers, and the effect on its connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.virtual_time import run

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.security.inter_broker_login import InterBrokerLogin, client_properties, inter_broker_listener
from ottla.broker.security.login_setup import LoginSettingsError, make_inter_broker_login
from ottla.network.peer import PeerError
from ottla.protocol.messages.credentials import SaslAuthenticateResponse, SaslHandshakeResponse
from ottla.security.sasl.client_authenticator import ClientLogin, make_login
from ottla.security.sasl.exchange import LoginError
from ottla.security.sasl.plain import PlainClient, PlainServer
from ottla.security.sasl.scram import ScramServer
from ottla.security.scram_credentials import ScramCredential, make_credential

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listeners": "CLIENTS://:9092,INNER://:9093",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INNER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INNER",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.inner.plain.sasl.jaas.config": f'{PLAIN} username="broker" password="geheim" user_broker="geheim";',
}


class FakePeer:
    """The other broker: a real exchange behind the two login requests."""

    host, address = "h", "h:1"

    def __init__(
        self, server: Any, *, offers: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256"), lifetime_ms: int = 0
    ) -> None:
        self.server = server
        self.offers = offers
        self.lifetime_ms = lifetime_ms

    def version_of(self, _key: int) -> int:
        return 2

    async def call_during_setup(self, request: Any, response: type[Any], _version: int) -> Any:
        await asyncio.sleep(0)
        if response is SaslHandshakeResponse:
            is_offered = request.mechanism in self.offers
            return SaslHandshakeResponse(error_code=0 if is_offered else 33, mechanisms=list(self.offers))
        try:
            output = self.server.step(bytes(request.auth_bytes))
        except LoginError as problem:
            return SaslAuthenticateResponse(error_code=58, error_message=problem.client_message, auth_bytes=b"")
        return SaslAuthenticateResponse(auth_bytes=output, session_lifetime_ms=self.lifetime_ms)


def log_in(login: Any, peer: FakePeer) -> int:
    async def whole() -> int:
        found: int = await login(peer)
        return found

    return run(whole())


def opened(**more: str) -> Any:
    texts = {**SETTINGS, **{key.replace("_", "."): value for key, value in more.items()}}
    workers: Any = None
    login = make_inter_broker_login(BrokerSettings(texts), {}, workers)
    return login.log_in if login is not None else None


def test_a_broker_logs_in_with_the_settings_of_its_listener() -> None:
    server = PlainServer({"broker": b"geheim"})
    assert log_in(opened(), FakePeer(server, lifetime_ms=7)) == 7
    assert server.identity is not None
    assert server.identity.principal == "User:broker"


def test_a_broker_logs_in_with_scram() -> None:
    credential = make_credential("SCRAM-SHA-256", b"geheim")

    class Known:
        def find(self, _mechanism: str, name: str) -> ScramCredential | None:
            return credential if name == "broker" else None

        def any_credential(self, _mechanism: str) -> ScramCredential | None:
            return credential

    workers: Any = None
    properties = {"sasl.username": "broker", "sasl.password": "geheim"}
    login = InterBrokerLogin(make_login("SCRAM-SHA-256", properties), workers).log_in
    assert log_in(login, FakePeer(ScramServer("SCRAM-SHA-256", Known(), b"s"))) == 0


def test_a_refusal_is_reported_and_does_not_mean_that_the_broker_is_down() -> None:
    with pytest.raises(PeerError, match="Invalid username or password") as caught:
        log_in(opened(), FakePeer(PlainServer({})))
    assert not caught.value.is_refused
    assert "geheim" not in str(caught.value)
    with pytest.raises(PeerError, match="refuses a login with PLAIN: it supports GSSAPI"):
        log_in(opened(), FakePeer(PlainServer({}), offers=("GSSAPI",)))


def test_an_endless_exchange_is_aborted() -> None:
    class Endless(PlainClient):
        def step(self, _token: bytes) -> bytes:
            return b""

    class Patient:
        def step(self, _token: bytes) -> bytes:
            return b""

    workers: Any = None
    login = InterBrokerLogin(ClientLogin("PLAIN", lambda _: Endless("a", "b")), workers).log_in
    with pytest.raises(PeerError, match="the login has too many steps"):
        log_in(login, FakePeer(Patient()))


def test_without_sasl_there_is_no_login() -> None:
    assert opened(inter_broker_listener_name="CLIENTS") is None


def test_invalid_settings_stop_the_start() -> None:
    with pytest.raises(LoginSettingsError, match=r"must be included in sasl\.enabled\.mechanisms"):
        opened(sasl_mechanism_inter_broker_protocol="GSSAPI")
    with pytest.raises(LoginSettingsError, match="PLAIN needs a username"):
        key = "listener.name.inner.plain.sasl.jaas.config"
        workers: Any = None
        make_inter_broker_login(BrokerSettings({**SETTINGS, key: f"{PLAIN} user_a=b;"}), {}, workers)
    with pytest.raises(LoginSettingsError, match="Could not find a 'KafkaServer'"):
        opened(sasl_mechanism_inter_broker_protocol="SCRAM-SHA-256")


def test_the_inter_broker_listener_is_named_or_found_by_its_protocol() -> None:
    by_protocol = {
        "listeners": "A://:1,B://:2",
        "listener.security.protocol.map": "A:PLAINTEXT,B:SASL_PLAINTEXT",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
    }
    found = inter_broker_listener(BrokerSettings(by_protocol))
    assert found is not None
    assert found.name == "B"
    named = inter_broker_listener(BrokerSettings(SETTINGS))
    assert named is not None
    assert named.name == "INNER"


def test_mechanism_settings_apply_to_the_brokers_own_login() -> None:
    settings = BrokerSettings(
        {
            **SETTINGS,
            "sasl.oauthbearer.scope": "a",
            "listener.name.inner.sasl.oauthbearer.scope": "b",
            "listener.name.inner.oauthbearer.sasl.oauthbearer.scope": "c",
            "listener.name.clients.sasl.oauthbearer.scope": "d",
        }
    )
    assert client_properties(settings, "INNER", "OAUTHBEARER")["sasl.oauthbearer.scope"] == "c"
    assert client_properties(settings, "INNER", "PLAIN")["sasl.oauthbearer.scope"] == "b"
