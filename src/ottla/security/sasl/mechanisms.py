"""The mechanisms that a broker can offer, and how each is made of what JAAS and the settings say."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.security.jaas import JaasError, LoginModule
from ottla.security.sasl import plain, scram
from ottla.security.sasl.login import MakeExchange
from ottla.security.scram import HASHES

SECRET_BYTES: Final = 32


class ServerParts(NamedTuple):
    """What the broker's side of a mechanism may be made of."""

    listener: str
    mechanism: str
    module: LoginModule | None  # None: JAAS has none, which only some mechanisms do without
    setting: Callable[[str], Any]  # the value of a key for this listener and mechanism
    credentials: scram.Credentials


def make_plain(parts: ServerParts) -> MakeExchange:
    module = _needed(parts)
    users = plain.users_in(module.options)
    return lambda: plain.PlainServer(users)


def make_gssapi(parts: ServerParts) -> MakeExchange:
    from ottla.security.kerberos import KerberosError  # noqa: PLC0415 (only who has Kerberos pays for it)
    from ottla.security.kerberos_names import KerberosNameError  # noqa: PLC0415
    from ottla.security.sasl.gssapi_mechanism import gssapi_server  # noqa: PLC0415

    rules = parts.setting("sasl.kerberos.principal.to.local.rules")
    try:
        return gssapi_server(_needed(parts), parts.setting("sasl.kerberos.service.name"), rules).exchange
    except (KerberosError, KerberosNameError) as problem:
        raise JaasError(f"listener {parts.listener}, {parts.mechanism}: {problem}") from None


def make_scram(parts: ServerParts) -> MakeExchange:
    secret = secrets.token_bytes(SECRET_BYTES)
    return lambda: scram.ScramServer(parts.mechanism, parts.credentials, secret)


SERVERS: Final[Mapping[str, Callable[[ServerParts], MakeExchange]]] = {
    plain.MECHANISM: make_plain,
    "GSSAPI": make_gssapi,
    **dict.fromkeys(HASHES, make_scram),
}


def _needed(parts: ServerParts) -> LoginModule:
    if parts.module is None:
        raise JaasError(f"listener {parts.listener} offers {parts.mechanism}, and JAAS has no login module for it")
    return parts.module
