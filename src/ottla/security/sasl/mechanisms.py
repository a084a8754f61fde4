"""The mechanisms that a broker can offer, and how each is made of what JAAS and the settings say."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.base.clock import Clock
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
    clock: Clock


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


def make_oauthbearer(parts: ServerParts) -> MakeExchange:
    from ottla.security.oauth.keys import SigningKeys  # noqa: PLC0415 (slow to load, and rarely needed)
    from ottla.security.oauth.validation import (  # noqa: PLC0415
        UNSECURED,
        Expectations,
        validate_signed,
        validate_unsecured,
    )
    from ottla.security.oauth.web import check_url, fetch_by  # noqa: PLC0415
    from ottla.security.sasl.oauthbearer import OAuthServer  # noqa: PLC0415

    setting, options = parts.setting, parts.module.options if parts.module is not None else {}
    wanted = Expectations(
        setting("sasl.oauthbearer.expected.issuer"),
        setting("sasl.oauthbearer.expected.audience"),
        frozenset(options.get("unsecuredValidatorRequiredScope", "").split()),
        setting("sasl.oauthbearer.sub.claim.name"),
        setting("sasl.oauthbearer.scope.claim.name"),
        setting("sasl.oauthbearer.clock.skew.seconds"),
    )
    handler = (setting("sasl.server.callback.handler.class") or "").rpartition(".")[2]
    if handler == UNSECURED:
        return lambda: OAuthServer(lambda token: validate_unsecured(token, parts.clock.now_ms, wanted))
    url = setting("sasl.oauthbearer.jwks.endpoint.url")
    if url is None:
        raise JaasError(
            f"listener {parts.listener} offers OAUTHBEARER, and sasl.oauthbearer.jwks.endpoint.url does not say "
            "where the keys of the identity provider are"
        )
    try:
        check_url(url, "sasl.oauthbearer.jwks.endpoint.url")
        read = fetch_by(options)
    except ValueError as problem:
        raise JaasError(str(problem)) from None
    keys = SigningKeys(
        url,
        parts.clock,
        refresh_ms=setting("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        backoff_ms=setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        backoff_ms_max=setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        read=read,
    )
    return lambda: OAuthServer(lambda token: validate_signed(token, keys, wanted))


SERVERS: Final[Mapping[str, Callable[[ServerParts], MakeExchange]]] = {
    plain.MECHANISM: make_plain,
    "GSSAPI": make_gssapi,
    **dict.fromkeys(HASHES, make_scram),
    "OAUTHBEARER": make_oauthbearer,
}


def _needed(parts: ServerParts) -> LoginModule:
    if parts.module is None:
        raise JaasError(f"listener {parts.listener} offers {parts.mechanism}, and JAAS has no login module for it")
    return parts.module
