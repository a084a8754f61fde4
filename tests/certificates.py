"""Certificates for tests: an authority, and what it signs, in files of every form."""

import datetime as dt
import ipaddress
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "store secret"
HOSTS = ("localhost", "127.0.0.1")
DAY = dt.timedelta(days=1)


class Identity:
    """A key and its certificate, with those above it."""

    def __init__(self, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, chain: Sequence[x509.Certificate]) -> None:
        self.key = key
        self.chain = list(chain)

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def chain_pem(self) -> str:
        return "".join(item.public_bytes(Encoding.PEM).decode() for item in self.chain)

    def key_pem(self, password: str | None = None) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pem(self, path: Path, password: str | None = None) -> str:
        path.write_text(self.key_pem(password) + self.chain_pem)
        return str(path)

    def certificate_pem(self, path: Path) -> str:
        path.write_text(self.certificate.public_bytes(Encoding.PEM).decode())
        return str(path)

    def pkcs12(self, path: Path, password: str = PASSWORD) -> str:
        made = pkcs12.serialize_key_and_certificates(
            b"own", self.key, self.certificate, self.chain[1:], BestAvailableEncryption(password.encode())
        )
        path.write_bytes(made)
        return str(path)

    def jks(self, path: Path, password: str = PASSWORD) -> str:
        """Made by Java's own tool."""
        source = self.pkcs12(path.with_suffix(".p12-source"), password)
        keytool(
            "-importkeystore", "-srckeystore", source, "-srcstorepass", password, "-srcstoretype", "PKCS12",
            "-destkeystore", str(path), "-deststoretype", "JKS", "-deststorepass", password, "-noprompt",
        )  # fmt: skip
        return str(path)

    def trust_store(self, path: Path, store_type: str, password: str = PASSWORD) -> str:
        """Made by Java's own tool, with this certificate as one that is trusted."""
        source = self.certificate_pem(path.with_suffix(".pem-source"))
        keytool(
            "-importcert", "-noprompt", "-alias", "authority", "-file", source, "-keystore", str(path),
            "-storetype", store_type, "-storepass", password,
        )  # fmt: skip
        return str(path)


class Authority(Identity):
    """Signs the certificates of others."""

    def __init__(self, name: str = "Test Authority") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key, -1, 365).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        super().__init__(key, [builder.sign(key, hashes.SHA256())])

    def issue(
        self,
        name: str | x509.Name,
        *,
        hosts: Sequence[str] = HOSTS,
        days: float = 100,
        is_rsa: bool = False,
    ) -> Identity:
        key = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        subject = name if isinstance(name, x509.Name) else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self.certificate.subject, key, min(-1, days - 1), days)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        return Identity(key, [builder.sign(self.key, hashes.SHA256()), *self.chain])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    first_day: float,
    last_day: float,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + first_day * DAY)
        .not_valid_after(now + last_day * DAY)
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def keytool(*arguments: str) -> None:
    result = subprocess.run(["keytool", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
