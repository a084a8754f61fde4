"""TLS of a client, from its properties, with Java's names or librdkafka's.

The wire client uses the context. librdkafka cannot read Java key stores and gets their content as PEM text.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final

from ottla.base.broker_keys.security import TlsKeys
from ottla.security.client_protocol import security_protocol
from ottla.security.key_stores import (
    KeyStoreError,
    is_pem,
    pem_certificate,
    read_file,
    read_key_store,
    read_trust_store,
)
from ottla.security.tls import TlsError, client_context

OVER_TLS: Final = ("SSL", "SASL_SSL")
LIBRDKAFKA: Final = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
LIBRDKAFKA_FILES: Final = {
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
NO_IDENTIFICATION: Final = "none"  # librdkafka's value for Java's empty one


def client_tls_context(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context for these properties, None without TLS. Raises TlsError."""
    if security_protocol(properties) not in OVER_TLS:
        return None
    return client_context(TlsKeys(tls_properties(properties))).context


def tls_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the TLS properties under Java's names, without empty values."""
    texts = {name: properties[name].strip() for name in TlsKeys.keys if properties.get(name, "").strip()}
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        word = algorithm.strip().lower()
        texts["ssl.endpoint.identification.algorithm"] = "" if word == NO_IDENTIFICATION else word
    for name, java in LIBRDKAFKA.items():
        if properties.get(name):
            texts.setdefault(java, properties[name])
    for name, java in LIBRDKAFKA_FILES.items():
        if properties.get(name):
            try:
                texts.setdefault(java, read_file(properties[name]).decode("utf-8", "replace"))
            except KeyStoreError as problem:
                raise TlsError(str(problem)) from None
    return texts


def librdkafka_pem(properties: Mapping[str, str]) -> dict[str, str]:
    """Return key stores that librdkafka cannot read (JKS, PKCS12), as PEM text under its names. Raises TlsError."""
    found: dict[str, str] = {}
    try:
        path, data = _java_store(properties, "ssl.truststore.location")
        if data:
            trusted = read_trust_store(data, path, properties.get("ssl.truststore.password"))
            found["ssl.ca.pem"] = b"".join(map(pem_certificate, trusted)).decode("ascii")
        path, data = _java_store(properties, "ssl.keystore.location")
        if data:
            passwords = properties.get("ssl.keystore.password"), properties.get("ssl.key.password")
            store = read_key_store(data, path, *passwords)
            found["ssl.key.pem"] = store.key.decode("ascii")
            found["ssl.certificate.pem"] = b"".join(map(pem_certificate, store.chain)).decode("ascii")
    except KeyStoreError as problem:
        raise TlsError(str(problem)) from None
    return found


def _java_store(properties: Mapping[str, str], name: str) -> tuple[str, bytes]:
    """Return a file that is not PEM. If it does not exist, librdkafka reports that."""
    path = properties.get(name, "").strip()
    data = read_file(path) if path and os.path.isfile(path) else b""
    return path, b"" if is_pem(data) else data
