"""A wire client, as the properties of a Kafka client ask for it: Java's names, or librdkafka's for TLS and logins."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.listeners import PROTOCOLS
from ottla.base.setting_types import BadValueError
from ottla.client.client import PATIENCE_MS, TIMEOUT_MS, Client
from ottla.client.errors import BadPropertyError
from ottla.security.client_tls import client_tls
from ottla.security.jaas import JaasError
from ottla.security.sasl.client_logins import client_login
from ottla.security.tls import TlsError


def open_client(
    bootstrap: str,
    properties: Mapping[str, str],
    client_id: str = "ottla",
    *,
    timeout_ms: int = TIMEOUT_MS,
    patience_ms: int = PATIENCE_MS,
) -> Client:
    """`client_id` counts if the properties name none. Raises BadPropertyError."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise BadPropertyError(f"security.protocol={protocol} is not known: it is one of {', '.join(PROTOCOLS)}")
    try:
        tls, login = client_tls(properties), client_login(properties)
    except (TlsError, BadValueError, JaasError) as problem:
        raise BadPropertyError(str(problem)) from None
    return Client(
        bootstrap,
        client_id=properties.get("client.id", client_id),
        timeout_ms=timeout_ms,
        patience_ms=patience_ms,
        tls=tls,
        login=login,
    )
