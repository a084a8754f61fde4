"""Why a client does not get in: TLS or none, which logins a listener has, whose certificate it shows.

When a connection fails, the same port is asked in the other ways as well, without a login and without trusting
anybody: what a listener is can be told from that. Nothing is sent that could be used against somebody.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from ottla.base.errors import Error
from ottla.client.addresses import Address, parse_bootstrap
from ottla.client.connection import Connection
from ottla.client.errors import ClientError
from ottla.client.versions import offered_versions
from ottla.operations.doctor.findings import Finding, Severity, login_failure
from ottla.operations.doctor.logins import LOGIN_CASE, MECHANISM
from ottla.protocol.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.client_protocol import client_protocol
from ottla.security.sasl.client_logins import mechanism_of
from ottla.security.sasl.token_exchange import HANDSHAKE_VERSION

TIMEOUT_MS = 3_000
LOGIN_ERRORS = (Error.SASL_AUTHENTICATION_FAILED, Error.ILLEGAL_SASL_STATE)
NO_MECHANISM = "ottla-doctor"  # that no broker has: its answer names those that it has


def login_findings(problem: ClientError, bootstrap: str, properties: Mapping[str, str]) -> list[Finding]:
    """What is wrong between these properties and the first broker; empty if it is nothing of the kind."""
    protocol = client_protocol(properties)
    address = parse_bootstrap(bootstrap)[0]
    if problem.error is Error.BROKER_NOT_AVAILABLE:
        return []
    if problem.error in LOGIN_ERRORS:
        return [login_failure(Severity.PROBLEM, str(problem), str(problem))]
    has_tls = speaks_tls(address)
    wants_tls = protocol.endswith("SSL")
    if has_tls and not wants_tls:
        return [_wrong_protocol(address, "speaks TLS", protocol, "SSL, or SASL_SSL if it also asks for a login")]
    if not has_tls and wants_tls:
        return [_wrong_protocol(address, "does not speak TLS", protocol, protocol.replace("SSL", "PLAINTEXT"))]
    if "certificate" in str(problem):
        return [_certificate(problem)]
    offered = mechanisms_of(address, wants_tls)
    return _of_mechanisms(problem, address, protocol, offered, properties)


def _of_mechanisms(
    problem: ClientError, address: Address, protocol: str, offered: list[str] | None, properties: Mapping[str, str]
) -> list[Finding]:
    if offered is None:
        return []
    has_login = protocol.startswith("SASL_")
    if offered and not has_login:
        wanted = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
        return [_wrong_protocol(address, f"asks for a login ({', '.join(offered)})", protocol, wanted)]
    mechanism = mechanism_of(properties)
    if has_login and offered and mechanism not in offered:
        return [
            Finding(
                Severity.PROBLEM,
                LOGIN_CASE,
                f"{address} has no login with {mechanism}: {problem}",
                f"{MECHANISM.cause}: {', '.join(offered)}",
                f"set sasl.mechanism={offered[0]} in the client, or add {mechanism} to the broker's listener",
            )
        ]
    return []


def speaks_tls(address: Address) -> bool:
    """Whether somebody shakes hands there, whoever it is."""
    try:
        Connection(address, NO_MECHANISM, TIMEOUT_MS, _trusting_all()).close()
    except ClientError as problem:
        return "wants a certificate" in str(problem)
    return True


def mechanisms_of(address: Address, has_tls: bool) -> list[str] | None:
    """The logins that a listener offers, none if it asks for none; None if it does not tell."""
    try:
        connection = Connection(address, NO_MECHANISM, TIMEOUT_MS, _trusting_all() if has_tls else None)
        try:
            offered_versions(connection, TIMEOUT_MS)
            request = SaslHandshakeRequest(mechanism=NO_MECHANISM)
            answer = connection.call(request, SaslHandshakeResponse, HANDSHAKE_VERSION, TIMEOUT_MS)
        finally:
            connection.close()
    except ClientError:
        return None
    return list(answer.mechanisms) if answer.error_code == Error.UNSUPPORTED_SASL_MECHANISM else []


def _trusting_all() -> ssl.SSLContext:
    """To learn what a port speaks; no secret ever goes through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _wrong_protocol(address: Address, what: str, protocol: str, wanted: str) -> Finding:
    return Finding(
        Severity.PROBLEM,
        LOGIN_CASE,
        f"{address} {what}, and the client is set to security.protocol={protocol}",
        "client and listener do not agree on how to talk",
        f"set security.protocol={wanted} (in the file that --command-config names), or use another port",
    )


def _certificate(problem: ClientError) -> Finding:
    return Finding(
        Severity.PROBLEM,
        LOGIN_CASE,
        str(problem),
        "a certificate has expired, is for another host, or is signed by somebody who is not trusted",
        "put the authority's certificate into ssl.truststore.location, connect to a name that the certificate has, or "
        "renew it; brokers that want a certificate of the client need ssl.keystore.location",
    )
