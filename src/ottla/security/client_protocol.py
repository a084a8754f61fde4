"""Which security protocol the properties of a client ask for.  Pure.

`security.protocol` says it, in Kafka's words. Huawei's clients have `ssl.mode.enable=true` besides, which Kafka does
not know: TLS, on top of what else is asked for. With `sasl.kerberos.service.name` and no other word that is SASL_SSL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROPERTY: Final = "security.protocol"
TLS_PROPERTY: Final = "ssl.mode.enable"
SERVICE_PROPERTY: Final = "sasl.kerberos.service.name"
TOKEN_PROPERTY: Final = "sasl.scram.tokenauth"  # noqa: S105 - JAAS' option tokenauth, where names are librdkafka's
PLAINTEXT: Final = "PLAINTEXT"
OVER_TLS: Final = {PLAINTEXT: "SSL", "SASL_PLAINTEXT": "SASL_SSL"}


def client_protocol(properties: Mapping[str, str]) -> str:
    """PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, or whatever else somebody has written."""
    named = properties.get(PROPERTY, "").strip().upper()
    if properties.get(TLS_PROPERTY, "").strip().lower() != "true":
        return named or PLAINTEXT
    if not named and properties.get(SERVICE_PROPERTY, "").strip():
        return "SASL_SSL"
    return OVER_TLS.get(named or PLAINTEXT, named)
