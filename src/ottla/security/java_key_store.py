"""Java's own key store (JKS): trusted certificates, and private keys under Sun's key protector. Pure.

All numbers are big-endian. Magic, version (1 or 2), count of entries; an entry has a tag (1 = key, 2 = certificate), an
alias, a time, and then the protected key with its chain, or the certificate. At the end stands a SHA-1 over the
password and everything before it: it tells a wrong password and damaged bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from ottla.security.der import OCTET_STRING, SEQUENCE, DerError, object_identifier, parse

MAGIC: Final = b"\xfe\xed\xfe\xed"
WHITENER: Final = b"Mighty Aphrodite"
KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
DIGEST_BYTES: Final = 20
KEY_ENTRY: Final = 1
CERTIFICATE_ENTRY: Final = 2
X509: Final = "X.509"


class JavaKeyStoreError(Exception):
    """Why a store cannot be read."""


class KeyEntry(NamedTuple):
    key: bytes  # PKCS8, DER; empty if it was not asked for
    chain: tuple[bytes, ...]


class JavaKeyStore(NamedTuple):
    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...]


def read_java_key_store(data: bytes, password: str | None, key_password: str | None) -> JavaKeyStore:
    """Without a password the bytes are taken unchecked, as Java does; without a key password keys stay closed."""
    if password is not None and not _is_intact(data, password):
        raise JavaKeyStoreError("the password is wrong, or the file is damaged")
    reader = _Reader(data[: max(0, len(data) - DIGEST_BYTES)])
    reader.take(len(MAGIC))
    version = reader.number()
    if version not in (1, 2):
        raise JavaKeyStoreError(f"version {version} of the format is not known")
    keys: list[KeyEntry] = []
    certificates: list[bytes] = []
    for _ in range(reader.number()):
        tag = reader.number()
        reader.take(struct.unpack(">H", reader.take(2))[0])  # the alias
        reader.take(8)  # when it was made
        if tag == KEY_ENTRY:
            protected = reader.take(reader.number())
            chain = tuple(reader.certificate(version) for _ in range(reader.number()))
            keys.append(KeyEntry(_unprotected(protected, key_password) if key_password is not None else b"", chain))
        elif tag == CERTIFICATE_ENTRY:
            certificates.append(reader.certificate(version))
        else:
            raise JavaKeyStoreError(f"an entry of kind {tag} is not known")
    return JavaKeyStore(tuple(keys), tuple(certificates))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise JavaKeyStoreError("the file is cut off or damaged")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def certificate(self, version: int) -> bytes:
        if version == 2:
            kind = self.take(struct.unpack(">H", self.take(2))[0]).decode("utf-8", "replace")
            if kind != X509:
                raise JavaKeyStoreError(f"a certificate of kind {kind} is not known")
        return self.take(self.number())


def _is_intact(data: bytes, password: str) -> bool:
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    return hmac.compare_digest(_sha1(_password_bytes(password), WHITENER, body), digest)


def _unprotected(protected: bytes, password: str) -> bytes:
    """Sun's key protector: the key under a stream of hashes, with a salt before it and a check behind it."""
    try:
        algorithm, content = parse(protected).expect(SEQUENCE).children()
        kind = object_identifier(algorithm.expect(SEQUENCE).children()[0].content)
        sealed = content.expect(OCTET_STRING).content
    except (DerError, ValueError, IndexError):
        raise JavaKeyStoreError("the private key is damaged") from None
    if kind != KEY_PROTECTOR:
        raise JavaKeyStoreError(f"the private key is protected by {kind}, which is not known")
    secret = _password_bytes(password)
    stream, body, check = sealed[:DIGEST_BYTES], sealed[DIGEST_BYTES:-DIGEST_BYTES], sealed[-DIGEST_BYTES:]
    pads = []
    for _ in range(0, len(body), DIGEST_BYTES):
        stream = _sha1(secret, stream)
        pads.append(stream)
    key = bytes(left ^ right for left, right in zip(body, b"".join(pads), strict=False))
    if not hmac.compare_digest(_sha1(secret, key), check):
        raise JavaKeyStoreError("the password of the private key is wrong (ssl.key.password)")
    return key


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()
