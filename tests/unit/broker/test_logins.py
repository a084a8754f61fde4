"""The gate in dispatch: who has not logged in gets nothing, and what becomes of logins that fail, last or end."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error
from ottla.broker.dispatch import Dispatcher
from ottla.broker.handlers import api_versions, sasl_authenticate, sasl_handshake
from ottla.broker.security.listener_rules import listener_rules
from ottla.broker.security.logins import LOGIN_MS_MAX, Logins
from ottla.broker.served_api import ServedApi
from ottla.network.buffers import Buffers
from ottla.network.client_facts import ClientFacts
from ottla.network.connection import Connection
from ottla.network.poller import Poller
from ottla.network.traffic import ListenerTraffic
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.headers import encode_request_header, response_header_bytes
from ottla.protocol.messages.cluster import ApiVersionsRequest
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.security.jaas import JaasError
from ottla.security.sasl.mechanism import Identity, LoginError
from ottla.security.sasl.scram import TokenCredential
from ottla.security.scram import ScramCredential
from unit.broker.nodes import node, parts
from unit.network.scripted import NotingPoller, ScriptedTransport
from virtual_time import LoopClock, run

HANDSHAKE, API_VERSIONS, AUTHENTICATE, HEARTBEAT = 17, 18, 36, 12
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    KEY: f'{PLAIN} user_alice="geheim" user_bob="geheim";',
}
GOOD = b"\0alice\0geheim"


class NoCredentials:
    has_tokens = False

    def find(self, _mechanism: str, _name: str) -> ScramCredential | None:
        return None

    def any_of(self, _mechanism: str) -> ScramCredential | None:
        return None

    def find_token(self, _mechanism: str, _token_id: str) -> TokenCredential | None:
        return None


def rules_of(settings: Mapping[str, str], clock: Clock, environment: Mapping[str, str] | None = None) -> Any:
    return listener_rules(BrokerSettings(dict(settings)), environment or {}, NoCredentials(), clock)


class Stand:
    """One connection to a dispatcher whose listener asks for a login."""

    def __init__(self, settings: Mapping[str, str], listener: str = "SASL_PLAINTEXT") -> None:
        self.loop = asyncio.get_running_loop()
        self.transport, self.poller = ScriptedTransport(), NotingPoller()
        self.broker = broker = parts(node())
        self.clock = LoopClock()
        broker.logins = Logins(rules_of(settings, self.clock), self.clock, broker.workers)
        rows = [
            ServedApi(HEARTBEAT, lambda _, context: HeartbeatResponse()),
            ServedApi(HANDSHAKE, sasl_handshake.handle, is_before_login=True),
            ServedApi(API_VERSIONS, api_versions.handle, is_before_login=True),
            ServedApi(AUTHENTICATE, sasl_authenticate.handle, is_before_login=True),
        ]
        self.client = ClientFacts("client", 1, listener)
        self.connection = Connection(
            self.transport,
            7,
            self.poller,
            self.loop,
            Buffers(),
            Dispatcher(broker, rows, lambda: None, Poller()),
            lambda _: None,
            self.client,
            100 << 20,
        )
        self.traffic = ListenerTraffic()
        broker.logins.traffic_of = lambda _: self.traffic
        broker.logins.on_open(self.connection)
        self._correlation_id = 0

    def send_frame(self, frame: bytes) -> None:
        whole = struct.pack(">i", len(frame)) + frame
        self.transport.pieces += [whole[at : at + 60_000] for at in range(0, len(whole), 60_000)]
        while self.transport.pieces and self.connection.is_reading and not self.connection.is_closed:
            self.connection.on_readable()
        self.poller.end_round()

    async def frame(self) -> bytes:
        """The next frame that the broker has sent, without its size; empty if it closed the connection instead."""
        for _ in range(1000):
            sent = self.transport.sent
            if len(sent) >= 4 and len(sent) >= 4 + int.from_bytes(sent[:4], "big"):
                size = int.from_bytes(sent[:4], "big")
                found = bytes(sent[4 : 4 + size])
                del sent[: 4 + size]
                return found
            if self.connection.is_closed:
                return b""
            await asyncio.sleep(0.01)
        raise AssertionError("no answer")

    async def ask(self, request: Any, response: type[Any], key: int, version: int) -> Any:
        """None: the connection was closed."""
        self._correlation_id += 1
        header = encode_request_header(key, version, self._correlation_id, "c")
        self.send_frame(header + bytes(encode(request, version)))
        frame = await self.frame()
        return (
            decode_whole(response, version, memoryview(frame), response_header_bytes(key, version)) if frame else None
        )

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, HANDSHAKE, version)

    async def authenticate(self, token: bytes = GOOD, version: int = 2) -> Any:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return await self.ask(request, SaslAuthenticateResponse, AUTHENTICATE, version)

    async def heartbeat(self) -> Any:
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        return await self.ask(request, HeartbeatResponse, HEARTBEAT, 4)


def play(scene: Callable[[Stand], Awaitable[None]], listener: str = "SASL_PLAINTEXT", **more: str) -> None:
    async def whole() -> None:
        await scene(Stand({**SETTINGS, **{key.replace("_", "."): value for key, value in more.items()}}, listener))

    run(whole())


def test_a_login_opens_the_gate() -> None:
    async def scene(stand: Stand) -> None:
        assert not stand.client.has_logged_in
        assert stand.connection.frame_bytes_max == 524_288
        assert await stand.handshake() == SaslHandshakeResponse(mechanisms=["PLAIN", "SCRAM-SHA-256"])
        answer = await stand.authenticate()
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert stand.client.principal == "User:alice"
        assert stand.connection.frame_bytes_max == 100 << 20
        assert (await stand.heartbeat()).error_code == 0
        await asyncio.sleep(3600)
        assert (await stand.heartbeat()).error_code == 0

    play(scene)


def test_before_a_login_everything_else_closes_the_connection() -> None:
    async def scene(stand: Stand) -> None:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        stand.send_frame(encode_request_header(API_VERSIONS, 3, 1, "c") + bytes(encode(request, 3)))
        assert await stand.frame()
        assert await stand.heartbeat() is None
        assert stand.connection.close_reason == "Heartbeat before a login"

    play(scene)


def test_between_handshake_and_tokens_nothing_else_is_served() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        assert await stand.heartbeat() is None

    play(scene)


def test_a_token_before_the_handshake_is_refused() -> None:
    async def scene(stand: Stand) -> None:
        answer = await stand.authenticate()
        assert answer.error_code == Error.ILLEGAL_SASL_STATE
        assert stand.connection.is_closed

    play(scene)


def test_a_mechanism_that_the_listener_lacks_is_refused_with_those_it_has() -> None:
    async def scene(stand: Stand) -> None:
        answer = await stand.handshake("GSSAPI")
        assert answer.error_code == Error.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
        assert stand.connection.is_closed

    play(scene)


@pytest.mark.parametrize("token", [b"\0alice\0falsch", b"\0nobody\0geheim"])
def test_a_failed_login_is_told_after_a_while_and_closed(token: bytes) -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        began = stand.loop.time()
        answer = await stand.authenticate(token)
        assert stand.loop.time() - began == pytest.approx(0.5, abs=0.02)
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert stand.connection.is_closed
        assert stand.client.principal == "User:ANONYMOUS"
        assert (stand.traffic.logins, stand.traffic.failed_logins) == (0, 1)

    play(scene, connection_failed_authentication_delay_ms="500")


def test_scram_refuses_in_kafka_s_words() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake("SCRAM-SHA-256")
        answer = await stand.authenticate(b"nonsense")
        assert answer.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
        )

    play(scene)


def test_a_large_frame_before_the_login_closes_the_connection() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        assert await stand.authenticate(bytes(1001)) is None
        assert "1000 are allowed" in stand.connection.close_reason

    play(scene, sasl_server_max_receive_size="1000")


def test_who_does_not_log_in_in_time_is_closed() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        await asyncio.sleep(LOGIN_MS_MAX / 1000 - 1)
        assert not stand.connection.is_closed
        await asyncio.sleep(2)
        assert stand.connection.close_reason == "no login in time"

    play(scene)


def test_bare_tokens_follow_a_handshake_of_version_0() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake(version=0)
        stand.send_frame(GOOD)
        await asyncio.sleep(0)
        assert bytes(stand.transport.sent) == b"\0\0\0\0"
        stand.transport.sent.clear()
        assert (await stand.heartbeat()).error_code == 0

    play(scene)


def test_a_bare_token_that_is_wrong_closes_the_connection_without_a_word() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake(version=0)
        stand.send_frame(b"\0alice\0falsch")
        assert await stand.frame() == b""
        assert stand.connection.is_closed

    play(scene)


def test_a_listener_without_logins_says_so() -> None:
    async def scene(stand: Stand) -> None:
        assert stand.client.has_logged_in
        assert (await stand.handshake()).error_code == Error.ILLEGAL_SASL_STATE
        answer = await stand.authenticate()
        assert answer.error_code == Error.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"
        assert (await stand.heartbeat()).error_code == 0

    play(scene, listener="PLAINTEXT")


# ---- logins that do not last (KIP-368)


def test_a_login_that_expires_closes_who_goes_on_as_before() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        assert (await stand.authenticate()).session_lifetime_ms == 60_000
        await asyncio.sleep(59)
        assert (await stand.heartbeat()).error_code == 0
        await asyncio.sleep(2)
        assert not stand.connection.is_closed
        assert await stand.heartbeat() is None

    play(scene, connections_max_reauth_ms="60000")


@pytest.mark.parametrize("seconds", [50, 70])
def test_a_login_can_be_repeated_on_its_connection(seconds: int) -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        await stand.authenticate()
        await asyncio.sleep(seconds)
        assert (await stand.handshake()).error_code == 0
        assert (await stand.authenticate()).session_lifetime_ms == 60_000
        await asyncio.sleep(55)
        assert (await stand.heartbeat()).error_code == 0
        assert (stand.traffic.logins, stand.traffic.repeated_logins) == (1, 1)

    play(scene, connections_max_reauth_ms="60000")


def test_a_repeated_login_changes_neither_the_principal_nor_the_mechanism() -> None:
    async def other_name(stand: Stand) -> None:
        await stand.handshake()
        await stand.authenticate()
        await stand.handshake()
        answer = await stand.authenticate(b"\0bob\0geheim")
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Cannot change principals during re-authentication"
        assert stand.client.principal == "User:alice"
        assert stand.connection.is_closed

    async def other_mechanism(stand: Stand) -> None:
        await stand.handshake()
        await stand.authenticate()
        assert (await stand.handshake("SCRAM-SHA-256")).error_code == 0
        answer = await stand.authenticate(b"n,,n=alice,r=x")
        assert "is not supported for re-authentication of mechanism 'PLAIN'" in answer.error_message
        assert stand.connection.is_closed

    play(other_name, connections_max_reauth_ms="60000")
    play(other_mechanism, connections_max_reauth_ms="60000")


def test_a_login_is_repeated_at_most_once_a_second_and_not_at_all_if_it_lasts() -> None:
    async def often(stand: Stand) -> None:
        await stand.handshake()
        await stand.authenticate()
        await stand.handshake()
        await stand.authenticate()
        assert (await stand.handshake()).error_code == Error.ILLEGAL_SASL_STATE
        assert (await stand.heartbeat()).error_code == 0

    async def lasting(stand: Stand) -> None:
        await stand.handshake()
        await stand.authenticate()
        assert (await stand.handshake()).error_code == Error.ILLEGAL_SASL_STATE
        assert (await stand.heartbeat()).error_code == 0

    play(often, connections_max_reauth_ms="60000")
    play(lasting)


def test_one_mechanism_of_one_listener_may_have_its_own_life() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        assert (await stand.authenticate()).session_lifetime_ms == 5000

    async def whole() -> None:
        own = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "5000"}
        await scene(Stand({**SETTINGS, "connections.max.reauth.ms": "60000", **own}))

    run(whole())


# ---- a mechanism that works in a worker


class SlowExchange:
    is_quick = False

    def __init__(self) -> None:
        self.identity: Identity | None = None

    def step(self, token: bytes) -> bytes:
        if token != b"good":
            raise LoginError("falsch")
        self.identity = Identity("User:slow", LoopClock().now_ms() + 90_000)
        return b"welcome"


def test_a_step_that_takes_long_is_a_worker_s() -> None:
    async def scene(stand: Stand) -> None:
        login = stand.client.login
        login.machine._mechanisms["PLAIN"] = SlowExchange
        await stand.handshake()
        answer = await stand.authenticate(b"good")
        assert answer.auth_bytes == b"welcome"
        assert 0 < answer.session_lifetime_ms <= 60_000
        assert stand.client.principal == "User:slow"

    async def failing(stand: Stand) -> None:
        stand.client.login.machine._mechanisms["PLAIN"] = SlowExchange
        await stand.handshake()
        assert (await stand.authenticate(b"bad")).error_code == Error.SASL_AUTHENTICATION_FAILED

    play(scene, connections_max_reauth_ms="60000")
    play(failing)


# ---- what settings and JAAS say


def refused(settings: Mapping[str, str], **environment: str) -> str:
    with pytest.raises(JaasError) as caught:
        rules_of({**SETTINGS, **settings}, LoopClock(), environment)
    assert "geheim" not in str(caught.value)
    return str(caught.value)


def test_what_stops_a_broker_that_asks_for_logins() -> None:
    assert "names no mechanism" in refused({"sasl.enabled.mechanisms": ""})
    assert "names NTLM; there are GSSAPI, OAUTHBEARER, PLAIN" in refused({"sasl.enabled.mechanisms": "NTLM"})
    assert f"{KEY}: line 1: the text ends" in refused({KEY: f"{PLAIN} user_a=geheim"})
    missing = refused(
        {
            "listeners": "SASL_PLAINTEXT://:1,X://:2",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,X:SASL_PLAINTEXT",
        }
    )
    assert "Could not find a 'KafkaServer' or 'x.KafkaServer' entry" in missing
    assert "cannot read /gone" in refused({}, KAFKA_OPTS="-Djava.security.auth.login.config=/gone")
    assert "jwks.endpoint.url does not say" in refused({"sasl.enabled.mechanisms": "OAUTHBEARER"})
    url = {"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}
    assert "must be an address" in refused({"sasl.enabled.mechanisms": "OAUTHBEARER", **url})


def test_each_listener_has_its_own_mechanisms(tmp_path: Any) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(f"KafkaServer {{ {PLAIN} user_a=b; }};")

    settings = {
        "listeners": "INNER://:1,OUTER://:2,OPEN://:3",
        "listener.security.protocol.map": "INNER:SASL_PLAINTEXT,OUTER:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.outer.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.outer.sasl.server.max.receive.size": "1000",
    }
    found = rules_of(settings, LoopClock(), {"KAFKA_OPTS": f"-Djava.security.auth.login.config={path}"})
    assert list(found) == ["INNER", "OUTER"]
    assert list(found["INNER"].mechanisms) == ["PLAIN"]
    assert list(found["OUTER"].mechanisms) == ["SCRAM-SHA-512"]
    assert (found["INNER"].receive_bytes_max, found["OUTER"].receive_bytes_max) == (524_288, 1000)
