"""The mechanisms that a broker can offer, and their factories from JAAS and settings."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.base.clock import Clock
from ottla.security.jaas import AppConfigurationEntry, JaasError
from ottla.security.sasl import plain, scram
from ottla.security.sasl.login_state import MakeExchange
from ottla.security.scram_credentials import HASHES

SECRET_BYTES: Final = 32


class ServerMechanismConfig(NamedTuple):
    """The inputs for the broker side of a mechanism."""

    listener: str
    mechanism: str
    module: AppConfigurationEntry | None  # None: JAAS has none, which some mechanisms allow
    setting: Callable[[str], Any]  # the value of a key for this listener and mechanism
    credentials: scram.Credentials
    clock: Clock


def make_plain(parts: ServerMechanismConfig) -> MakeExchange:
    module = _required_module(parts)
    users = plain.users_in(module.options)
    return lambda: plain.PlainServer(users)


def make_gssapi(parts: ServerMechanismConfig) -> MakeExchange:
    from ottla.security.kerberos import KerberosError  # noqa: PLC0415 (only who has Kerberos pays for it)
    from ottla.security.kerberos_names import KerberosNameError  # noqa: PLC0415
    from ottla.security.sasl.gssapi_mechanism import gssapi_server  # noqa: PLC0415

    rules = parts.setting("sasl.kerberos.principal.to.local.rules")
    try:
        return gssapi_server(_required_module(parts), parts.setting("sasl.kerberos.service.name"), rules).exchange
    except (KerberosError, KerberosNameError) as problem:
        raise JaasError(f"listener {parts.listener}, {parts.mechanism}: {problem}") from None


def make_scram(parts: ServerMechanismConfig) -> MakeExchange:
    secret = secrets.token_bytes(SECRET_BYTES)
    return lambda: scram.ScramServer(parts.mechanism, parts.credentials, secret)


def make_oauthbearer(parts: ServerMechanismConfig) -> MakeExchange:
    from ottla.security.oauth.http_fetch import check_url, make_fetch  # noqa: PLC0415
    from ottla.security.oauth.signing_keys import JwksCache  # noqa: PLC0415
    from ottla.security.sasl.oauthbearer import (  # noqa: PLC0415
        UNSECURED,
        OAuthServer,
        TokenRequirements,
        validate_signed,
        validate_unsecured,
    )

    setting, options = parts.setting, parts.module.options if parts.module is not None else {}
    wanted = TokenRequirements(
        setting("sasl.oauthbearer.expected.issuer"),
        setting("sasl.oauthbearer.expected.audience"),
        frozenset(options.get("unsecuredValidatorRequiredScope", "").split()),
        setting("sasl.oauthbearer.sub.claim.name"),
        setting("sasl.oauthbearer.scope.claim.name"),
        setting("sasl.oauthbearer.clock.skew.seconds"),
    )
    handler = (setting("sasl.server.callback.handler.class") or "").rpartition(".")[2]
    if handler == UNSECURED:
        return lambda: OAuthServer(
            lambda token: validate_unsecured(token, parts.clock.now_ms, wanted), wanted.subject_claim
        )
    url = setting("sasl.oauthbearer.jwks.endpoint.url")
    if url is None:
        raise JaasError(
            f"listener {parts.listener} offers OAUTHBEARER, and sasl.oauthbearer.jwks.endpoint.url is not set: it is "
            "the URL of the identity provider's keys"
        )
    try:
        check_url(url, "sasl.oauthbearer.jwks.endpoint.url")
        read = make_fetch(options)
    except ValueError as problem:
        raise JaasError(str(problem)) from None
    keys = JwksCache(
        url,
        parts.clock,
        refresh_ms=setting("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        backoff_ms=setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        backoff_ms_max=setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        read=read,
    )
    return lambda: OAuthServer(lambda token: validate_signed(token, keys, wanted), wanted.subject_claim)


SERVERS: Final[Mapping[str, Callable[[ServerMechanismConfig], MakeExchange]]] = {
    plain.MECHANISM: make_plain,
    "GSSAPI": make_gssapi,
    **dict.fromkeys(HASHES, make_scram),
    "OAUTHBEARER": make_oauthbearer,
}


def _required_module(parts: ServerMechanismConfig) -> AppConfigurationEntry:
    if parts.module is None:
        raise JaasError(f"listener {parts.listener} offers {parts.mechanism}, and JAAS has no login module for it")
    return parts.module
