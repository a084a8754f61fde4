"""A wire client, as the properties of a Kafka client ask for it: Java's names, or librdkafka's for TLS and logins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.base.listeners import PROTOCOLS
from ottla.client.client import PATIENCE_MS, TIMEOUT_MS, Client
from ottla.client.errors import BadPropertyError
from ottla.security.client_protocol import client_protocol

if TYPE_CHECKING:
    from socket import socket
    from ssl import SSLContext

    from ottla.security.sasl.client_logins import ClientLogin


def open_client(
    bootstrap: str,
    properties: Mapping[str, str],
    client_id: str = "ottla",
    *,
    timeout_ms: int = TIMEOUT_MS,
    patience_ms: int = PATIENCE_MS,
    token_connect: Callable[..., socket] | None = None,
) -> Client:
    """`client_id` counts if the properties name none; `token_connect` opens connections to identity providers, as
    socket.create_connection does. Raises BadPropertyError.
    """
    protocol = client_protocol(properties)
    if protocol not in PROTOCOLS:
        raise BadPropertyError(f"security.protocol={protocol} is not known: it is one of {', '.join(PROTOCOLS)}")
    tls, login = (None, None) if protocol == "PLAINTEXT" else _security(properties, token_connect)
    return Client(
        bootstrap,
        client_id=properties.get("client.id", client_id),
        timeout_ms=timeout_ms,
        patience_ms=patience_ms,
        tls=tls,
        login=login,
    )


def _security(
    properties: Mapping[str, str], connect: Callable[..., socket] | None
) -> tuple[SSLContext | None, ClientLogin | None]:
    from ottla.base.setting_types import BadValueError  # noqa: PLC0415 (most tools need none of this)
    from ottla.security.client_tls import client_tls  # noqa: PLC0415
    from ottla.security.jaas import JaasError  # noqa: PLC0415
    from ottla.security.sasl.client_logins import client_login  # noqa: PLC0415
    from ottla.security.tls import TlsError  # noqa: PLC0415

    try:
        return client_tls(properties), client_login(properties, connect)
    except (TlsError, BadValueError, JaasError) as problem:
        raise BadPropertyError(str(problem)) from None
