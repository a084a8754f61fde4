"""How this broker logs in at the others: by the listener that brokers use among themselves.

As in Kafka the name and the password are those of that listener's own login module (`username`, `password` in the
section KafkaServer), and the mechanism is `sasl.mechanism.inter.broker.protocol`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.listener_keys import split_listener_key
from ottla.broker.security.listener_rules import inter_broker_listener, server_logins
from ottla.network.peer import LogIn, Peer, PeerError
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.security.jaas import JaasError
from ottla.security.sasl.client_logins import ClientLogin, make_login
from ottla.security.sasl.mechanism import LoginError

HANDSHAKE_VERSION: Final = 1  # the tokens that follow are requests
SASL_AUTHENTICATE: Final = 36
STEPS_MAX: Final = 20


def peer_login(settings: BrokerSettings, environment: Mapping[str, str], workers: Executor) -> LogIn | None:
    """None if the others ask for no login. Raises JaasError."""
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
    login = make_login(mechanism, properties_of(settings, listener.name, mechanism), module)
    return PeerLogin(login, workers).log_in


def properties_of(settings: BrokerSettings, listener: str, mechanism: str) -> dict[str, str]:
    """The broker's settings as those of a client on this listener, with what the mechanism has for itself."""
    found = {name: text for name, text in settings.texts.items() if split_listener_key(name) is None}
    for prefix in ("", f"{mechanism.lower()}."):
        for name, text in settings.texts.items():
            key = split_listener_key(name)
            if key is not None and key.listener == listener.lower() and key.base.startswith(prefix):
                found[key.base.removeprefix(prefix)] = text
    return found


class PeerLogin:
    """One for all outgoing connections of a broker."""

    def __init__(self, login: ClientLogin, workers: Executor) -> None:
        self._login = login
        self._workers = workers

    async def log_in(self, peer: Peer) -> int:
        """Log a new connection in; how long that is good for, in ms, 0 for ever."""
        mechanism = self._login.mechanism
        handshake = SaslHandshakeRequest(mechanism=mechanism)
        answer = await peer.greet(handshake, SaslHandshakeResponse, HANDSHAKE_VERSION)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "no mechanism"
            raise PeerError(f"{peer.address} refuses a login with {mechanism}: it offers {offered}")
        try:
            return await self._exchange(peer)
        except LoginError as problem:
            raise PeerError(f"the login at {peer.address} failed: {problem}") from None

    async def _exchange(self, peer: Peer) -> int:
        version = peer.version_of(SASL_AUTHENTICATE)
        exchange = self._login.make(peer.host)
        loop = asyncio.get_running_loop()
        token = exchange.first() if exchange.is_quick else await loop.run_in_executor(self._workers, exchange.first)
        for _ in range(STEPS_MAX):
            answer = await peer.greet(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)
            if answer.error_code != Error.NONE:
                raise LoginError(answer.error_message or f"error {answer.error_code}")
            received = bytes(answer.auth_bytes)
            if exchange.is_quick:
                token = exchange.step(received)
            else:
                token = await loop.run_in_executor(self._workers, exchange.step, received)
            if exchange.is_done:
                return answer.session_lifetime_ms
        raise LoginError("it comes to no end")

    def __repr__(self) -> str:
        return f"<PeerLogin {self._login!r}>"
