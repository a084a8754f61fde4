"""How this broker logs in at the others: by the listener that brokers use among themselves.

As in Kafka the name and the password are those of that listener's own login module (`username`, `password` in the
section KafkaServer), and the mechanism is `sasl.mechanism.inter.broker.protocol`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Final, ParamSpec, TypeVar

from ottla.base.broker_settings import BrokerSettings
from ottla.base.listener_keys import split_listener_key
from ottla.broker.security.listener_rules import inter_broker_listener, server_logins
from ottla.network.peer import Peer, PeerError
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeResponse
from ottla.security.jaas import JaasError
from ottla.security.sasl.client_logins import ClientLogin, make_login
from ottla.security.sasl.mechanism import LoginError
from ottla.security.sasl.token_exchange import HANDSHAKE_VERSION, LoginRefusedError, TokenExchange

SASL_AUTHENTICATE: Final = 36

P = ParamSpec("P")
R = TypeVar("R")


def inter_broker_login(settings: BrokerSettings, environment: Mapping[str, str]) -> ClientLogin | None:
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
    return make_login(mechanism, properties_of(settings, listener.name, mechanism), module)


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
    """One for all outgoing connections of a broker; `login` may be another one from the next connection on."""

    def __init__(self, login: ClientLogin, workers: Executor) -> None:
        self.login = login
        self._workers = workers

    async def log_in(self, peer: Peer) -> int:
        """Log a new connection in; how long that is good for, in ms, 0 for ever."""
        exchange = TokenExchange(self.login, peer.host)
        answer = await peer.greet(exchange.handshake(), SaslHandshakeResponse, HANDSHAKE_VERSION)
        try:
            exchange.take_handshake(answer)
        except LoginRefusedError as refused:
            offered = ", ".join(refused.offered) or "no mechanism"
            text = f"{peer.address} refuses a login with {exchange.mechanism}: it offers {offered}"
            raise PeerError(text) from None
        run = call_here if exchange.is_quick else self._call_in_worker
        version = peer.version_of(SASL_AUTHENTICATE)
        try:
            request: SaslAuthenticateRequest | None = await run(exchange.begin)
            while request is not None:
                request = await run(exchange.step, await peer.greet(request, SaslAuthenticateResponse, version))
        except LoginError as problem:
            raise PeerError(f"the login at {peer.address} failed: {problem}") from None
        return exchange.lifetime_ms

    def _call_in_worker(self, work: Callable[P, R], *words: P.args, **_: P.kwargs) -> Awaitable[R]:
        return asyncio.get_running_loop().run_in_executor(self._workers, work, *words)

    def __repr__(self) -> str:
        return f"<PeerLogin {self.login!r}>"


async def call_here(work: Callable[P, R], *words: P.args, **named: P.kwargs) -> R:
    return work(*words, **named)
