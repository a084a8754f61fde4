"""`ottla up --secure`: TLS, logins and access rights from the first start, and what clients must set for it."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from ottla.cli.terminal import ToolError
from ottla.security.secure_folder import ADMIN, SecureFolder

FOLDER = "security"
LISTENER = "SASL_SSL"
HOSTS = ("127.0.0.1", "localhost", "::1")
ADMIN_FILE = f"{ADMIN}.properties"


def secure_folder(data: Path, *, is_wanted: bool) -> SecureFolder | None:
    """Where keys and passwords lie; None without --secure. What was secured once is not opened to everybody again."""
    folder = data / FOLDER
    if not is_wanted:
        if folder.exists():
            raise ToolError(
                f"{data} was secured with --secure, and without it everybody could read and write: start it with "
                f"ottla up --secure, or remove {folder} first"
            )
        return None
    try:
        found = SecureFolder(folder.resolve(), HOSTS, datetime.now(UTC))
        found.write_settings(ADMIN_FILE, found.client_settings())
    except OSError as problem:
        cause = (problem.strerror or str(problem)).lower()
        raise ToolError(f"cannot keep keys and passwords in {folder}: {cause}") from None
    return found


def secure_config(folder: SecureFolder, broker: int) -> Path:
    """A file of settings for this broker: passwords are not shown to whoever looks at the processes of a machine."""
    return folder.write_settings(f"broker-{broker}.properties", folder.broker_settings(broker))


def zookeeper_login(folder: SecureFolder) -> dict[str, str]:
    """What a broker's environment names for its login at ZooKeeper, as Kafka's scripts do."""
    return {"KAFKA_OPTS": f"-Djava.security.auth.login.config={shlex.quote(str(folder.zookeeper_login_file()))}"}


def client_lines(folder: SecureFolder, bootstrap: str) -> list[str]:
    """For the banner: what each kind of client sets, ready to be pasted."""
    authority, password = folder.authority_file, folder.password_file(ADMIN)
    read_password = f'open("{password}").read().strip()'
    return [
        "Who connects needs TLS and a login. Tools of ottla and of Kafka (--command-config, --producer.config, ...):",
        f"  {folder.path / ADMIN_FILE}",
        "kafka-python:",
        f'  security_protocol="SASL_SSL", ssl_cafile="{authority}", sasl_mechanism="PLAIN",',
        f'  sasl_plain_username="{ADMIN}", sasl_plain_password={read_password}',
        "librdkafka (confluent-kafka):",
        f'  "security.protocol": "SASL_SSL", "ssl.ca.location": "{authority}", "sasl.mechanism": "PLAIN",',
        f'  "sasl.username": "{ADMIN}", "sasl.password": {read_password}',
        "Somebody else, with rights of his own:",
        f"  ottla users add alice --write alice.properties --bootstrap-server {bootstrap}",
        f"  ottla acls add --allow User:alice --producer --topic orders --bootstrap-server {bootstrap}",
    ]
