"""Authentication in the dispatcher: unauthenticated clients get no service; failed, expiring and repeated logins."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.unit.broker.nodes import node, parts
from tests.unit.network.scripted import NotingPoller, ScriptedTransport
from tests.virtual_time import LoopClock, run

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error
from ottla.broker.dispatch import Dispatcher
from ottla.broker.handlers import api_versions, sasl_authenticate, sasl_handshake
from ottla.broker.security.listener_mechanisms import listener_rules
from ottla.broker.security.server_authenticator import LOGIN_TIMEOUT_MS, ServerAuthenticator
from ottla.broker.served_api import ServedApi
from ottla.network.buffers import BufferPool
from ottla.network.close_reason import CloseReason
from ottla.network.connection import ConnectedClient, Connection
from ottla.network.poller import Poller
from ottla.network.socket_server import ListenerTraffic
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.headers import encode_request_header, response_header_bytes
from ottla.protocol.messages.cluster import ApiVersionsRequest
from ottla.protocol.messages.credentials import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.security.jaas import JaasError
from ottla.security.sasl.exchange import Identity, LoginError
from ottla.security.sasl.oauthbearer import OAuthServer, TokenError, invalid_token_response
from ottla.security.sasl.plain import PlainServer
from ottla.security.sasl.scram import ScramClient, ScramServer, TokenCredential
from ottla.security.scram_credentials import ScramCredential, credential_from_salted, salted_password

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

    def any_credential(self, _mechanism: str) -> ScramCredential | None:
        return None

    def find_token(self, _mechanism: str, _token_id: str) -> TokenCredential | None:
        return None


def rules_of(settings: Mapping[str, str], clock: Clock, environment: Mapping[str, str] | None = None) -> Any:
    return listener_rules(BrokerSettings(dict(settings)), environment or {}, NoCredentials(), clock)


class Stand:
    """One connection to a dispatcher whose listener needs a login."""

    def __init__(
        self,
        settings: Mapping[str, str],
        listener: str = "SASL_PLAINTEXT",
        host: str = "client",
        beside: Stand | None = None,
    ) -> None:
        """`beside`: connect to the same broker as this stand."""
        self.loop = asyncio.get_running_loop()
        self.transport, self.poller = ScriptedTransport(), NotingPoller()
        self.clock = LoopClock()
        self.broker = broker = parts(node()) if beside is None else beside.broker
        if beside is None:
            broker.authenticator = ServerAuthenticator(rules_of(settings, self.clock), self.clock, broker.workers)
        rows = [
            ServedApi(HEARTBEAT, lambda _, context: HeartbeatResponse()),
            ServedApi(HANDSHAKE, sasl_handshake.handle, is_allowed_before_login=True),
            ServedApi(API_VERSIONS, api_versions.handle, is_allowed_before_login=True),
            ServedApi(AUTHENTICATE, sasl_authenticate.handle, is_allowed_before_login=True),
        ]
        self.client = ConnectedClient(host, 1, listener)
        self.connection = Connection(
            self.transport,
            7,
            self.poller,
            self.loop,
            BufferPool(),
            Dispatcher(broker, rows, api_versions.unsupported_version, Poller()),
            lambda _: None,
            self.client,
            100 << 20,
        )
        self.traffic = ListenerTraffic() if beside is None else beside.traffic
        broker.authenticator.traffic_of = lambda _: self.traffic
        broker.authenticator.on_open(self.connection)
        self._correlation_id = 0

    def send_frame(self, frame: bytes) -> None:
        whole = struct.pack(">i", len(frame)) + frame
        self.transport.pieces += [whole[at : at + 60_000] for at in range(0, len(whole), 60_000)]
        while self.transport.pieces and self.connection.is_reading and not self.connection.is_closed:
            self.connection.on_readable()
        self.poller.end_round()

    async def frame(self) -> bytes:
        """The next frame of the broker, without its size; empty if the connection was closed."""
        for _ in range(3000):
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


def test_a_login_gives_access() -> None:
    async def scene(stand: Stand) -> None:
        assert not stand.client.is_authenticated
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


def test_before_a_login_other_requests_close_the_connection() -> None:
    async def scene(stand: Stand) -> None:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        stand.send_frame(encode_request_header(API_VERSIONS, 3, 1, "c") + bytes(encode(request, 3)))
        assert await stand.frame()
        assert await stand.heartbeat() is None
        assert stand.connection.close_reason is CloseReason.NO_LOGIN

    play(scene)


def test_between_handshake_and_tokens_no_other_request_is_served() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        assert await stand.heartbeat() is None

    play(scene)


def test_a_token_before_the_handshake_gets_no_response() -> None:
    async def scene(stand: Stand) -> None:
        assert await stand.authenticate() is None
        assert stand.connection.is_closed
        assert stand.traffic.failed_logins == 1

    play(scene)


VERSIONS_0 = encode_request_header(API_VERSIONS, 0, 7, None)
VERSIONS_99 = encode_request_header(API_VERSIONS, 99, 7, None)


@pytest.mark.parametrize("asked", [VERSIONS_0, VERSIONS_99])
def test_api_versions_after_the_handshake_is_refused_and_closes_the_connection(asked: bytes) -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        stand.send_frame(asked)
        assert await stand.frame() == struct.pack(">ihi", 7, Error.ILLEGAL_SASL_STATE, 0)
        assert stand.connection.is_closed
        assert stand.traffic.failed_logins == 1

    play(scene)


@pytest.mark.parametrize("asked", [VERSIONS_0, VERSIONS_99])
def test_api_versions_is_answered_once_before_the_handshake_and_always_after_the_login(asked: bytes) -> None:
    async def scene(stand: Stand) -> None:
        for _ in range(2):
            stand.send_frame(VERSIONS_99)
            assert (await stand.frame())[:6] == struct.pack(">ih", 7, Error.UNSUPPORTED_VERSION)
        stand.send_frame(VERSIONS_0)
        assert (await stand.frame())[:6] == struct.pack(">ih", 7, 0)
        stand.send_frame(asked)
        assert await stand.frame() == b""
        assert stand.connection.is_closed

    async def logged_in(stand: Stand) -> None:
        stand.send_frame(VERSIONS_0)
        await stand.frame()
        await stand.handshake()
        await stand.authenticate()
        for _ in range(2):
            stand.send_frame(asked)
            assert (await stand.frame())[:4] == struct.pack(">i", 7)
        assert not stand.connection.is_closed

    play(scene)
    play(logged_in)


def test_an_unsupported_mechanism_is_refused_with_the_supported_ones() -> None:
    async def scene(stand: Stand) -> None:
        answer = await stand.handshake("GSSAPI")
        assert answer.error_code == Error.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
        assert stand.connection.is_closed

    play(scene)


@pytest.mark.parametrize("token", [b"\0alice\0falsch", b"\0nobody\0geheim"])
def test_a_failed_login_is_answered_after_a_delay_and_closed(token: bytes) -> None:
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


def test_scram_errors_match_kafkas() -> None:
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
        assert "1000 are allowed" in stand.connection.close_detail

    play(scene, sasl_server_max_receive_size="1000")


def test_a_slow_login_is_closed() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        await asyncio.sleep(LOGIN_TIMEOUT_MS / 1000 - 1)
        assert not stand.connection.is_closed
        await asyncio.sleep(2)
        assert stand.connection.close_reason is CloseReason.LOGIN_TIMEOUT

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


def test_a_wrong_bare_token_closes_the_connection_without_a_response() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake(version=0)
        stand.send_frame(b"\0alice\0falsch")
        assert await stand.frame() == b""
        assert stand.connection.is_closed

    play(scene)


def test_a_listener_without_logins_refuses_a_handshake() -> None:
    async def scene(stand: Stand) -> None:
        assert stand.client.is_authenticated
        assert (await stand.handshake()).error_code == Error.ILLEGAL_SASL_STATE
        answer = await stand.authenticate()
        assert answer.error_code == Error.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"
        assert (await stand.heartbeat()).error_code == 0

    play(scene, listener="PLAINTEXT")


# ---- expiring logins (KIP-368)


def test_an_expired_login_closes_the_connection_at_its_next_request() -> None:
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


def test_a_reauthentication_keeps_principal_and_mechanism() -> None:
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


def test_a_login_is_repeated_at_most_once_a_second_and_never_without_expiry() -> None:
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


def test_a_mechanism_of_a_listener_may_have_its_own_expiry() -> None:
    async def scene(stand: Stand) -> None:
        await stand.handshake()
        assert (await stand.authenticate()).session_lifetime_ms == 5000

    async def whole() -> None:
        own = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "5000"}
        await scene(Stand({**SETTINGS, "connections.max.reauth.ms": "60000", **own}))

    run(whole())


# ---- a mechanism that runs in a worker thread


class SlowExchange:
    is_non_blocking = False
    is_refused = False

    def __init__(self) -> None:
        self.identity: Identity | None = None

    def claimed_user(self, _token: bytes) -> str | None:
        return "slow"

    def step(self, token: bytes) -> bytes:
        if token != b"good":
            raise LoginError("falsch")
        self.identity = Identity("User:slow", LoopClock().now_ms() + 90_000)
        return b"welcome"


def test_a_slow_step_runs_in_a_worker_thread() -> None:
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


# ---- settings and JAAS


def refused(settings: Mapping[str, str], **environment: str) -> str:
    with pytest.raises(JaasError) as caught:
        rules_of({**SETTINGS, **settings}, LoopClock(), environment)
    assert "geheim" not in str(caught.value)
    return str(caught.value)


def test_invalid_login_settings_stop_the_broker() -> None:
    assert "sasl.enabled.mechanisms is empty" in refused({"sasl.enabled.mechanisms": ""})
    assert "contains NTLM, supported are GSSAPI, OAUTHBEARER, PLAIN" in refused({"sasl.enabled.mechanisms": "NTLM"})
    assert f"{KEY}: line 1: the text ends" in refused({KEY: f"{PLAIN} user_a=geheim"})
    missing = refused(
        {
            "listeners": "SASL_PLAINTEXT://:1,X://:2",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,X:SASL_PLAINTEXT",
        }
    )
    assert "Could not find a 'KafkaServer' or 'x.KafkaServer' entry" in missing
    assert "cannot read /gone" in refused({}, KAFKA_OPTS="-Djava.security.auth.login.config=/gone")
    assert "jwks.endpoint.url is not set" in refused({"sasl.enabled.mechanisms": "OAUTHBEARER"})
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


# ---- password guessing: failure limits and delays

WRONG = b"\0alice\0falsch"
RIGHT = b"\0alice\0geheim"
FAILED = Error.SASL_AUTHENTICATION_FAILED


class Crowd:
    """Many connections to one broker."""

    def __init__(self, **more: str) -> None:
        self.settings = {**SETTINGS, **{key.replace("_", "."): value for key, value in more.items()}}
        self.first = Stand(self.settings)
        self.loop = self.first.loop
        self.failed_at: list[float] = []

    def stand(self, host: str) -> Stand:
        return Stand(self.settings, host=host, beside=self.first)

    async def log_in(self, host: str, token: bytes) -> Any:
        stand = self.stand(host)
        await stand.handshake()
        answer = await stand.authenticate(token)
        if answer is not None and answer.error_code == FAILED:
            self.failed_at.append(self.loop.time())
        return answer

    async def keep_guessing(self, host: str, seconds: float, user: str = "alice") -> None:
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await self.log_in(host, b"\0%s\0falsch" % user.encode())

    def in_one_second_max(self) -> int:
        times = sorted(self.failed_at)
        return max(sum(begin <= time < begin + 1 for time in times) for begin in times)


def play_failures(scene: Callable[[Crowd], Awaitable[None]], **more: str) -> None:
    async def whole() -> None:
        await scene(Crowd(**more))

    run(whole())


async def all_of(*works: Any) -> None:
    await asyncio.gather(*works)


def test_sixty_connections_cannot_guess_600_passwords_of_one_user_per_second() -> None:
    async def scene(crowd: Crowd) -> None:
        await all_of(*(crowd.keep_guessing("attacker", 5.0) for _ in range(60)))
        assert 40 <= len(crowd.failed_at) <= 170
        assert crowd.in_one_second_max() <= 10
        assert crowd.first.traffic.failed_logins == pytest.approx(len(crowd.failed_at), abs=60)

    play_failures(scene)


def test_guesses_from_other_addresses_do_not_delay_the_right_password() -> None:
    async def scene(crowd: Crowd) -> None:
        guesses = [asyncio.ensure_future(crowd.keep_guessing(f"attacker-{at}", 5.0)) for at in range(100)]
        others = [asyncio.ensure_future(crowd.keep_guessing("client", 5.0, f"user-{at}")) for at in range(30)]
        await asyncio.sleep(2.0)
        for host in ("home", "attacker-7"):
            began = crowd.loop.time()
            token = RIGHT if host == "home" else b"\0bob\0geheim"
            assert (await crowd.log_in(host, token)).error_code == 0
            assert crowd.loop.time() - began <= 0.1
        assert (await crowd.log_in("client", RIGHT)).error_code == 0
        for each in (*guesses, *others):
            each.cancel()

    play_failures(scene)


def test_the_right_password_behind_wrong_ones_of_the_same_user_and_address_succeeds_eventually() -> None:
    async def scene(crowd: Crowd) -> None:
        wrong = [asyncio.ensure_future(crowd.log_in("office", WRONG)) for _ in range(20)]
        await asyncio.sleep(0.05)
        began = crowd.loop.time()
        assert (await crowd.log_in("office", RIGHT)).error_code == 0
        assert 1.0 <= crowd.loop.time() - began <= 3.0
        await all_of(*wrong)

    play_failures(scene)


def test_a_response_that_would_be_too_late_closes_the_connection() -> None:
    async def scene(crowd: Crowd) -> None:
        began = crowd.loop.time()
        answers = await asyncio.gather(*(crowd.log_in(f"host-{at}", WRONG) for at in range(150)))
        assert sum(answer is None for answer in answers) > 30
        assert crowd.loop.time() - began == pytest.approx(LOGIN_TIMEOUT_MS / 1000, abs=0.2)
        assert crowd.in_one_second_max() <= 10
        await asyncio.sleep(10)
        assert len(crowd.first.broker.authenticator._delayed_attempts._callbacks) == 0

    play_failures(scene)


def test_disconnected_clients_leave_no_state() -> None:
    async def scene(crowd: Crowd) -> None:
        for number in range(300):
            stand = crowd.stand("attacker")
            await stand.handshake()
            asking = asyncio.ensure_future(stand.authenticate(WRONG))
            await asyncio.sleep(0.002)
            stand.connection.abandon(CloseReason.CLIENT)
            assert await asking is None, number
        assert crowd.first.traffic.failed_logins <= 30
        await asyncio.sleep(1)
        assert not crowd.first.broker.authenticator._delayed_attempts._callbacks

    play_failures(scene)


def test_a_reauthentication_has_the_same_limits() -> None:
    async def scene(crowd: Crowd) -> None:
        stand = crowd.stand("office")
        await stand.handshake()
        assert (await stand.authenticate(RIGHT)).error_code == 0
        await asyncio.sleep(2)
        wrong = [asyncio.ensure_future(crowd.log_in("office", WRONG)) for _ in range(5)]
        await asyncio.sleep(0.02)
        assert (await stand.handshake()).error_code == 0
        began = crowd.loop.time()
        assert (await stand.authenticate(RIGHT)).session_lifetime_ms == 60_000
        assert 0.3 <= crowd.loop.time() - began <= 1.0
        await asyncio.sleep(30)
        assert not stand.connection.is_closed
        await all_of(*wrong)

    play_failures(scene, connections_max_reauth_ms="60000")


# ---- other mechanisms


class Credentials:
    has_tokens = True

    def __init__(self) -> None:
        salted = salted_password("SCRAM-SHA-256", b"geheim", b"salt", 4096)
        self._right = credential_from_salted("SCRAM-SHA-256", salted, b"salt", 4096)

    def find(self, _mechanism: str, name: str) -> ScramCredential | None:
        return self._right if name == "carol" else None

    def any_credential(self, _mechanism: str) -> ScramCredential | None:
        return self._right

    def find_token(self, _mechanism: str, token_id: str) -> TokenCredential | None:
        return TokenCredential(self._right, "User:carol", 1 << 60) if token_id == "t1" else None


async def scram(crowd: Crowd, host: str, name: str, password: str, *, is_token: bool = False) -> Any:
    stand = crowd.stand(host)
    credentials = Credentials()
    stand.client.login.machine._mechanisms["SCRAM-SHA-256"] = lambda: ScramServer("SCRAM-SHA-256", credentials, b"s")
    await stand.handshake("SCRAM-SHA-256")
    client = ScramClient("SCRAM-SHA-256", name, password, is_token=is_token)
    first = await stand.authenticate(client.first())
    return await stand.authenticate(client.step(first.auth_bytes))


@pytest.mark.parametrize(("name", "is_token"), [("carol", False), ("t1", True)])
def test_scram_and_delegation_tokens_are_limited_to_ten_failures_a_second(name: str, is_token: bool) -> None:
    async def scene(crowd: Crowd) -> None:
        began = crowd.loop.time()
        answers = await asyncio.gather(
            *(scram(crowd, f"host-{at % 3}", name, "falsch", is_token=is_token) for at in range(30))
        )
        assert {answer.error_code for answer in answers} == {FAILED}
        assert crowd.loop.time() - began >= 2.9
        assert (await scram(crowd, "host-1", name, "geheim", is_token=is_token)).error_code == 0

    play_failures(scene)


def unsigned(subject: str) -> bytes:
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in ({}, {"sub": subject})]
    return b"n,,\x01auth=Bearer " + b".".join((*parts, b"x")) + b"\x01\x01"


def refuse(_token: str) -> Any:
    raise TokenError("not signed by a known key")


def test_oauth_failures_are_limited_too() -> None:
    async def log_in(crowd: Crowd, host: str) -> tuple[float, Any]:
        stand = crowd.stand(host)
        stand.client.login.machine._mechanisms["PLAIN"] = lambda: OAuthServer(refuse)
        await stand.handshake()
        refusal = await stand.authenticate(unsigned("mallory"))
        assert refusal.auth_bytes == invalid_token_response().encode()
        known = crowd.loop.time()
        return known, await stand.authenticate(b"\x01")

    async def scene(crowd: Crowd) -> None:
        began = crowd.loop.time()
        found = await asyncio.gather(*(log_in(crowd, "host") for _ in range(20)))
        assert {answer.error_code for _, answer in found} == {FAILED}
        assert max(known for known, _ in found) - began >= 1.9
        assert crowd.first.traffic.failed_logins == 20

    play_failures(scene)


def test_the_claimed_name_of_a_token_is_read_without_validation_and_without_failing() -> None:
    plain, oauth = PlainServer({}), OAuthServer(refuse)
    assert plain.claimed_user(WRONG) == "alice"
    assert plain.claimed_user(b"alice") is plain.claimed_user(b"\0\0x") is None
    assert plain.claimed_user(b"\0\xff\0x") == "\ufffd"
    assert oauth.claimed_user(unsigned("mallory")) == "mallory"
    nested = base64.urlsafe_b64encode(b"[" * 30_000)
    for token in (b"", b"\xff", b"n,,\x01auth=Bearer a.b.c\x01\x01", b"n,,\x01auth=Bearer a." + nested + b".c\x01\x01"):
        assert oauth.claimed_user(token) is None
    scram = ScramServer("SCRAM-SHA-256", Credentials(), b"s", lambda: "nonce")
    assert scram.claimed_user(b"n,,n=carol,r=x") is None
    scram.step(b"n,,n=carol,r=x")
    assert scram.claimed_user(b"") == "carol"
