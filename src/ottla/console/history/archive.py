"""The SQLite file with the history of the last day; only its owner can read it. Blocking: for one thread.

Rules:
1. The data is expendable: a file that is damaged, or has another version, is replaced by an empty one.
2. The size is bounded. For groups, FINE_MS rounds are kept for an hour and COARSE_MS rounds for a day, 16 bytes per
   group each; for clusters, one point every ten seconds for a day. SQLite reuses the space of deleted rows.
3. Writes are not synced: a power failure may lose the last minutes.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ottla.console.history.group_lags import LagPoint, Round, find_point, pack_round

logger = logging.getLogger(__name__)

FILE: Final = "history.db"
VERSION: Final = 1
FINE_MS: Final = 30_000
COARSE_MS: Final = 300_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
RETENTION_MS: Final = {FINE_MS: HOUR_MS, COARSE_MS: DAY_MS}
_TABLES: Final = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS points (
    series TEXT NOT NULL, at_ms INTEGER NOT NULL, point TEXT NOT NULL, PRIMARY KEY (series, at_ms)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS names (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, seen_ms INTEGER NOT NULL, UNIQUE (cluster, name)
);
CREATE TABLE IF NOT EXISTS rounds (
    cluster TEXT NOT NULL, span_ms INTEGER NOT NULL, at_ms INTEGER NOT NULL, numbers BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS rounds_in_order ON rounds (cluster, span_ms, at_ms);
PRAGMA user_version = {VERSION};
"""


class Archive:
    """One file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be created."""
        self.path = path
        try:
            self._database = self._open()
        except sqlite3.Error as problem:
            logger.warning("%s cannot be used (%s): a new history is started", path, problem)
            for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                each.unlink(missing_ok=True)
            self._database = self._open()

    def __repr__(self) -> str:
        return f"<Archive {self.path}>"

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.chmod(self.path, 0o600)
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise sqlite3.DatabaseError(f"its version is {version}")
            database.executescript(_TABLES)
        except sqlite3.Error:
            database.close()
            raise
        return database

    # ---- clusters

    def points(self, series: str, since_ms: int) -> list[dict[str, float]]:
        """Oldest first; the reader ignores fields that it does not know."""
        rows = self._database.execute(
            "SELECT point FROM points WHERE series = ? AND at_ms >= ? ORDER BY at_ms", (series, since_ms)
        )
        return [json.loads(text) for (text,) in rows]

    def add_points(self, series: str, points: Iterable[dict[str, float]]) -> None:
        self._database.executemany(
            "INSERT OR REPLACE INTO points VALUES (?, ?, ?)",
            [(series, int(point["at_ms"]), json.dumps(point)) for point in points],
        )

    # ---- groups

    def group_ids(self, cluster: str) -> dict[str, int]:
        """The id of each group, by name."""
        return dict(self._database.execute("SELECT name, id FROM names WHERE cluster = ?", (cluster,)))

    def add_group(self, cluster: str, group: str, now_ms: int) -> int:
        made = self._database.execute(
            "INSERT INTO names (cluster, name, seen_ms) VALUES (?, ?, ?)", (cluster, group, now_ms)
        )
        assert made.lastrowid is not None
        return made.lastrowid

    def add_round(self, cluster: str, span_ms: int, at_ms: int, points: Round) -> None:
        self._database.execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", (cluster, span_ms, at_ms, pack_round(points)))

    def group_points(self, cluster: str, group: str, span_ms: int, since_ms: int) -> list[tuple[int, LagPoint]]:
        """The points of one group, oldest first."""
        found = self._database.execute("SELECT id FROM names WHERE cluster = ? AND name = ?", (cluster, group))
        row = found.fetchone()
        if row is None:
            return []
        rounds = self._database.execute(
            "SELECT at_ms, numbers FROM rounds WHERE cluster = ? AND span_ms = ? AND at_ms >= ? ORDER BY at_ms",
            (cluster, span_ms, since_ms),
        )
        points = ((at_ms, find_point(numbers, row[0])) for at_ms, numbers in rounds)
        return [(at_ms, point) for at_ms, point in points if point is not None]

    # ---- transactions and retention

    def begin(self) -> None:
        """Begin a transaction, which ends with `commit` or `rollback`."""
        self._database.execute("BEGIN")

    def commit(self) -> None:
        self._database.execute("COMMIT")

    def rollback(self) -> None:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")

    def mark_seen(self, numbers: Sequence[int], now_ms: int) -> None:
        """Mark groups as existing; `prune` deletes groups that were not marked for a day."""
        self._database.executemany("UPDATE names SET seen_ms = ? WHERE id = ?", [(now_ms, each) for each in numbers])

    def prune(self, now_ms: int) -> None:
        for span_ms, kept_ms in RETENTION_MS.items():
            limits = (span_ms, now_ms - kept_ms)
            self._database.execute("DELETE FROM rounds WHERE span_ms = ? AND at_ms < ?", limits)
        self._database.execute("DELETE FROM points WHERE at_ms < ?", (now_ms - DAY_MS,))
        self._database.execute("DELETE FROM names WHERE seen_ms < ?", (now_ms - DAY_MS - HOUR_MS,))

    def delete_cluster(self, cluster: str) -> None:
        self._database.execute("DELETE FROM points WHERE series = ?", (cluster,))
        self._database.execute("DELETE FROM rounds WHERE cluster = ?", (cluster,))
        self._database.execute("DELETE FROM names WHERE cluster = ?", (cluster,))

    def close(self) -> None:
        self._database.close()
