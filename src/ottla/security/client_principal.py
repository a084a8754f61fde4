"""Who a client is for a broker, as far as its own properties tell: for what is said to people.

A broker's rules for names (Kerberos, certificates) may make another name of it. None if the properties do not tell.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.security import ANONYMOUS
from ottla.security.client_protocol import client_protocol


def client_principal(properties: Mapping[str, str]) -> str | None:
    protocol = client_protocol(properties)
    if protocol.startswith("SASL_"):
        name = _login_name(properties)
        return f"User:{name}" if name else None
    return _certificate_name(properties) if protocol == "SSL" else ANONYMOUS


def _login_name(properties: Mapping[str, str]) -> str | None:
    from ottla.security.jaas import JaasError, client_module  # noqa: PLC0415 (only who logs in pays for it)
    from ottla.security.sasl.client_logins import mechanism_of  # noqa: PLC0415

    mechanism = mechanism_of(properties)
    try:
        module = client_module(properties, mechanism)
    except JaasError:
        module = None
    options = module.options if module is not None else {}
    if mechanism == "GSSAPI":
        principal = options.get("principal") or properties.get("sasl.kerberos.principal", "")
        return principal.partition("@")[0].partition("/")[0] or None
    return options.get("username") or properties.get("sasl.username") or None


def _certificate_name(properties: Mapping[str, str]) -> str | None:
    from ottla.base.broker_keys.tls import TlsKeys  # noqa: PLC0415 (only who shows a certificate pays for it)
    from ottla.security.client_tls import tls_texts  # noqa: PLC0415
    from ottla.security.tls import TlsError, client_context  # noqa: PLC0415

    try:
        certificate = client_context(TlsKeys(tls_texts(properties))).certificate
    except TlsError:
        return None
    return ANONYMOUS if certificate is None else f"User:{certificate.subject}"
