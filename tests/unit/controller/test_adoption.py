"""The metadata of topics that came from somewhere else, and what KRaft's own log says about them."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from ottla.controller import tree
from ottla.controller.image import NO_LEADER
from ottla.controller.loading import load_image
from ottla.controller.migration.adoption import EPOCHS_SKIPPED, AdoptedTopic, write_store
from ottla.controller.migration.kraft_log import read_kraft_log
from ottla.controller.migration.zookeeper_commands import commands
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.protocol.batches import build_batch, write_offsets
from ottla.protocol.codec import encode
from ottla.protocol.messages.metadata_records import (
    METADATA_RECORDS,
    ConfigRecord,
    DelegationTokenRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.records import Record
from ottla.security.delegation_tokens import DelegationToken

ORDERS = UUID(int=7)
GONE = UUID(int=8)


def test_a_store_is_made_that_a_broker_can_start_with(tmp_path: Path) -> None:
    topic = AdoptedTopic("orders", ORDERS, (4, -1), {"retention.ms": "-1"})

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
    topic = AdoptedTopic("orders", ORDERS, (0,), {})
    write_store(str(tmp_path), node_id=1, cluster_id="cluster", topics=[topic], producer_id_max=-1)

    lines = commands(str(tmp_path))

    paths = [line.split()[1] for line in lines]
    assert len(set(paths)) == len(paths)
    for path in paths:
        parent = path.rpartition("/")[0]
        assert parent == "" or paths.index(parent) < paths.index(path)
    assert any(line.startswith('create /brokers/topics/orders \'{"version":3') for line in lines)


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


def test_the_log_goes_on_where_the_newest_snapshot_ends(tmp_path: Path) -> None:
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
        b"\x01\x63\x00of a kind that nobody knows",
        frame(RemoveTopicRecord(topic_id=GONE)),
        frame(token("kept", 6)),
        frame(RemoveDelegationTokenRecord(token_id="gone")),
    )

    found = read_kraft_log(str(tmp_path))

    assert [(topic.name, topic.partition_count) for topic in found.topics.values()] == [("orders", 2)]
    assert found.configs_of("orders") == {"segment.ms": "7"}
    assert found.next_producer_id == 3000
    assert found.tokens == {"kept": DelegationToken("kept", "User:a", "User:b", ("User:c",), 1, 9, 6)}
    write_store(
        str(tmp_path), node_id=1, cluster_id="x", topics=[], producer_id_max=-1, tokens=list(found.tokens.values())
    )
    store = SqliteTree(str(tmp_path / "ottla.metadata.db"))
    store.open()
    assert load_image(store.subtree("/")).delegation_tokens == found.tokens
    store.close()
