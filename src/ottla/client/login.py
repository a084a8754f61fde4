"""SASL login on a new connection, before other requests."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.client.connection import Connection, best_version
from ottla.client.errors import BrokerError, ClientError, error_from_code
from ottla.protocol.messages.credentials import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from ottla.protocol.schema import layout_of
from ottla.security.sasl.client_authenticator import (
    HANDSHAKE_VERSION,
    ClientLogin,
    SaslAuthenticationError,
    SaslClientAuthenticator,
)
from ottla.security.sasl.exchange import LoginError


def log_in(connection: Connection, login: ClientLogin, timeout_ms: int) -> int:
    """The lifetime of the login, 0 for no limit. Raises ClientError."""
    version = best_version(layout_of(SaslAuthenticateRequest), connection.versions)
    if version is None:
        raise ClientError(f"the broker {connection.address} is too old for a login", Error.UNSUPPORTED_VERSION)
    exchange = SaslClientAuthenticator(login, connection.address.host)
    answer = connection.call(exchange.handshake(), SaslHandshakeResponse, HANDSHAKE_VERSION, timeout_ms)
    try:
        exchange.take_handshake(answer)
    except SaslAuthenticationError as refused:
        raise _handshake_refusal(connection, login.mechanism, refused) from None
    try:
        request: SaslAuthenticateRequest | None = exchange.begin()
        while request is not None:
            request = exchange.step(connection.call(request, SaslAuthenticateResponse, version, timeout_ms))
    except SaslAuthenticationError as refused:
        problem = error_from_code(refused.error_code, refused.error_message)
        text = f"the login at {connection.address} failed: {problem}"
        raise BrokerError(text, problem.error, problem.broker_message) from None
    except LoginError as wrong:
        text = f"the login at {connection.address} failed: {wrong}"
        raise ClientError(text, Error.SASL_AUTHENTICATION_FAILED) from None
    return exchange.lifetime_ms


def _handshake_refusal(connection: Connection, mechanism: str, refused: SaslAuthenticationError) -> ClientError:
    if refused.error_code == Error.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(refused.enabled_mechanisms)
        return BrokerError(
            f"{connection.address} does not offer the SASL mechanism {mechanism}; it has {offered}",
            Error.UNSUPPORTED_SASL_MECHANISM,
            f"Client SASL mechanism '{mechanism}' not enabled in the server, enabled mechanisms are [{offered}]",
        )
    if refused.error_code == Error.ILLEGAL_SASL_STATE:
        return ClientError(
            f"{connection.address} requires no login: use security.protocol=PLAINTEXT or SSL for this listener",
            Error.ILLEGAL_SASL_STATE,
        )
    return error_from_code(refused.error_code)
