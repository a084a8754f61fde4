"""TLS contexts out of settings, for listeners and for whoever connects: key stores in, OpenSSL's context out.

Rules:
1. Only TLS 1.2 and 1.3, whatever is asked for: older versions and what cannot be done are refused with a reason.
2. As in Java, whatever is in the trust store is trusted, also a certificate that is no authority's. Without a trust
   store the system's authorities are.
3. A client checks the name of the host, unless ssl.endpoint.identification.algorithm is empty.
4. What is wrong raises TlsError: one line that names the file or the setting, never a secret.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.base.broker_keys.tls import TlsKeys
from ottla.base.setting_types import BadValueError
from ottla.base.tls_problems import tls_problem
from ottla.security.certificates import Certificate, read_certificate
from ottla.security.cipher_suites import CipherSuiteError, choose_suites
from ottla.security.der import DerError
from ottla.security.key_stores import (
    KeyStore,
    KeyStoreError,
    pem_certificate,
    pem_certificates,
    pem_key_store,
    read_file,
    read_key_store,
    read_trust_store,
)

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
OLD_VERSIONS: Final = frozenset({"SSL", "SSLv2", "SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
IDENTIFICATION: Final = ("", "https")


class TlsError(Exception):
    """Settings or files that TLS cannot be made of: one line."""


class TlsContext(NamedTuple):
    """What new connections are made with, and whose certificate we show."""

    context: ssl.SSLContext
    certificate: Certificate | None


def server_context(keys: TlsKeys) -> TlsContext:
    """For a listener. Raises TlsError."""
    return _readable(lambda: _server_context(keys))


def client_context(keys: TlsKeys) -> TlsContext:
    """For whoever connects; with a key store it can show who it is. Raises TlsError."""
    return _readable(lambda: _client_context(keys))


def watched_files(keys: TlsKeys) -> list[str]:
    """The files that a context was made of."""
    return [path for path in (keys.ssl_keystore_location, keys.ssl_truststore_location) if path]


def _server_context(keys: TlsKeys) -> TlsContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = CLIENT_AUTH[keys.ssl_client_auth]
    store = _key_store(keys)
    if store is None:
        raise TlsError("a listener over TLS needs a certificate: set ssl.keystore.location")
    _prepare(context, keys)
    if context.verify_mode != ssl.CERT_NONE:
        _trust(context, keys, ssl.Purpose.CLIENT_AUTH)
    return TlsContext(context, _show(context, store, keys))


def _client_context(keys: TlsKeys) -> TlsContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = keys.ssl_endpoint_identification_algorithm.lower()
    if algorithm not in IDENTIFICATION:
        raise TlsError(f"ssl.endpoint.identification.algorithm={algorithm} is not known: it is https, or empty")
    context.check_hostname = algorithm == "https"
    _prepare(context, keys)
    _trust(context, keys, ssl.Purpose.SERVER_AUTH)
    store = _key_store(keys)
    return TlsContext(context, _show(context, store, keys) if store is not None else None)


def _readable(make: Callable[[], TlsContext]) -> TlsContext:
    try:
        return make()
    except (KeyStoreError, CipherSuiteError, BadValueError, DerError) as problem:
        raise TlsError(str(problem)) from None


# ---- protocols and cipher suites


def _prepare(context: ssl.SSLContext, keys: TlsKeys) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an anchor need not be an authority (rule 2)
    versions = choose_suites(context, keys.ssl_cipher_suites, _versions(keys))
    context.minimum_version, context.maximum_version = VERSIONS[versions[0]], VERSIONS[versions[-1]]


def _versions(keys: TlsKeys) -> list[str]:
    """In ascending order."""
    named: tuple[str, ...] = keys.ssl_enabled_protocols
    if not named:
        named = ("TLSv1.2", "TLSv1.3") if keys.ssl_protocol in ("TLS", "TLSv1.3") else (keys.ssl_protocol,)
    for name in named:
        if name not in VERSIONS and name not in OLD_VERSIONS:
            raise TlsError(f"{name} is no version of TLS: use TLSv1.2 or TLSv1.3")
    versions = [name for name in VERSIONS if name in named]
    if not versions:
        raise TlsError(f"{', '.join(named)} is not safe any more and not served: use TLSv1.2 or TLSv1.3")
    return versions


# ---- keys and certificates


def _key_store(keys: TlsKeys) -> KeyStore | None:
    if keys.ssl_keystore_key is not None or keys.ssl_keystore_certificate_chain is not None:
        if keys.ssl_keystore_key is None or keys.ssl_keystore_certificate_chain is None:
            raise TlsError("ssl.keystore.key and ssl.keystore.certificate.chain go together: set both")
        if keys.ssl_keystore_location:
            raise TlsError("set either ssl.keystore.location or ssl.keystore.key, not both")
        key, chain = keys.ssl_keystore_key.encode(), keys.ssl_keystore_certificate_chain.encode()
        return pem_key_store(key, chain, "the PEM text of ssl.keystore.*", keys.ssl_key_password)
    path = keys.ssl_keystore_location
    if not path:
        return None
    return read_key_store(read_file(path), path, keys.ssl_keystore_password, keys.ssl_key_password)


def _show(context: ssl.SSLContext, store: KeyStore, keys: TlsKeys) -> Certificate:
    """Load a key and its certificates; OpenSSL reads them from files only, so they get one that is in memory only."""
    place = keys.ssl_keystore_location or "the PEM text of ssl.keystore.*"
    descriptor = os.memfd_create("key store", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(store.pem)
        # A function: asked without need, OpenSSL would ask whoever sits at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: store.key_password or "")
    except ssl.SSLError as problem:
        raise TlsError(f"{place}: {_key_problem(problem, store)}") from None
    finally:
        os.close(descriptor)
    return read_certificate(store.chain[0])


def _key_problem(problem: ssl.SSLError, store: KeyStore) -> str:
    reason: str | None = getattr(problem, "reason", None)
    if store.key_password is not None and reason in (None, "BAD_DECRYPT", "UNSUPPORTED"):
        return "the password of the private key is wrong (ssl.key.password)"
    if reason is None:
        return "the private key or a certificate is damaged"
    return tls_problem(problem)


def _trust(context: ssl.SSLContext, keys: TlsKeys, purpose: ssl.Purpose) -> None:
    path, text = keys.ssl_truststore_location, keys.ssl_truststore_certificates
    if text is not None:
        if path:
            raise TlsError("set either ssl.truststore.location or ssl.truststore.certificates, not both")
        path = "the PEM text of ssl.truststore.certificates"
        trusted = pem_certificates(text.encode(), path)
    elif path:
        trusted = read_trust_store(read_file(path), path, keys.ssl_truststore_password)
    else:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=b"".join(map(pem_certificate, dict.fromkeys(trusted))).decode("ascii"))
    except ssl.SSLError as problem:
        raise TlsError(f"{path}: a certificate is damaged ({tls_problem(problem)})") from None
