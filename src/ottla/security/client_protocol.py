"""The security protocol and the principal that the properties of a client specify. Pure.

`security.protocol` has Kafka's values. Huawei's clients also have `ssl.mode.enable=true`, which Kafka does not have: it
adds TLS to that protocol. With `sasl.kerberos.service.name` and no protocol it means SASL_SSL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.base.security import ANONYMOUS

PROPERTY: Final = "security.protocol"
TLS_PROPERTY: Final = "ssl.mode.enable"
SERVICE_PROPERTY: Final = "sasl.kerberos.service.name"
TOKEN_PROPERTY: Final = "sasl.scram.tokenauth"  # noqa: S105 - JAAS' option tokenauth, where names are librdkafka's
PLAINTEXT: Final = "PLAINTEXT"
OVER_TLS: Final = {PLAINTEXT: "SSL", "SASL_PLAINTEXT": "SASL_SSL"}


def security_protocol(properties: Mapping[str, str]) -> str:
    """Return PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, or another value of the property."""
    named = properties.get(PROPERTY, "").strip().upper()
    if properties.get(TLS_PROPERTY, "").strip().lower() != "true":
        return named or PLAINTEXT
    if not named and properties.get(SERVICE_PROPERTY, "").strip():
        return "SASL_SSL"
    return OVER_TLS.get(named or PLAINTEXT, named)


def client_principal(properties: Mapping[str, str]) -> str | None:
    protocol = security_protocol(properties)
    if protocol.startswith("SASL_"):
        name = _login_name(properties)
        return f"User:{name}" if name else None
    return _certificate_name(properties) if protocol == "SSL" else ANONYMOUS


def _login_name(properties: Mapping[str, str]) -> str | None:
    from ottla.security.jaas import JaasError, client_module  # noqa: PLC0415 (only who logs in pays for it)
    from ottla.security.sasl.client_authenticator import mechanism_of  # noqa: PLC0415

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
    from ottla.base.broker_keys.security import TlsKeys  # noqa: PLC0415 (only who shows a certificate pays for it)
    from ottla.security.client_tls import tls_properties  # noqa: PLC0415
    from ottla.security.tls import TlsError, client_context  # noqa: PLC0415

    try:
        certificate = client_context(TlsKeys(tls_properties(properties))).certificate
    except TlsError:
        return None
    return ANONYMOUS if certificate is None else f"User:{certificate.subject}"
