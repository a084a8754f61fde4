"""Record batches of a fetch response: damage, transactions, chunks."""

from __future__ import annotations

import struct

import pytest

from ottla.operations import fetched_batches
from ottla.operations.fetched_batches import FetchedDataError, offset_after, record_chunks
from ottla.protocol.batches import ABORT_MARKER, COMMIT_MARKER, assemble_batch, build_batch, read_batch_header
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.records import Record


def batch(first: int, count: int, producer: int = -1, codec: int = 0) -> bytes:
    records = [Record(-1, 0, None, b"v%d" % number) for number in range(first, first + count)]
    return bytes(
        build_batch(records, base_offset=first, producer_id=producer, is_transactional=producer >= 0, codec=codec)
    )


def marker(offset: int, producer: int, kind: int) -> bytes:
    record = Record(-1, 0, struct.pack(">hh", 0, kind), bytes(6))
    made = build_batch([record], base_offset=offset, producer_id=producer, is_transactional=True, is_control=True)
    return bytes(made)


def spans(log: bytes, first: int = 0, stop: int = 10**9, aborted: list[AbortedTransaction] | None = None) -> list[int]:
    """The base offsets of the batches whose records count."""
    return [span.base_offset for piece in record_chunks(log, "t-0", first, stop, aborted or []) for span in piece.spans]


def test_batches_outside_the_range_are_left_out() -> None:
    log = batch(0, 5) + batch(5, 5) + batch(10, 5)
    assert spans(log, 5, 10) == [5]
    assert spans(log, 4, 11) == [0, 5, 10]
    assert [piece.next_offset for piece in record_chunks(log, "t-0", 5, 10)] == [10]


def test_a_batch_that_is_cut_off_does_not_count() -> None:
    log = batch(0, 5) + batch(5, 5)[:-1]
    assert spans(log) == [0]
    assert offset_after(log, "t-0") == 5
    assert offset_after(log[:40], "t-0") is None


def test_markers_are_no_records_but_are_passed() -> None:
    log = marker(0, 7, COMMIT_MARKER)
    (piece,) = record_chunks(log, "t-0", 0, 9)
    assert (piece.spans, piece.next_offset) == ([], 1)


def test_records_of_aborted_transactions_are_left_out() -> None:
    log = b"".join(
        [
            batch(0, 2, producer=1),
            batch(2, 2, producer=2),
            batch(4, 1),
            marker(5, 1, ABORT_MARKER),
            marker(6, 2, COMMIT_MARKER),
            batch(7, 2, producer=1),  # its next transaction is a good one
            marker(9, 1, COMMIT_MARKER),
        ]
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    assert spans(log, aborted=aborted) == [2, 4, 7]
    assert spans(log) == [0, 2, 4, 7]


def test_a_wrong_checksum_names_the_batch() -> None:
    damaged = bytearray(batch(0, 3) + batch(3, 3))
    damaged[-1] ^= 1
    with pytest.raises(FetchedDataError, match="t-0: the checksum of the record batch at offset 3 is wrong"):
        spans(bytes(damaged))


def test_old_formats_are_refused_with_a_remedy() -> None:
    old = bytearray(batch(0, 3))
    old[16] = 1
    with pytest.raises(FetchedDataError, match="JVM connector"):
        spans(bytes(old))


def test_damaged_compression_names_the_batch() -> None:
    header = read_batch_header(batch(8, 3, codec=4))
    with pytest.raises(FetchedDataError, match="t-0, record batch at offset 8: corrupt zstd data"):
        spans(bytes(assemble_batch(header, b"nonsense")))


def test_much_data_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_batches, "CHUNK_BYTES_MAX", 100)
    log = b"".join(batch(number * 5, 5, codec=number % 2) for number in range(6))
    found = list(record_chunks(log, "t-0", 0, 30))
    assert len(found) > 1
    assert [span.base_offset for piece in found for span in piece.spans] == [0, 5, 10, 15, 20, 25]
    assert found[-1].next_offset == 30
