"""The tree of nodes inside one SQLite file: blocking, for one thread. `embedded.py` puts it behind the event loop.

Why SQLite: one file, atomic transactions, and no state between "done" and "not done" after kill -9 or a power cut
(write-ahead log, synchronous=FULL: a commit has reached the disk when it returns).

A node's key is (parent path, name): children are one range of the primary key, and so is a whole subtree.
A write that finds the disk full is tried again with room from the reserve beside the file (reserve.py).
The file is marked with an application id and a schema version, so that a foreign or newer file is refused by name.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import quote

from ottla.controller import tree
from ottla.controller.stores import reserve
from ottla.controller.stores.reserve import Reserve
from ottla.controller.stores.store import (
    ANY_VERSION,
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    Outcome,
    Refusal,
    SetNode,
    StoreError,
    StoreFullError,
    StoreOperation,
    StoreUnusableError,
    TransactionRefusedError,
    parent_and_name,
    sequential_path,
)

APPLICATION_ID: Final = 0x4F54544C  # "OTTL", in the header of the file
SCHEMA_VERSION: Final = 1
IN_MEMORY: Final = ":memory:"  # SQLite's name for no file
BUSY_SECONDS_MAX: Final = 5.0
SQLITE_MAGIC: Final = b"SQLite format 3\x00"
FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")  # the second: no room for the memory shared by connections
DAMAGE: Final = ("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB")
RESTORE: Final = (
    "Topics and settings are in this file: restore it from a backup if there is one; to start with empty metadata, "
    "move it and its -wal and -shm files out of the folder."
)
CURES: Final = {
    "SQLITE_CANTOPEN": "Check that its folder exists and that the broker may write there.",
    "SQLITE_READONLY": "Check that the broker may write to it and to its folder.",
    "SQLITE_BUSY": "Another process is using it: stop that process first.",
    "SQLITE_FULL": "Make room on the disk.",
    "SQLITE_IOERR_SHMSIZE": "Make room on the disk.",
}
AFTER_SLASH: Final = "0"  # the character that sorts directly after "/": ends the range of a subtree

SCHEMA: Final = """
CREATE TABLE node (
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL DEFAULT 0,
    created_id INTEGER NOT NULL,
    is_ephemeral INTEGER NOT NULL DEFAULT 0,
    next_sequence INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('transaction', 0);
"""
SELECT_NODE: Final = "SELECT data, version, created_id FROM node WHERE parent = ? AND name = ?"
SELECT_EXISTS: Final = "SELECT 1 FROM node WHERE parent = ? AND name = ?"
INSERT_NODE: Final = "INSERT INTO node (parent, name, data, created_id, is_ephemeral) VALUES (?, ?, ?, ?, ?)"
SELECT_CHILDREN: Final = "SELECT name FROM node WHERE parent = ? ORDER BY name"
SELECT_BELOW: Final = (
    "SELECT parent, name, data, version, created_id FROM node WHERE parent = ? "
    "UNION ALL SELECT * FROM (SELECT parent, name, data, version, created_id FROM node "
    "WHERE parent > ? AND parent < ? ORDER BY parent, name)"
)

R = TypeVar("R")


class SqliteTree:
    """One open file. Every method blocks; every method must be called from the same thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.reserve = Reserve(os.path.splitext(path)[0] + reserve.SUFFIX)
        self._database: sqlite3.Connection | None = None
        self._failure: str | None = None  # why nothing may be written any more

    def __repr__(self) -> str:
        state = "failed" if self._failure else "open" if self._database else "closed"
        return f"<SqliteTree {self.path} {state}>"

    def open(self) -> None:
        """Open or create the file; ephemeral nodes of the process before are gone afterwards."""
        self.reserve.look()
        if self.path != IN_MEMORY:
            # It holds what guesses at passwords can be compared with. What is wrong with it, SQLite says.
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._with_reserve(lambda: self._open(self.path, self._prepare))
        self.reserve.fill()

    def open_to_read(self) -> None:
        """Open a file that exists and write nothing, whether its broker runs or not."""
        # Without a write-ahead log beside it nobody has the file open: "immutable" then leaves no files behind.
        mode = "ro" if os.path.exists(f"{self.path}-wal") else "ro&immutable=1"
        self._open(f"file:{quote(os.path.abspath(self.path))}?mode={mode}", self._check_marks)

    def _open(self, name: str, prepare: Callable[[sqlite3.Connection], None]) -> None:
        check_file_header(self.path)
        try:
            is_uri = name.startswith("file:")
            self._database = sqlite3.connect(name, timeout=BUSY_SECONDS_MAX, isolation_level=None, uri=is_uri)
            prepare(self._database)
        except sqlite3.Error as error:
            self.close()
            raise unusable(self.path, str(error), error_name(error)) from error
        except StoreUnusableError:
            self.close()
            raise

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def get(self, path: str) -> Node | None:
        rows = self._read(SELECT_NODE, parent_and_name(path))
        return Node(*rows[0]) if rows else None

    def children(self, path: str) -> list[str]:
        return [name for (name,) in self._read(SELECT_CHILDREN, (path,))]

    def subtree(self, path: str) -> dict[str, Node]:
        found: dict[str, Node] = {}
        top = self.get(path)
        if top is not None:
            found[path] = top
        stem = path.rstrip("/")  # the root alone ends with a slash
        for parent, name, *node in self._read(SELECT_BELOW, (path, f"{stem}/", stem + AFTER_SLASH)):
            found[f"{parent}/{name}" if parent != "/" else f"/{name}"] = Node(*node)
        return found

    def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        """All or none; on return it is on the disk."""
        if self._failure is not None:
            raise StoreError(self._failure)
        if makes_topics(operations):
            outcomes = self._run(operations)
        else:
            outcomes = self._with_reserve(lambda: self._run(operations))
        self.reserve.fill()
        return outcomes

    def _run(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        database = self._connection
        try:
            return run_transaction(database, operations)
        except sqlite3.Error as error:
            self._note_failure(error)
            kind = StoreFullError if is_full(error) else StoreError
            raise kind(f"{self.path} could not save a change: {error}") from error
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")

    def _with_reserve(self, work: Callable[[], R]) -> R:
        """Try again on a full disk, for as long as the reserve gives room."""
        while True:
            try:
                return work()
            except StoreError as error:
                if not is_full(error.__cause__) or not self.reserve.give_piece():
                    raise

    def _read(self, statement: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self._note_failure(error)
            raise StoreError(f"{self.path} could not be read: {error}") from error

    def _note_failure(self, error: sqlite3.Error) -> None:
        """A full disk may have room later. After an I/O error nobody knows what is on the disk: stop writing."""
        if error_name(error).startswith(DAMAGE) and not is_full(error):
            self._failure = f"{self.path} had an I/O error ({error}): check the disk, then restart the broker"

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            raise StoreError(f"{self.path} is not open")
        return self._database

    def _prepare(self, database: sqlite3.Connection) -> None:
        self._check_marks(database)  # before anything is written, be it only the journal mode of a foreign database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        self._create_schema_if_new(database)
        problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise unusable(self.path, problem)
        if database.execute("SELECT 1 FROM node WHERE is_ephemeral = 1 LIMIT 1").fetchone():
            database.execute("DELETE FROM node WHERE is_ephemeral = 1")

    def _create_schema_if_new(self, database: sqlite3.Connection) -> None:
        """The schema and its marks appear in one transaction, so a file is either empty, ours or foreign."""
        if is_new(database):
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
            database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {marks} COMMIT;")

    def _check_marks(self, database: sqlite3.Connection) -> None:
        if is_new(database):
            return
        application_id = database.execute("PRAGMA application_id").fetchone()[0]
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if application_id != APPLICATION_ID:
            raise StoreUnusableError(
                f"{self.path} is a SQLite database, but not one of ottla's. "
                "Move it away, or give the broker another folder in log.dirs."
            )
        if version != SCHEMA_VERSION:
            raise StoreUnusableError(
                f"{self.path} has schema version {version}; this ottla reads version {SCHEMA_VERSION}. "
                "Start the version of ottla that wrote it, or give the broker another folder in log.dirs."
            )


def error_name(error: BaseException | None) -> str:
    """SQLite's own name for an error."""
    name: str = getattr(error, "sqlite_errorname", "")
    return name


def is_full(error: BaseException | None) -> bool:
    return error_name(error).startswith(FULL)


def makes_topics(operations: Sequence[StoreOperation]) -> bool:
    """Whether a change adds to what is stored: the reserve is for those that make room, or keep the broker running."""
    return any(isinstance(each, CreateNode) and each.path.startswith(f"{tree.BROKER_TOPICS}/") for each in operations)


def is_new(database: sqlite3.Connection) -> bool:
    return not database.execute("SELECT 1 FROM sqlite_master").fetchone()


def check_file_header(path: str) -> None:
    """Refuse what is no SQLite file, before SQLite has a chance to write to it."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(SQLITE_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnusableError(f"{path} cannot be read: {error.strerror}. Check its owner and its mode.") from error
    if start and start != SQLITE_MAGIC:
        raise unusable(path, "file is not a database")


def unusable(path: str, cause: str, code: str = "") -> StoreUnusableError:
    """What is wrong and what to do about it; `code` is SQLite's own name for the error."""
    cure = next((text for name, text in CURES.items() if code.startswith(name)), RESTORE)
    return StoreUnusableError(f"{path} cannot be used as metadata store: {cause}. {cure}")


def run_transaction(database: sqlite3.Connection, operations: Sequence[StoreOperation]) -> list[Outcome]:
    """The caller rolls back when this raises."""
    database.execute("BEGIN IMMEDIATE")
    database.execute("UPDATE counter SET value = value + 1 WHERE name = 'transaction'")
    number: int = database.execute("SELECT value FROM counter WHERE name = 'transaction'").fetchone()[0]
    created = {"/"}
    outcomes = [run_operation(database, operation, number, created) for operation in operations]
    database.execute("COMMIT")
    return outcomes


def run_operation(
    database: sqlite3.Connection, operation: StoreOperation, transaction: int, created: set[str]
) -> Outcome:
    match operation:
        case CreateNode():
            return run_create(database, operation, transaction, created)
        case SetNode():
            return run_set(database, operation)
        case DeleteNode():
            created.discard(operation.path)
            return run_delete(database, operation)
        case CheckNode():
            return Outcome(operation.path, checked_version(database, operation, operation.expected_version))


def run_create(database: sqlite3.Connection, operation: CreateNode, transaction: int, created: set[str]) -> Outcome:
    """`created` are the nodes that this transaction has made: a parent among them need not be looked up."""
    path = operation.path
    parent, _ = parent_and_name(path)
    if parent not in created and not database.execute(SELECT_EXISTS, parent_and_name(parent)).fetchone():
        raise TransactionRefusedError(operation, Refusal.NO_PARENT)
    if operation.is_sequential:
        path = sequential_path(path, take_sequence_number(database, parent))
    row = (*parent_and_name(path), operation.data, transaction, operation.is_ephemeral)
    try:
        database.execute(INSERT_NODE, row)
    except sqlite3.IntegrityError as error:
        raise TransactionRefusedError(operation, Refusal.NODE_EXISTS) from error
    created.add(path)
    return Outcome(path, 0)


def take_sequence_number(database: sqlite3.Connection, parent: str) -> int:
    key = parent_and_name(parent)
    number: int = database.execute("SELECT next_sequence FROM node WHERE parent = ? AND name = ?", key).fetchone()[0]
    database.execute("UPDATE node SET next_sequence = next_sequence + 1 WHERE parent = ? AND name = ?", key)
    return number


def run_set(database: sqlite3.Connection, operation: SetNode) -> Outcome:
    version = checked_version(database, operation, operation.expected_version) + 1
    row = (operation.data, version, *parent_and_name(operation.path))
    database.execute("UPDATE node SET data = ?, version = ? WHERE parent = ? AND name = ?", row)
    return Outcome(operation.path, version)


def run_delete(database: sqlite3.Connection, operation: DeleteNode) -> Outcome:
    version = checked_version(database, operation, operation.expected_version)
    if database.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (operation.path,)).fetchone():
        raise TransactionRefusedError(operation, Refusal.NOT_EMPTY)
    database.execute("DELETE FROM node WHERE parent = ? AND name = ?", parent_and_name(operation.path))
    return Outcome(operation.path, version)


def checked_version(database: sqlite3.Connection, operation: StoreOperation, expected: int) -> int:
    row = database.execute(
        "SELECT version FROM node WHERE parent = ? AND name = ?", parent_and_name(operation.path)
    ).fetchone()
    if row is None:
        raise TransactionRefusedError(operation, Refusal.NO_NODE)
    version: int = row[0]
    if expected not in (ANY_VERSION, version):
        raise TransactionRefusedError(operation, Refusal.BAD_VERSION)
    return version
