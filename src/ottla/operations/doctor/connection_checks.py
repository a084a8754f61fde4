"""Diagnoses failed connections: TLS or plaintext, the SASL mechanisms of a listener, its certificate.

When a connection fails, the same port is probed with the other protocols, without a login and without certificate
checks. No secret is sent.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from ottla.base.errors import Error
from ottla.client.addresses import Address, parse_bootstrap
from ottla.client.connection import Connection, offered_versions
from ottla.client.errors import ClientError
from ottla.operations.doctor.findings import Finding, Severity, login_failure
from ottla.operations.doctor.login_failures import LOGIN_CASE, MECHANISM
from ottla.protocol.messages.credentials import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.client_protocol import security_protocol
from ottla.security.sasl.client_authenticator import HANDSHAKE_VERSION, mechanism_of

TIMEOUT_MS = 3_000
LOGIN_ERRORS = (Error.SASL_AUTHENTICATION_FAILED, Error.ILLEGAL_SASL_STATE)
PROBE_MECHANISM = "ottla-doctor"  # no broker has it, so the error response lists the enabled mechanisms


def login_findings(problem: ClientError, bootstrap: str, properties: Mapping[str, str]) -> list[Finding]:
    """The mismatch between these properties and the first broker; empty if there is none."""
    protocol = security_protocol(properties)
    address = parse_bootstrap(bootstrap)[0]
    if problem.error is Error.BROKER_NOT_AVAILABLE:
        return []
    if problem.error in LOGIN_ERRORS:
        return [login_failure(Severity.PROBLEM, str(problem), str(problem))]
    has_tls = probe_tls(address)
    wants_tls = protocol.endswith("SSL")
    if has_tls and not wants_tls:
        return [_wrong_protocol(address, "speaks TLS", protocol, "SSL, or SASL_SSL if it also requires a login")]
    if not has_tls and wants_tls:
        return [_wrong_protocol(address, "does not speak TLS", protocol, protocol.replace("SSL", "PLAINTEXT"))]
    if "certificate" in str(problem):
        return [_certificate(problem)]
    offered = probe_mechanisms(address, wants_tls)
    return _mechanism_findings(problem, address, protocol, offered, properties)


def _mechanism_findings(
    problem: ClientError, address: Address, protocol: str, offered: list[str] | None, properties: Mapping[str, str]
) -> list[Finding]:
    if offered is None:
        return []
    has_login = protocol.startswith("SASL_")
    if offered and not has_login:
        wanted = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
        return [_wrong_protocol(address, f"requires a login ({', '.join(offered)})", protocol, wanted)]
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


def probe_tls(address: Address) -> bool:
    """Whether the port completes a TLS handshake, with any certificate."""
    try:
        Connection(address, PROBE_MECHANISM, TIMEOUT_MS, _unverified_context()).close()
    except ClientError as problem:
        return "wants a certificate" in str(problem)
    return True


def probe_mechanisms(address: Address, has_tls: bool) -> list[str] | None:
    """The SASL mechanisms of a listener, empty if it requires no login; None if it does not return them."""
    try:
        connection = Connection(address, PROBE_MECHANISM, TIMEOUT_MS, _unverified_context() if has_tls else None)
        try:
            offered_versions(connection, TIMEOUT_MS)
            request = SaslHandshakeRequest(mechanism=PROBE_MECHANISM)
            answer = connection.call(request, SaslHandshakeResponse, HANDSHAKE_VERSION, TIMEOUT_MS)
        finally:
            connection.close()
    except ClientError:
        return None
    return list(answer.mechanisms) if answer.error_code == Error.UNSUPPORTED_SASL_MECHANISM else []


def _unverified_context() -> ssl.SSLContext:
    """Only for probing: no secret is sent over such a connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _wrong_protocol(address: Address, what: str, protocol: str, wanted: str) -> Finding:
    return Finding(
        Severity.PROBLEM,
        LOGIN_CASE,
        f"{address} {what}, and the client is set to security.protocol={protocol}",
        "client and listener use different security protocols",
        f"set security.protocol={wanted} (in the file that --command-config names), or use another port",
    )


def _certificate(problem: ClientError) -> Finding:
    return Finding(
        Severity.PROBLEM,
        LOGIN_CASE,
        str(problem),
        "the certificate has expired, is for another host, or its issuer is not trusted",
        "put the authority's certificate into ssl.truststore.location, connect to a name in the certificate, or "
        "renew it; brokers that require client certificates need ssl.keystore.location",
    )
