"""The audit trail and what was really done: a dozen things through librdkafka, read with it and with `ottla audit`."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.conformance.test_tools import command_of, run
from tests.conformance.waiting import eventually

from ottla.testing import Broker

pytestmark = pytest.mark.needs_ottla

AUDIT = "__ottla_audit"
SECONDS = 20
RULE = ("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"ottla.audit.enable": True, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    with Broker(settings, security="SASL_PLAINTEXT") as broker:
        yield broker


def settings_of(broker: Broker, **more: str) -> dict[str, Any]:
    assert broker.security is not None
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {**broker.security.librdkafka, "bootstrap.servers": broker.bootstrap_servers, **named}


def as_alice(broker: Broker, password: str = "geheim") -> dict[str, Any]:
    return settings_of(
        broker, sasl_mechanism="SCRAM-SHA-256", sasl_username="alice", sasl_password=password, client_id="alices"
    )


def wait_for(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(SECONDS)


@pytest.fixture(scope="module")
def done(broker: Broker) -> None:
    """A dozen things, by the administrator and by alice."""
    admin = AdminClient(settings_of(broker, client_id="admins"))
    wait_for(admin.create_topics([NewTopic("orders", 2, 1, config={"retention.ms": "60000"})]))
    with pytest.raises(KafkaException):
        wait_for(admin.create_topics([NewTopic("orders", 2, 1)]))
    wait_for(admin.create_partitions([NewPartitions("orders", 3)]))
    longer = ConfigEntry("retention.ms", "70000", incremental_operation=AlterConfigOpType.SET)
    wait_for(
        admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[longer])])
    )
    rule = AclBinding(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, *RULE)
    wait_for(admin.create_acls([rule]))
    password = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wait_for(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", password, b"geheim")]))
    write_as(as_alice(broker), "orders")  # is denied
    write_as(as_alice(broker, "falsch"), "orders")  # may not even log in
    producer = Producer(settings_of(broker))
    for number in range(5):
        producer.produce("orders", f"{number}", partition=0)
    assert producer.flush(SECONDS) == 0
    wait_for(admin.delete_records([TopicPartition("orders", 0, 3)]))
    reader = Consumer(settings_of(broker, group_id="readers"))
    reader.commit(offsets=[TopicPartition("orders", 1, 4)], asynchronous=False)
    reader.close()
    seven = ConsumerGroupTopicPartitions("readers", [TopicPartition("orders", 1, 7)])
    wait_for(admin.alter_consumer_group_offsets([seven]))  # a group without members: only its first commit counts
    wait_for(admin.delete_consumer_groups(["readers"]))
    producer.list_topics("made-by-use", SECONDS)
    found = AclBindingFilter(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, *RULE)
    wait_for(admin.delete_acls([found]))
    wait_for(admin.delete_topics(["orders"]))


def write_as(settings: dict[str, Any], topic: str) -> list[KafkaError]:
    """The errors that a producer with these settings gets."""
    problems: list[KafkaError] = []
    producer = Producer({**settings, "message.timeout.ms": 5000, "error_cb": problems.append})
    producer.produce(topic, b"x", on_delivery=lambda error, _: problems.append(error) if error else None)
    eventually(lambda: producer.poll(0.05) >= 0 and bool(problems), SECONDS)
    producer.purge()
    return problems


def read(broker: Broker, last: str, resource: str | None = None) -> list[dict[str, Any]]:
    """All events up to the first of this name, about this resource if one is named."""
    consumer = Consumer(settings_of(broker, group_id="auditors"))
    consumer.assign([TopicPartition(AUDIT, 0, 0)])
    events: list[dict[str, Any]] = []
    deadline = time.monotonic() + SECONDS
    while not events or events[-1]["event"] != last or resource not in (None, events[-1]["resource"]):
        assert time.monotonic() < deadline, events
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            events.append(json.loads(message.value()))
    consumer.close()
    return events


def test_the_audit_log_contains_every_change(broker: Broker, done: None) -> None:
    events = read(broker, "topic.delete")
    changes = [event for event in events if event["event"] not in ("login", "login.failed", "denied")]
    assert [(event["event"], event["resource"], event["error"]) for event in changes] == [
        ("topic.create", "orders", None),
        ("topic.create", "orders", "TOPIC_ALREADY_EXISTS"),
        ("topic.partitions", "orders", None),
        ("config.alter", "orders", None),
        ("acl.create", "orders", None),
        ("user.alter", "alice", None),
        ("records.delete", "orders", None),
        ("group.offsets.alter", "readers", None),
        ("group.delete", "readers", None),
        ("topic.create", "made-by-use", None),
        ("acl.delete", "orders", None),
        ("topic.delete", "orders", None),
    ]
    assert {
        (event["principal"], event["client_id"], event["host"])
        for event in changes
        if event["api"] not in ("Metadata", "OffsetCommit")
    } == {("User:admin", "admins", "127.0.0.1")}
    assert all(event["software"].startswith("confluent-kafka-python") for event in changes)
    create, again, partitions, config, rule, user, records, offsets, group, used, no_rule, delete = changes
    assert create["after"]["configs"] == {"retention.ms": "60000"}
    assert (again["after"], again["requested"]["partitions"]) == (None, 2)
    assert (partitions["before"], partitions["after"]) == ({"partitions": 2}, {"partitions": 3})
    assert (config["before"], config["after"]) == ({"retention.ms": "60000"}, {"retention.ms": "70000"})
    assert rule["after"] == no_rule["before"]
    assert rule["after"]["principal"] == "User:alice"
    assert user["after"] == {"iterations": {"SCRAM-SHA-256": 4096}}
    assert (records["before"], records["after"]) == ({"start_offsets": {"0": 0}}, {"start_offsets": {"0": 3}})
    assert offsets["before"] == {"offsets": {"orders": {"1": None}}}
    assert offsets["after"] == {"offsets": {"orders": {"1": 4}}}
    assert group["before"] == {"offsets": {"orders": {"1": 7}}}
    assert (used["api"], used["client_id"], used["after"]["partitions"]) == ("Metadata", "rdkafka", 1)
    assert delete["before"]["configs"] == {"retention.ms": "70000"}
    logins = {(event["principal"], event["after"]["mechanism"]) for event in events if event["event"] == "login"}
    assert logins >= {("User:admin", "PLAIN"), ("User:alice", "SCRAM-SHA-256")}
    failed = next(event for event in events if event["event"] == "login.failed")
    assert (failed["error"], failed["principal"]) == ("SASL_AUTHENTICATION_FAILED", None)
    assert "alice" in failed["message"]
    denied = next(event for event in events if event["event"] == "denied")
    assert (denied["principal"], denied["resource"]) == ("User:alice", "orders")
    assert "geheim" not in json.dumps(events)
    assert "falsch" not in json.dumps(events)


def test_no_client_writes_to_it_and_reading_needs_a_right(broker: Broker, done: None) -> None:
    for client_id in ("me", "__admin_client"):
        problems = write_as(settings_of(broker, client_id=client_id), AUDIT)
        assert {problem.name() for problem in problems} == {"TOPIC_EXCEPTION"}
    told = AdminClient(as_alice(broker)).list_topics(AUDIT, SECONDS).topics[AUDIT]
    assert told.error.name() == "TOPIC_AUTHORIZATION_FAILED"


def connection_to(broker: Broker, folder: Path) -> tuple[str, ...]:
    """How tools come in as the administrator."""
    assert broker.security is not None
    config = folder / "admin.properties"
    config.touch(0o600)
    config.write_text("".join(f"{key}={value}\n" for key, value in broker.security.properties.items()))
    return "--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config)


def test_the_tool_shows_the_requested_records(broker: Broker, done: None, tmp_path: Path) -> None:
    where = connection_to(broker, tmp_path)
    read(broker, "topic.delete")
    shown = run("ottla", "audit", "--event", "topic.*", "--topic", "orders", "--json", *where)
    assert shown.code == 0, shown.err
    assert [json.loads(line)["event"] for line in shown.out.splitlines()] == [
        *("topic.create", "topic.create", "topic.partitions", "topic.delete"),
    ]
    shown = run("ottla", "audit", "--principal", "admin", "--event", "config.alter", "--since", "1h", *where)
    (line,) = shown.out.splitlines()
    assert line.split("\t")[1:] == [
        *("config.alter", "success", "User:admin", "127.0.0.1", "admins", "1", "topic orders"),
        "retention.ms: 60000 -> 70000",
    ]
    assert run("ottla", "audit", "--since", "2099-01-01", *where).out == ""


def test_the_tool_follows(broker: Broker, done: None, tmp_path: Path) -> None:
    where = connection_to(broker, tmp_path)
    words = [*command_of("ottla"), "audit", "--follow", "--since", "1h", "--topic", "followed", "--json", *where]
    admin = AdminClient(settings_of(broker))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        for event, work in (("create", admin.create_topics), ("delete", admin.delete_topics)):
            wait_for(work([NewTopic("followed", 1, 1)] if event == "create" else ["followed"]))
            assert json.loads(tool.stdout.readline())["event"] == f"topic.{event}"
        tool.send_signal(signal.SIGINT)
    assert tool.returncode == 130


def test_offset_resets_are_distinguished_from_commits_of_members(broker: Broker, done: None) -> None:
    admin = AdminClient(settings_of(broker, client_id="admins"))
    wait_for(admin.create_topics([NewTopic("billing", 1, 1)]))
    member = Consumer(settings_of(broker, group_id="billing"))
    member.subscribe(["billing"])
    assert eventually(lambda: member.poll(0.05) is None and bool(member.assignment()), SECONDS)
    member.commit(offsets=[TopicPartition("billing", 0, 5)], asynchronous=False)
    member.close()
    back = ConsumerGroupTopicPartitions("billing", [TopicPartition("billing", 0, 2)])
    wait_for(admin.alter_consumer_group_offsets([back]))
    wait_for(admin.delete_consumer_groups(["billing"]))
    events = read(broker, "group.delete", "billing")
    (reset,) = [event for event in events if event["resource"] == "billing" and event["event"] == "group.offsets.alter"]
    assert (reset["principal"], reset["client_id"]) == ("User:admin", "admins")
    assert reset["before"] == {"offsets": {"billing": {"0": 5}}}
    assert reset["after"] == {"offsets": {"billing": {"0": 2}}}


def test_a_deleted_trail_starts_again_with_its_deletion(broker: Broker, done: None) -> None:
    admin = AdminClient(settings_of(broker, client_id="vandals"))
    wait_for(admin.delete_topics([AUDIT]))
    told = read(broker, "topic.delete")[-1]
    assert (told["resource"], told["client_id"], told["before"]["partitions"]) == (AUDIT, "vandals", 1)


def test_a_certificate_is_a_login_and_a_handshake_that_fails_is_none() -> None:
    with Broker({"ottla.audit.enable": True}, security="SSL") as broker:
        admin = AdminClient(settings_of(broker))
        wait_for(admin.create_topics([NewTopic("orders", 1, 1)]))
        with socket.create_connection((broker.host, broker.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while stranger.recv(1000):  # the broker says why, and hangs up
                pass
        wait_for(admin.delete_topics(["orders"]))
        events = read(broker, "topic.delete")
    login = next(event for event in events if event["event"] == "login")
    assert (login["after"]["mechanism"], login["listener"]) == ("SSL", "SSL")
    assert login["principal"] == events[-1]["principal"] != "User:ANONYMOUS"
    failed = next(event for event in events if event["event"] == "login.failed")
    assert (failed["outcome"], failed["host"], failed["principal"]) == ("failure", "127.0.0.1", None)
