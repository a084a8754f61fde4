"""A small certificate authority for clusters on one machine and for tests: keys and certificates out of nothing.

Elliptic keys (P-256): a handshake costs a tenth of what RSA keys of the same strength cost. `cryptography` is imported
only here and where foreign key stores are read: it takes a tenth of a second.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from cryptography.x509 import CertificateBuilder, GeneralName

AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 825
CLOCKS_DIFFER: Final = timedelta(hours=1)  # so that a client whose clock is behind takes a new certificate
SECRET_MODE: Final = 0o600


Describe: TypeAlias = "Callable[[CertificateBuilder], CertificateBuilder]"


class Issued(NamedTuple):
    """A certificate with its key, both as PEM."""

    certificate: bytes
    key: bytes


def new_authority(name: str, now: datetime) -> Issued:
    """Signs itself; whoever trusts it trusts what it issues."""
    from cryptography import x509  # noqa: PLC0415

    return _make(
        name,
        now,
        AUTHORITY_DAYS,
        None,
        lambda builder: builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True),
    )


def issue(authority: Issued, name: str, hosts: Sequence[str], now: datetime, days: int = CERTIFICATE_DAYS) -> Issued:
    """A certificate for who is called `name` (CN) and found at these names and addresses; none for a client."""
    from cryptography import x509  # noqa: PLC0415

    def describe(builder: CertificateBuilder) -> CertificateBuilder:
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder

    return _make(name, now, days, authority, describe)


def write_secret(path: Path, data: bytes) -> None:
    """A file that nobody else can ever read, there as a whole or not at all."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_MODE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)


def _general_name(host: str) -> GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _make(name: str, now: datetime, days: int, authority: Issued | None, describe: Describe) -> Issued:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    subject = issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer = key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.certificate).subject
        loaded = serialization.load_pem_private_key(authority.key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey), "authorities are made here"
        signer = loaded
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    certificate = describe(builder).sign(signer, hashes.SHA256())
    return Issued(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
