"""Certificates and key stores: DER (X.690), X.509, PEM, PKCS12 and JKS. Pure, except for read_file().

Rules:
1. DER is parsed only as far as certificates and protected keys need it. Lengths are limited by the available bytes;
   invalid data raises DerError.
2. The name of a subject is written as by Java's X500Principal.getName() (RFC 2253): principals, access rules and
   mapping rules of a Kafka cluster contain that text.
3. The format of a store is detected by its content. Every store is converted to PEM, for OpenSSL.
4. Invalid stores raise KeyStoreError: one line with the file and the cause, never a secret.
5. As in Java, the keys of a trust store are also trusted: the first certificate of each.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
import hashlib
import hmac
import struct

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_PEM_CERTIFICATE: Final = (
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.+?-----END (?:TRUSTED |X509 )?CERTIFICATE-----"
)
_PEM_KEY: Final = rb"-----BEGIN ((?:[A-Z]+ )*)PRIVATE KEY-----.+?-----END \1PRIVATE KEY-----"


class KeyStoreError(Exception):
    """A store that cannot be used: one line with its path and the cause."""


class KeyStore(NamedTuple):
    """A private key and its certificate chain, its own certificate first."""

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
    """Return the key in a store and its certificates. Without its own password the key has that of the store."""
    if data.startswith(MAGIC):
        keys = _read_jks(data, place, password, key_password).keys
        if not keys:
            raise KeyStoreError(f"{place} has no private key")
        return KeyStore(_pem(b"PRIVATE KEY", keys[0].key), keys[0].chain, None)
    if is_pem(data):
        return pem_key_store(data, data, place, key_password)
    return _read_pkcs12_key(data, place, password)


def pem_key_store(key_text: bytes, chain_text: bytes, place: str, key_password: str | None) -> KeyStore:
    """Return a key and a certificate chain in PEM text."""
    key = re.search(_PEM_KEY, key_text, re.DOTALL)
    if key is None:
        raise KeyStoreError(f"{place} has no private key")
    chain = pem_certificates(chain_text, place)
    is_encrypted = b"ENCRYPTED" in key[0]
    if is_encrypted and not key_password:
        raise KeyStoreError(f"the private key in {place} is encrypted: set ssl.key.password")
    return KeyStore(key[0], chain, key_password if is_encrypted else None)


def read_trust_store(data: bytes, place: str, password: str | None) -> tuple[bytes, ...]:
    """Return the trusted certificates, as DER."""
    if data.startswith(MAGIC):
        store = _read_jks(data, place, password, None, only_certificates=True)
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
    """Return the certificates in a PEM text, as DER."""
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


def _read_jks(
    data: bytes, place: str, password: str | None, key_password: str | None, only_certificates: bool = False
) -> JavaKeyStore:
    try:
        return read_java_key_store(data, password, None if only_certificates else key_password or password or "")
    except JavaKeyStoreError as problem:
        raise KeyStoreError(f"{place}: {problem}") from None


# ---- PKCS12, with the library `cryptography`, which is imported only for it


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


MAGIC: Final = b"\xfe\xed\xfe\xed"
WHITENER: Final = b"Mighty Aphrodite"
KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
DIGEST_BYTES: Final = 20
KEY_ENTRY: Final = 1
CERTIFICATE_ENTRY: Final = 2
X509: Final = "X.509"


class JavaKeyStoreError(Exception):
    """The reason why a JKS store cannot be read."""


class KeyEntry(NamedTuple):
    key: bytes  # PKCS8, DER; empty if it was not requested
    chain: tuple[bytes, ...]


class JavaKeyStore(NamedTuple):
    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...]


def read_java_key_store(data: bytes, password: str | None, key_password: str | None) -> JavaKeyStore:
    """Read Java's key store format (JKS): certificates, and private keys under Sun's key protector.

    All numbers are big-endian. The file has a magic number, a version (1 or 2), the number of entries, the entries, and
    a SHA-1 of the password and everything before it, which detects a wrong password and damage. An entry has a tag (1 =
    key, 2 = certificate), an alias, a time, and the protected key with its chain, or the certificate. Without a
    password the SHA-1 is not checked, as in Java; without a key password keys are not decrypted.
    """
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
        reader.take(8)  # creation time
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
    """Decrypt Sun's key protector: the key is XORed with a stream of hashes, between a salt and a check value."""
    try:
        algorithm, content = parse_der(protected).expect(SEQUENCE).children()
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


BOOLEAN: Final = 0x01
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
UTC_TIME: Final = 0x17
SEQUENCE: Final = 0x30
LENGTH_BYTES_MAX: Final = 4


class DerError(ValueError):
    """Data that is not DER, or not the expected value."""


class DerItem(NamedTuple):
    """One value: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    encoded: bytes

    def children(self) -> list[DerItem]:
        return list(der_items(self.content))

    def expect(self, tag: int) -> DerItem:
        if self.tag != tag:
            raise DerError(f"tag {self.tag:#04x} where {tag:#04x} should be")
        return self


def parse_der(data: bytes) -> DerItem:
    """Return the first value in these bytes."""
    for item in der_items(data):
        return item
    raise DerError("no bytes")


def der_items(data: bytes) -> Iterator[DerItem]:
    """Yield the values in `data`, in order."""
    position = 0
    while position < len(data):
        start = position
        if position + 2 > len(data):
            raise DerError("cut off")
        tag, length = data[position], data[position + 1]
        position += 2
        if length >= 0x80:
            count = length & 0x7F
            if not 1 <= count <= LENGTH_BYTES_MAX or position + count > len(data):
                raise DerError("an unsupported form of length")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise DerError("cut off")
        yield DerItem(tag, data[position : position + length], data[start : position + length])
        position += length


def object_identifier(content: bytes) -> str:
    """Return an object identifier in dotted form: 2.5.4.3."""
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise DerError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


SUBJECT_ALTERNATIVE_NAME: Final = "2.5.29.17"
EXTENSIONS_TAG: Final = 0xA3
VERSION_TAG: Final = 0xA0
MS_PER_DAY: Final = 86_400_000

# Attribute types with a keyword in RFC 2253, as far as Java uses them. Others are written as object identifiers, with
# their values in hex.
KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8, Printable, T61, IA5, General and BMP strings: the types that Java treats as text.
TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
ESCAPED: Final = frozenset(',=+<>#;"\\')
BLANKS: Final = " \r"


class Certificate(NamedTuple):
    """The fields of one certificate that are used."""

    subject: str
    not_after_ms: int
    alternative_names: frozenset[tuple[int, bytes]]  # type (2 = DNS, 7 = IP address) and value

    def days_left(self, now_ms: int) -> float:
        return (self.not_after_ms - now_ms) / MS_PER_DAY


def read_certificate(der: bytes) -> Certificate:
    """Read the fields of a certificate. Raises DerError."""
    try:
        body = parse_der(der).expect(SEQUENCE).children()[0].expect(SEQUENCE).children()
        fields = body[1:] if body[0].tag == VERSION_TAG else body
        # serial number, signature, issuer, validity, subject, key, then optional fields
        validity, subject = fields[3].expect(SEQUENCE), fields[4].expect(SEQUENCE)
        return Certificate(rfc2253(subject), _time_ms(validity.children()[1]), _alternative_names(fields[6:]))
    except IndexError:
        raise DerError("not a certificate") from None


def rfc2253(name: DerItem) -> str:
    """Return a distinguished name, most specific part first, as Java writes it."""
    parts = ["+".join(_attribute(item) for item in part.children()) for part in name.children()]
    return ",".join(reversed(parts))


def _attribute(item: DerItem) -> str:
    kind, value = item.expect(SEQUENCE).children()[:2]
    number = object_identifier(kind.expect(OBJECT_IDENTIFIER).content)
    keyword = KEYWORDS.get(number)
    if keyword is None or value.tag not in TEXT_TAGS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    leading = len(text) - len(text.lstrip(BLANKS))
    trailing = max(leading, len(text.rstrip(BLANKS)))
    written = []
    for index, char in enumerate(text):
        if char in ESCAPED or (char in BLANKS and not leading <= index < trailing):
            written.append("\\" + char)
        else:
            written.append("\\00" if char == "\0" else char)
    return "".join(written)


def _time_ms(item: DerItem) -> int:
    text = item.content.decode("ascii", "replace")
    if item.tag == UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    try:
        when = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise DerError(f"a certificate that is valid until {text!r}") from None
    return int(when.timestamp() * 1000)


def _alternative_names(rest: list[DerItem]) -> frozenset[tuple[int, bytes]]:
    found: set[tuple[int, bytes]] = set()
    for item in rest:
        if item.tag != EXTENSIONS_TAG:
            continue
        for extension in parse_der(item.content).expect(SEQUENCE).children():
            parts = extension.children()
            if object_identifier(parts[0].content) == SUBJECT_ALTERNATIVE_NAME:
                names = parse_der(parts[-1].expect(OCTET_STRING).content).expect(SEQUENCE)
                found.update((name.tag & 0x1F, name.content) for name in der_items(names.content))
    return frozenset(found)
