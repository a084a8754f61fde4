"""TLS of a client, from its properties: Java's names, and those of librdkafka for the same things.

The wire client takes the context; librdkafka, which reads no Java stores, gets their content as PEM text.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final

from ottla.base.broker_keys.tls import TlsKeys
from ottla.security.client_protocol import client_protocol
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
NO_IDENTIFICATION: Final = "none"  # librdkafka's word for Java's empty one


def client_tls(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """The context that these properties ask for, None if they ask for none. Raises TlsError."""
    if client_protocol(properties) not in OVER_TLS:
        return None
    return client_context(TlsKeys(tls_texts(properties))).context


def tls_texts(properties: Mapping[str, str]) -> dict[str, str]:
    """What properties say about TLS, in Java's names; empty values are none."""
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


def for_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """Stores that librdkafka cannot read itself (JKS, PKCS12), under its names as PEM text. Raises TlsError."""
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
    """A file that is no PEM; about one that is not there librdkafka has its own words."""
    path = properties.get(name, "").strip()
    data = read_file(path) if path and os.path.isfile(path) else b""
    return path, b"" if is_pem(data) else data
