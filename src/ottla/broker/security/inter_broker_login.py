"""Login of this broker at other brokers, through the inter-broker listener.

As in Kafka the name and the password come from that listener's own login module (`username`, `password` in the section
KafkaServer), and the mechanism is `sasl.mechanism.inter.broker.protocol`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Final, ParamSpec, TypeVar

from ottla.base.broker_settings import BrokerSettings
from ottla.base.listeners import split_listener_key
from ottla.broker.security.listener_mechanisms import inter_broker_listener, server_logins
from ottla.network.peer import BrokerConnection, PeerError
from ottla.protocol.messages.credentials import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from ottla.security.jaas import JaasError
from ottla.security.sasl.client_authenticator import (
    HANDSHAKE_VERSION,
    ClientLogin,
    SaslAuthenticationError,
    SaslClientAuthenticator,
    make_login,
)
from ottla.security.sasl.exchange import LoginError

SASL_AUTHENTICATE: Final = 36

P = ParamSpec("P")
R = TypeVar("R")


def inter_broker_login(settings: BrokerSettings, environment: Mapping[str, str]) -> ClientLogin | None:
    """Return the login for other brokers, or None if they need none. Raises JaasError."""
    listener = inter_broker_listener(settings)
    if listener is None or not listener.protocol.startswith("SASL_"):
        return None
    mechanism = settings.sasl_mechanism_inter_broker_protocol
    if mechanism not in settings.of_listener(listener.name, "sasl.enabled.mechanisms"):
        raise JaasError(
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms "
            "when SASL is used for inter-broker communication"
        )
    module = server_logins(settings, environment).module_of(listener.name, mechanism)
    return make_login(mechanism, client_properties(settings, listener.name, mechanism), module)


def client_properties(settings: BrokerSettings, listener: str, mechanism: str) -> dict[str, str]:
    """Return the broker's settings as client settings for this listener, with those of the mechanism."""
    found = {name: text for name, text in settings.texts.items() if split_listener_key(name) is None}
    for prefix in ("", f"{mechanism.lower()}."):
        for name, text in settings.texts.items():
            key = split_listener_key(name)
            if key is not None and key.listener == listener.lower() and key.base.startswith(prefix):
                found[key.base.removeprefix(prefix)] = text
    return found


class InterBrokerLogin:
    """The login of all outgoing connections of a broker; a replaced `login` applies to new connections."""

    def __init__(self, login: ClientLogin, workers: Executor) -> None:
        self.login = login
        self._workers = workers

    async def log_in(self, peer: BrokerConnection) -> int:
        """Authenticate a new connection; returns how long the login is valid in ms, 0: unlimited."""
        exchange = SaslClientAuthenticator(self.login, peer.host)
        answer = await peer.call_during_setup(exchange.handshake(), SaslHandshakeResponse, HANDSHAKE_VERSION)
        try:
            exchange.take_handshake(answer)
        except SaslAuthenticationError as refused:
            offered = ", ".join(refused.enabled_mechanisms) or "no mechanism"
            text = f"{peer.address} refuses a login with {exchange.mechanism}: it supports {offered}"
            raise PeerError(text) from None
        run = call_inline if exchange.is_non_blocking else self._call_in_worker
        version = peer.version_of(SASL_AUTHENTICATE)
        try:
            request: SaslAuthenticateRequest | None = await run(exchange.begin)
            while request is not None:
                request = await run(
                    exchange.step, await peer.call_during_setup(request, SaslAuthenticateResponse, version)
                )
        except LoginError as problem:
            raise PeerError(f"the login at {peer.address} failed: {problem}") from None
        return exchange.lifetime_ms

    def _call_in_worker(self, work: Callable[P, R], *words: P.args, **_: P.kwargs) -> Awaitable[R]:
        return asyncio.get_running_loop().run_in_executor(self._workers, work, *words)

    def __repr__(self) -> str:
        return f"<InterBrokerLogin {self.login!r}>"


async def call_inline(work: Callable[P, R], *words: P.args, **named: P.kwargs) -> R:
    return work(*words, **named)
