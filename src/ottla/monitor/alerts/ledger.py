"""Persistence of alerts and messages in an SQLite file that only its owner can read. Blocking.

Rules:
1. A transition and its messages are written in one transaction, before anything is sent: after a crash no message
   marked as sent is repeated, and none is lost. A crash between sending and marking repeats one message.
2. The file is bounded: the latest KEPT_MAX closed alerts and sent messages are kept.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.monitor.alerts.alert_states import Alert, Event, Transition

KEPT_MAX: Final = 10_000
VERSION: Final = 2
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS alerts (
    id INTEGER PRIMARY KEY, rule TEXT NOT NULL, cluster TEXT NOT NULL, subject TEXT NOT NULL, text TEXT NOT NULL,
    since_ms INTEGER NOT NULL, opened_ms INTEGER NOT NULL, closed_ms INTEGER, is_told INTEGER NOT NULL, channels TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS open_alerts ON alerts (rule, cluster, subject) WHERE closed_ms IS NULL;
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY, channel TEXT NOT NULL, events TEXT NOT NULL, made_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, next_ms INTEGER NOT NULL, done_ms INTEGER, problem TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS waiting_messages ON messages (next_ms) WHERE done_ms IS NULL;
CREATE TABLE IF NOT EXISTS entries (
    kind TEXT NOT NULL, name TEXT NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (kind, name)
);
"""
_FROM_VERSION_1: Final = "ALTER TABLE alerts ADD COLUMN channels TEXT;"


class AlertStoreError(Exception):
    """The file cannot be used; str() is one sentence."""


class Message(NamedTuple):
    """A message to one channel, with several events."""

    id: int
    channel: str
    events: tuple[Event, ...]
    attempts: int


class AlertStore:
    """One file; for one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raises AlertStoreError."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.chmod(path, 0o600)
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise AlertStoreError(f"{path} was written by another version of ottla ({version})")
            if version == 1:
                self._database.executescript(_FROM_VERSION_1)
            self._database.executescript(f"{_TABLES}PRAGMA user_version = {VERSION};")
        except OSError as problem:
            raise AlertStoreError(f"{path}: {(problem.strerror or str(problem)).lower()}") from None
        except sqlite3.Error as problem:
            raise AlertStoreError(f"{path} is not a file of alerts: {problem}") from None

    def open_alerts(self) -> list[Alert]:
        rows = self._database.execute(
            "SELECT rule, cluster, subject, text, since_ms, opened_ms, is_told, channels "
            "FROM alerts WHERE closed_ms IS NULL"
        )
        return [Alert._make((*row[:6], bool(row[6]), _channels(row[7]))) for row in rows]

    def record(self, events: Iterable[Event], messages: Iterable[tuple[str, Sequence[Event]]], now_ms: int) -> None:
        """Persist transitions and the messages that they cause."""
        with closing(self._database.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                for event in events:
                    _write(cursor, event)
                cursor.executemany(
                    "INSERT INTO messages (channel, events, made_ms, next_ms) VALUES (?, ?, ?, ?)",
                    [(channel, _as_json(told), now_ms, now_ms) for channel, told in messages],
                )
                cursor.execute("COMMIT")
            except BaseException:
                cursor.execute("ROLLBACK")
                raise

    def due_messages(self, now_ms: int, limit: int = 20) -> list[Message]:
        rows = self._database.execute(
            "SELECT id, channel, events, attempts FROM messages "
            "WHERE done_ms IS NULL AND next_ms <= ? ORDER BY id LIMIT ?",
            (now_ms, limit),
        )
        return [Message(row[0], row[1], _from_json(row[2]), row[3]) for row in rows]

    def mark_sent(self, message: Message, now_ms: int) -> None:
        self._database.execute("UPDATE messages SET done_ms = ?, problem = '' WHERE id = ?", (now_ms, message.id))

    def mark_failed(self, message: Message, problem: str, next_ms: int | None, now_ms: int) -> None:
        """`next_ms` is None if the message is given up."""
        self._database.execute(
            "UPDATE messages SET attempts = attempts + 1, problem = ?, next_ms = ?, done_ms = ? WHERE id = ?",
            (problem, next_ms or now_ms, None if next_ms is not None else now_ms, message.id),
        )

    def history(self, limit: int, clusters: Sequence[str] = ()) -> list[dict[str, Any]]:
        """The latest alerts, open ones included; of these clusters, or of all."""
        names = ("rule", "cluster", "subject", "text", "since_ms", "opened_ms", "closed_ms", "is_told")
        where = f"WHERE cluster IN ({', '.join('?' * len(clusters))})" if clusters else ""
        query = f"SELECT {', '.join(names)} FROM alerts {where} ORDER BY id DESC LIMIT ?"  # noqa: S608 (our own names)
        rows = self._database.execute(query, (*clusters, limit))
        return [{**dict(zip(names, row, strict=True)), "is_told": bool(row[7])} for row in rows]

    def failed_messages(self, limit: int) -> list[dict[str, Any]]:
        """The latest messages that failed, waiting or given up."""
        names = ("channel", "made_ms", "attempts", "problem", "done_ms")
        query = f"SELECT {', '.join(names)} FROM messages WHERE problem <> '' ORDER BY id DESC LIMIT ?"  # noqa: S608
        return [dict(zip(names, row, strict=True)) for row in self._database.execute(query, (limit,))]

    def prune(self) -> None:
        for table, over in (("alerts", "closed_ms"), ("messages", "done_ms")):
            self._database.execute(
                f"DELETE FROM {table} WHERE {over} IS NOT NULL AND id <= "  # noqa: S608 (our own names)
                f"(SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (KEPT_MAX,),
            )

    def entries(self, kind: str) -> dict[str, str]:
        """Rules, silences or channels created in the console, by name."""
        return dict(self._database.execute("SELECT name, entry FROM entries WHERE kind = ? ORDER BY name", (kind,)))

    def put_entry(self, kind: str, name: str, entry: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (kind, name, entry))

    def drop_entry(self, kind: str, name: str) -> None:
        self._database.execute("DELETE FROM entries WHERE kind = ? AND name = ?", (kind, name))

    def close(self) -> None:
        self._database.close()


def _write(cursor: sqlite3.Cursor, event: Event) -> None:
    alert = event.alert
    if event.step is Transition.OPENED:
        cursor.execute(
            "INSERT OR REPLACE INTO alerts (rule, cluster, subject, text, since_ms, opened_ms, is_told, channels) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*alert[:7], json.dumps(alert.channels)),
        )
        return
    closed_ms = event.at_ms if event.step is Transition.CLOSED else None
    cursor.execute(
        "UPDATE alerts SET closed_ms = ?, is_told = ?, text = ?, channels = ? "
        "WHERE rule = ? AND cluster = ? AND subject = ? AND closed_ms IS NULL",
        (closed_ms, alert.is_told, alert.text, json.dumps(alert.channels), *alert.key),
    )


def _as_json(events: Sequence[Event]) -> str:
    return json.dumps([[event.step, list(event.alert[:7]), event.at_ms] for event in events], ensure_ascii=False)


def _from_json(text: str) -> tuple[Event, ...]:
    # The message names the channel, so the alert's channels are not stored.
    return tuple(Event(Transition(step), Alert(*alert[:7]), at_ms, True) for step, alert, at_ms in json.loads(text))


def _channels(text: str | None) -> tuple[str, ...] | None:
    found = json.loads(text) if text else None
    return tuple(found) if found is not None else None
