"""The metadata store of imported topics, and the metadata log of KRaft."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.password_encoder import Encoding, encode_password
from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.controller import tree
from ottla.controller.image import NO_LEADER
from ottla.controller.image_loader import load_image
from ottla.controller.migration.kraft_log import read_kraft_log
from ottla.controller.migration.store_import import (
    EPOCHS_SKIPPED,
    ImportedRights,
    ImportedTopic,
    decide_quotas,
    write_store,
)
from ottla.controller.migration.store_to_zookeeper import UnsupportedByKafkaError, export_commands
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode
from ottla.protocol.batches import build_batch, write_offsets
from ottla.protocol.codec import encode
from ottla.protocol.messages.metadata_records import (
    METADATA_RECORDS,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityPart,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.records import Record
from ottla.security.acls import AccessControlEntry, ResourcePattern
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.scram_credentials import make_credential, parse_credential

ORDERS = UUID(int=7)
GONE = UUID(int=8)


def test_a_store_is_made_that_a_broker_can_start_with(tmp_path: Path) -> None:
    topic = ImportedTopic("orders", ORDERS, (4, -1), {"retention.ms": "-1"})

    write_store(str(tmp_path), node_id=3, cluster_id="cluster", topics=[topic], producer_id_max=1234)

    store = SqliteTree(str(tmp_path / "ottla.metadata.db"))
    store.open()
    image = load_image(store.subtree("/"))
    block = store.get(tree.PRODUCER_ID_BLOCK)
    store.close()
    made = image.topics["orders"]
    assert (image.cluster_id, made.topic_id, image.topic_configs["orders"]) == (
        "cluster",
        ORDERS,
        {"retention.ms": "-1"},
    )
    assert [partition.leader_epoch for partition in made.partitions] == [4 + EPOCHS_SKIPPED, EPOCHS_SKIPPED]
    assert {(partition.leader, partition.isr) for partition in made.partitions} == {(NO_LEADER, (3,))}
    assert block is not None
    assert tree.decode_producer_id_block(block.data).block_end > 1234


def test_zookeeper_commands_make_parents_first_and_quote_the_json(tmp_path: Path) -> None:
    topic = ImportedTopic("orders", ORDERS, (0,), {})
    write_store(str(tmp_path), node_id=1, cluster_id="cluster", topics=[topic], producer_id_max=-1)

    lines = export_commands(str(tmp_path), [])

    paths = [line.split()[1] for line in lines]
    assert len(set(paths)) == len(paths)
    for path in paths:
        parent = path.rpartition("/")[0]
        assert parent == "" or paths.index(parent) < paths.index(path)
    assert any(line.startswith('create /brokers/topics/orders \'{"version":3') for line in lines)


def test_zookeeper_commands_have_no_plain_passwords_of_brokers(tmp_path: Path) -> None:
    """Kafka 3.9 ignores them, and all clients of ZooKeeper could read them."""
    write_store(str(tmp_path), node_id=1, cluster_id="cluster", topics=[], producer_id_max=-1)
    encrypted = encode_password("geheim", "the secret", Encoding())
    jaas = "listener.name.clients.plain.sasl.jaas.config"
    config = {jaas: encrypted, "listener.name.clients.ssl.key.password": "geheim", "num.io.threads": "8"}
    store = SqliteTree(str(tmp_path / FILE_NAME))
    store.open()
    store.multi([CreateNode("/config/brokers/1", tree.encode_config(config))])
    store.close()
    (line,) = [line for line in export_commands(str(tmp_path), []) if line.startswith("create /config/brokers/1 ")]
    assert "geheim" not in line
    assert encrypted in line
    assert '"num.io.threads":"8"' in line


def frame(record: object, version: int = 0) -> bytes:
    kind = next(kind for kind, made in METADATA_RECORDS.items() if isinstance(record, made))
    return bytes([1, kind, version]) + bytes(encode(record, version))


def write_batches(path: Path, first_offset: int, *values: bytes) -> None:
    batch = build_batch([Record(-1, 0, None, value) for value in values])
    write_offsets(memoryview(batch), 0, first_offset, 1)
    path.write_bytes(bytes(batch))


def partition(topic_id: UUID, number: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=[1],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=2,
        partition_epoch=3,
        directories=[UUID(int=1)],
    )


def token(token_id: str, expiry_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner="User:a",
        requester="User:b",
        renewers=["User:c"],
        issue_timestamp=1,
        max_timestamp=9,
        expiration_timestamp=expiry_ms,
        token_id=token_id,
    )


def test_log_is_read_from_the_end_of_the_newest_snapshot(tmp_path: Path) -> None:
    write_batches(
        tmp_path / "00000000000000000010-0000000001.checkpoint",
        0,
        frame(TopicRecord(name="orders", topic_id=ORDERS)),
        frame(partition(ORDERS, 0), 1),
        frame(ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5")),
        frame(ConfigRecord(resource_type=4, resource_name="1", name="retention.ms", value="6")),
        frame(ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=3000)),
        *(frame(token(name, 5)) for name in ("kept", "gone")),
    )
    write_batches(
        tmp_path / "00000000000000000010.log",
        10,
        frame(partition(ORDERS, 1), 1),
        frame(TopicRecord(name="gone", topic_id=GONE)),
        frame(ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value=None)),
        frame(ConfigRecord(resource_type=2, resource_name="orders", name="segment.ms", value="7")),
        b"\x01\x63\x00of a kind that is unknown!!",
        frame(RemoveTopicRecord(topic_id=GONE)),
        frame(token("kept", 6)),
        frame(RemoveDelegationTokenRecord(token_id="gone")),
    )

    found = read_kraft_log(str(tmp_path))

    assert [(topic.name, topic.partition_count) for topic in found.topics.values()] == [("orders", 2)]
    assert found.configs_of("orders") == {"segment.ms": "7"}
    assert found.next_producer_id == 3000
    assert found.tokens == {"kept": DelegationToken("kept", "User:a", "User:b", ("User:c",), 1, 9, 6)}
    rights = ImportedRights({}, {}, tokens=tuple(found.tokens.values()))
    write_store(str(tmp_path), node_id=1, cluster_id="x", topics=[], producer_id_max=-1, rights=rights)
    store = SqliteTree(str(tmp_path / "ottla.metadata.db"))
    store.open()
    assert load_image(store.subtree("/")).delegation_tokens == found.tokens
    store.close()


def rule(number: int, name: str, who: str, operation: int, permission: int = Permission.ALLOW) -> bytes:
    record = AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        pattern_type=PatternType.PREFIXED,
        principal=who,
        host="*",
        operation=operation,
        permission_type=permission,
    )
    return frame(record)


def password(name: str, mechanism: int, text: str) -> bytes:
    made = make_credential("SCRAM-SHA-256", text.encode(), b"salt")
    record = UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )
    return frame(record)


def test_rules_and_passwords_are_those_of_the_last_record(tmp_path: Path) -> None:
    write_batches(
        tmp_path / "00000000000000000000.log",
        0,
        rule(1, "orders", "User:alice", Operation.READ),
        rule(2, "orders", "User:bob", Operation.ALL, Permission.DENY),
        rule(3, "gone", "User:alice", Operation.READ),
        frame(RemoveAccessControlEntryRecord(id=UUID(int=3))),
        password("alice", 1, "old"),
        password("alice", 1, "new"),
        password("bob", 1, "gone"),
        frame(RemoveUserScramCredentialRecord(name="bob", mechanism=1)),
    )

    found = read_kraft_log(str(tmp_path))

    pattern = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.PREFIXED)
    assert found.acls == {
        pattern: {
            AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
            AccessControlEntry("User:bob", "*", Operation.ALL, Permission.DENY),
        }
    }
    credential = parse_credential("SCRAM-SHA-256", found.users["alice"]["SCRAM-SHA-256"])
    assert credential == make_credential("SCRAM-SHA-256", b"new", b"salt")
    assert found.users["bob"] == {}
    assert found.unreadable_records == []


def test_unreadable_acl_is_reported(tmp_path: Path) -> None:
    write_batches(
        tmp_path / "00000000000000000000.log",
        0,
        rule(1, "orders", "User:alice", 99, Permission.DENY),
        b"\x01\x12\x07of a version that is unknown!!",
        rule(2, "orders", "User:alice", Operation.READ),
    )

    found = read_kraft_log(str(tmp_path))

    assert len(found.unreadable_records) == 2
    assert "99 is not a valid Operation" in found.unreadable_records[0]
    assert len(found.rules) == 1


def test_rules_and_users_are_stored_and_handed_over_to_zookeeper(tmp_path: Path) -> None:
    entry = AccessControlEntry("User:O'Brien", "*", Operation.READ, Permission.ALLOW)
    acls = {
        ResourcePattern(ResourceType.GROUP, "my group"): frozenset({entry}),
        ResourcePattern(ResourceType.TOPIC, "o", PatternType.PREFIXED): frozenset({entry}),
    }
    text = make_credential("SCRAM-SHA-256", b"secret", b"salt").to_text()
    rights = ImportedRights(acls, {"alice": {"SCRAM-SHA-256": text}})
    write_store(str(tmp_path), node_id=1, cluster_id="cluster", topics=[], producer_id_max=-1, rights=rights)

    store = SqliteTree(str(tmp_path / "ottla.metadata.db"))
    store.open()
    image = load_image(store.subtree("/"))
    store.close()
    assert (image.acls, image.user_configs) == (acls, {"alice": {"SCRAM-SHA-256": text}})
    lines = export_commands(str(tmp_path), [])
    (group,) = (line for line in lines if line.startswith("create '/kafka-acl/Group/my group' '"))
    assert "User:O\\u0027Brien" in group
    assert any(line.startswith("create /kafka-acl-extended/prefixed/Topic/o '{") for line in lines)
    assert any(line.startswith("create /config/users/alice '{") for line in lines)


def test_rules_that_kafka_could_not_keep_are_not_left_out_in_silence(tmp_path: Path) -> None:
    entry = AccessControlEntry("User:bob", "*", Operation.READ, Permission.DENY)
    rights = ImportedRights({ResourcePattern(ResourceType.GROUP, "a/b"): frozenset({entry})}, {})
    write_store(str(tmp_path), node_id=1, cluster_id="cluster", topics=[], producer_id_max=-1, rights=rights)

    with pytest.raises(UnsupportedByKafkaError, match="names with a slash"):
        export_commands(str(tmp_path), [])


def quota(key: str, value: float, *, remove: bool = False, **names: str | None) -> bytes:
    parts = [QuotaEntityPart(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in names.items()]
    return frame(ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove))


def test_quotas_are_those_of_the_last_record_and_are_kept_beside_passwords(tmp_path: Path) -> None:
    write_batches(
        tmp_path / "00000000000000000000.log",
        0,
        password("alice", 1, "secret"),
        quota("producer_byte_rate", 5.0, user="alice"),
        quota("producer_byte_rate", 1000.0, user="alice"),
        quota("request_percentage", 12.5, client_id=None, user="alice"),
        quota("consumer_byte_rate", 7.0, client_id="my app"),
        quota("consumer_byte_rate", 8.0, client_id="gone"),
        quota("consumer_byte_rate", 0.0, remove=True, client_id="gone"),
        quota("producer_byte_rate", 9.0, user=None),
        quota("connection_creation_rate", 20.0, ip=None),
    )
    found = read_kraft_log(str(tmp_path))
    rights = ImportedRights({}, found.users, found.quotas)
    assert not any(result.error for result in decide_quotas(rights).reply)
    write_store(str(tmp_path), node_id=1, cluster_id="cluster", topics=[], producer_id_max=-1, rights=rights)

    store = SqliteTree(str(tmp_path / "ottla.metadata.db"))
    store.open()
    image = load_image(store.subtree("/"))
    store.close()
    assert image.user_configs["alice"] == {**found.users["alice"], "producer_byte_rate": "1000"}
    assert {path: config for path, config in image.quota_configs.items() if config} == {
        "users/alice/clients/<default>": {"request_percentage": "12.5"},
        "clients/my%20app": {"consumer_byte_rate": "7"},
        "ips/<default>": {"connection_creation_rate": "20"},
    }
    places = [line.split()[1] for line in export_commands(str(tmp_path), []) if " /config/" in line]
    assert places.index("/config/users/alice/clients") < places.index("/config/users/alice/clients/<default>")
    assert {"/config/clients", "/config/ips", "/config/users/<default>"} <= set(places)


def test_invalid_quota_is_reported() -> None:
    rights = ImportedRights({}, {}, {(("ip", "no.such.host"),): {"connection_creation_rate": 5.0}})
    (result,) = decide_quotas(rights).reply
    assert result.message == "no.such.host is not a valid IP or resolvable host."
