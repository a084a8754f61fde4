"""Settings of TLS and SASL are changed while the broker runs, by librdkafka's admin client, and count at once."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from tests.certificates import Authority
from tests.conformance.waiting import eventually
from tests.conftest import FOREIGN_BOOTSTRAP, free_port

from ottla.client.client import open_client
from ottla.client.errors import ClientError
from ottla.testing.broker import Broker

pytestmark = pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="its listeners are not ours to set")

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = "listener.name.clients.plain.sasl.jaas.config"
KEYSTORE = "listener.name.clients.ssl.keystore.location"
RELOGIN = "sasl.kerberos.min.time.before.relogin"
BROKER = ConfigResource(ResourceType.BROKER, "1")


class Scene(NamedTuple):
    """A broker with an open listener, and one over TLS that asks for a login; certificates of two years."""

    broker: Broker
    address: str
    admin: AdminClient
    folder: Path
    authority: Authority

    def change(self, name: str, value: str | None) -> str | None:
        """Set or (None) take away a setting; why not, or None."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        (future,) = self.admin.incremental_alter_configs([resource]).values()
        try:
            future.result(20)
        except KafkaException as problem:
            return str(problem.args[0].str())
        return None

    def entries(self) -> dict[str, Any]:
        (future,) = self.admin.describe_configs([BROKER]).values()
        found: dict[str, Any] = future.result(20)
        return found

    def can_log_in(self, password: str) -> bool:
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} username="alice" password="{password}";',
        }
        try:
            with open_client(self.address, properties) as client:
                client.cluster()
        except ClientError:
            return False
        return True

    def shown_certificate(self) -> bytes:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        host, _, port = self.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("changes")
    authority = Authority()
    authority.certificate_pem(folder / "ca.pem")
    for name in ("first", "second"):
        authority.issue("broker").pem(folder / f"{name}.pem")
    address = f"127.0.0.1:{free_port()}"
    broker = Broker(
        {
            "ottla.dynamic.config.allowed.paths": str(folder),
            "sasl.enabled.mechanisms": "PLAIN",
            "ssl.keystore.location": str(folder / "first.pem"),
            JAAS: f'{PLAIN} user_alice="old password";',
        }
    )
    listeners = f"{broker.settings['listeners']},CLIENTS://{address}"
    protocols = "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL"
    broker.settings |= {"listeners": listeners, "listener.security.protocol.map": protocols}
    with broker:
        yield Scene(broker, address, AdminClient({"bootstrap.servers": broker.bootstrap_servers}), folder, authority)
        for secret in ("new password", "old password"):
            assert secret not in broker.logs


def test_settings_of_librdkafkas_test_suite_are_accepted_and_described(scene: Scene) -> None:
    assert scene.change(RELOGIN, "58000") is None
    assert eventually(lambda: scene.entries()[RELOGIN].value == "58000")
    assert scene.entries()[RELOGIN].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    assert scene.change(RELOGIN, "abc") == f"Invalid value abc for configuration {RELOGIN}: Not a number of type LONG"
    assert scene.change(RELOGIN, None) is None


def test_a_password_is_changed_under_way_and_never_shown(scene: Scene) -> None:
    assert scene.can_log_in("old password")
    assert scene.change(JAAS, f'{PLAIN} user_alice="new password";') is None
    assert eventually(lambda: scene.can_log_in("new password"))
    assert not scene.can_log_in("old password")
    entry = scene.entries()[JAAS]
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert all(synonym.value is None for synonym in entry.synonyms.values())
    scene.broker.restart()
    assert not scene.can_log_in("old password")
    assert scene.can_log_in("new password")
    assert scene.change(JAAS, None) is None
    assert eventually(lambda: scene.can_log_in("old password"))


def test_a_certificate_is_changed_under_way(scene: Scene) -> None:
    before = scene.shown_certificate()
    assert scene.change(KEYSTORE, str(scene.folder / "second.pem")) is None
    assert eventually(lambda: scene.shown_certificate() != before)
    assert scene.change(KEYSTORE, None) is None
    assert eventually(lambda: scene.shown_certificate() == before)


def test_unusable_values_are_refused_with_the_reason(scene: Scene) -> None:
    before = scene.shown_certificate()
    broken = scene.folder / "broken.pem"
    broken.write_text("no certificate")
    scene.authority.issue("another owner").pem(scene.folder / "other.pem")
    for name, value, words in (
        (KEYSTORE, str(broken), "Invalid dynamic configuration"),
        (KEYSTORE, str(scene.folder / "missing.pem"), "missing.pem"),
        (KEYSTORE, str(scene.folder / "other.pem"), "Keystore DistinguishedName does not match"),
        (KEYSTORE, "/etc/ssl/private/key.pem", "ottla.dynamic.config.allowed.paths"),
        (JAAS, 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://x";', "login module"),
        ("sasl.enabled.mechanisms", "GSSAPI", "JAAS"),
        ("principal.builder.class", "com.example.Builder", "Class com.example.Builder could not be found."),
        ("ssl.keystore.location", str(scene.folder / "second.pem"), "only per-listener using the listener prefix"),
    ):
        said = scene.change(name, value)
        assert said is not None, name
        assert words in said, said
    assert scene.shown_certificate() == before
    assert scene.can_log_in("old password")
