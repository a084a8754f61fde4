"""TLS contexts from settings, for listeners and clients, and their reload after changes.

Rules:
1. Only TLS 1.2 and 1.3 are supported; older versions and unsupported options are rejected with a reason.
2. As in Java, every certificate in the trust store is trusted, even if it is not a CA certificate. The default is the
   system's trust store.
3. A client verifies the host name, unless ssl.endpoint.identification.algorithm is empty.
4. Every failure raises TlsError: one line with the file or the setting, never a secret.
5. Open connections keep their context; new ones use the newest valid one. An invalid change is logged once, and the old
   context stays.
6. As in Kafka, a renewed certificate must have the same name and at least the same hosts, unless ssl.allow.dn.changes
   or ssl.allow.san.changes is set: this detects a wrong file before clients use it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.base.broker_keys.security import TlsKeys
from ottla.base.setting_types import BadValueError
from ottla.base.tls_problems import describe_tls_error
from ottla.security.key_stores import (
    Certificate,
    DerError,
    KeyStore,
    KeyStoreError,
    pem_certificate,
    pem_certificates,
    pem_key_store,
    read_certificate,
    read_file,
    read_key_store,
    read_trust_store,
)

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
OLD_VERSIONS: Final = frozenset({"SSL", "SSLv2", "SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
IDENTIFICATION: Final = ("", "https")


class TlsError(Exception):
    """Settings or files that cannot be used for TLS, in one line."""


class TlsContext(NamedTuple):
    """The context for new connections, and the certificate that they present."""

    context: ssl.SSLContext
    certificate: Certificate | None


def server_context(keys: TlsKeys) -> TlsContext:
    """Return the context of a listener. Raises TlsError."""
    return _as_tls_error(lambda: _server_context(keys))


def client_context(keys: TlsKeys) -> TlsContext:
    """Return the context of a client; with a key store it can present a certificate. Raises TlsError."""
    return _as_tls_error(lambda: _client_context(keys))


def watched_files(keys: TlsKeys) -> list[str]:
    """Return the files that a context was created from."""
    return [path for path in (keys.ssl_keystore_location, keys.ssl_truststore_location) if path]


def _server_context(keys: TlsKeys) -> TlsContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = CLIENT_AUTH[keys.ssl_client_auth]
    store = _key_store(keys)
    if store is None:
        raise TlsError("a listener over TLS needs a certificate: set ssl.keystore.location")
    _set_protocols(context, keys)
    if context.verify_mode != ssl.CERT_NONE:
        _load_trust_store(context, keys, ssl.Purpose.CLIENT_AUTH)
    return TlsContext(context, _load_key_store(context, store, keys))


def _client_context(keys: TlsKeys) -> TlsContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = keys.ssl_endpoint_identification_algorithm.lower()
    if algorithm not in IDENTIFICATION:
        raise TlsError(f"ssl.endpoint.identification.algorithm={algorithm} is not known: it is https, or empty")
    context.check_hostname = algorithm == "https"
    _set_protocols(context, keys)
    _load_trust_store(context, keys, ssl.Purpose.SERVER_AUTH)
    store = _key_store(keys)
    return TlsContext(context, _load_key_store(context, store, keys) if store is not None else None)


def _as_tls_error(make: Callable[[], TlsContext]) -> TlsContext:
    try:
        return make()
    except (KeyStoreError, CipherSuiteError, BadValueError, DerError) as problem:
        raise TlsError(str(problem)) from None


# ---- protocols and cipher suites


def _set_protocols(context: ssl.SSLContext, keys: TlsKeys) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a trust anchor need not be a CA (rule 2)
    versions = choose_suites(context, keys.ssl_cipher_suites, _versions(keys))
    context.minimum_version, context.maximum_version = VERSIONS[versions[0]], VERSIONS[versions[-1]]


def _versions(keys: TlsKeys) -> list[str]:
    """Return the TLS versions in ascending order."""
    named: tuple[str, ...] = keys.ssl_enabled_protocols
    if not named:
        named = ("TLSv1.2", "TLSv1.3") if keys.ssl_protocol in ("TLS", "TLSv1.3") else (keys.ssl_protocol,)
    for name in named:
        if name not in VERSIONS and name not in OLD_VERSIONS:
            raise TlsError(f"{name} is not a version of TLS: use TLSv1.2 or TLSv1.3")
    versions = [name for name in VERSIONS if name in named]
    if not versions:
        raise TlsError(f"{', '.join(named)} is not safe and not supported: use TLSv1.2 or TLSv1.3")
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


def _load_key_store(context: ssl.SSLContext, store: KeyStore, keys: TlsKeys) -> Certificate:
    """Load a key and its certificates. OpenSSL reads them from files only: use one that exists only in memory."""
    place = keys.ssl_keystore_location or "the PEM text of ssl.keystore.*"
    descriptor = os.memfd_create("key store", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(store.pem)
        # A function: without a password OpenSSL would prompt on the terminal.
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
    return describe_tls_error(problem)


def _load_trust_store(context: ssl.SSLContext, keys: TlsKeys, purpose: ssl.Purpose) -> None:
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
        raise TlsError(f"{path}: a certificate is damaged ({describe_tls_error(problem)})") from None


ALL_OF_TLS13: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
OF_TLS13: Final = ALL_OF_TLS13 | {"TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"}
_JAVA: Final = r"(?:TLS|SSL)_(?:(ECDHE|DHE|ECDH)_)?(RSA|ECDSA|DSS)_WITH_(AES_128|AES_256|CHACHA20)_(\w+)"
_SIGNALLING: Final = frozenset({"TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV"})
TLS12: Final = "TLSv1.2"
TLS13: Final = "TLSv1.3"


class CipherSuiteError(ValueError):
    """Unsupported cipher suites."""


def choose_suites(context: ssl.SSLContext, suites: Sequence[str], versions: list[str]) -> list[str]:
    """Restrict a context to these suites (ssl.cipher.suites, with Java's names); returns the TLS versions with any.

    Suites of TLS 1.3 have the same names in OpenSSL. Python before 3.15 has no function to select them, so OpenSSL's is
    called directly; its result is checked, and after a failure the broker does not start.
    """
    wanted = [name for name in suites if name not in _SIGNALLING]
    if not wanted:
        return versions
    newer = [name for name in wanted if name in OF_TLS13]
    older = [openssl_name(name) for name in wanted if name not in OF_TLS13]
    left = [version for version in versions if (newer if version == TLS13 else older)]
    if not left:
        raise CipherSuiteError(f"ssl.cipher.suites has none for {', '.join(versions)}")
    if TLS12 in left:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise CipherSuiteError(f"none of ssl.cipher.suites={','.join(wanted)} is known to OpenSSL") from None
    if TLS13 in left and set(newer) != ALL_OF_TLS13:
        _choose_of_tls13(context, newer)
    return left


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    if "-" in name:
        return name
    match = re.fullmatch(_JAVA, name)
    if match is None:
        raise CipherSuiteError(f"ssl.cipher.suites: {name} is unknown or not safe")
    exchange, signature, cipher, rest = match.groups()
    parts = [part for part in (exchange, signature if exchange else None) if part]
    if cipher == "CHACHA20":
        return "-".join((*parts, "CHACHA20-POLY1305"))
    return "-".join((*parts, cipher.replace("_", ""), *rest.removeprefix("CBC_").split("_")))


def _choose_of_tls13(context: ssl.SSLContext, names: list[str]) -> None:
    text = ":".join(names)
    if hasattr(context, "set_ciphersuites"):
        context.set_ciphersuites(text)
    elif sys.implementation.name == "cpython" and sys.version_info < (3, 15):
        import _ssl  # noqa: PLC0415 - only its file is wanted

        # The first field of Python's object is OpenSSL's context.
        inner = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
        function = getattr(ctypes.CDLL(getattr(_ssl, "__file__", None)), "SSL_CTX_set_ciphersuites", None)
        if function is not None:
            function(inner, ctypes.c_char_p(text.encode("ascii")))
    in_force = [str(suite["name"]) for suite in context.get_ciphers() if suite["name"] in OF_TLS13]
    if in_force != names:
        raise CipherSuiteError(
            f"ssl.cipher.suites: this Python cannot choose {', '.join(names)}: name all three of TLS 1.3 or none "
            f"({', '.join(sorted(ALL_OF_TLS13))})"
        )


logger = logging.getLogger(__name__)

EXPIRY_WARNING_DAYS = 30.0
Stamp = tuple[tuple[int, int, int] | None, ...]


class ReloadingTlsContext:
    """A TLS context that is reloaded when its files or settings change.

    `refresh` runs in a worker thread; `context` may be called at any time.
    """

    def __init__(self, name: str, keys: TlsKeys, make: Callable[[TlsKeys], TlsContext]) -> None:
        """Read the files. Raises TlsError."""
        self.name = name
        self._keys = keys
        self._make = make
        self._stamp = _stamp(keys)
        self._made = make(keys)
        self.reloads = 0
        self.rejected_reloads = 0

    def context(self) -> ssl.SSLContext:
        return self._made.context

    @property
    def certificate(self) -> Certificate | None:
        """The certificate that is presented, if any."""
        return self._made.certificate

    def refresh(self, keys: TlsKeys | None = None) -> None:
        """Create a new context if files or settings have changed; without `keys` the settings are the same."""
        keys = keys or self._keys
        stamp = _stamp(keys)
        if stamp == self._stamp and dict(keys.texts) == dict(self._keys.texts):
            return
        self._stamp, self._keys = stamp, keys
        try:
            self._made = self._renewed(keys)
        except TlsError as problem:
            self.rejected_reloads += 1
            logger.warning("%s: new certificates are not used: %s; the old ones stay in use", self.name, problem)
        else:
            self.reloads += 1
            logger.info("%s: new certificates are in use", self.name)

    def check(self, keys: TlsKeys) -> None:
        """Check whether `refresh` would accept these. Raises TlsError."""
        self._renewed(keys)

    def _renewed(self, keys: TlsKeys) -> TlsContext:
        made = self._make(keys)
        before, after = self._made.certificate, made.certificate
        if before is not None and after is not None:
            problem = _change_problem(before, after, keys)
            if problem is not None:
                raise TlsError(problem)
        return made

    def __repr__(self) -> str:
        return f"<ReloadingTlsContext {self.name}, {self.reloads} reloads>"


def _change_problem(before: Certificate, after: Certificate, keys: TlsKeys) -> str | None:
    if before.subject != after.subject and not keys.ssl_allow_dn_changes:
        return (
            f"Keystore DistinguishedName does not match: existing {before.subject}, new {after.subject} "
            "(ssl.allow.dn.changes=true allows it)"
        )
    missing = before.alternative_names - after.alternative_names
    if missing and not keys.ssl_allow_san_changes:
        names = ", ".join(
            sorted(value.decode("utf-8", "replace") if kind != 7 else _address(value) for kind, value in missing)
        )
        return f"Keystore SubjectAltNames do not match: {names} is missing (ssl.allow.san.changes=true allows it)"
    return None


def _address(packed: bytes) -> str:
    return ".".join(map(str, packed)) if len(packed) == 4 else packed.hex(":", 2)


def _stamp(keys: TlsKeys) -> Stamp:
    """Return a value that changes whenever a file is replaced."""
    found: list[tuple[int, int, int] | None] = []
    for path in watched_files(keys):
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
