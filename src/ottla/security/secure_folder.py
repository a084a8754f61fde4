"""All that a secured broker or cluster needs, made out of nothing into one folder that only its owner can enter.

An authority, a certificate for each broker, random passwords, and from them the settings of brokers and of clients:
`ottla up --secure` and brokers of tests are secured with it. What is there already is used again.

Two people are known from the start: `admin`, who may do everything, and `broker`, as whom brokers talk to each other.
Both log in with PLAIN, whose passwords stand in the brokers' settings, so that nothing has to be written to the
cluster's metadata before it exists. Everybody else is made with SCRAM (`ottla users add`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from ottla.security.certificate_authority import Issued, issue, new_authority, write_secret

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


class SecureFolder:
    """One per cluster. `protocol` is that of the one listener that brokers and clients share."""

    def __init__(self, path: Path, hosts: Sequence[str], now: datetime, protocol: str = "SASL_SSL") -> None:
        self.path = path
        self.protocol = protocol
        self._hosts = hosts
        self._now = now
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self._authority = self._load_authority()

    @property
    def authority_file(self) -> Path:
        """The certificate that clients must trust."""
        return self.path / AUTHORITY

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_login(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def password_file(self, user: str) -> Path:
        """Made when it is asked for the first time."""
        path = self.path / f"{user}.password"
        if not path.exists():
            write_secret(path, f"{secrets.token_urlsafe(PASSWORD_BYTES)}\n".encode())
        return path

    def password(self, user: str) -> str:
        return self.password_file(user).read_text().strip()

    def broker_settings(self, broker: int) -> dict[str, str]:
        """What makes this broker a secured one; passwords among it: for a file, not for a command line."""
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
        """How `admin` connects, under the names of Java's clients, which ottla's tools know too."""
        settings = {"security.protocol": self.protocol}
        if self.has_login:
            settings |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{self._login(ADMIN)};"}
            if self.has_tls:
                settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority_file)}
        elif self.has_tls:
            settings |= self._tls_settings(ADMIN, ADMIN)
        return settings

    def zookeeper_login_file(self) -> Path:
        """For ZooKeeper, which then admits nobody but the brokers, and for the brokers."""
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
            issued = issue(self._authority, common_name, () if name == ADMIN else self._hosts, self._now)
            write_secret(path, issued.key + issued.certificate)
        return path

    def _load_authority(self) -> Issued:
        key_file = self.path / AUTHORITY_KEY
        if not (self.authority_file.exists() and key_file.exists()):
            made = new_authority("ottla", self._now)
            write_secret(key_file, made.key)
            self.authority_file.write_bytes(made.certificate)
        return Issued(self.authority_file.read_bytes(), key_file.read_bytes())

    def __repr__(self) -> str:
        return f"<SecureFolder {self.path} {self.protocol}>"
