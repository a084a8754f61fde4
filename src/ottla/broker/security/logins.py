"""The gate: connections of listeners that ask for a login, until they have had one and when it has expired.

What a login is and how far it may go is security/sasl's business; here are the timers, the workers and the answers.

Rules:
1. Which listeners ask follows from their protocol, never from their name.
2. Before its login a connection may send only small frames, and has LOGIN_MS_MAX for all of it.
3. A failed login is answered after `connection.failed.authentication.delay.ms`, as Kafka does, and then closed: to
   guess passwords takes time. The answer never says whether the name or the password was wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.base.clock import Clock
from ottla.base.errors import Error
from ottla.base.security import ANONYMOUS
from ottla.base.tasks import tell
from ottla.network.client_facts import ClientFacts
from ottla.network.connection import Connection
from ottla.network.traffic import ListenerTraffic
from ottla.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from ottla.security.sasl.login import Login, MakeExchange, Stage
from ottla.security.sasl.mechanism import LoginError, ServerExchange

if TYPE_CHECKING:
    from ottla.broker.audit.trail import AuditTrail
    from ottla.broker.context import Context

logger = logging.getLogger(__name__)

LOGIN_MS_MAX: Final = 10_000
NAMELESS: Final = "Authentication failed"


class Mechanism(NamedTuple):
    """One mechanism of a listener."""

    make: MakeExchange
    reauth_ms_max: int  # a login is good for so long; 0 for ever


class ListenerRules(NamedTuple):
    """What a listener asks of whoever connects to it."""

    mechanisms: dict[str, Mechanism]
    receive_bytes_max: int
    failure_delay_ms: int


def makers_of(rules: ListenerRules) -> dict[str, MakeExchange]:
    return {name: mechanism.make for name, mechanism in rules.mechanisms.items()}


class ConnectionLogin:
    """The login of one connection, and what is to be undone when it ends."""

    def __init__(self, connection: Connection, rules: ListenerRules) -> None:
        self.connection = connection
        self.rules = rules
        self.machine = Login(makers_of(rules))
        self.frame_bytes_max = connection.frame_bytes_max  # after the login
        self.timer: asyncio.TimerHandle | None = None

    def follow(self, rules: ListenerRules) -> None:
        """A login that is repeated is held to what counts now: a password that was changed is the new one."""
        if rules is not self.rules and self.machine.stage is not Stage.TOKENS:
            self.rules = rules
            self.machine.offer(makers_of(rules))

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def __repr__(self) -> str:
        return f"<ConnectionLogin {self.machine!r}>"


class Logins:
    """All of a broker; made once, asked by dispatch and by the handlers of SaslHandshake and SaslAuthenticate."""

    def __init__(self, listeners: dict[str, ListenerRules], clock: Clock, workers: Executor) -> None:
        """`listeners` are those that ask for a login, by name."""
        self._listeners = listeners
        self._clock = clock
        self._workers = workers
        self.traffic_of: Callable[[str], ListenerTraffic] = lambda _: ListenerTraffic()  # where logins are counted
        self.audit: AuditTrail | None = None  # where they are noted

    def use(self, listeners: dict[str, ListenerRules]) -> None:
        """Settings have changed: what counts from the next handshake on."""
        self._listeners = listeners

    def on_open(self, connection: Connection) -> None:
        """Somebody has connected."""
        rules = self._listeners.get(connection.client.listener_name)
        if rules is None:
            if self.audit is not None and connection.client.principal != ANONYMOUS:
                tell(self.audit.note_certificate, connection.client)
            return
        login = ConnectionLogin(connection, rules)
        client = connection.client
        client.has_logged_in = False
        client.login = login
        connection.frame_bytes_max = min(rules.receive_bytes_max, connection.frame_bytes_max)
        login.timer = login.connection.loop.call_later(LOGIN_MS_MAX / 1000, self._on_slow, login)
        connection.watchers["login"] = login.stop_timer

    def on_refused(self, client: ClientFacts, reason: str) -> None:
        """Somebody has come no further than the handshake of TLS."""
        if self.audit is not None:
            tell(self.audit.note_failed_handshake, client, reason)

    def _on_slow(self, login: ConnectionLogin) -> None:
        client = login.connection.client
        logger.info("closing the connection from %s: no login within %d ms", client.host, LOGIN_MS_MAX)
        login.connection.abandon("no login in time")

    # ---- the two APIs

    def handshake(self, mechanism: str, context: Context) -> Any:
        """The answer to SaslHandshake."""
        login: ConnectionLogin | None = context.client.login
        if login is None:
            return SaslHandshakeResponse(error_code=Error.ILLEGAL_SASL_STATE)
        machine, client = login.machine, context.client
        login.follow(self._listeners.get(client.listener_name, login.rules))
        error = machine.choose(mechanism, context.api_version, self._clock.monotonic_ms())
        if error is Error.ILLEGAL_SASL_STATE and machine.stage is Stage.NOTHING:
            return SaslHandshakeResponse(error_code=error)
        offered = list(login.rules.mechanisms) if error is not Error.ILLEGAL_SASL_STATE else []
        response = SaslHandshakeResponse(error_code=error, mechanisms=offered)
        if error is not Error.NONE:
            return self._refuse(login, response, context, f"{error.name} after a handshake for {mechanism[:50]!r}")
        client.has_logged_in = False  # until the login is repeated nothing else is served
        client.sends_tokens = machine.takes_bare_token
        return response

    def authenticate(self, token: bytes, context: Context) -> Any:
        """The answer to SaslAuthenticate, or to a bare token."""
        login: ConnectionLogin | None = context.client.login
        if login is None or login.machine.stage is Stage.NOTHING:
            said = "SaslAuthenticate request received after successful authentication"
            return SaslAuthenticateResponse(error_code=Error.ILLEGAL_SASL_STATE, error_message=said, auth_bytes=b"")
        if login.machine.stage is not Stage.TOKENS:
            said = "SaslAuthenticate request received before SaslHandshake"
            response = SaslAuthenticateResponse(error_code=Error.ILLEGAL_SASL_STATE, error_message=said, auth_bytes=b"")
            return self._refuse(login, response, context, said)
        try:
            exchange = login.machine.begin_step()
            if not exchange.is_quick:
                return self._step_apart(login, exchange, token, context)
            return self._on_stepped(login, exchange.step(token), context)
        except LoginError as problem:
            return self._on_failed(login, problem, context)

    async def _step_apart(
        self, login: ConnectionLogin, exchange: ServerExchange, token: bytes, context: Context
    ) -> Any:
        try:
            output = await login.connection.loop.run_in_executor(self._workers, exchange.step, token)
            return self._on_stepped(login, output, context)
        except LoginError as problem:
            return self._on_failed(login, problem, context)

    def _on_stepped(self, login: ConnectionLogin, output: bytes, context: Context) -> SaslAuthenticateResponse:
        machine, client = login.machine, context.client
        mechanism = login.rules.mechanisms[machine.mechanism]
        was_repeated = machine.is_repeated
        lifetime_ms = machine.end_step(self._clock.now_ms(), mechanism.reauth_ms_max)
        if lifetime_ms is None:
            return SaslAuthenticateResponse(auth_bytes=output)
        assert machine.identity is not None, "who has logged in has a name"
        logger.debug("%s has logged in from %s with %s", machine.identity, client.host, machine.mechanism)
        traffic = self.traffic_of(client.listener_name)
        traffic.repeated_logins += was_repeated
        traffic.logins += not was_repeated
        client.principal, client.is_delegated = machine.identity.principal, machine.identity.is_delegated
        client.has_logged_in = True
        client.sends_tokens = False
        login.connection.frame_bytes_max = login.frame_bytes_max
        login.stop_timer()
        if machine.expires:
            login.timer = login.connection.loop.call_later(lifetime_ms / 1000, self._on_expired, login)
        if self.audit is not None:
            tell(self.audit.note_login, context, machine.mechanism, was_repeated)
        return SaslAuthenticateResponse(auth_bytes=output, session_lifetime_ms=lifetime_ms)

    def _on_expired(self, login: ConnectionLogin) -> None:
        """Nothing is closed before it sends something: who is idle may log in again when he has something to say."""
        login.timer = None
        login.machine.expire()
        login.connection.client.has_logged_in = False

    # ---- refusals

    def _on_failed(self, login: ConnectionLogin, problem: LoginError, context: Context) -> Any:
        kind = "re-authentication" if login.machine.is_repeated else "authentication"
        mechanism = login.machine.mechanism
        told = problem.told
        if told == NAMELESS:
            told = f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {mechanism}"
        response = SaslAuthenticateResponse(
            error_code=Error.SASL_AUTHENTICATION_FAILED, error_message=told, auth_bytes=b""
        )
        return self._refuse(login, response, context, f"{kind} with {mechanism}: {problem}")

    def _refuse(self, login: ConnectionLogin, response: Any, context: Context, reason: str) -> Any:
        """Answer after a while, and close."""
        client = context.client
        logger.info("failed login from %s on listener %s: %s", client.host, client.listener_name, reason)
        traffic = self.traffic_of(client.listener_name)
        traffic.failed_repeated_logins += login.machine.is_repeated
        traffic.failed_logins += not login.machine.is_repeated
        if self.audit is not None:
            tell(self.audit.note_failed_login, context, login.machine.mechanism, response.error_code, reason)
        login.machine.fail()
        login.stop_timer()
        client.has_logged_in = False
        responder = context.responder.keep()
        login.connection.loop.call_later(
            login.rules.failure_delay_ms / 1000, responder.answer_last, response, "the login failed"
        )
        return responder

    def __repr__(self) -> str:
        return f"<Logins on {', '.join(self._listeners) or 'no listener'}>"
