"""A transaction with Redis: rows, offsets, and which batch they are, in one MULTI/EXEC.

Redis has no BEGIN: the ledger of a table is watched, what is written is gathered here, and EXEC runs all of it, or
nothing if the ledger has changed. So of two drivers at once, also of two queries, the second writes nothing, and asks
again. Keys of rows are not watched: Redis compares each with all that are watched already. It undoes nothing that EXEC
has begun: what could fail there (a key of another type) is looked at before.

The ledger is a hash, `ottla_batches:TABLE`, with a field a query; offsets are in another one, `ottla_offsets:QUERY`,
with a field `topic:partition` each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

from ottla.pipelines.sinks.batch import LostError, SinkError
from ottla.pipelines.sinks.database import DatabaseSink, Session
from ottla.pipelines.sinks.external_offsets import OFFSETS_TABLE, Offsets, as_rows, from_rows
from ottla.pipelines.sinks.ledger import Recorded
from ottla.pipelines.sinks.redis_rows import (
    KEYED,
    Command,
    Row,
    Type,
    append_commands,
    is_newer,
    put_commands,
    row_key,
)
from ottla.pipelines.sinks.tables import LEDGER, Table, TableColumn, row_values

PORTION: Final = 1000  # rows, keys or commands on their way at once
CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0  # nothing else is answered while a large transaction runs
TRANSACTION_BYTES_MAX: Final = 512 << 20  # it is here and in Redis' memory, whole
INSTALL: Final = "pip install 'ottla[redis]'"
GLOB: Final = re.compile(r"([*?\[\]\\^])")


@dataclass(frozen=True)
class RedisSink(DatabaseSink):
    """`type` is Redis' word for what is written; `url` is what redis-py takes, and is never shown."""

    url: str = field(default="", repr=False)
    type: Type = "stream"
    expire_ms: int | None = None

    @property
    def place(self) -> str:
        return f"Redis {self.type} {self.table.name}{':*' if self.type in KEYED else ''}"

    def session(self) -> Session:
        return RedisSession(self.url, self.type, self.expire_ms)


class RedisSession:
    """Connected for one batch."""

    LOST: tuple[type[Exception], ...] = (LostError,)

    def __init__(self, url: str, kind: Type = "stream", expire_ms: int | None = None) -> None:
        self._url = url
        self._type: Type = kind
        self._expire_ms = expire_ms
        self._connection: Any = None  # redis-py does not say its types
        self._packed: list[bytes] = []
        self._command_count = self._bytes = 0

    def __repr__(self) -> str:
        return f"RedisSession({'open' if self._connection else 'closed'}, {self._command_count} commands)"

    def __enter__(self) -> Self:
        from redis import ConnectionPool  # noqa: PLC0415 (installed where it is used)
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415

        waiting = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}
        with told():
            pool = ConnectionPool.from_url(self._url, protocol=2, retry=Retry(NoBackoff(), 0), **waiting)
            self._connection = pool.make_connection()
            self._connection.connect()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._connection is not None:
            self._connection.disconnect()  # what was not executed is forgotten

    @property
    def connection(self) -> Any:
        assert self._connection is not None
        return self._connection

    def prepare(self, table: Table, columns: list[TableColumn]) -> None:  # noqa: ARG002 (a row may have any fields)
        self._check_server()
        if self._type in KEYED:
            return
        found = self._ask(("TYPE", table.name))[0].decode()
        if found == "none" and not table.create:
            raise SinkError(f"there is no {self._type} {table.name}: make it, or let it be made (create: true)")
        if table.mode == "append":
            self._check_type(table.name, found)

    def recorded(self, query: str, table: str) -> Recorded | None:
        self._ask(("WATCH", f"{LEDGER}:{table}"))
        return self.remembered(table).get(query)

    def remembered(self, table: str) -> dict[str, Recorded]:
        found = self._ask(("HGETALL", f"{LEDGER}:{table}"))[0]
        return {
            query.decode(): Recorded(*json.loads(value)) for query, value in zip(found[::2], found[1::2], strict=True)
        }

    def record(self, query: str, table: str, recorded: Recorded) -> None:
        self._queue([("HSET", f"{LEDGER}:{table}", query, json.dumps(recorded))])

    def forget(self, query: str, table: str) -> None:
        self._queue([("HDEL", f"{LEDGER}:{table}", query), ("DEL", f"{OFFSETS_TABLE}:{query}")])

    def has_table(self, table: Table) -> bool:  # noqa: ARG002
        """Always: an empty list is none, and rows may expire, while what the ledger says stays true."""
        return True

    def count(self, table: Table) -> int:
        if self._type in KEYED:
            return sum(map(len, self._keys(table)))
        return int(self._ask(("LLEN" if self._type == "list" else "XLEN", table.name))[0])

    def clear(self, table: Table) -> None:
        for keys in self._keys(table) if self._type in KEYED else [[table.name]]:
            self._queue([("UNLINK", *keys)])

    def _keys(self, table: Table) -> Iterator[list[bytes]]:
        """Of the rows, and of nobody else: what begins with the table's name and a colon."""
        pattern, cursor, seen = GLOB.sub(r"\\\1", table.name) + ":*", b"0", set[bytes]()
        while True:
            cursor, keys = self._ask(("SCAN", cursor, "MATCH", pattern, "COUNT", PORTION))[0]
            new = set(keys) - seen  # a key may be told twice
            seen |= new
            if new:
                yield list(new)
            if cursor == b"0":
                return

    def insert(self, table: Table, columns: list[TableColumn], batches: Iterator[Any]) -> int:
        if table.mode == "replace":
            self._queue([("UNLINK", table.name)])
        count = 0
        for batch in batches:
            rows = row_values(batch, columns)
            gone = batch.column(len(columns)).to_pylist() if table.delete_by else [False] * len(rows)
            for first in range(0, len(rows), PORTION):
                portion = rows[first : first + PORTION]
                if table.mode == "upsert":
                    self._upsert(table, columns, portion, gone[first : first + PORTION])
                else:
                    self._queue(append_commands(self._type, table.name, portion, columns))
            count += len(rows)
        return count

    def _upsert(self, table: Table, columns: Sequence[TableColumn], rows: Sequence[Row], gone: Sequence[bool]) -> None:
        places = [[column.name for column in columns].index(name) for name in table.key]
        keys = [row_key(table.name, [row[place] for place in places]) for row in rows]
        for key, found in zip(keys, self._ask(*(("TYPE", key) for key in keys)), strict=True):
            self._check_type(key, found.decode())
        stays = self._newer(table, columns, keys, rows) if table.newest_by else [False] * len(rows)
        for key, row, is_deleted, is_older in zip(keys, rows, gone, stays, strict=True):
            if is_deleted:
                self._queue([("UNLINK", key)])
            elif not is_older:
                self._queue(put_commands(self._type, key, row, columns, self._expire_ms))

    def _newer(
        self, table: Table, columns: Sequence[TableColumn], keys: Sequence[str], rows: Sequence[Row]
    ) -> list[bool]:
        """For each row whether the stored one is newer."""
        place = next(at for at, column in enumerate(columns) if column.name == table.newest_by)
        if self._type == "hash":
            stored = self._ask(*(("HGET", key, columns[place].name) for key in keys))
        else:
            texts = self._ask(*(("GET", key) for key in keys))
            stored = [None if text is None else _field(text, columns[place].name) for text in texts]
        return [is_newer(old, row[place], columns[place].kind) for old, row in zip(stored, rows, strict=True)]

    def offsets(self, query: str) -> Offsets:
        found = self._ask(("HGETALL", f"{OFFSETS_TABLE}:{query}"))[0]
        places = (name.decode().rpartition(":") for name in found[::2])
        return from_rows((topic, number, at) for (topic, _, number), at in zip(places, found[1::2], strict=True))

    def keep_offsets(self, query: str, offsets: Offsets) -> None:
        rows = as_rows(query, offsets)
        self._queue([("HSET", f"{OFFSETS_TABLE}:{query}", f"{topic}:{number}", at) for _, topic, number, at in rows])

    def commit(self) -> None:
        with told():
            connection = self.connection
            connection.send_command("MULTI")
            connection.read_response()
            for first in range(0, len(self._packed), PORTION):
                portion = self._packed[first : first + PORTION]
                connection.send_packed_command(portion)
                for _ in portion:
                    connection.read_response()
            connection.send_command("EXEC")
            answers = connection.read_response()
        if answers is None:
            raise LostError("another one wrote to this table at the same time")
        refused = next((each for each in answers if isinstance(each, Exception)), None)
        if refused is not None:
            raise SinkError(f"Redis has refused a part of a transaction that it has begun: {refused}")

    def _queue(self, commands: Sequence[Command]) -> None:
        """Raises SinkError when there is too much for one transaction."""
        packed = [b"".join(self.connection.pack_command(*command)) for command in commands]
        self._packed += packed
        self._command_count += len(packed)
        self._bytes += sum(map(len, packed))
        if self._bytes > TRANSACTION_BYTES_MAX:
            raise SinkError(
                f"the batch is more than {TRANSACTION_BYTES_MAX >> 20} MiB, too much for one transaction of Redis:"
                " make batches smaller (max_per_batch)"
            )

    def _ask(self, *commands: Command) -> list[Any]:
        with told():
            self.connection.send_packed_command(self.connection.pack_commands(commands))
            return [self.connection.read_response() for _ in commands]

    def _check_server(self) -> None:
        """Whether it keeps what it has taken. Raises SinkError."""
        text = self._ask(("INFO",))[0].decode(errors="replace")
        info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        policy = info.get("maxmemory_policy", "")
        if info.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):
            raise SinkError(
                f"Redis may drop any key, what it remembers of batches among them (maxmemory-policy {policy}):"
                " set noeviction or one of the volatile policies"
            )
        if info.get("cluster_enabled") == "1":
            raise SinkError(
                "a Redis Cluster has no transactions over keys of several nodes: use one without cluster mode"
            )

    def _check_type(self, key: str, found: str) -> None:
        if found not in ("none", self._type):
            raise SinkError(
                f"Redis has a {found} under the key {key!r}, and not a {self._type}: remove it, or choose another table"
            )


def check_url(url: str) -> None:
    """Raises SinkError if there is no way to such a Redis here."""
    try:
        from redis.connection import parse_url  # noqa: PLC0415
    except ImportError:
        raise SinkError(f"the package redis is not there: {INSTALL}") from None
    try:
        parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        raise SinkError("is no URL of a Redis: redis://:${PASSWORD}@host:6379/0, rediss://… for TLS") from None


@contextmanager
def told() -> Iterator[None]:
    """What Redis or the connection says, as LostError or SinkError."""
    from redis import exceptions as said  # noqa: PLC0415

    try:
        yield
    except (said.AuthenticationError, said.AuthorizationError, said.NoPermissionError) as problem:
        raise SinkError(f"Redis refuses this user: {words_of(problem)}") from problem
    except said.ReadOnlyError as problem:
        raise SinkError("this Redis is a read-only replica: name the one that it copies") from problem
    except said.OutOfMemoryError as problem:
        raise SinkError(
            "Redis has no memory left (maxmemory), and nothing of the batch is written: give it more, or remove keys"
        ) from problem
    except (said.ConnectionError, said.TimeoutError) as problem:
        raise LostError(words_of(problem)) from problem
    except said.RedisError as problem:
        raise SinkError(f"Redis says: {words_of(problem)}") from problem


def words_of(problem: Exception) -> str:
    return " ".join(str(problem).split()).rstrip(".")


def _field(text: bytes, name: str) -> Any:
    """Of a row that is stored as JSON; nothing if it is none."""
    try:
        row = json.loads(text, parse_float=str, parse_int=str)
    except ValueError:
        return None
    return row.get(name) if isinstance(row, dict) else None
