"""Access rules, SCRAM users and quotas go over: from Apache Kafka 4.3's own log, to and from Kafka 3.9 by ZooKeeper."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.conformance.conftest import KAFKA_VERSION as KRAFT_VERSION
from tests.conformance.conftest import find_jars
from tests.conftest import free_port, ottla_command
from tests.faults.kafka_39_broker import Kafka39Broker
from tests.faults.zookeeper_kafka import KAFKA_VERSION

from ottla.client.client import open_client
from ottla.client.quotas import Alteration, Entity, alter_quotas, describe_quotas
from ottla.testing.broker import Broker
from ottla.testing.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

SECONDS_MAX = 60.0
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
RULES = [
    AclBinding(ResourceType.TOPIC, "orders", LITERAL, "User:alice", "*", AclOperation.WRITE, ALLOW),
    AclBinding(ResourceType.TOPIC, "ord", PREFIXED, "User:bob", "*", AclOperation.ALL, ALLOW),
    AclBinding(ResourceType.TOPIC, "orders", LITERAL, "User:bob", "127.0.0.1", AclOperation.WRITE, DENY),
    AclBinding(ResourceType.GROUP, "*", LITERAL, "User:alice", "*", AclOperation.READ, ALLOW),
    AclBinding(ResourceType.BROKER, "kafka-cluster", LITERAL, "User:carol", "*", AclOperation.IDEMPOTENT_WRITE, ALLOW),
    AclBinding(ResourceType.TRANSACTIONAL_ID, "t", PREFIXED, "User:alice", "10.0.0.1", AclOperation.DESCRIBE, ALLOW),
]
QUOTAS = [
    Alteration({"user": "alice"}, {"producer_byte_rate": 1e7, "request_percentage": 99.5}),
    Alteration({"user": "alice", "client-id": None}, {"consumer_byte_rate": 1e7}),
    Alteration({"user": None, "client-id": "my app"}, {"controller_mutation_rate": 50.0}),
    Alteration({"user": None}, {"consumer_byte_rate": 2e7}),
    Alteration({"client-id": "a/b"}, {"producer_byte_rate": 5.0}),
    Alteration({"client-id": None}, {"producer_byte_rate": 3e7}),
    Alteration({"ip": "10.0.0.1"}, {"connection_creation_rate": 7.0}),
    Alteration({"ip": None}, {"connection_creation_rate": 1000.0}),
]
GONE = {"client-id": "gone"}
MORE = AclBinding(ResourceType.TOPIC, "later", PREFIXED, "User:carol", "*", AclOperation.READ, ALLOW)


def settings_of(plain: str, sasl: str) -> dict[str, str]:
    mechanisms = ("scram-sha-256", "scram-sha-512")
    return {
        "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        **{f"listener.name.sasl_plaintext.{each}.sasl.jaas.config": SCRAM for each in mechanisms},
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }


def wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(SECONDS_MAX)


def grant(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait(admin.create_topics([NewTopic("orders", 1, 1)]))
    wait(admin.create_acls([*RULES, MORE]))
    with open_client(bootstrap, {}) as client:
        alter_quotas(client, [*QUOTAS, Alteration(GONE, {"producer_byte_rate": 5.0})])
        alter_quotas(client, [Alteration(GONE, {}, ["producer_byte_rate"])])
    set_password(admin, "alice", ScramMechanism.SCRAM_SHA_256, b"word of alice")
    set_password(admin, "bob", ScramMechanism.SCRAM_SHA_512, b"word of bob")
    set_password(admin, "gone", ScramMechanism.SCRAM_SHA_512, b"word of gone")
    wait(admin.alter_user_scram_credentials([UserScramCredentialDeletion("gone", ScramMechanism.SCRAM_SHA_512)]))
    only_more = AclBindingFilter(
        ResourceType.TOPIC, "later", PREFIXED, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    wait(admin.delete_acls([only_more]))


def set_password(admin: AdminClient, name: str, mechanism: ScramMechanism, password: bytes) -> None:
    wait(
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password)]
        )
    )


def told_rules(bootstrap: str) -> set[str]:
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_acls(everything).result(SECONDS_MAX)
    return {str(each) for each in found}


def told_users(bootstrap: str) -> dict[str, list[tuple[str, int]]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_user_scram_credentials().result(SECONDS_MAX)
    return {
        name: [(info.mechanism.name, info.iterations) for info in each.scram_credential_infos]
        for name, each in found.items()
    }


def told_quotas(bootstrap: str) -> list[tuple[list[tuple[str, str | None]], dict[str, float]]]:
    with open_client(bootstrap, {}) as client:
        found = describe_quotas(client, (), is_strict=False)
    return in_order((quota.entity, quota.limits) for quota in found)


def in_order(
    quotas: Iterable[tuple[Entity, Mapping[str, float]]],
) -> list[tuple[list[tuple[str, str | None]], dict[str, float]]]:
    return sorted(((sorted(entity.items()), dict(limits)) for entity, limits in quotas), key=str)


def write(sasl: str, name: str, mechanism: str, password: str) -> str:
    """What becomes of one record of a user: "" if it was stored."""
    login = {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
    settings = {"bootstrap.servers": sasl, "security.protocol": "SASL_PLAINTEXT", "message.timeout.ms": 10_000}
    said: list[str] = []
    producer = Producer({**settings, **login, "log_level": 0})
    producer.produce("orders", b"x", on_delivery=lambda error, _: said.append(error.name() if error else ""))
    producer.flush(20)
    return said[0]


def check_everything(plain: str, sasl: str, rules: list[AclBinding]) -> None:
    assert told_rules(plain) == {str(each) for each in rules}
    assert told_quotas(plain) == in_order(each[:2] for each in QUOTAS)
    users = told_users(plain)
    assert users["alice"] == [("SCRAM_SHA_256", 4096)]
    assert users["bob"] == [("SCRAM_SHA_512", 4096)]
    assert "gone" not in users
    assert write(sasl, "alice", "SCRAM-SHA-256", "word of alice") == ""
    assert write(sasl, "bob", "SCRAM-SHA-512", "word of bob") == "TOPIC_AUTHORIZATION_FAILED"
    assert write(sasl, "alice", "SCRAM-SHA-256", "word of bob") != ""


class KraftKafka:
    """One Apache Kafka 4 that is its own controller."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jars = folder, find_jars(KRAFT_VERSION)
        self.plain, self.sasl, self.data = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", folder / "data"
        controller = f"127.0.0.1:{free_port()}"
        settings = settings_of(self.plain, self.sasl) | {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
        }
        settings["listeners"] += f",CONTROLLER://{controller}"
        folder.mkdir(parents=True)
        self.file = folder / "server.properties"
        self.file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        first = "SCRAM-SHA-512=[name=first,password=word of first]"
        self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self.file), "--add-scram", first)

    def _command(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx512M", "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars}/*", *arguments]

    def _java(self, *arguments: str) -> None:
        subprocess.run(self._command(*arguments), check=True, capture_output=True, timeout=SECONDS_MAX)

    def __enter__(self) -> Self:
        with (self.folder / "kafka.log").open("wb") as log:
            self.process = subprocess.Popen(self._command("kafka.Kafka", str(self.file)), stdout=log, stderr=log)
        admin = AdminClient({"bootstrap.servers": self.plain, "log_level": 0})
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                admin.list_topics(timeout=2)
            except Exception:  # noqa: BLE001 (it is not there yet)
                assert time.monotonic() < deadline, (self.folder / "kafka.log").read_text()[-3000:]
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(SECONDS_MAX)


def test_rights_of_a_kraft_cluster_come_along(tmp_path: Path) -> None:
    with KraftKafka(tmp_path / "kafka") as kafka:
        grant(kafka.plain)
        check_everything(kafka.plain, kafka.sasl, RULES)
    plain, sasl = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    broker = Broker(settings_of(plain, sasl), folder=tmp_path)
    command = [*ottla_command(), "migrate", "from-kafka", str(kafka.data), "--all", "--data", str(broker.data_folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "6 access rules, 3 SCRAM users and 8 quotas are imported" in done.stderr
    with broker:
        check_everything(plain, sasl, RULES)
        assert told_users(plain)["first"] == [("SCRAM_SHA_512", 4096)]


def test_kafka_39_reads_what_we_wrote_and_we_what_it_wrote(tmp_path: Path) -> None:
    plain, sasl = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with ZooKeeperProcess() as zookeeper:
        connect = f"{zookeeper.connect}/kafka"
        settings = {**settings_of(plain, sasl), "zookeeper.connect": connect, "broker.id": "1"}
        broker = Broker({**settings, "log.dirs": str(tmp_path / "data")}, folder=tmp_path)
        with broker:
            grant(plain)
            check_everything(plain, sasl, RULES)
            broker.stop()
            kafka = Kafka39Broker(tmp_path / "kafka", find_jars(KAFKA_VERSION), 1, plain, tmp_path / "data", connect)
            kafka.settings.update(settings_of(plain, sasl))
            try:
                kafka.launch()
                kafka.wait_until_ready()
                check_everything(plain, sasl, RULES)
                admin = AdminClient({"bootstrap.servers": plain})
                wait(admin.create_acls([MORE]))
                set_password(admin, "carol", ScramMechanism.SCRAM_SHA_256, b"word of carol")
                kafka.stop()
            finally:
                kafka.kill()
            broker.start()
            check_everything(plain, sasl, [*RULES, MORE])
            assert write(sasl, "carol", "SCRAM-SHA-256", "word of carol") == "TOPIC_AUTHORIZATION_FAILED"
