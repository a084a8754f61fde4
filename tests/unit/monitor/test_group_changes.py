"""Records of `__consumer_offsets`, written as brokers write them."""

import random
import struct
from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.monitor.group_changes import ClassicGroup, CommittedOffset, MemberChange, apply_change, read_change
from ottla.monitor.lag_evaluation import Commit
from ottla.monitor.offset_store import ClassicMember, OffsetStore, TopicFacts
from ottla.protocol.codec import encode
from ottla.protocol.messages import consumer_groups, coordinator_records
from ottla.protocol.messages.consumer_groups import Assignment, OwnedPartitions, write_versioned

PARTITION = TopicPartition("orders", 3)


def numbered(number: int, message: object, version: int) -> bytes:
    return struct.pack(">h", number) + bytes(encode(message, version))


def offset_key(kind: int = 1) -> bytes:
    return numbered(kind, coordinator_records.OffsetCommitKey(group="billing", topic="orders", partition=3), 0)


def offset_value(version: int) -> bytes:
    value = coordinator_records.OffsetCommitValue(offset=42, metadata="", commit_timestamp=1_700_000_000_000)
    return numbered(version, value, version)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("kind", [0, 1])
def test_offsets_in_every_version(kind: int, version: int) -> None:
    found = read_change(offset_key(kind), offset_value(version), 9)
    assert found == CommittedOffset("billing", PARTITION, Commit(42, 1_700_000_000_000, None, 9))


def test_a_deleted_offset() -> None:
    assert read_change(offset_key(), None, 9) == CommittedOffset("billing", PARTITION, None)


@pytest.mark.parametrize("version", range(5))
def test_a_classic_group(version: int) -> None:
    assigned = Assignment(assigned_partitions=[OwnedPartitions(topic="orders", partitions=[3])])
    member = coordinator_records.MemberMetadata(
        member_id="m",
        client_id="client",
        client_host="/10.0.0.7",
        session_timeout=1,
        subscription=b"",
        assignment=write_versioned(assigned, 0),
    )
    empty = coordinator_records.MemberMetadata(
        member_id="n", client_id="idle", client_host="/h", session_timeout=1, subscription=b"", assignment=b"\x00"
    )
    value = coordinator_records.GroupMetadataValue(
        protocol_type=consumer_groups.CONSUMER, generation=1, protocol="range", leader="m", members=[member, empty]
    )
    key = numbered(2, coordinator_records.GroupMetadataKey(group="billing"), 0)
    found = read_change(key, numbered(version, value, version), 0)
    assert found == ClassicGroup(
        "billing", [ClassicMember("client", "/10.0.0.7", [PARTITION]), ClassicMember("idle", "/h", [])]
    )
    assert read_change(key, None, 0) == ClassicGroup("billing", ())


def test_groups_of_others_have_no_partitions() -> None:
    value = coordinator_records.GroupMetadataValue(
        protocol_type="connect", generation=1, protocol="x", leader="m", members=[]
    )
    key = numbered(2, coordinator_records.GroupMetadataKey(group="connect-cluster"), 0)
    assert read_change(key, numbered(4, value, 4), 0) is None


def test_members_of_the_new_protocol() -> None:
    member = coordinator_records.ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="client",
        client_host="/10.0.0.7",
        subscribed_topic_names=["orders"],
        subscribed_topic_regex=None,
        server_assignor=None,
    )
    key = numbered(5, coordinator_records.ConsumerGroupMemberMetadataKey(group_id="billing", member_id="m"), 0)
    assert read_change(key, numbered(0, member, 0), 0) == MemberChange("billing", "m", client=("client", "/10.0.0.7"))
    assert read_change(key, None, 0) == MemberChange("billing", "m", has_left=True)
    topic = UUID(int=7)
    assigned = coordinator_records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=[coordinator_records.CurrentPartitions(topic_id=topic, partitions=[0, 3])],
        partitions_pending_revocation=[],
    )
    key = numbered(8, coordinator_records.ConsumerGroupCurrentMemberAssignmentKey(group_id="billing", member_id="m"), 0)
    found = read_change(key, numbered(0, assigned, 0), 0)
    assert found == MemberChange("billing", "m", assigned=[(topic, 0), (topic, 3)])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b""),
        (b"\x00", b"x"),
        (struct.pack(">h", 77), b"x"),
        (struct.pack(">h", -1), b"x"),
        (offset_key()[:7], offset_value(3)),
        (offset_key(), b""),
        (offset_key(), struct.pack(">h", 9)),
        (offset_key(), offset_value(3)[:9]),
    ],
)
def test_damaged_and_unknown_records_are_ignored(key: bytes | None, value: bytes | None) -> None:
    assert read_change(key, value, 0) is None


def test_no_bytes_stop_the_reader() -> None:
    chance = random.Random(1)
    for _ in range(3_000):
        key = struct.pack(">h", chance.choice([0, 1, 2, 5, 8])) + chance.randbytes(chance.randrange(40))
        read_change(key, struct.pack(">h", chance.randrange(5)) + chance.randbytes(chance.randrange(60)), 0)


def test_changes_reach_the_store() -> None:
    store = OffsetStore("default")
    store.set_topics({"orders": TopicFacts(UUID(int=1), 4)})
    now_ms = 1_700_000_000_000
    for change in (
        CommittedOffset("billing", PARTITION, Commit(1, now_ms, None, 0)),
        ClassicGroup("billing", [ClassicMember("c", "/h", [PARTITION])]),
        MemberChange("billing", "m", client=("d", "/i")),
    ):
        apply_change(store, change, now_ms)
    assert store.owners("billing") == {PARTITION: ("c", "/h")}
    apply_change(store, CommittedOffset("billing", PARTITION, None), now_ms)
    assert store.groups == {}
