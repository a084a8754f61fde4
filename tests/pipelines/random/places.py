"""Sinks in plain Python: their form in a file, their expected contents, and their actual contents."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import redis
from confluent_kafka import Producer
from tests.pipelines.random.rows import FRACTIONS, LISTS, TIMES, Condition, Row, Values
from tests.pipelines.random.server import RowServer
from tests.pipelines.sink_helpers import committed

Batches = list[list[Row]]  # what came out of the last step, batch by batch
Found = Counter[tuple[Any, ...]]


@dataclass
class World:
    """The environment of a case."""

    name: str
    bootstrap: str
    folder: Path
    postgres: str | None = None
    redis: str | None = None
    server: RowServer = field(default_factory=RowServer)  # of rows that are sent by HTTP


@cache
def producer_for(bootstrap: str) -> Producer:
    """Shared by all cases: a new one spends half a second on getting to know the broker."""
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})


@dataclass
class Place:
    """One sink. `columns` are the written ones, all or some."""

    label: str
    columns: list[str]
    chosen: bool  # whether the file names the columns
    condition: Condition | None
    is_exact = True

    def written(self, world: World) -> dict[str, Any]:
        more: dict[str, Any] = {"columns": self.columns} if self.chosen else {}
        return {**self.target(world), **more, **({"where": self.condition.sql} if self.condition else {})}

    def target(self, world: World) -> dict[str, Any]:
        raise NotImplementedError

    def found(self, world: World) -> Found:
        return Counter(self.plain(row) for row in self.read(world))

    def read(self, world: World) -> Iterator[Values]:
        raise NotImplementedError

    def problem(self, world: World, batches: Batches) -> str:
        """The difference from the expected contents; empty if there is none."""
        found = self.found(world)
        expected = Counter(self.plain(row.values) for batch in self.wanted(batches) for row in batch)
        more, less = found - expected, expected - found
        if not self.is_exact:
            more = Counter({row: 1 for row in more if row not in expected})
        return differing(more, less, expected)

    def wanted(self, batches: Batches) -> Batches:
        holds = self.condition.holds if self.condition else lambda _: True
        return [[row for row in batch if holds(row.values)] for batch in batches]

    def plain(self, row: Values) -> tuple[Any, ...]:
        return tuple(plain(name, row.get(name)) for name in self.columns)


@dataclass
class Topic(Place):
    """JSON records."""

    delivery: str = "exactly-once"
    key: str | None = None

    @property
    def is_exact(self) -> bool:  # type: ignore[override]
        return self.delivery == "exactly-once"

    def target(self, world: World) -> dict[str, Any]:
        key = {"key": self.key} if self.key else {}
        return {"topic": f"{world.name}-{self.label}", "delivery": self.delivery, "partitions": 2, **key}

    def read(self, world: World) -> Iterator[Values]:
        for message in committed(world.bootstrap, f"{world.name}-{self.label}"):
            yield json.loads(message.value())


@dataclass
class Copy(Topic):
    """Records as they came, whatever is in them."""

    def target(self, world: World) -> dict[str, Any]:
        return {**super().target(world), "format": "raw"}

    def read(self, world: World) -> Iterator[Values]:
        for message in committed(world.bootstrap, f"{world.name}-{self.label}"):
            parts = {"key": message.key(), "value": message.value()}
            yield {name: None if part is None else part.decode() for name, part in parts.items()}


@dataclass
class Table(Place):
    """In SQLite or PostgreSQL, in what SQLAlchemy knows, or in Redis: JSON in a list, or under a key each."""

    mode: str = "append"
    key: tuple[str, ...] = ()
    newest_by: str | None = None
    delete_when: Condition | None = None
    keep_offsets: bool = False
    server: str = "sqlite"  # or postgres, redis, or alchemy: SQLite through SQLAlchemy
    is_ordered: bool = True  # else only newest_by tells the later of two rows

    def target(self, world: World) -> dict[str, Any]:
        place = {
            "sqlite": {"sqlite": "rows.db"},
            "postgres": {"postgres": world.postgres},
            "alchemy": {"sqlalchemy": f"sqlite:///{world.folder}/alchemy.db"},
            "redis": {"redis": world.redis, "type": "string" if self.mode == "upsert" else "list"},
        }[self.server]
        table = table_name(world, self.label) if self.server in ("postgres", "redis") else self.label
        fields: dict[str, Any] = {**place, "table": table, "mode": self.mode}
        if self.key:
            fields["key"] = list(self.key)
        if self.newest_by:
            fields["newest_by"] = self.newest_by
        if self.delete_when:
            fields["delete_when"] = self.delete_when.sql
        return fields | ({"keep_offsets": True} if self.keep_offsets else {})

    def read(self, world: World) -> Iterator[Values]:
        if self.server == "redis":
            yield from self._read_redis(world)
            return
        names = ", ".join(f'"{name}"' for name in self.columns)
        if self.server == "postgres":
            assert world.postgres is not None
            with psycopg.connect(world.postgres) as connected:
                found: Iterable[Any] = connected.execute(f'SELECT {names} FROM "{table_name(world, self.label)}"')
                yield from (dict(zip(self.columns, row, strict=True)) for row in found)
            return
        database = sqlite3.connect(world.folder / ("rows.db" if self.server == "sqlite" else "alchemy.db"))
        try:
            found = database.execute(f'SELECT {names} FROM "{self.label}"').fetchall()
        finally:
            database.close()
        yield from (dict(zip(self.columns, row, strict=True)) for row in found)

    def _read_redis(self, world: World) -> Iterator[Values]:
        assert world.redis is not None
        with redis.Redis.from_url(world.redis) as client:
            table = table_name(world, self.label)
            keys = list(client.scan_iter(f"{table}:*", 1000))
            yield from (json.loads(text) for text in (client.mget(keys) if keys else client.lrange(table, 0, -1)))

    def problem(self, world: World, batches: Batches) -> str:
        if self.mode != "upsert":
            return super().problem(world, batches)
        found, more = self.found(world), Counter[tuple[Any, ...]]()
        stored = {key: {self.plain(row.values) for row in rows} for key, rows in self._upserted(batches).items()}
        places = [self.columns.index(name) for name in self.key]
        seen: Counter[tuple[Any, ...]] = Counter()
        for row, count in found.items():
            key = tuple(row[place] for place in places)
            seen[key] += count
            if row not in stored.get(key, ()):
                more[row] += count
        more += Counter({key: count - 1 for key, count in seen.items() if count > 1})
        less = Counter({min(rows, key=repr): 1 for key, rows in stored.items() if not seen[key]})
        return differing(more, less, Counter({min(rows, key=repr): 1 for rows in stored.values()}))

    def wanted(self, batches: Batches) -> Batches:
        chosen = super().wanted(batches)
        return chosen[-1:] if self.mode == "replace" else chosen

    def _upserted(self, batches: Batches) -> dict[tuple[Any, ...], list[Row]]:
        """By key, the rows of which one must stay: several, where nothing tells which of them is the newest."""
        stored: dict[tuple[Any, ...], list[Row]] = {}
        for batch in self.wanted(batches):
            given: dict[tuple[Any, ...], list[Row]] = {}
            for row in batch:
                given.setdefault(tuple(plain(name, row.values[name]) for name in self.key), []).append(row)
            for key, rows in given.items():
                newest = max(map(self._place, rows))
                best = [row for row in rows if self._place(row) == newest]
                if self.delete_when and self.delete_when.holds(best[0].values):
                    stored.pop(key, None)
                elif key not in stored or newest[0] >= self._age(stored[key][0]):
                    stored[key] = best
        return stored

    def _place(self, row: Row) -> tuple[tuple[bool, int], tuple[Any, ...]]:
        return self._age(row), row.order if self.is_ordered else ()

    def _age(self, row: Row) -> tuple[bool, int]:
        value = row.values[self.newest_by] if self.newest_by else None
        return (value is not None, value or 0)


@dataclass
class Files(Place):
    """Parquet, JSON or CSV."""

    format: str = "parquet"
    partition_by: str | None = None

    def target(self, world: World) -> dict[str, Any]:
        return {self.format: self.label, **({"partition_by": [self.partition_by]} if self.partition_by else {})}

    def read(self, world: World) -> Iterator[Values]:
        folder = world.folder / self.label
        for file in sorted(folder.rglob(f"part-*.{self.format}")):
            parts = [part.split("=", 1) for part in file.relative_to(folder).parts[1:-1]]
            made = {name: None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value) for name, value in parts}
            for row in self._rows(file):
                yield {**row, **made}

    def _rows(self, file: Path) -> list[Values]:
        if self.format == "json":
            return [json.loads(line) for line in file.read_text().splitlines()]
        if self.format == "csv":
            with file.open(newline="") as opened:
                return [{name: value or None for name, value in row.items()} for row in csv.DictReader(opened)]
        import pyarrow.parquet as pq  # noqa: PLC0415 (takes time; not every case has files)

        found: list[Values] = pq.ParquetFile(file).read().to_pylist()
        return found

    def plain(self, row: Values) -> tuple[Any, ...]:
        """In CSV everything is text."""
        values = super().plain(row)
        return tuple(None if value is None else str(value) for value in values) if self.format == "csv" else values


@dataclass
class Delta(Place):
    """Read without Spark: the files that the table's log has added and not removed."""

    def target(self, world: World) -> dict[str, Any]:
        return {"delta": self.label}

    def read(self, world: World) -> Iterator[Values]:
        import pyarrow.parquet as pq  # noqa: PLC0415 (takes time; not every case has one)

        folder, paths = world.folder / self.label, dict[str, None]()
        for file in sorted((folder / "_delta_log").glob("*.json")):
            for action in map(json.loads, file.read_text().splitlines()):
                if "add" in action:
                    paths[unquote(action["add"]["path"])] = None
                if "remove" in action:
                    paths.pop(unquote(action["remove"]["path"]), None)
        for path in paths:
            yield from pq.ParquetFile(folder / path).read().to_pylist()


@dataclass
class Served(Place):
    """A web server."""

    is_exact = False
    rows: int = 500
    format: str = "json"

    def target(self, world: World) -> dict[str, Any]:
        return {"http": world.server.url(self.label), "batch_rows": self.rows, "format": self.format}

    def read(self, world: World) -> Iterator[Values]:
        return iter(world.server.taken(self.label))


def differing(more: Found, less: Found, expected: Found) -> str:
    if not more and not less:
        return ""
    return (
        f"{more.total()} rows too many, such as {list(more.items())[:3]}; {less.total()} of {expected.total()} missing,"
        f" such as {list(less.items())[:3]}"
    )


def table_name(world: World, label: str) -> str:
    return f"{world.name}-{label}".replace("-", "_")


def plain(name: str, value: Any) -> Any:
    """One form for what sinks write in several: times as milliseconds, lists as tuples."""
    if name in TIMES and isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        value = round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if name in LISTS and isinstance(value, str):
        value = json.loads(value)
    if name in FRACTIONS and value is not None:
        value = round(float(value), 6)
    return tuple(value) if isinstance(value, list) else value
