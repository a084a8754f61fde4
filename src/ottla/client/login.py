"""Logs a new connection in, before anything else is asked on it."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.client.connection import Connection
from ottla.client.errors import ClientError, RefusedError, refusal
from ottla.client.versions import best_version
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeResponse
from ottla.protocol.schema import layout_of
from ottla.security.sasl.client_logins import ClientLogin
from ottla.security.sasl.mechanism import LoginError
from ottla.security.sasl.token_exchange import HANDSHAKE_VERSION, LoginRefusedError, TokenExchange


def log_in(connection: Connection, login: ClientLogin, timeout_ms: int) -> int:
    """How long the login is good for, 0 for ever. Raises ClientError."""
    version = best_version(layout_of(SaslAuthenticateRequest), connection.versions)
    if version is None:
        raise ClientError(f"the broker {connection.address} is too old to log in at", Error.UNSUPPORTED_VERSION)
    exchange = TokenExchange(login, connection.address.host)
    answer = connection.call(exchange.handshake(), SaslHandshakeResponse, HANDSHAKE_VERSION, timeout_ms)
    try:
        exchange.take_handshake(answer)
    except LoginRefusedError as refused:
        raise _handshake_refusal(connection, login.mechanism, refused) from None
    try:
        request: SaslAuthenticateRequest | None = exchange.begin()
        while request is not None:
            request = exchange.step(connection.call(request, SaslAuthenticateResponse, version, timeout_ms))
    except LoginRefusedError as refused:
        problem = refusal(refused.error_code, refused.said)
        text = f"the login at {connection.address} failed: {problem}"
        raise RefusedError(text, problem.error, problem.said) from None
    except LoginError as wrong:
        text = f"the login at {connection.address} failed: {wrong}"
        raise ClientError(text, Error.SASL_AUTHENTICATION_FAILED) from None
    return exchange.lifetime_ms


def _handshake_refusal(connection: Connection, mechanism: str, refused: LoginRefusedError) -> ClientError:
    if refused.error_code == Error.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(refused.offered)
        return RefusedError(
            f"{connection.address} does not offer the SASL mechanism {mechanism}; it has {offered}",
            Error.UNSUPPORTED_SASL_MECHANISM,
            f"Client SASL mechanism '{mechanism}' not enabled in the server, enabled mechanisms are [{offered}]",
        )
    if refused.error_code == Error.ILLEGAL_SASL_STATE:
        return ClientError(
            f"{connection.address} asks for no login: use security.protocol=PLAINTEXT or SSL for this listener",
            Error.ILLEGAL_SASL_STATE,
        )
    return refusal(refused.error_code)
