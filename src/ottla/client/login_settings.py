"""The login that a client's properties ask for, if they ask for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.security.sasl.client_logins import ClientLogin


def login_of(properties: Mapping[str, str]) -> ClientLogin | None:
    """None without SASL. Raises ClientError for properties that nobody could log in with."""
    if not properties.get("security.protocol", "").strip().upper().startswith("SASL_"):
        return None
    from ottla.security.jaas import JaasError  # noqa: PLC0415 (most clients need no login)
    from ottla.security.sasl.client_logins import client_login  # noqa: PLC0415

    try:
        return client_login(properties)
    except JaasError as problem:
        raise ClientError(str(problem), Error.SASL_AUTHENTICATION_FAILED) from None
