"""Security of brokers in tests: `Broker(security="SASL_SSL")` and `Cluster(security="SASL_SSL")`.

Keys and passwords are generated for the test and removed with its folder. Authorization is on: clients with these
settings are superusers, others have no rights until a test grants them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.security.secure_folder import ADMIN, SecurityDir
from ottla.testing.child import HOST, BrokerError

PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
FOLDER = "security"


class Security:
    """The security settings of a secured test broker or cluster."""

    def __init__(self, protocol: str, parent: Path) -> None:
        if protocol not in PROTOCOLS:
            raise BrokerError(f"security={protocol!r} is not known: it is one of {', '.join(PROTOCOLS)}")
        self.protocol = protocol
        self.folder = SecurityDir(parent / FOLDER, (HOST, "localhost"), datetime.now(UTC), protocol)

    def broker_file(self, broker: int) -> Path:
        """A file for one broker's settings that must not show on a command line."""
        return self.folder.write_settings(f"broker-{broker}.properties", self.folder.broker_settings(broker))

    @property
    def properties(self) -> dict[str, str]:
        """For Java's clients, Kafka's tools (--command-config) and ottla's."""
        return self.folder.client_settings()

    @property
    def librdkafka(self) -> dict[str, str]:
        """For confluent-kafka."""
        from ottla.client.librdkafka_properties import translate  # noqa: PLC0415 (not every test has a client of this kind)

        return translate(self.properties)

    @property
    def kafka_python(self) -> dict[str, Any]:
        """Keyword arguments for kafka-python."""
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self.folder.has_tls:
            settings["ssl_cafile"] = str(self.folder.authority_file)
        if self.folder.has_login:
            login = {"sasl_plain_username": ADMIN, "sasl_plain_password": self.folder.password(ADMIN)}
            return {**settings, "sasl_mechanism": "PLAIN", **login}
        certificate = self.properties["ssl.keystore.location"]
        return {**settings, "ssl_certfile": certificate, "ssl_keyfile": certificate}

    def __repr__(self) -> str:
        return f"<Security {self.protocol}>"


def make_security(protocol: str | None, parent: Path) -> Security | None:
    return None if protocol is None else Security(protocol, parent)
