"""The TLS that a client's properties ask for, if they ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.base.setting_types import BadValueError
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    import ssl


def tls_of(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """None without TLS. Raises ClientError for stores and settings that it cannot be made of."""
    if not properties.get("security.protocol", "").strip().upper().endswith("SSL"):
        return None
    from ottla.security.client_tls import client_tls  # noqa: PLC0415 (most clients need none)
    from ottla.security.tls import TlsError  # noqa: PLC0415

    try:
        return client_tls(properties)
    except (TlsError, BadValueError) as problem:
        raise ClientError(str(problem), Error.INVALID_CONFIG) from None
