"""The tree of nodes in one SQLite file: blocking, for a single thread. `embedded.py` makes it asynchronous.

SQLite provides a single file and atomic transactions that survive kill -9 and power cuts (write-ahead log,
synchronous=FULL: a commit is durable when it returns).

The key of a node is (parent path, name): children are one range of the primary key, and so is a whole subtree. A write
that finds the disk full is repeated with space from the reserve (reserve.py). The file has an application id and a
schema version, so foreign and newer files are rejected.
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
from ottla.controller.stores.sqlite_transaction import (
    SELECT_NODE,
    TRANSACTION,
    SqliteTransaction,
    content_problem,
    read_counters,
    remove_ephemeral_nodes,
)
from ottla.controller.stores.store import (
    CreateNode,
    Node,
    Outcome,
    StoreError,
    StoreFullError,
    StoreOperation,
    StoreUnusableError,
    parent_and_name,
)

APPLICATION_ID: Final = 0x4F54544C  # "OTTL", in the header of the file
SCHEMA_VERSION: Final = 1
IN_MEMORY: Final = ":memory:"  # SQLite's name for no file
BUSY_SECONDS_MAX: Final = 5.0
SQLITE_MAGIC: Final = b"SQLite format 3\x00"
FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")  # the second: no space for the memory shared by connections
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
SELECT_CHILDREN: Final = "SELECT name FROM node WHERE parent = ? ORDER BY name"
SELECT_BELOW: Final = (
    "SELECT parent, name, data, version, created_id FROM node WHERE parent = ? "
    "UNION ALL SELECT * FROM (SELECT parent, name, data, version, created_id FROM node "
    "WHERE parent > ? AND parent < ? ORDER BY parent, name)"
)

R = TypeVar("R")
StoreCheck = Callable[["SqliteTree | None"], None]
"""Checks a read-only store, or None if it is empty; raises if a start with it would do harm."""


class SqliteTree:
    """One open file. Every method blocks; every method must be called from the same thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.reserve = Reserve(os.path.splitext(path)[0] + reserve.SUFFIX)
        self._database: sqlite3.Connection | None = None
        self._failure: str | None = None  # the reason why the store must no longer be written
        self.last_transaction = 0  # the number of the last durable transaction

    def __repr__(self) -> str:
        state = "failed" if self._failure else "open" if self._database else "closed"
        return f"<SqliteTree {self.path} {state}>"

    def open(self, check: StoreCheck | None = None) -> None:
        """Open or create the file, and remove the ephemeral nodes of the previous process."""
        self.reserve.look()
        if self.path != IN_MEMORY:
            self._examine(check)
            # Mode 0600, because the file has password hashes. SQLite reports any errors.
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._with_reserve(lambda: self._open(self.path, self._prepare))
        self.checkpoint()
        self.reserve.fill()

    def _examine(self, check: StoreCheck | None) -> None:
        """Check the file before any change: opening a store discards a write-ahead log that does not match it."""
        if is_blank(self.path):
            if not is_blank(f"{self.path}-wal"):
                raise unusable(self.path, f"it is empty or missing, but {self.path}-wal is not")
            if check is not None:
                check(None)
            return
        self.open_to_read()
        try:
            if self.has_nodes:
                self._verify(self._connection)
            if check is not None:
                check(self if self.has_nodes else None)
        finally:
            self.close()

    def open_to_read(self) -> None:
        """Open an existing file without any write, whether its broker runs or not."""
        # Without a write-ahead log no process has the file open, and "immutable" avoids creating further files.
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

    @property
    def has_nodes(self) -> bool:
        """Whether the schema exists: an interrupted start leaves a database without one."""
        return not is_new(self._connection)

    def checkpoint(self) -> bool:
        """Copy the write-ahead log into the file and truncate it, so the file alone has all changes.

        Does not wait for readers; returns False if one of them, or a full disk, has prevented it.
        """
        try:
            self._connection.execute("PRAGMA busy_timeout = 0")
            (is_busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS_MAX * 1000)}")
        except sqlite3.Error as error:
            self._note_failure(error)
            return self._failure is not None
        return not is_busy

    def sync(self) -> None:
        """Make the readable state durable: the write-ahead log of a killed process may not be on the disk."""
        for path in (self.path, f"{self.path}-wal"):
            if os.path.exists(path):
                sync_file(path)

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
        stem = path.rstrip("/")  # only the root ends with a slash
        for parent, name, *node in self._read(SELECT_BELOW, (path, f"{stem}/", stem + AFTER_SLASH)):
            found[f"{parent}/{name}" if parent != "/" else f"/{name}"] = Node(*node)
        return found

    def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        """Execute all of the operations or none; they are durable on return."""
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
            transaction = SqliteTransaction(database)
            outcomes = transaction.run(operations)
        except sqlite3.Error as error:
            self._note_failure(error)
            kind = StoreFullError if is_full(error) else StoreError
            raise kind(f"{self.path} could not save a change: {error}") from error
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")
        self.last_transaction = transaction.number
        return outcomes

    def _with_reserve(self, work: Callable[[], R]) -> R:
        """Retry on a full disk while the reserve has space to release."""
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
        """Stop writing after an I/O error, because the state of the disk is unknown.

        A full disk may have space later.
        """
        if error_name(error).startswith(DAMAGE) and not is_full(error):
            self._failure = f"{self.path} had an I/O error ({error}): check the disk, then restart the broker"

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            raise StoreError(f"{self.path} is not open")
        return self._database

    def _prepare(self, database: sqlite3.Connection) -> None:
        self._check_marks(database)  # before any write, even of the journal mode: the database may be foreign
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        self._create_schema_if_new(database)
        remove_ephemeral_nodes(database)
        self.last_transaction = read_counters(database)[TRANSACTION]

    def _verify(self, database: sqlite3.Connection) -> None:
        """Verify the pages with SQLite's quick check, and the nodes with their checksum."""
        try:
            problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem == "ok":
                problem = content_problem(database)
            if problem is None:
                self.last_transaction = read_counters(database)[TRANSACTION]
        except sqlite3.Error as error:
            raise unusable(self.path, str(error), error_name(error)) from error
        if problem is not None:
            raise unusable(self.path, problem)

    def _create_schema_if_new(self, database: sqlite3.Connection) -> None:
        """Create schema, application id and version in one transaction, so a file is either empty, valid or foreign."""
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
                f"{self.path} is a SQLite database, but not one of ottla. "
                "Move it away, or give the broker another folder in log.dirs."
            )
        if version != SCHEMA_VERSION:
            raise StoreUnusableError(
                f"{self.path} has schema version {version}; this ottla reads version {SCHEMA_VERSION}. "
                "Start the version of ottla that wrote it, or give the broker another folder in log.dirs."
            )


def error_name(error: BaseException | None) -> str:
    """Return SQLite's symbolic name of an error."""
    name: str = getattr(error, "sqlite_errorname", "")
    return name


def is_full(error: BaseException | None) -> bool:
    return error_name(error).startswith(FULL)


def makes_topics(operations: Sequence[StoreOperation]) -> bool:
    """Return whether a change creates topics: the reserve is for changes that free space or keep the broker running."""
    return any(isinstance(each, CreateNode) and each.path.startswith(f"{tree.BROKER_TOPICS}/") for each in operations)


def is_new(database: sqlite3.Connection) -> bool:
    return not database.execute("SELECT 1 FROM sqlite_master").fetchone()


def sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def is_blank(path: str) -> bool:
    """Return whether the file is missing or empty. For a directory in its place SQLite reports the error."""
    return not os.path.exists(path) or os.path.getsize(path) == 0


def check_file_header(path: str) -> None:
    """Reject a file that is not a SQLite database before SQLite can write to it."""
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
    """Return the error with its cause and solution; `code` is SQLite's symbolic name."""
    cure = next((text for name, text in CURES.items() if code.startswith(name)), RESTORE)
    return StoreUnusableError(f"{path} cannot be used as metadata store: {cause}. {cure}")
