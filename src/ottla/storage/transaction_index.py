"""The aborted transactions of a segment, `<base offset>.txnindex`, in Kafka's format: 34 bytes per entry.

    version int16, producer id int64, first offset int64, last offset int64, last stable offset int64
An entry belongs to the segment of its abort marker, whose offset is the last offset; the transaction may start in an
earlier segment. Most segments have no aborted transactions, and no such file.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.storage import files

ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = 34
VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """An aborted transaction, whose records read_committed consumers skip."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # right after the abort


class TransactionIndexError(KafkaError):
    """An index file with invalid content."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.KAFKA_STORAGE_ERROR, message)


class TransactionIndex:
    """All entries of one segment, in the order of their abort markers."""

    def __init__(self, entries: list[AbortedTxn], written: int) -> None:
        self.entries = entries
        self.written = written  # number of entries in the file

    def append(self, entry: AbortedTxn) -> None:
        self.entries.append(entry)

    def write_pending(self, path: str) -> bool:
        """Write pending entries; true if there were any. After an OSError the next call writes them again."""
        if len(self.entries) == self.written:
            return False
        data = b"".join(ENTRY.pack(VERSION, *entry) for entry in self.entries[self.written :])
        with files.open_descriptor(path, files.CREATE_FLAGS) as descriptor:
            files.write_all(descriptor, data, self.written * ENTRY_BYTES)
        self.written = len(self.entries)
        return True

    def cut(self, offset: int, path: str) -> None:
        """Remove the transactions that were aborted at or after this offset, in memory and in the file."""
        self.entries = [entry for entry in self.entries if entry.last_offset < offset]
        if self.written > len(self.entries):
            self.written = len(self.entries)
            with files.open_descriptor(path, files.CREATE_FLAGS) as descriptor:
                files.truncate(descriptor, self.written * ENTRY_BYTES)

    def find(self, from_offset: int, to_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Return the entries that overlap the range, and whether later segments cannot have more of them."""
        found: list[AbortedTxn] = []
        for entry in self.entries:
            if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found, True
        return found, False

    def __repr__(self) -> str:
        return f"<TransactionIndex {len(self.entries)} entries, {self.written} written>"


def load_transaction_index(path: str, base_offset: int) -> TransactionIndex:
    """Return the index of the segment with this base offset; a missing file is an empty index."""
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return TransactionIndex([], 0)
    entries = decode_entries(data, path)
    for before, entry in zip([None, *entries], entries, strict=False):
        if entry.last_offset < base_offset or (before is not None and entry.last_offset <= before.last_offset):
            raise TransactionIndexError(f"{path}: an aborted transaction that ends at {entry.last_offset}")
    return TransactionIndex(entries, len(entries))


def decode_entries(data: bytes, path: str) -> list[AbortedTxn]:
    if len(data) % ENTRY_BYTES:
        raise TransactionIndexError(f"{path}: {len(data)} bytes are not a number of whole entries")
    entries: list[AbortedTxn] = []
    for version, producer_id, first_offset, last_offset, last_stable_offset in ENTRY.iter_unpack(data):
        if version > VERSION or not 0 <= first_offset <= last_offset:
            raise TransactionIndexError(f"{path}: an entry of version {version} from {first_offset} to {last_offset}")
        entries.append(AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset))
    return entries
