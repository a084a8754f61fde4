"""One transaction on the tree of nodes in a SQLite file: ZooKeeper's rules, and a checksum over all nodes.

SQLite checks the structure of its pages, not their contents: after a flipped bit in a topic name the database is valid
but lacks that topic. So the counter table has a checksum over all nodes, which every transaction updates and every
start verifies. It contains the transaction number: versions of ottla that do not know the checksum do not update it,
and then the next start computes it again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

from ottla.controller.stores.store import (
    ANY_VERSION,
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    Outcome,
    Refusal,
    SetNode,
    StoreOperation,
    TransactionRefusedError,
    parent_and_name,
    sequential_path,
)

TRANSACTION: Final = "transaction"  # counter: the number of the last transaction
CHECKSUM: Final = "checksum"  # counter: the transaction that it belongs to (upper 31 bits) and the sum (lower 32)
SUM_BITS: Final = 32
SUM_MASK: Final = (1 << SUM_BITS) - 1
NUMBER_MASK: Final = (1 << 31) - 1

SELECT_NODE: Final = "SELECT data, version, created_id FROM node WHERE parent = ? AND name = ?"
SELECT_EXISTS: Final = "SELECT 1 FROM node WHERE parent = ? AND name = ?"
SELECT_ROWS: Final = "SELECT parent, name, data, version, created_id FROM node"
INSERT_NODE: Final = "INSERT INTO node (parent, name, data, created_id, is_ephemeral) VALUES (?, ?, ?, ?, ?)"
SET_COUNTER: Final = "INSERT OR REPLACE INTO counter (name, value) VALUES (?, ?)"


class SqliteTransaction:
    """An atomic transaction. The caller rolls back if an operation raises."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute("BEGIN IMMEDIATE")
        counters = read_counters(database)
        self.number = counters[TRANSACTION] + 1
        self._sum = counters[CHECKSUM]
        self._created = {"/"}  # nodes of this transaction: a parent among them needs no lookup

    def __repr__(self) -> str:
        return f"<SqliteTransaction {self.number}>"

    def run(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        outcomes = [self._run(operation) for operation in operations]
        counters = ((TRANSACTION, self.number), (CHECKSUM, packed(self.number, self._sum)))
        self._database.executemany(SET_COUNTER, counters)
        self._database.execute("COMMIT")
        return outcomes

    def _run(self, operation: StoreOperation) -> Outcome:
        match operation:
            case CreateNode():
                return self._create(operation)
            case SetNode():
                return self._set(operation)
            case DeleteNode():
                return self._delete(operation)
            case CheckNode():
                return Outcome(operation.path, self._checked(operation, operation.expected_version).version)

    def _create(self, operation: CreateNode) -> Outcome:
        database, path = self._database, operation.path
        parent, _ = parent_and_name(path)
        if parent not in self._created and not database.execute(SELECT_EXISTS, parent_and_name(parent)).fetchone():
            raise TransactionRefusedError(operation, Refusal.NO_PARENT)
        if operation.is_sequential:
            path = sequential_path(path, self._take_sequence_number(parent))
        try:
            row = (*parent_and_name(path), operation.data, self.number, operation.is_ephemeral)
            database.execute(INSERT_NODE, row)
        except sqlite3.IntegrityError as error:
            raise TransactionRefusedError(operation, Refusal.NODE_EXISTS) from error
        self._created.add(path)
        self._sum += node_checksum(*parent_and_name(path), operation.data, 0, self.number)
        return Outcome(path, 0)

    def _take_sequence_number(self, parent: str) -> int:
        database, key = self._database, parent_and_name(parent)
        row = database.execute("SELECT next_sequence FROM node WHERE parent = ? AND name = ?", key).fetchone()
        database.execute("UPDATE node SET next_sequence = next_sequence + 1 WHERE parent = ? AND name = ?", key)
        number: int = row[0]
        return number

    def _set(self, operation: SetNode) -> Outcome:
        before = self._checked(operation, operation.expected_version)
        key, version = parent_and_name(operation.path), before.version + 1
        row = (operation.data, version, *key)
        self._database.execute("UPDATE node SET data = ?, version = ? WHERE parent = ? AND name = ?", row)
        self._sum += node_checksum(*key, operation.data, version, before.created_id)
        self._sum -= node_checksum(*key, before.data, before.version, before.created_id)
        return Outcome(operation.path, version)

    def _delete(self, operation: DeleteNode) -> Outcome:
        self._created.discard(operation.path)
        before = self._checked(operation, operation.expected_version)
        if self._database.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (operation.path,)).fetchone():
            raise TransactionRefusedError(operation, Refusal.NOT_EMPTY)
        key = parent_and_name(operation.path)
        self._database.execute("DELETE FROM node WHERE parent = ? AND name = ?", key)
        self._sum -= node_checksum(*key, before.data, before.version, before.created_id)
        return Outcome(operation.path, before.version)

    def _checked(self, operation: StoreOperation, expected: int) -> Node:
        row = self._database.execute(SELECT_NODE, parent_and_name(operation.path)).fetchone()
        if row is None:
            raise TransactionRefusedError(operation, Refusal.NO_NODE)
        node = Node(*row)
        if expected not in (ANY_VERSION, node.version):
            raise TransactionRefusedError(operation, Refusal.BAD_VERSION)
        return node


def remove_ephemeral_nodes(database: sqlite3.Connection) -> None:
    """Remove those of the previous process, without a new transaction number; add a missing checksum."""
    ephemeral = database.execute(f"{SELECT_ROWS} WHERE is_ephemeral = 1").fetchall()
    counters = read_counters(database)
    number, is_known = counters[TRANSACTION], has_checksum(counters)
    if is_known and not ephemeral:
        return
    database.execute("BEGIN IMMEDIATE")
    database.execute("DELETE FROM node WHERE is_ephemeral = 1")
    total = counters[CHECKSUM] - sum_of(ephemeral) if is_known else sum_of(database.execute(SELECT_ROWS))
    database.execute(SET_COUNTER, (CHECKSUM, packed(number, total)))
    database.execute("COMMIT")


def content_problem(database: sqlite3.Connection) -> str | None:
    """Return the problem if the nodes do not match the checksum; None if they do, or without a checksum."""
    counters = read_counters(database)
    if not isinstance(counters.get(TRANSACTION), int):
        return "the number of its last transaction is missing"
    if not has_checksum(counters):
        return None
    try:
        is_same = sum_of(database.execute(SELECT_ROWS)) & SUM_MASK == counters[CHECKSUM] & SUM_MASK
    except TypeError:  # a flipped bit has changed the type of a column
        is_same = False
    return None if is_same else "its nodes are not those that were written (checksum)"


def read_counters(database: sqlite3.Connection) -> dict[str, int]:
    return dict(database.execute("SELECT name, value FROM counter"))


def has_checksum(counters: dict[str, int]) -> bool:
    """Return whether the checksum belongs to the last transaction."""
    checksum = counters.get(CHECKSUM)
    return isinstance(checksum, int) and checksum >> SUM_BITS == counters[TRANSACTION] & NUMBER_MASK


def packed(number: int, total: int) -> int:
    return (number & NUMBER_MASK) << SUM_BITS | total & SUM_MASK


def sum_of(rows: Iterable[tuple[str, str, bytes, int, int]]) -> int:
    return sum(node_checksum(*row) for row in rows)


def node_checksum(parent: str, name: str, data: bytes, version: int, created_id: int) -> int:
    return crc32(data, crc32(f"{parent}/{name}\0{version}\0{created_id}".encode()))
