"""Templates of a member's commits, compared with the message classes for the same bytes."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as some

from ottla.groups.commit_template import (
    COMMITS_BETWEEN_ATTEMPTS,
    PARTITIONS_MAX,
    CommitTemplate,
    CommitTemplateCache,
    can_be_template,
)
from ottla.groups.coordinator_records import commit_record, plain_value_suffix
from ottla.protocol.batches import build_batch, build_plain_batch
from ottla.protocol.codec import ProtocolError, decode_whole, encode
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.records import Record

INT32 = some.integers(-(2**31), 2**31 - 1)
INT64 = some.integers(-(2**63), 2**63 - 1)
INDEXES = some.lists(some.integers(0, 2**31 - 1), min_size=1, max_size=5)
TEXTS = some.text(some.characters(exclude_categories=["Cs"]), max_size=150)
VERSIONS = some.integers(6, 10)
TOPIC_ID = UUID(int=77)
Numbers = list[tuple[int, int]]


def request(
    indexes: list[int], numbers: Numbers, group: str = "g", topic: str = "t", metadata: str | None = None
) -> OffsetCommitRequest:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )
        for index, (offset, epoch) in zip(indexes, numbers, strict=True)
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=3,
        member_id="m",
        group_instance_id=None,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=TOPIC_ID, partitions=rows)],
    )


def form_of(first: OffsetCommitRequest, version: int) -> CommitTemplate:
    body = bytes(encode(first, version))
    assert can_be_template(first, version, body)
    return CommitTemplate(first, first.topics[0], version, body)


@given(some.data(), VERSIONS, INDEXES, TEXTS, TEXTS, some.sampled_from([None, ""]))
def test_records_and_answer_are_those_of_the_message_classes(
    data: some.DataObject, version: int, indexes: list[int], group: str, topic: str, metadata: str | None
) -> None:
    pairs = some.lists(some.tuples(INT64, INT32), min_size=len(indexes), max_size=len(indexes))
    form = form_of(request(indexes, data.draw(pairs), group, topic, metadata), version)
    numbers = data.draw(pairs)
    found = form.offset_fields_in(bytes(encode(request(indexes, numbers, group, topic, metadata), version)), version)
    assert found is not None
    assert form.records(found, plain_value_suffix(12, TOPIC_ID)) == [
        commit_record(group, topic, index, offset, epoch, "", 12, TOPIC_ID)
        for index, (offset, epoch) in zip(indexes, numbers, strict=True)
    ]
    (answered,) = decode_whole(OffsetCommitResponse, version, memoryview(form.response_body)).topics
    assert [(row.partition_index, row.error_code) for row in answered.partitions] == [(each, 0) for each in indexes]


@given(some.data(), VERSIONS)
def test_request_that_differs_beyond_its_offsets_does_not_match(data: some.DataObject, version: int) -> None:
    """With changed, missing or additional bytes a request matches only if nothing but offsets has changed."""
    first = request([0, 5], [(1, 2), (3, 4)])
    form = form_of(first, version)
    body = bytearray(encode(first, version))
    for at in data.draw(some.lists(some.integers(0, len(body) - 1), max_size=3)):
        body[at] ^= data.draw(some.integers(1, 255))
    body += data.draw(some.binary(max_size=2))
    found = form.offset_fields_in(bytes(body), version)
    if found is not None:
        other = decode_whole(OffsetCommitRequest, version, memoryview(body))
        (topic,) = other.topics
        pairs = [(row.committed_offset, row.committed_leader_epoch) for row in topic.partitions]
        again = request([0, 5], pairs)
        assert bytes(encode(again, version)) == bytes(body)
        assert [offset.to_bytes(8, "big", signed=True) for offset, _ in pairs] == [each[:8] for each in found]
    assert form.offset_fields_in(bytes(encode(first, version)), version - 1) is None


def test_requests_without_template() -> None:
    usual = request([0], [(1, 2)])
    body = bytes(encode(usual, 9))
    assert can_be_template(usual, 9, body)
    assert not can_be_template(usual, 9, body + b"\0"), "something follows it"
    assert not can_be_template(usual, 5, bytes(encode(usual, 5))), "leader epochs came later"
    others = [request([0], [(1, 2)], metadata="note"), request([], []), request([0], [(1, 2)])]
    others += [request(list(range(PARTITIONS_MAX + 1)), [(1, 2)] * (PARTITIONS_MAX + 1)), request([0], [(1, 2)])]
    others[2].generation_id_or_member_epoch = -1
    others[4].topics *= 2
    assert not any(can_be_template(each, 9, bytes(encode(each, 9))) for each in others)


def test_request_with_an_unknown_tagged_field_is_no_template() -> None:
    usual = request([0], [(1, 2)])
    body = bytes(encode(usual, 9))[:-1] + b"\1\x63\0"
    try:
        decoded = decode_whole(OffsetCommitRequest, 9, memoryview(body))
    except ProtocolError as error:
        raise AssertionError("unknown tagged fields are skipped") from error
    assert not can_be_template(decoded, 9, body)


def test_attempts_are_rare_for_commits_that_never_repeat() -> None:
    habit = CommitTemplateCache()
    looks = [habit.should_build_template() for _ in range(3 * COMMITS_BETWEEN_ATTEMPTS)]
    assert looks == [number % COMMITS_BETWEEN_ATTEMPTS == 0 for number in range(3 * COMMITS_BETWEEN_ATTEMPTS)]
    habit.is_used = True
    assert [habit.should_build_template(), habit.should_build_template(), habit.should_build_template()] == [
        True,
        False,
        False,
    ]


RECORDS = some.lists(some.tuples(some.binary(max_size=300), some.none() | some.binary(max_size=300)), min_size=1)


@given(RECORDS, some.integers(0, 2**50), some.sampled_from([0, 1, 4]), INT64, some.booleans())
def test_a_plain_batch_is_a_batch(
    records: list[tuple[bytes, bytes | None]], time_ms: int, codec: int, producer_id: int, is_transactional: bool
) -> None:
    stored = [Record(-1, time_ms, key, value, ()) for key, value in records]
    whose = {"codec": codec, "producer_id": producer_id, "producer_epoch": 3, "is_transactional": is_transactional}
    assert build_plain_batch(records, time_ms, **whose) == build_batch(stored, **whose)  # type: ignore[arg-type]
