"""SASL authentication of connections, with re-authentication (Kafka's SaslServerAuthenticator).

security/sasl implements the protocol of a login; this module adds timers, worker threads and responses.

Rules:
1. The listener's security protocol decides whether a login is needed, never its name.
2. Before its login a connection may send only small frames, and has LOGIN_MS_MAX in total.
3. The response to a failed login is sent after `connection.failed.authentication.delay.ms`, as in Kafka, and the
   connection closed: this slows down password guessing. The response never reveals whether the name or the password was
   wrong.
4. Failures are limited per user and address (security/login_throttle.py). A failure is logged, counted and reported to
the client after its delay. A client that would wait longer than LOGIN_MS_MAX is disconnected without a response.
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
from ottla.base.tasks import notify_safely
from ottla.network.close_reason import CloseReason
from ottla.network.connection import ConnectedClient, Connection
from ottla.network.socket_server import ListenerTraffic
from ottla.protocol.messages.cluster import ApiVersionsResponse
from ottla.protocol.messages.credentials import SaslAuthenticateResponse, SaslHandshakeResponse
from ottla.security.login_throttle import LoginAttempt, LoginThrottle
from ottla.security.sasl.exchange import LoginError, ServerExchange
from ottla.security.sasl.login_state import LoginState, MakeExchange, Stage

if TYPE_CHECKING:
    from ottla.broker.audit.trail import AuditTrail
    from ottla.broker.context import Context

logger = logging.getLogger(__name__)

LOGIN_TIMEOUT_MS: Final = 10_000
AUTHENTICATION_FAILED: Final = "Authentication failed"


class DelayedAttempts:
    """Login attempts that wait because of earlier failures: runs the decisions of FailedLogins; one per broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed = LoginThrottle()
        self._callbacks: dict[LoginAttempt, Callable[[], None]] = {}  # of waiting attempts
        self._timer: asyncio.TimerHandle | None = None

    def must_wait(self, user: str, address: str) -> bool:
        return self._failed.is_failing(user, address)

    def add(self, user: str | None, address: str, callback: Callable[[], None], *, is_checked: bool) -> LoginAttempt:
        """Add an attempt; `callback` is called after its delay."""
        attempt = self._failed.add_attempt(user, address, self._clock.monotonic_ms(), is_checked=is_checked)
        self._callbacks[attempt] = callback
        self._set_timer()
        return attempt

    def remove(self, attempt: LoginAttempt) -> None:
        """Remove the waiting attempt of a disconnected client."""
        dropped = self._failed.on_disconnect(attempt)
        if not attempt.has_failed:
            self._callbacks.pop(attempt, None)
        if dropped is not None:
            self._callbacks.pop(dropped, None)

    def on_passed(self, attempt: LoginAttempt) -> None:
        self._failed.on_success(attempt, self._clock.monotonic_ms())
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self._failed.next_ms
        if next_ms is not None:
            delay_ms = max(0, next_ms - self._clock.monotonic_ms())
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._release)

    def _release(self) -> None:
        self._timer = None
        for attempt in self._failed.take_due(self._clock.monotonic_ms()):
            notify_safely(self._callbacks.pop(attempt))
        self._set_timer()

    def __repr__(self) -> str:
        return f"<DelayedAttempts {self._failed!r}>"


class Mechanism(NamedTuple):
    """One mechanism of a listener."""

    make: MakeExchange
    reauth_ms_max: int  # maximum validity of a login; 0: unlimited


class ListenerRules(NamedTuple):
    """The authentication rules of a listener."""

    mechanisms: dict[str, Mechanism]
    receive_bytes_max: int
    failure_delay_ms: int


def exchange_factories(rules: ListenerRules) -> dict[str, MakeExchange]:
    return {name: mechanism.make for name, mechanism in rules.mechanisms.items()}


class ConnectionAuthentication:
    """The authentication state of one connection."""

    def __init__(self, connection: Connection, rules: ListenerRules) -> None:
        self.connection = connection
        self.rules = rules
        self.machine = LoginState(exchange_factories(rules))
        self.frame_bytes_max = connection.frame_bytes_max  # after the login
        self.has_versions = False  # the response to ApiVersions was sent
        self.timer: asyncio.TimerHandle | None = None
        self.attempt: LoginAttempt | None = None  # the waiting attempt
        self.turn_future: asyncio.Future[None] | None = None
        self.has_waited_for_refusal = False  # for the rejection that the client must confirm

    def use_rules(self, rules: ListenerRules) -> None:
        """Use the current rules, so that a changed password applies to a re-authentication."""
        if rules is not self.rules and self.machine.stage is not Stage.TOKENS:
            self.rules = rules
            self.machine.update_mechanisms(exchange_factories(rules))

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def __repr__(self) -> str:
        return f"<ConnectionAuthentication {self.machine!r}>"


class ServerAuthenticator:
    """Authenticates all connections; used by the dispatcher and by SaslHandshake and SaslAuthenticate."""

    def __init__(self, listeners: dict[str, ListenerRules], clock: Clock, workers: Executor) -> None:
        """`listeners` are those that need a login, by name."""
        self._listeners = listeners
        self._clock = clock
        self._workers = workers
        self._delayed_attempts = DelayedAttempts(clock)
        self.traffic_of: Callable[[str], ListenerTraffic] = lambda _: ListenerTraffic()  # counters of logins
        self.audit: AuditTrail | None = None  # records logins

    def set_rules(self, listeners: dict[str, ListenerRules]) -> None:
        """Use changed rules from the next handshake on."""
        self._listeners = listeners

    def on_open(self, connection: Connection) -> None:
        """Create the authentication state of a new connection."""
        rules = self._listeners.get(connection.client.listener_name)
        if rules is None:
            if self.audit is not None and connection.client.principal != ANONYMOUS:
                notify_safely(self.audit.record_certificate_login, connection.client)
            return
        login = ConnectionAuthentication(connection, rules)
        client = connection.client
        client.is_authenticated = False
        client.login = login
        connection.frame_bytes_max = min(rules.receive_bytes_max, connection.frame_bytes_max)
        self._limit_time(login)
        connection.close_listeners["login"] = lambda: self._on_closed(login)

    def on_refused(self, client: ConnectedClient, reason: str) -> None:
        """Record a failed TLS handshake."""
        if self.audit is not None:
            notify_safely(self.audit.record_failed_handshake, client, reason)

    def _limit_time(self, login: ConnectionAuthentication) -> None:
        login.stop_timer()
        login.timer = login.connection.loop.call_later(LOGIN_TIMEOUT_MS / 1000, self._on_timeout, login)

    def _on_timeout(self, login: ConnectionAuthentication) -> None:
        login.connection.abandon(CloseReason.LOGIN_TIMEOUT, f"no login within {LOGIN_TIMEOUT_MS} ms")

    def _on_closed(self, login: ConnectionAuthentication) -> None:
        login.stop_timer()
        attempt, login.attempt = login.attempt, None
        if attempt is not None:
            self._delayed_attempts.remove(attempt)
        if login.turn_future is not None and not login.turn_future.done():
            login.turn_future.set_result(None)

    # ---- APIs

    def refuse_versions(self, context: Context) -> Any:
        """Return the error for ApiVersions, or None: it is allowed once before the handshake, and after the login."""
        login: ConnectionAuthentication | None = context.client.login
        if login is None or login.machine.stage is Stage.AUTHENTICATED:
            return None
        if login.machine.stage is Stage.TOKENS:
            said = "Unexpected Kafka request of type API_VERSIONS during SASL authentication."
            return self._refuse(login, ApiVersionsResponse(error_code=Error.ILLEGAL_SASL_STATE), context, said)
        if login.machine.stage is Stage.HANDSHAKE and not login.has_versions:
            return None
        return context.responder.fail(CloseReason.NO_LOGIN, "ApiVersions where a SaslHandshake is expected")

    def on_api_versions_answered(self, client: ConnectedClient) -> None:
        """Record that the handshake follows ApiVersions."""
        if client.login is not None:
            client.login.has_versions = True

    def handshake(self, mechanism: str, context: Context) -> Any:
        """Return the response to SaslHandshake."""
        login: ConnectionAuthentication | None = context.client.login
        if login is None:
            return SaslHandshakeResponse(error_code=Error.ILLEGAL_SASL_STATE)
        machine, client = login.machine, context.client
        login.use_rules(self._listeners.get(client.listener_name, login.rules))
        error = machine.select_mechanism(mechanism, context.api_version, self._clock.monotonic_ms())
        if error is Error.ILLEGAL_SASL_STATE and machine.stage is Stage.AUTHENTICATED:
            return SaslHandshakeResponse(error_code=error)
        offered = list(login.rules.mechanisms) if error is not Error.ILLEGAL_SASL_STATE else []
        response = SaslHandshakeResponse(error_code=error, mechanisms=offered)
        if error is not Error.NONE:
            return self._refuse(login, response, context, f"{error.name} after a handshake for {mechanism[:50]!r}")
        client.is_authenticated = False  # until the re-authentication is done no other API is served
        client.sends_bare_sasl_tokens = machine.takes_bare_token
        return response

    def authenticate(self, token: bytes, context: Context) -> Any:
        """Return the response to SaslAuthenticate, or to a bare token."""
        login: ConnectionAuthentication | None = context.client.login
        if login is None or login.machine.stage is Stage.AUTHENTICATED:
            said = "SaslAuthenticate request received after successful authentication"
            return SaslAuthenticateResponse(error_code=Error.ILLEGAL_SASL_STATE, error_message=said, auth_bytes=b"")
        if login.machine.stage is not Stage.TOKENS:
            said = "SaslAuthenticate request received before SaslHandshake"
            self._report_failure(self._fail(login, context), context, Error.ILLEGAL_SASL_STATE, said)
            login.stop_timer()
            return context.responder.fail(CloseReason.LOGIN_FAILED, said)
        try:
            exchange = login.machine.begin_step()
        except LoginError as problem:
            return self._on_failed(login, problem, context)
        user = exchange.claimed_user(token)
        if user is not None and self._delayed_attempts.must_wait(user, context.client.host):
            return self._step_after_delay(login, exchange, token, context, user)
        if not exchange.is_non_blocking:
            return self._step_offloaded(login, exchange, token, context, user)
        try:
            return self._on_step_done(login, exchange.step(token), context, user)
        except LoginError as problem:
            return self._on_failed(login, problem, context, user)

    async def _step_after_delay(
        self, login: ConnectionAuthentication, exchange: ServerExchange, token: bytes, context: Context, user: str
    ) -> Any:
        """Check the password after the delay of this user and address, which had failures."""
        if login.machine.is_reauthentication:
            self._limit_time(login)
        turn = login.turn_future = login.connection.loop.create_future()
        attempt = login.attempt = self._delayed_attempts.add(
            user, context.client.host, lambda: complete_turn(turn), is_checked=False
        )
        await turn
        if login.connection.is_closed:
            return SaslAuthenticateResponse(error_code=Error.SASL_AUTHENTICATION_FAILED, auth_bytes=b"")
        login.turn_future = login.attempt = None
        login.has_waited_for_refusal = True
        answer = await self._step_offloaded(login, exchange, token, context, user)
        if login.machine.stage is not Stage.FAILED and not exchange.is_refused:
            self._delayed_attempts.on_passed(attempt)
        return answer

    async def _step_offloaded(
        self,
        login: ConnectionAuthentication,
        exchange: ServerExchange,
        token: bytes,
        context: Context,
        user: str | None,
    ) -> Any:
        try:
            if exchange.is_non_blocking:
                output = exchange.step(token)
            else:
                output = await login.connection.loop.run_in_executor(self._workers, exchange.step, token)
            return self._on_step_done(login, output, context, user)
        except LoginError as problem:
            return self._on_failed(login, problem, context, user)

    def _on_step_done(self, login: ConnectionAuthentication, output: bytes, context: Context, user: str | None) -> Any:
        machine, client = login.machine, context.client
        if machine.exchange is not None and machine.exchange.is_refused:
            return self._refuse_after_confirmation(login, SaslAuthenticateResponse(auth_bytes=output), context, user)
        mechanism = login.rules.mechanisms[machine.mechanism]
        was_repeated = machine.is_reauthentication
        lifetime_ms = machine.end_step(self._clock.now_ms(), mechanism.reauth_ms_max)
        if lifetime_ms is None:
            return SaslAuthenticateResponse(error_message="", auth_bytes=output)
        assert machine.identity is not None, "a successful login has an identity"
        logger.debug("%s has logged in from %s with %s", machine.identity, client.host, machine.mechanism)
        traffic = self.traffic_of(client.listener_name)
        traffic.repeated_logins += was_repeated
        traffic.logins += not was_repeated
        client.principal, client.is_delegated = machine.identity.principal, machine.identity.is_delegated
        client.is_authenticated = True
        client.sends_bare_sasl_tokens = False
        login.has_waited_for_refusal = False
        login.connection.frame_bytes_max = login.frame_bytes_max
        login.stop_timer()
        if machine.expires:
            login.timer = login.connection.loop.call_later(lifetime_ms / 1000, self._on_expired, login)
        if self.audit is not None:
            notify_safely(self.audit.record_login, context, machine.mechanism, was_repeated)
        return SaslAuthenticateResponse(error_message="", auth_bytes=output, session_lifetime_ms=lifetime_ms)

    def _on_expired(self, login: ConnectionAuthentication) -> None:
        """Close expired connections only when they send a request: an idle client may re-authenticate with its next
        request.
        """
        login.timer = None
        login.machine.expire()
        login.connection.client.is_authenticated = False

    # ---- rejections

    def _on_failed(
        self, login: ConnectionAuthentication, problem: LoginError, context: Context, user: str | None = None
    ) -> Any:
        kind = "re-authentication" if login.machine.is_reauthentication else "authentication"
        mechanism = login.machine.mechanism
        told = problem.client_message
        if told == AUTHENTICATION_FAILED:
            told = f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {mechanism}"
        response = SaslAuthenticateResponse(
            error_code=Error.SASL_AUTHENTICATION_FAILED, error_message=told, auth_bytes=b""
        )
        return self._refuse(login, response, context, f"{kind} with {mechanism}: {problem}", user)

    def _refuse(
        self, login: ConnectionAuthentication, response: Any, context: Context, reason: str, user: str | None = None
    ) -> Any:
        """Report the failure after the delay of its user and address, respond after a further delay, and close."""
        failed = self._fail(login, context)
        responder = context.responder.defer()

        def on_due() -> None:
            self._report_failure(failed, context, response.error_code, reason)
            login.attempt = None
            login.stop_timer()
            login.connection.loop.call_later(
                login.rules.failure_delay_ms / 1000,
                responder.answer_and_close,
                response,
                CloseReason.LOGIN_FAILED,
                reason,
            )

        if login.has_waited_for_refusal:
            on_due()
        else:
            self._delay_attempt(login, user, on_due)
        return responder

    def _refuse_after_confirmation(
        self, login: ConnectionAuthentication, response: Any, context: Context, user: str | None
    ) -> Any:
        """Return a response with the failure, which the client confirms before the login ends."""
        if login.has_waited_for_refusal:
            return response
        login.has_waited_for_refusal = True
        responder = context.responder.defer_exclusive()

        def on_due() -> None:
            login.attempt = None
            if not login.connection.is_closed:
                responder.answer(response)

        self._delay_attempt(login, user, on_due)
        return responder

    def _delay_attempt(self, login: ConnectionAuthentication, user: str | None, callback: Callable[[], None]) -> None:
        self._limit_time(login)
        login.attempt = self._delayed_attempts.add(user, login.connection.client.host, callback, is_checked=True)

    def _fail(self, login: ConnectionAuthentication, context: Context) -> tuple[bool, str]:
        """End the login; returns whether it was a re-authentication, and its mechanism."""
        failed = login.machine.is_reauthentication, login.machine.mechanism
        login.machine.fail()
        context.client.is_authenticated = False
        return failed

    def _report_failure(self, failed: tuple[bool, str], context: Context, error: Error, reason: str) -> None:
        client, (is_repeated, mechanism) = context.client, failed
        logger.info("failed login from %s on listener %s: %s", client.host, client.listener_name, reason)
        traffic = self.traffic_of(client.listener_name)
        traffic.failed_repeated_logins += is_repeated
        traffic.failed_logins += not is_repeated
        if self.audit is not None:
            notify_safely(self.audit.record_failed_login, context, mechanism, error, reason)

    def __repr__(self) -> str:
        return f"<ServerAuthenticator on {', '.join(self._listeners) or 'no listener'}>"


def complete_turn(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
