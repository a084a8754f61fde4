"""Logs a new connection in, before anything else is asked on it."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.client.connection import Connection
from ottla.client.errors import ClientError, RefusedError, refusal
from ottla.client.versions import best_version
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.protocol.schema import layout_of
from ottla.security.sasl.client_logins import ClientLogin
from ottla.security.sasl.mechanism import LoginError

HANDSHAKE_VERSION = 1  # the tokens that follow are requests
STEPS_MAX = 20


def log_in(connection: Connection, login: ClientLogin, timeout_ms: int) -> int:
    """How long the login is good for, 0 for ever. Raises ClientError."""
    version = best_version(layout_of(SaslAuthenticateRequest), connection.versions)
    if version is None:
        raise ClientError(f"the broker {connection.address} is too old to log in at", Error.UNSUPPORTED_VERSION)
    request = SaslHandshakeRequest(mechanism=login.mechanism)
    answer = connection.call(request, SaslHandshakeResponse, HANDSHAKE_VERSION, timeout_ms)
    if answer.error_code == Error.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(sorted(answer.mechanisms))
        raise RefusedError(
            f"{connection.address} does not offer the SASL mechanism {login.mechanism}; it has {offered}",
            Error.UNSUPPORTED_SASL_MECHANISM,
            f"Client SASL mechanism '{login.mechanism}' not enabled in the server, enabled mechanisms are [{offered}]",
        )
    if answer.error_code == Error.ILLEGAL_SASL_STATE:
        raise ClientError(
            f"{connection.address} asks for no login: use security.protocol=PLAINTEXT or SSL for this listener",
            Error.ILLEGAL_SASL_STATE,
        )
    if answer.error_code:
        raise refusal(answer.error_code)
    try:
        return _exchange(connection, login, version, timeout_ms)
    except LoginError as problem:
        raise ClientError(
            f"the login at {connection.address} failed: {problem}", Error.SASL_AUTHENTICATION_FAILED
        ) from None


def _exchange(connection: Connection, login: ClientLogin, version: int, timeout_ms: int) -> int:
    exchange = login.make(connection.address.host)
    token = exchange.first()
    for _ in range(STEPS_MAX):
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = connection.call(request, SaslAuthenticateResponse, version, timeout_ms)
        if answer.error_code:
            problem = refusal(answer.error_code, answer.error_message)
            raise RefusedError(f"the login at {connection.address} failed: {problem}", problem.error, problem.said)
        token = exchange.step(bytes(answer.auth_bytes))
        if exchange.is_done:
            return answer.session_lifetime_ms
    raise LoginError("it comes to no end")
