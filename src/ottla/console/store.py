"""The SQLite file of the console: clusters, people, tokens, the audit trail. Only its owner can read it.

One thread owns the connection; the event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from ottla.console.auth.rights import Grant
from ottla.console.clusters.cluster import ClusterAddress
from ottla.console.clusters.metrics import MetricAddresses, parse_addresses
from ottla.console.reassignment.runs import Run

DATABASE_FILE = "console.db"
AUDIT_ROWS_MAX = 10_000
# The outcome of a change: one of these words, alone or before ": ", or an error code with its message.
BEGUN = "begun"  # the end was not recorded: the console was killed meanwhile, or the disk failed
DONE = "done"
CANCELLED = "cancelled"
FILE_MODE = 0o600
SCHEMA = """
create table if not exists clusters (name text primary key, bootstrap text not null, properties text not null);
create table if not exists people (name text primary key, password text not null, grants text not null);
create table if not exists tokens (digest text primary key, person text not null, label text not null, at_ms integer);
create table if not exists audit (
    id integer primary key, at_ms integer not null, person text not null, address text not null, cluster text not null,
    action text not null, target text not null, before text, after text, outcome text not null
);
create table if not exists masks (cluster text not null, rule text not null);
create table if not exists runs (cluster text primary key, run text not null);
create table if not exists metrics (cluster text primary key, addresses text not null, login text not null);
"""
T = TypeVar("T")


class Person(NamedTuple):
    """A person who may sign in."""

    name: str
    password: str  # hashed
    grants: list[Grant]


class Token(NamedTuple):
    """A token, known by its digest."""

    digest: str
    person: str
    label: str
    at_ms: int


class AuditEntry(NamedTuple):
    """One row of the audit trail: a change or an attempt, with the values before and after."""

    at_ms: int
    person: str
    address: str
    cluster: str
    action: str
    target: str
    before: str | None
    after: str | None
    outcome: str


class Store:
    """The file. `run` calls a method of `Tables` in the thread that owns the connection."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="console-store")
        self.tables = self.thread.submit(Tables, path).result()

    def __repr__(self) -> str:
        return f"<Store {self.path}>"

    async def run(self, method: Callable[..., T], *arguments: Any) -> T:
        """`await store.run(Tables.clusters)`"""
        return await asyncio.get_running_loop().run_in_executor(self.thread, method, self.tables, *arguments)

    def run_sync(self, method: Callable[..., T], *arguments: Any) -> T:
        """Like `run`, but blocking: for the time before the event loop starts."""
        return self.thread.submit(method, self.tables, *arguments).result()

    def close(self) -> None:
        self.thread.submit(self.tables.connection.close)
        self.thread.shutdown()


class Tables:
    """The tables, for one thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
        os.chmod(path, FILE_MODE)
        self.connection = sqlite3.connect(path, check_same_thread=False)  # Store uses one thread
        self.connection.executescript(SCHEMA)

    def __repr__(self) -> str:
        return "<Tables>"

    def clusters(self) -> list[ClusterAddress]:
        rows = self.connection.execute("select name, bootstrap, properties from clusters order by name")
        return [ClusterAddress(*row) for row in rows]

    def put_cluster(self, address: ClusterAddress) -> None:
        self._execute("insert or replace into clusters values (?, ?, ?)", address[:3])

    def drop_cluster(self, name: str) -> None:
        self._execute("delete from clusters where name = ?", (name,))
        self._execute("delete from runs where cluster = ?", (name,))
        self._execute("delete from metrics where cluster = ?", (name,))

    def metric_addresses(self) -> dict[str, MetricAddresses]:
        """The metrics addresses of each cluster."""
        rows = self.connection.execute("select cluster, addresses, login from metrics")
        return {cluster: parse_addresses(addresses, login) for cluster, addresses, login in rows}

    def put_metric_addresses(self, cluster: str, addresses: MetricAddresses) -> None:
        values = (cluster, addresses.text, addresses.login)
        self._execute("insert or replace into metrics values (?, ?, ?)", values)

    def people(self) -> list[Person]:
        rows = self.connection.execute("select name, password, grants from people order by name")
        return [
            Person(name, password, msgspec.json.decode(grants, type=list[Grant])) for name, password, grants in rows
        ]

    def put_person(self, person: Person) -> None:
        grants = msgspec.json.encode(person.grants).decode()
        self._execute("insert or replace into people values (?, ?, ?)", (person.name, person.password, grants))

    def drop_person(self, name: str) -> None:
        self._execute("delete from people where name = ?", (name,))
        self._execute("delete from tokens where person = ?", (name,))

    def tokens(self) -> list[Token]:
        return [Token(*row) for row in self.connection.execute("select * from tokens order by at_ms")]

    def put_token(self, token: Token) -> None:
        self._execute("insert into tokens values (?, ?, ?, ?)", token)

    def drop_token(self, digest: str) -> None:
        self._execute("delete from tokens where digest = ?", (digest,))

    def masks(self, cluster: str) -> list[str]:
        """The rules that hide message fields, in insertion order."""
        rows = self.connection.execute("select rule from masks where cluster = ? order by rowid", (cluster,))
        return [rule for (rule,) in rows]

    def put_masks(self, cluster: str, rules: list[str]) -> None:
        with self.connection:
            self.connection.execute("delete from masks where cluster = ?", (cluster,))
            self.connection.executemany("insert into masks values (?, ?)", [(cluster, rule) for rule in rules])

    def runs(self) -> dict[str, Run]:
        """The last reassignment run of each cluster, finished or not."""
        rows = self.connection.execute("select cluster, run from runs")
        return {cluster: msgspec.json.decode(run, type=Run) for cluster, run in rows}

    def put_run(self, cluster: str, run: Run) -> None:
        self._execute("insert or replace into runs values (?, ?)", (cluster, msgspec.json.encode(run).decode()))

    def audit(self, limit: int, before_id: int | None = None) -> list[tuple[int, AuditEntry]]:
        rows = self.connection.execute(
            "select * from audit where id < ? order by id desc limit ?", (before_id or 2**62, limit)
        )
        return [(number, AuditEntry(*rest)) for number, *rest in rows]

    def add_audit(self, *entries: AuditEntry) -> int:
        """Append rows; returns the id of the last one."""
        marks = ", ".join("?" * len(AuditEntry._fields))
        with self.connection:
            for entry in entries:
                statement = f"insert into audit values (null, {marks})"  # noqa: S608 (question marks alone)
                number = self.connection.execute(statement, entry).lastrowid
            self.connection.execute("delete from audit where id <= (select max(id) from audit) - ?", (AUDIT_ROWS_MAX,))
        assert number is not None
        return number

    def update_audit(self, number: int, first: AuditEntry, *more: AuditEntry) -> None:
        """Replace the "begun" row with this id by the outcome of the change."""
        columns = ", ".join(f"{name} = ?" for name in AuditEntry._fields)
        with self.connection:
            self.connection.execute(f"update audit set {columns} where id = ?", (*first, number))  # noqa: S608
            if more:
                self.add_audit(*more)

    def _execute(self, statement: str, values: tuple[Any, ...]) -> None:
        with self.connection:
            self.connection.execute(statement, values)
