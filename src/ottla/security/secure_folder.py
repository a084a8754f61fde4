"""The credentials of a secured broker or cluster, generated into one directory that only its owner can read.

It contains a certificate authority, a certificate for each broker, random passwords, and the settings of brokers and
clients made of them, for `ottla up --secure` and for tests. Existing files are reused.

Two users exist from the start: `admin`, a super user, and `broker`, for connections between brokers. Both log in with
PLAIN, with passwords in the brokers' settings, so that the cluster's metadata need not be written before it exists.
Other users are created with SCRAM (`ottla users add`).

Keys are elliptic (P-256): a handshake costs a tenth of that with RSA keys of the same strength. `cryptography` is
imported only here and for foreign key stores: its import takes a tenth of a second.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from cryptography.x509 import CertificateBuilder, GeneralName


AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 825
CLOCK_SKEW: Final = timedelta(hours=1)  # tolerance for clients with a slow clock
SECRET_MODE: Final = 0o600


Describe: TypeAlias = "Callable[[CertificateBuilder], CertificateBuilder]"


class IssuedCertificate(NamedTuple):
    """A certificate with its key, both as PEM."""

    certificate: bytes
    key: bytes


def new_authority(name: str, now: datetime) -> IssuedCertificate:
    """Return a self-signed certificate authority."""
    from cryptography import x509  # noqa: PLC0415

    return _make(
        name,
        now,
        AUTHORITY_DAYS,
        None,
        lambda builder: builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True),
    )


def issue_certificate(
    authority: IssuedCertificate, name: str, hosts: Sequence[str], now: datetime, days: int = CERTIFICATE_DAYS
) -> IssuedCertificate:
    """Return a certificate with this common name and these hosts; without hosts for a client."""
    from cryptography import x509  # noqa: PLC0415

    def describe(builder: CertificateBuilder) -> CertificateBuilder:
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder

    return _make(name, now, days, authority, describe)


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, atomically."""
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


def _make(
    name: str, now: datetime, days: int, authority: IssuedCertificate | None, describe: Describe
) -> IssuedCertificate:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    subject = issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer = key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.certificate).subject
        loaded = serialization.load_pem_private_key(authority.key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey), "authorities have elliptic keys"
        signer = loaded
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    certificate = describe(builder).sign(signer, hashes.SHA256())
    return IssuedCertificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


ADMIN: Final = "admin"
BROKER: Final = "broker"
ZOOKEEPER: Final = "zookeeper"
TOKENS: Final = "tokens"
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
PASSWORD_BYTES: Final = 24
FOLDER_MODE: Final = 0o700
AUTHORITY: Final = "ca.pem"
AUTHORITY_KEY: Final = "ca-key.pem"
MECHANISMS: Final = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecurityDir:
    """The credentials of one cluster. `protocol` is that of the one listener for brokers and clients."""

    def __init__(self, path: Path, hosts: Sequence[str], now: datetime, protocol: str = "SASL_SSL") -> None:
        self.path = path
        self.protocol = protocol
        self._hosts = hosts
        self._now = now
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self._authority = self._load_authority()

    @property
    def authority_file(self) -> Path:
        """The CA certificate that clients must trust."""
        return self.path / AUTHORITY

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_login(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def password_file(self, user: str) -> Path:
        """The file of a user's password, created at first use."""
        path = self.path / f"{user}.password"
        if not path.exists():
            write_secret(path, f"{secrets.token_urlsafe(PASSWORD_BYTES)}\n".encode())
        return path

    def password(self, user: str) -> str:
        return self.password_file(user).read_text().strip()

    def broker_settings(self, broker: int) -> dict[str, str]:
        """Return the security settings of this broker. They contain passwords: for a file, not for a command line."""
        settings = {
            "security.inter.broker.protocol": self.protocol,
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{BROKER}" if self.has_login else f"User:CN={ADMIN};User:CN={BROKER}",
            "allow.everyone.if.no.acl.found": "false",
        }
        if self.has_tls:
            settings |= self._tls_settings(BROKER if not self.has_login else f"broker-{broker}", f"broker-{broker}")
            settings["ssl.client.auth"] = "none" if self.has_login else "required"
        if self.has_login:
            known = " ".join(f'user_{user}="{self.password(user)}"' for user in (ADMIN, BROKER))
            prefix = f"listener.name.{self.protocol.lower()}"
            settings |= {
                "sasl.enabled.mechanisms": MECHANISMS,
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                f"{prefix}.plain.sasl.jaas.config": f"{self._login(BROKER)} {known};",
                f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
                f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
                "delegation.token.secret.key": self.password(TOKENS),
            }
        return settings

    def client_settings(self) -> dict[str, str]:
        """Return the properties of `admin`, under the names of Java's clients, which ottla's tools also accept."""
        settings = {"security.protocol": self.protocol}
        if self.has_login:
            settings |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{self._login(ADMIN)};"}
            if self.has_tls:
                settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority_file)}
        elif self.has_tls:
            settings |= self._tls_settings(ADMIN, ADMIN)
        return settings

    def zookeeper_login_file(self) -> Path:
        """Return the JAAS file for ZooKeeper, which then accepts only the brokers, and for the brokers."""
        password = self.password(ZOOKEEPER)
        server = f'Server {{ {DIGEST_MODULE} required user_{BROKER}="{password}"; }};\n'
        client = f'Client {{ {DIGEST_MODULE} required username="{BROKER}" password="{password}"; }};\n'
        path = self.path / "zookeeper.jaas"
        write_secret(path, (server + client).encode())
        return path

    def write_settings(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.path / name
        write_secret(path, "".join(f"{key}={value}\n" for key, value in settings.items()).encode())
        return path

    def _login(self, user: str) -> str:
        return f'{PLAIN_MODULE} required username="{user}" password="{self.password(user)}"'

    def _tls_settings(self, common_name: str, name: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate_file(common_name, name)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority_file),
        }

    def _certificate_file(self, common_name: str, name: str) -> Path:
        path = self.path / f"{name}.pem"
        if not path.exists():
            issued = issue_certificate(self._authority, common_name, () if name == ADMIN else self._hosts, self._now)
            write_secret(path, issued.key + issued.certificate)
        return path

    def _load_authority(self) -> IssuedCertificate:
        key_file = self.path / AUTHORITY_KEY
        if not (self.authority_file.exists() and key_file.exists()):
            made = new_authority("ottla", self._now)
            write_secret(key_file, made.key)
            self.authority_file.write_bytes(made.certificate)
        return IssuedCertificate(self.authority_file.read_bytes(), key_file.read_bytes())

    def __repr__(self) -> str:
        return f"<SecurityDir {self.path} {self.protocol}>"
