"""The hand-packed record of a committed offset, compared with the message classes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ottla.groups.coordinator_records import (
    OFFSET_COMMIT,
    OFFSET_COMMIT_VERSION,
    OffsetCommitRecord,
    commit_record,
    decode_plain_commit,
    decode_record,
    encode_record,
    offset_tombstone,
    to_offset_commit,
)
from ottla.protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.schema import ZERO_UUID

TEXTS = some.text(some.characters(exclude_categories=["Cs"]), max_size=150)
INT32 = some.integers(-(2**31), 2**31 - 1)
INT64 = some.integers(-(2**63), 2**63 - 1)
IDS = some.one_of(some.just(ZERO_UUID), some.just(UUID(int=0)), some.uuids())
USUAL = commit_record("group", "topic", 3, 42, 7, "note", 1_700_000_000_000, UUID(int=9))


FIELDS = ("commit_ms", "expire_ms", "group", "leader_epoch", "metadata", "offset", "partition", "topic")


def numbers(found: OffsetCommitRecord | None) -> tuple[object, ...]:
    assert found is not None
    return tuple(getattr(found, name) for name in FIELDS)


@given(TEXTS, TEXTS, INT32, INT64, INT32, TEXTS, INT64, IDS)
def test_it_is_written_and_read_as_the_message_classes_do(
    group: str, topic: str, partition: int, offset: int, epoch: int, metadata: str, time_ms: int, topic_id: UUID
) -> None:
    value = OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=time_ms, topic_id=topic_id
    )
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    written = commit_record(group, topic, partition, offset, epoch, metadata, time_ms, topic_id)
    assert written == encode_record(OFFSET_COMMIT, key, value, OFFSET_COMMIT_VERSION)
    assert written.value is not None
    found = decode_plain_commit(written.key, written.value)
    if len(metadata.encode()) <= 126:
        assert numbers(found) == numbers(to_offset_commit(key, value))
    else:
        assert found is None
    assert offset_tombstone(group, topic, partition) == encode_record(OFFSET_COMMIT, key, None)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_other_versions_are_left_to_the_message_classes(version: int) -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=-1, metadata="", commit_timestamp=8)
    old = encode_record(OFFSET_COMMIT, OffsetCommitKey(group="g", topic="t", partition=0), value, version)
    assert old.value is not None
    assert decode_plain_commit(old.key, old.value) is None
    found = decode_record(old.key, old.value)
    assert found is not None
    assert to_offset_commit(*found[1:]).offset == 5


@given(some.data())
def test_damaged_records_are_decoded_as_by_the_message_classes(data: some.DataObject) -> None:
    """With changed, missing or additional bytes it never decodes a record that the message classes refuse."""
    assert USUAL.value is not None
    key, value = bytearray(USUAL.key), bytearray(USUAL.value)
    for part in (key, value):
        change = data.draw(some.sampled_from(["none", "byte", "cut", "more"]))
        if change == "byte":
            part[data.draw(some.integers(0, len(part) - 1))] = data.draw(some.integers(0, 255))
        elif change == "cut":
            del part[data.draw(some.integers(0, len(part) - 1)) :]
        elif change == "more":
            part.extend(data.draw(some.binary(min_size=1, max_size=3)))
    found = decode_plain_commit(bytes(key), bytes(value))
    if found is not None:
        read = decode_record(bytes(key), bytes(value))
        assert read is not None
        assert read[0] == OFFSET_COMMIT
        assert numbers(found) == numbers(to_offset_commit(*read[1:]))
