"""A transaction with Redis: rows, offsets and the batch entry in one MULTI/EXEC.

Redis has no BEGIN. The ledger key of a table is watched, commands are collected here, and EXEC runs all of them, or
none if the ledger has changed. Of two concurrent drivers, or two queries, the second writes nothing and retries. Row
keys are not watched: Redis compares each watched key with all others. EXEC does not roll back, so possible failures (a
key of another type) are checked before.

The ledger is a hash, `ottla_batches:TABLE`, with one field per query. Offsets are in a second hash,
`ottla_offsets:QUERY`, with one field `topic:partition` each.

Rows by type:
  hash      one key per row; a field has a column's value as text, and null has no field
  string    one key per row: the row as JSON
  stream    one entry per row, with fields as in a hash
  list      one element per row: the row as JSON

The key of a row is TABLE:VALUE, with several key columns TABLE:VALUE:VALUE. Special characters are percent-encoded: `%`
always, `:` if there are several values. Null is `%null`.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, Self

from ottla.pipelines.sinks.batch import SinkError, TransactionLostError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.database import DatabaseSink, Session
from ottla.pipelines.sinks.external_offsets import OFFSETS_TABLE, Offsets, offsets_from_rows, offsets_to_rows
from ottla.pipelines.sinks.sql_tables import LEDGER_TABLE, ColumnKind, Table, TableColumn, row_values

Type = Literal["hash", "string", "stream", "list"]
Command = tuple[Any, ...]
Row = Sequence[Any]  # values without date and decimal types

KEYED_TYPES: Final[tuple[Type, ...]] = ("hash", "string")
NULL_SEGMENT: Final = "%null"
NUMBERS: Final[tuple[ColumnKind, ...]] = ("integer", "float", "decimal")

PIPELINE_COMMANDS_MAX: Final = 1000  # rows, keys or commands per round trip
CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0  # Redis answers nothing else during a large transaction
TRANSACTION_BYTES_MAX: Final = 512 << 20  # held in memory here and in Redis
INSTALL: Final = "pip install 'ottla[redis]'"
GLOB: Final = re.compile(r"([*?\[\]\\^])")


def row_key(table: str, values: Row) -> str:
    return ":".join([table, *(_key_segment(value, len(values) > 1) for value in values)])


def put_commands(
    kind: Type, key: str, row: Row, columns: Sequence[TableColumn], expire_ms: int | None
) -> list[Command]:
    """Update the row of a key; hash fields that are not columns stay."""
    if kind == "string":
        return [("SET", key, json_text(row, columns), *(("PX", expire_ms) if expire_ms else ()))]
    fields = hash_fields(row, columns)
    gone = [column.name for column in columns if column.name not in fields[::2]]
    commands: list[Command] = [("HSET", key, *fields)]
    commands += [("HDEL", key, *gone)] if gone else []
    return [*commands, ("PEXPIRE", key, expire_ms)] if expire_ms else commands


def append_commands(kind: Type, table: str, rows: Sequence[Row], columns: Sequence[TableColumn]) -> list[Command]:
    if kind == "list":
        return [("RPUSH", table, *(json_text(row, columns) for row in rows))] if rows else []
    return [("XADD", table, "*", *hash_fields(row, columns)) for row in rows]


def hash_fields(row: Row, columns: Sequence[TableColumn]) -> list[Any]:
    """Alternating names and values. A row of nulls has one empty field, because Redis keeps no empty hash."""
    found: list[Any] = []
    for value, column in zip(row, columns, strict=True):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        found += [column.name, value if isinstance(value, bytes) else _text(value)]
    return found or [columns[0].name, ""]


def json_text(row: Row, columns: Sequence[TableColumn]) -> str:
    """Nested values are JSON already. NaN and infinity are null, bytes are base64."""
    parts = [
        f"{json.dumps(column.name)}:{_json(value, column.kind)}" for value, column in zip(row, columns, strict=True)
    ]
    return "{" + ",".join(parts) + "}"


def is_newer(stored: Any, given: Any, kind: ColumnKind) -> bool:
    """Whether the stored row must stay. Null is older than any value. Raises SinkError."""
    old, new = _comparable(stored, kind), _comparable(given, kind)
    return old is not None and (new is None or new < old)


def _comparable(value: Any, kind: ColumnKind) -> Any:
    """Dates and times are text in sort order."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if text is None or kind not in NUMBERS:
        return text
    try:
        number = Decimal(str(text))
    except InvalidOperation:
        raise SinkError(f"newest_by: {text!r} is stored, which is not a number") from None
    return None if number.is_nan() else number


def _key_segment(value: Any, is_one_of_several: bool) -> str:
    if value is None:
        return NULL_SEGMENT
    text = value.hex() if isinstance(value, bytes) else _text(value)
    text = text.replace("%", "%25")
    return text.replace(":", "%3A") if is_one_of_several else text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(value)


def _json(value: Any, kind: ColumnKind) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "null"
    if kind in ("json", "decimal"):
        return str(value)
    return json.dumps(b64encode(value).decode() if isinstance(value, bytes) else value, ensure_ascii=False)


@dataclass(frozen=True)
class RedisSink(DatabaseSink):
    """`type` is the Redis type; `url` is a redis-py URL and is never shown."""

    url: str = field(default="", repr=False)
    type: Type = "stream"
    expire_ms: int | None = None

    @property
    def place(self) -> str:
        return f"Redis {self.type} {self.table.name}{':*' if self.type in KEYED_TYPES else ''}"

    def session(self) -> Session:
        return RedisSession(self.url, self.type, self.expire_ms)


class RedisSession:
    """Connected for one batch."""

    RETRIABLE_ERRORS: tuple[type[Exception], ...] = (TransactionLostError,)

    def __init__(self, url: str, kind: Type = "stream", expire_ms: int | None = None) -> None:
        self._url = url
        self._type: Type = kind
        self._expire_ms = expire_ms
        self._connection: Any = None  # redis-py has no type hints
        self._packed: list[bytes] = []
        self._command_count = self._bytes = 0

    def __repr__(self) -> str:
        return f"RedisSession({'open' if self._connection else 'closed'}, {self._command_count} commands)"

    def __enter__(self) -> Self:
        from redis import ConnectionPool  # # noqa: PLC0415 (optional dependency)
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415

        waiting = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}
        with translate_errors():
            pool = ConnectionPool.from_url(self._url, protocol=2, retry=Retry(NoBackoff(), 0), **waiting)
            self._connection = pool.make_connection()
            self._connection.connect()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._connection is not None:
            self._connection.disconnect()  # commands before EXEC are discarded

    @property
    def connection(self) -> Any:
        assert self._connection is not None
        return self._connection

    def prepare(self, table: Table, columns: list[TableColumn]) -> None:  # # noqa: ARG002 (rows have no fixed fields)
        self._check_server()
        if self._type in KEYED_TYPES:
            return
        found = self._execute(("TYPE", table.name))[0].decode()
        if found == "none" and not table.create:
            raise SinkError(f"there is no {self._type} {table.name}: make it, or let it be made (create: true)")
        if table.mode == "append":
            self._check_type(table.name, found)

    def last_batch(self, query: str, table: str) -> LastBatch | None:
        self._execute(("WATCH", f"{LEDGER_TABLE}:{table}"))
        return self.last_batches(table).get(query)

    def last_batches(self, table: str) -> dict[str, LastBatch]:
        found = self._execute(("HGETALL", f"{LEDGER_TABLE}:{table}"))[0]
        return {
            query.decode(): LastBatch(*json.loads(value)) for query, value in zip(found[::2], found[1::2], strict=True)
        }

    def store_batch(self, query: str, table: str, recorded: LastBatch) -> None:
        self._queue([("HSET", f"{LEDGER_TABLE}:{table}", query, json.dumps(recorded))])

    def delete_batch(self, query: str, table: str) -> None:
        self._queue([("HDEL", f"{LEDGER_TABLE}:{table}", query), ("DEL", f"{OFFSETS_TABLE}:{query}")])

    def has_table(self, table: Table) -> bool:  # noqa: ARG002
        """Always true: an empty list does not exist, and rows may expire while the ledger stays valid."""
        return True

    def count(self, table: Table) -> int:
        if self._type in KEYED_TYPES:
            return sum(map(len, self._keys(table)))
        return int(self._execute(("LLEN" if self._type == "list" else "XLEN", table.name))[0])

    def clear(self, table: Table) -> None:
        for keys in self._keys(table) if self._type in KEYED_TYPES else [[table.name]]:
            self._queue([("UNLINK", *keys)])

    def _keys(self, table: Table) -> Iterator[list[bytes]]:
        """The keys of the rows: keys with the table's name and a colon as prefix."""
        pattern, cursor, seen = GLOB.sub(r"\\\1", table.name) + ":*", b"0", set[bytes]()
        while True:
            cursor, keys = self._execute(("SCAN", cursor, "MATCH", pattern, "COUNT", PIPELINE_COMMANDS_MAX))[0]
            new = set(keys) - seen  # SCAN may return a key twice
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
            for first in range(0, len(rows), PIPELINE_COMMANDS_MAX):
                portion = rows[first : first + PIPELINE_COMMANDS_MAX]
                if table.mode == "upsert":
                    self._upsert(table, columns, portion, gone[first : first + PIPELINE_COMMANDS_MAX])
                else:
                    self._queue(append_commands(self._type, table.name, portion, columns))
            count += len(rows)
        return count

    def _upsert(self, table: Table, columns: Sequence[TableColumn], rows: Sequence[Row], gone: Sequence[bool]) -> None:
        places = [[column.name for column in columns].index(name) for name in table.key]
        keys = [row_key(table.name, [row[place] for place in places]) for row in rows]
        for key, found in zip(keys, self._execute(*(("TYPE", key) for key in keys)), strict=True):
            self._check_type(key, found.decode())
        stays = self._stored_is_newer(table, columns, keys, rows) if table.newest_by else [False] * len(rows)
        for key, row, is_deleted, is_older in zip(keys, rows, gone, stays, strict=True):
            if is_deleted:
                self._queue([("UNLINK", key)])
            elif not is_older:
                self._queue(put_commands(self._type, key, row, columns, self._expire_ms))

    def _stored_is_newer(
        self, table: Table, columns: Sequence[TableColumn], keys: Sequence[str], rows: Sequence[Row]
    ) -> list[bool]:
        """For each row whether the stored one is newer."""
        place = next(at for at, column in enumerate(columns) if column.name == table.newest_by)
        if self._type == "hash":
            stored = self._execute(*(("HGET", key, columns[place].name) for key in keys))
        else:
            texts = self._execute(*(("GET", key) for key in keys))
            stored = [None if text is None else _json_field(text, columns[place].name) for text in texts]
        return [is_newer(old, row[place], columns[place].kind) for old, row in zip(stored, rows, strict=True)]

    def offsets(self, query: str) -> Offsets:
        found = self._execute(("HGETALL", f"{OFFSETS_TABLE}:{query}"))[0]
        places = (name.decode().rpartition(":") for name in found[::2])
        return offsets_from_rows(
            (topic, number, at) for (topic, _, number), at in zip(places, found[1::2], strict=True)
        )

    def store_offsets(self, query: str, offsets: Offsets) -> None:
        rows = offsets_to_rows(query, offsets)
        self._queue([("HSET", f"{OFFSETS_TABLE}:{query}", f"{topic}:{number}", at) for _, topic, number, at in rows])

    def commit(self) -> None:
        with translate_errors():
            connection = self.connection
            connection.send_command("MULTI")
            connection.read_response()
            for first in range(0, len(self._packed), PIPELINE_COMMANDS_MAX):
                portion = self._packed[first : first + PIPELINE_COMMANDS_MAX]
                connection.send_packed_command(portion)
                for _ in portion:
                    connection.read_response()
            connection.send_command("EXEC")
            answers = connection.read_response()
        if answers is None:
            raise TransactionLostError("a concurrent transaction wrote to this table")
        refused = next((each for each in answers if isinstance(each, Exception)), None)
        if refused is not None:
            raise SinkError(f"Redis rejected a command of a running transaction: {refused}")

    def _queue(self, commands: Sequence[Command]) -> None:
        """Raises SinkError if the transaction becomes too large."""
        packed = [b"".join(self.connection.pack_command(*command)) for command in commands]
        self._packed += packed
        self._command_count += len(packed)
        self._bytes += sum(map(len, packed))
        if self._bytes > TRANSACTION_BYTES_MAX:
            raise SinkError(
                f"the batch is more than {TRANSACTION_BYTES_MAX >> 20} MiB, too large for one Redis transaction:"
                " use smaller batches (max_per_batch)"
            )

    def _execute(self, *commands: Command) -> list[Any]:
        with translate_errors():
            self.connection.send_packed_command(self.connection.pack_commands(commands))
            return [self.connection.read_response() for _ in commands]

    def _check_server(self) -> None:
        """Check that the server keeps written keys. Raises SinkError."""
        text = self._execute(("INFO",))[0].decode(errors="replace")
        info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        policy = info.get("maxmemory_policy", "")
        if info.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):
            raise SinkError(
                f"Redis may evict any key, including the batch ledger (maxmemory-policy {policy}):"
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
    """Raises SinkError if Redis cannot be reached by such a URL here."""
    try:
        from redis.connection import parse_url  # noqa: PLC0415
    except ImportError:
        raise SinkError(f"the package redis is not installed: {INSTALL}") from None
    try:
        parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        raise SinkError("is not a Redis URL: redis://:${PASSWORD}@host:6379/0, rediss://… for TLS") from None


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate redis-py exceptions to LostError or SinkError."""
    from redis import exceptions as said  # noqa: PLC0415

    try:
        yield
    except (said.AuthenticationError, said.AuthorizationError, said.NoPermissionError) as problem:
        raise SinkError(f"Redis refuses this user: {error_text(problem)}") from problem
    except said.ReadOnlyError as problem:
        raise SinkError("this Redis is a read-only replica: use its primary") from problem
    except said.OutOfMemoryError as problem:
        raise SinkError(
            "Redis is out of memory (maxmemory); nothing of the batch was written: raise the limit, or remove keys"
        ) from problem
    except (said.ConnectionError, said.TimeoutError) as problem:
        raise TransactionLostError(error_text(problem)) from problem
    except said.RedisError as problem:
        raise SinkError(f"Redis says: {error_text(problem)}") from problem


def error_text(problem: Exception) -> str:
    return " ".join(str(problem).split()).rstrip(".")


def _json_field(text: bytes, name: str) -> Any:
    """A field of a row that is stored as JSON; None if it is not a JSON object."""
    try:
        row = json.loads(text, parse_float=str, parse_int=str)
    except ValueError:
        return None
    return row.get(name) if isinstance(row, dict) else None
