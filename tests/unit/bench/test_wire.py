"""Frames and batches of the measuring client, against ottla's and others' reading of the same bytes."""

import struct

from bench import wire
from bench.batches import batch_of, batch_of_bytes, payloads, read_batches
from kafka.record.memory_records import MemoryRecords


def test_a_batch_is_read_by_another_client_library() -> None:
    values = payloads(100)[:3]
    records = MemoryRecords(bytearray(batch_of(values).data))
    batch = records.next_batch()
    assert batch.validate_crc()
    assert [record.value for record in batch] == values


def test_a_batch_fills_its_size_and_not_a_byte_more() -> None:
    batch = batch_of_bytes(64 << 10, 1000)
    assert 0 <= (64 << 10) - len(batch.data) < 1000 + 14
    assert read_batches(batch.data)[0].next_offset == batch.records


def test_stored_batches_are_walked_and_a_cut_one_is_left_out() -> None:
    data = batch_of(payloads(100)[:2]).data
    found = read_batches(data + data[:-1])
    assert [(batch.base_offset, batch.next_offset, batch.checksum_is_right) for batch in found] == [(0, 2, True)]


def test_a_changed_byte_is_seen() -> None:
    data = bytearray(batch_of(payloads(100)[:1]).data)
    data[-5] ^= 1
    assert not read_batches(data)[0].checksum_is_right


def test_payloads_have_the_size_asked_for_and_differ() -> None:
    values = payloads(100)
    assert {len(value) for value in values} == {100}
    assert len(set(values)) == len(values)


def test_the_head_of_a_fetch_answer_tells_error_watermark_and_records() -> None:
    topic = "t"
    head = struct.pack(">ibihi", 1, 0, 0, 0, 0) + b"\2" + b"\2t" + b"\2" + struct.pack(">ihqqq", 0, 0, 7, 7, 0) + b"\0"
    answer = bytearray(head + struct.pack(">i", -1) + wire.unsigned_varint(301) + bytes(300) + b"\0\0\0")
    found = wire.read_fetch_head(answer, topic)
    assert (found.error, found.high_watermark, found.records_bytes) == (0, 7, 300)
    assert found.records_position == len(head) + 4 + 2


def test_metadata_lists_partitions_with_their_leaders() -> None:
    broker = struct.pack(">ih", 1, 4) + b"host" + struct.pack(">ih", 9092, -1)
    partition = struct.pack(">hiiiiii", 0, 3, 1, 1, 1, 1, 1)
    topic = struct.pack(">hh", 0, 1) + b"t" + b"\0" + struct.pack(">i", 1) + partition
    answer = struct.pack(">iii", 1, 0, 1) + broker + struct.pack(">h", 2) + b"id" + struct.pack(">ii", 1, 1) + topic
    assert wire.read_metadata(bytearray(answer)) == (1, [wire.Partition("t", 3, 1)])


def test_a_request_starts_with_its_own_size() -> None:
    for request in (
        wire.produce_request("topic", 0, batch_of(payloads(100)[:1]).data),
        wire.fetch_request("topic", 0, 0, 1 << 20),
        wire.metadata_request(None),
        wire.create_topics_request({"topic": 3}, {"file.delete.delay.ms": "1000"}),
        wire.delete_topics_request(["topic"]),
    ):
        assert int.from_bytes(request[:4], "big") == len(request) - 4
