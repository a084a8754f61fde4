"""Batches, records and indexes as lines. For comparisons with Kafka's own tool see conformance/test_dump_log.py."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ottla.cli.commands import dump_log
from ottla.cli.kafka import dump_log as dump_log_kafka
from ottla.cli.log_dump import (
    Batch,
    Findings,
    SegmentWalk,
    base_offset_of,
    batch_line,
    check_offset_index,
    check_time_index,
    record_line,
    snapshot_lines,
    walk_offset_index,
    walk_time_index,
)
from ottla.operations.errors import OperationError
from ottla.operations.records.decoders import class_decoder, decode_offsets, decode_transactions
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage.producer_state import SnapshotError

NAME = "00000000000000000005"


def written(folder: Path, *batches: bytes | bytearray) -> Path:
    path = folder / f"{NAME}.log"
    path.write_bytes(b"".join(batches))
    return path


def batches_of(path: Path, bytes_max: int | None = None) -> list[Batch]:
    with open(path, "rb") as file:
        return list(SegmentWalk(file, path.name, 0, bytes_max))


def two_batches() -> tuple[bytearray, bytearray]:
    first = build_batch([Record(-1, 100, b"k", b"v"), Record(-1, 101, None, None)], base_offset=5)
    return first, build_batch([Record(-1, 200, b"", b"", (("h", b"x"),))], base_offset=7, codec=1)


def test_a_batch_is_one_line(tmp_path: Path) -> None:
    batch = batches_of(written(tmp_path, *two_batches()))[0]
    assert batch_line(batch) == (
        "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: -1 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: 101 size: {batch.header.batch_bytes} magic: 2 compresscodec: none "
        f"crc: {batch.header.crc} isvalid: true"
    )


def test_a_record_is_one_line(tmp_path: Path) -> None:
    first, second = batches_of(written(tmp_path, *two_batches()))
    decoder = class_decoder("StringDecoder", "StringDecoder")
    lines = [record_line(batch, record, decoder, True, str) for batch in (first, second) for record in batch.records()]
    assert lines == [
        "| offset: 5 CreateTime: 100 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [] key: k payload: v",
        "| offset: 6 CreateTime: 101 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []",
        "| offset: 7 CreateTime: 200 keySize: 0 valueSize: 0 sequence: -1 headerKeys: [h] key:  payload: ",
    ]
    assert [record_line(first, record, decoder, False, str) for record in first.records()] == [
        "| key: k payload: v",
        "",
    ]


def test_untrusted_data_is_escaped_for_a_terminal(tmp_path: Path) -> None:
    (batch,) = batches_of(written(tmp_path, build_batch([Record(-1, 1, b"K", b"V", (("H", None),))])))
    (record,) = batch.records()
    line = record_line(batch, record, class_decoder("StringDecoder", "StringDecoder"), True, str.lower)
    assert line.endswith("headerKeys: [h] key: k payload: v")


def test_a_transaction_marker_is_printed(tmp_path: Path) -> None:
    marker = Record(-1, 1, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x07")
    data = build_batch([marker], is_control=True, is_transactional=True, producer_id=3, producer_epoch=0)
    (batch,) = batches_of(written(tmp_path, data))
    line = record_line(batch, next(batch.records()), None, True, str)
    assert line.endswith("endTxnMarker: COMMIT coordinatorEpoch: 7")


def test_reading_stops_at_the_limit_and_at_a_torn_batch(tmp_path: Path) -> None:
    first, second = two_batches()
    assert len(batches_of(written(tmp_path, first, second), len(first) + 20)) == 1
    assert len(batches_of(written(tmp_path, first, second[:-1]))) == 1


def test_a_wrong_length_is_reported_and_costs_no_memory(tmp_path: Path) -> None:
    first, _ = two_batches()
    first[8:12] = struct.pack(">i", 2**31 - 1)
    assert batches_of(written(tmp_path, first)) == []
    first[8:12] = struct.pack(">i", 3)
    with pytest.raises(OperationError, match="Found record size 3 smaller than minimum record overhead"):
        batches_of(written(tmp_path, first))


def test_other_formats_than_magic_2_are_refused(tmp_path: Path) -> None:
    first, _ = two_batches()
    first[16] = 1
    with pytest.raises(OperationError, match="has magic 1"):
        batches_of(written(tmp_path, first))


def test_unreadable_records_are_reported(tmp_path: Path) -> None:
    _, second = two_batches()
    second[-3:] = b"\xff\xff\xff"
    (batch,) = batches_of(written(tmp_path, second))
    assert not batch.is_valid
    with pytest.raises(OperationError, match="the batch at position 0 cannot be read"):
        list(batch.records())


def test_indexes_are_compared_with_the_log(tmp_path: Path) -> None:
    first, second = two_batches()
    written(tmp_path, first, second)
    index, times = tmp_path / f"{NAME}.index", tmp_path / f"{NAME}.timeindex"
    index.write_bytes(struct.pack(">iI", 1, 0) + struct.pack(">iI", 3, len(first)) + bytes(8))
    times.write_bytes(struct.pack(">qi", 101, 1) + struct.pack(">qi", 99, 2) + bytes(12))
    findings = Findings()
    assert [entry.offset for entry in walk_offset_index(index, findings)] == [6, 8]
    assert [entry.timestamp for entry in walk_time_index(times, findings)] == [101, 99]
    assert [line.strip().partition(" /")[0] for line in findings.lines() if "/" not in line] == [
        "Index offset: 8, log offset: 7",
        "Index timestamp: 99, log timestamp: 200",
        "Index timestamp: 99, Previously indexed timestamp: 101",
    ]


def test_an_index_without_a_batch_is_reported(tmp_path: Path) -> None:
    written(tmp_path)
    index = tmp_path / f"{NAME}.index"
    index.write_bytes(struct.pack(">iI", 1, 500))
    with pytest.raises(OperationError, match="points to position 500"):
        list(walk_offset_index(index, Findings()))


def test_the_sanity_check_is_kafkas(tmp_path: Path) -> None:
    index, times = tmp_path / f"{NAME}.index", tmp_path / f"{NAME}.timeindex"
    index.write_bytes(bytes(9))
    with pytest.raises(OperationError, match="neither positive nor a multiple of 8"):
        check_offset_index(index)
    times.write_bytes(struct.pack(">qi", 5, 1) + struct.pack(">qi", 4, 2))
    with pytest.raises(OperationError, match="the last timestamp is 4 which is less than the first timestamp 5"):
        check_time_index(times)
    times.write_bytes(struct.pack(">qi", 5, -1))
    with pytest.raises(OperationError, match="the last offset is 4 which is less than the first offset 5"):
        check_time_index(times)


def test_names_say_the_first_offset(tmp_path: Path) -> None:
    assert base_offset_of(Path(f"{NAME}.log")) == 5
    with pytest.raises(OperationError, match="twenty digits"):
        base_offset_of(Path("orders.log"))


def test_damaged_snapshots_are_reported(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.snapshot"
    for data, words in ((b"\0", "at least"), (bytes(10), "unknown file version 0"), (b"\0\1" + bytes(9), "CRC is no")):
        path.write_bytes(data)
        with pytest.raises(SnapshotError, match=words):
            list(snapshot_lines(path))


def test_records_of_internal_topics_are_json() -> None:
    key = b"\x00\x00\x00\x02id"
    assert decode_transactions(Record(3, 0, key, None)) == ('{"type":"0","data":{"transactionalId":"id"}}', "<DELETE>")
    assert decode_transactions(Record(3, 0, b"\x00\x09", b"")).key == "Unknown record type 9 at offset 3, skipping."
    shown = decode_offsets(Record(3, 0, b"\x00\x02\x00\x01g", b"\x00\x63")).key
    assert shown is not None
    assert shown.startswith("Error at offset 3, skipping. ")
    with pytest.raises(OperationError, match=r"message had a missing key"):
        decode_offsets(Record(3, 0, None, None))


def test_members_of_a_group_are_spelled_out_where_they_can_be() -> None:
    subscription = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
    member = (
        b"\x00\x01m\x00\x01c\x00\x01h\x00\x00\x00\x05"
        + struct.pack(">i", len(subscription))
        + subscription
        + b"\x00\x00\x00\x01\x7f"
    )
    value = b"\x00\x00\x00\x08consumer\x00\x00\x00\x01\xff\xff\xff\xff\x00\x00\x00\x01" + member
    shown = decode_offsets(Record(0, 0, b"\x00\x02\x00\x01g", value)).value
    assert shown is not None
    assert '"subscription":{"topics":["t"],"userData":null},"assignment":"fw=="' in shown


@pytest.mark.parametrize("run", [dump_log.run, lambda words: dump_log_kafka.run(["--files", *words])])
def test_a_missing_file_is_reported_before_its_name_is_checked(run, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"nope\.log does not exist$"):
        run([str(tmp_path / "nope.log")])
