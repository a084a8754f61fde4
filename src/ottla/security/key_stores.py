"""Files with keys and certificates: PEM, PKCS12 and JKS, told apart by what is in them. Pure but for read_file().

Rules:
1. Whatever its form, a store comes out as PEM: that is what OpenSSL takes.
2. What is wrong raises KeyStoreError: one line that names the file and the cause, never a secret.
3. As in Java, a trust store's own keys are trusted, too: the first certificate of each.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.security.java_key_store import MAGIC, JavaKeyStore, JavaKeyStoreError, read_java_key_store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_PEM_CERTIFICATE: Final = (
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.+?-----END (?:TRUSTED |X509 )?CERTIFICATE-----"
)
_PEM_KEY: Final = rb"-----BEGIN ((?:[A-Z]+ )*)PRIVATE KEY-----.+?-----END \1PRIVATE KEY-----"


class KeyStoreError(Exception):
    """A store that cannot be used: one line that names it and the cause."""


class KeyStore(NamedTuple):
    """A private key and the certificates that go with it, its own first."""

    key: bytes  # PEM; may be encrypted
    chain: tuple[bytes, ...]  # DER
    key_password: str | None  # of the PEM text

    @property
    def pem(self) -> bytes:
        return b"".join((self.key, b"\n", *map(pem_certificate, self.chain)))


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as problem:
        raise KeyStoreError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise KeyStoreError(f"{path} is larger than {FILE_BYTES_MAX} bytes: is it a key store?")
    if not data.strip():
        raise KeyStoreError(f"{path} is empty")
    return data


def read_key_store(data: bytes, place: str, password: str | None, key_password: str | None) -> KeyStore:
    """The key in a store and its certificates. Without a password of its own the key has that of the store."""
    if data.startswith(MAGIC):
        keys = _java(data, place, password, key_password).keys
        if not keys:
            raise KeyStoreError(f"{place} has no private key")
        return KeyStore(_pem(b"PRIVATE KEY", keys[0].key), keys[0].chain, None)
    if is_pem(data):
        return pem_key_store(data, data, place, key_password)
    return _read_pkcs12_key(data, place, password)


def pem_key_store(key_text: bytes, chain_text: bytes, place: str, key_password: str | None) -> KeyStore:
    """A key and a chain as PEM text."""
    key = re.search(_PEM_KEY, key_text, re.DOTALL)
    if key is None:
        raise KeyStoreError(f"{place} has no private key")
    chain = pem_certificates(chain_text, place)
    is_encrypted = b"ENCRYPTED" in key[0]
    if is_encrypted and not key_password:
        raise KeyStoreError(f"the private key in {place} is encrypted: set ssl.key.password")
    return KeyStore(key[0], chain, key_password if is_encrypted else None)


def read_trust_store(data: bytes, place: str, password: str | None) -> tuple[bytes, ...]:
    """The certificates that are trusted, as DER."""
    if data.startswith(MAGIC):
        store = _java(data, place, password, None, only_certificates=True)
        found = (*store.certificates, *(entry.chain[0] for entry in store.keys if entry.chain))
    elif is_pem(data):
        found = pem_certificates(data, place)
    else:
        found = _read_pkcs12_certificates(data, place, password)
    if not found:
        raise KeyStoreError(f"{place} has no certificate")
    return found


def is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def pem_certificates(text: bytes, place: str) -> tuple[bytes, ...]:
    """The certificates in a PEM text, as DER."""
    found = []
    for match in re.finditer(_PEM_CERTIFICATE, text, re.DOTALL):
        try:
            found.append(base64.b64decode(b"".join(match[0].splitlines()[1:-1]), validate=False))
        except ValueError:
            raise KeyStoreError(f"a certificate in {place} is damaged") from None
    if not found:
        raise KeyStoreError(f"{place} has no certificate")
    return tuple(found)


def pem_certificate(der: bytes) -> bytes:
    return _pem(b"CERTIFICATE", der)


def _pem(label: bytes, der: bytes) -> bytes:
    return b"-----BEGIN %s-----\n%s-----END %s-----\n" % (label, base64.encodebytes(der), label)


def _java(
    data: bytes, place: str, password: str | None, key_password: str | None, only_certificates: bool = False
) -> JavaKeyStore:
    try:
        return read_java_key_store(data, password, None if only_certificates else key_password or password or "")
    except JavaKeyStoreError as problem:
        raise KeyStoreError(f"{place}: {problem}") from None


# ---- PKCS12, by the library `cryptography`, which is loaded only for it


def _read_pkcs12_key(data: bytes, place: str, password: str | None) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    store = _pkcs12(data, place, password)
    if store.key is None or store.cert is None:
        raise KeyStoreError(f"{place} has no private key with a certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    own = store.cert.certificate
    others = {item.certificate.subject.public_bytes(): item.certificate for item in store.additional_certs}
    chain = [own]
    while chain[-1].issuer != chain[-1].subject and len(chain) <= len(others):
        issuer = others.get(chain[-1].issuer.public_bytes())
        if issuer is None:
            break
        chain.append(issuer)
    return KeyStore(key, tuple(item.public_bytes(Encoding.DER) for item in chain), None)


def _read_pkcs12_certificates(data: bytes, place: str, password: str | None) -> tuple[bytes, ...]:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    store = _pkcs12(data, place, password)
    own = [store.cert] if store.cert is not None else []
    return tuple(item.certificate.public_bytes(Encoding.DER) for item in (*own, *store.additional_certs))


def _pkcs12(data: bytes, place: str, password: str | None) -> PKCS12KeyAndCertificates:
    if data.startswith(JCEKS_MAGIC):
        raise KeyStoreError(f"{place} is a JCEKS store: make a PKCS12 one of it with keytool -importkeystore")
    if data[0] != 0x30:
        raise KeyStoreError(f"{place} is neither PEM nor PKCS12 nor JKS")
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415

    try:
        return load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError as problem:
        cause = "the password is wrong, or the file is damaged" if "password" in str(problem) else str(problem)
        raise KeyStoreError(f"{place} cannot be read: {cause}") from None
