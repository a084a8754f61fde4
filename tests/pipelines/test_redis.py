"""Redis as a sink: stored values, refusals, concurrent writers, and crashes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.conformance.redis_server import RedisServer
from tests.pipelines.running import pipeline_of, produce, run_once
from tests.pipelines.sink_helpers import difficult

from ottla.pipelines.running.checkpoint import CheckpointError
from ottla.pipelines.sinks import redis_database
from ottla.pipelines.sinks.batch import Batch, SinkError, TransactionLostError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.redis_database import RedisSession, RedisSink, Type
from ottla.pipelines.sinks.sql_tables import Table, TableColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]

COLUMNS = [TableColumn("page", "text"), TableColumn("at", "integer"), TableColumn("views", "integer")]
FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
dead_letters: false
from: {{topic: {name}}}
steps:
  - parse: {{format: json, schema: {{page: string, n: long}}}}
to:
  - {{redis: "{url}", table: {name}, mode: upsert, key: page, expire: 1 hour, keep_offsets: true}}
  - {{redis: "{url}", table: {name}-all, type: list, keep_offsets: true}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def arrow(rows: Rows) -> pa.RecordBatch:
    arrays = [pa.array([row[place] for row in rows]) for place in range(len(COLUMNS))]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in COLUMNS])


def write(url: str, table: Table, kind: Type, *batches: Rows) -> None:
    """Each a transaction."""
    for number, rows in enumerate(batches):
        with RedisSession(url, kind) as session:
            session.prepare(table, COLUMNS)
            session.last_batch("q", table.name)
            assert session.insert(table, COLUMNS, iter([arrow(rows)])) == len(rows)
            session.store_batch("q", table.name, LastBatch(number, "rows"))
            session.commit()


def test_append_adds_replace_replaces_and_upsert_keeps_one_row_of_a_key(server: RedisServer, name: str) -> None:
    rows: Rows = [("a", 1, 1), ("a", 1, 2), (None, 1, 3)]
    client = server.client()
    write(server.url, Table(name), "stream", rows, rows)
    entries = [fields for _, fields in client.xrange(name)]
    assert [fields.get("views") for fields in entries] == ["1", "2", "3"] * 2
    write(server.url, Table(f"{name}-l", "replace"), "list", rows, rows[:1])
    assert client.lrange(f"{name}-l", 0, -1) == ['{"page":"a","at":1,"views":1}']
    write(server.url, Table(f"{name}-h", "upsert", ("page",)), "hash", rows, [(None, 2, 4), ("b", 2, None)])
    assert {key: client.hgetall(key) for key in client.scan_iter(f"{name}-h:*")} == {
        f"{name}-h:a": {"page": "a", "at": "1", "views": "2"},
        f"{name}-h:%null": {"at": "2", "views": "4"},
        f"{name}-h:b": {"page": "b", "at": "2"},
    }


@pytest.mark.parametrize("kind", ["hash", "string"])
def test_an_older_row_never_replaces_a_newer_one(server: RedisServer, name: str, kind: Type) -> None:
    table = Table(name, "upsert", ("page",), newest_by="at")
    write(server.url, table, kind, [("a", 9, 1), ("b", 10, 1), ("c", None, 1)])
    write(server.url, table, kind, [("a", 10, 2), ("b", 9, 2), ("c", None, 2), ("d", None, 2)])
    client = server.client()
    found = {}
    for page in "abcd":
        key = f"{name}:{page}"
        row = client.hgetall(key) if kind == "hash" else json.loads(str(client.get(key)))
        found[page] = int(row["views"])
    assert found == {"a": 2, "b": 1, "c": 2, "d": 2}


def test_of_two_drivers_at_once_the_second_writes_nothing(server: RedisServer, name: str) -> None:
    table = Table(name)
    with RedisSession(server.url) as slow, RedisSession(server.url) as fast:
        for session in (slow, fast):
            assert session.last_batch("q", name) is None
            session.insert(table, COLUMNS, iter([arrow([("a", 1, 1)])]))
            session.store_batch("q", name, LastBatch(0, "rows"))
        fast.commit()
        with pytest.raises(TransactionLostError, match="a concurrent transaction wrote to this table"):
            slow.commit()
    assert server.client().xlen(name) == 1


def test_rows_of_a_table_can_be_counted_and_cleared_without_those_of_another(server: RedisServer, name: str) -> None:
    tables = [Table(f"{name}{more}", "upsert", ("page",)) for more in ("[a]*", "a")]
    for table in tables:
        write(server.url, table, "hash", [("x", 1, 1), ("y", 1, 1)])
    with RedisSession(server.url, "hash") as session:
        assert [session.count(table) for table in tables] == [2, 2]
        session.clear(tables[0])
        session.delete_batch("q", tables[0].name)
        session.commit()
        assert [session.count(table) for table in tables] == [0, 2]
        assert [len(session.last_batches(table.name)) for table in tables] == [0, 1]


def test_what_redis_refuses_is_one_sentence_and_nothing_is_written(
    server: RedisServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client()
    client.rpush(name, "foreign")
    client.set(f"{name}:b", "foreign")
    with pytest.raises(SinkError, match=f"has a list under the key '{name}', and not a stream: remove it"):
        write(server.url, Table(name), "stream", [("a", 1, 1)])
    with pytest.raises(SinkError, match=f"has a string under the key '{name}:b', and not a hash"):
        write(server.url, Table(name, "upsert", ("page",)), "hash", [("a", 1, 1), ("b", 1, 1)])
    with pytest.raises(SinkError, match=f"there is no stream {name}-s: make it, or let it be made"):
        write(server.url, Table(f"{name}-s", create=False), "stream", [("a", 1, 1)])
    assert not client.exists(f"{name}:a")
    monkeypatch.setattr(redis_database, "TRANSACTION_BYTES_MAX", 1 << 20)
    with pytest.raises(SinkError, match="more than 1 MiB, too large for one Redis transaction: use smaller batches"):
        write(server.url, Table(f"{name}-s"), "stream", [("a" * 1000, 1, 1)] * 1100)
    monkeypatch.undo()

    with RedisServer(tmp_path / "small", "--maxmemory", "3mb", "--requirepass", "secret") as small:
        with pytest.raises(SinkError, match=r"^Redis refuses this user: Authentication required$"):
            write(small.url, Table("s"), "stream", [("a", 1, 1)])
        with pytest.raises(SinkError, match=r"^Redis refuses this user: invalid username-password pair"):
            write(small.url.replace("//", "//:wrong@"), Table("s"), "stream", [("a", 1, 1)])
        url = small.url.replace("//", "//:secret@")
        with pytest.raises(SinkError, match=r"out of memory \(maxmemory\); nothing of the batch was written"):
            write(url, Table("s"), "stream", [("a" * 100_000, 1, 1)] * 100)
        known = small.client(password="secret")
        assert known.dbsize() == 0
        known.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(SinkError, match=r"may evict any key.*maxmemory-policy allkeys-lru"):
            write(url, Table("s"), "stream", [("a", 1, 1)])
        known.config_set("maxmemory-policy", "noeviction")
        known.replicaof("127.0.0.1", server.port)
        with pytest.raises(SinkError, match="is a read-only replica: use its primary"):
            write(url, Table("s"), "stream", [("a", 1, 1)])
    with pytest.raises(TransactionLostError, match="Connection refused"):
        write(small.url, Table("s"), "stream", [("a", 1, 1)])


def test_rows_are_there_once_also_when_the_answer_to_a_commit_was_lost(
    spark: SparkSession, server: RedisServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = RedisSink(Table(name), url=server.url, type="list")
    commit = RedisSession.commit

    def losing(session: RedisSession) -> None:
        commit(session)
        monkeypatch.setattr(RedisSession, "commit", commit)
        server.kill9()
        server.start()
        raise TransactionLostError("gone")

    monkeypatch.setattr(RedisSession, "commit", losing)
    for batch_id in (0, 0):
        sink.write(difficult(spark), Batch(f"q-{name}", batch_id, str(tmp_path)))
    rows = {row["id"]: row for row in map(json.loads, server.client().lrange(name, 0, -1))}
    assert server.client().llen(name) == len(rows) == difficult(spark).count()
    assert set(list(rows[4].values())[1:]) == {None}
    assert list(rows[1].values())[-2:] == [["a", "b"], {"x": 1.0, "name": "n"}]


def test_a_pipeline_goes_on_where_redis_ends_when_its_checkpoint_is_lost(
    spark: SparkSession, bootstrap: str, server: RedisServer, name: str, tmp_path: Path
) -> None:
    pipeline = pipeline_of(FILE.format(name=name, bootstrap=bootstrap, url=server.url), tmp_path)
    client = server.client()
    for run, state in enumerate(("state", "state", "elsewhere")):
        first = run * 10
        produce(bootstrap, name, [{"page": f"/{number % 3}", "n": number} for number in range(first, first + 10)], 0)
        run_once(spark, pipeline, tmp_path / state)
    assert {key: client.hget(key, "n") for key in client.scan_iter(f"{name}:*")} == {
        f"{name}:/0": "27",
        f"{name}:/1": "28",
        f"{name}:/2": "29",
    }
    assert 0 < client.pttl(f"{name}:/0") <= 3_600_000
    assert [json.loads(text)["n"] for text in client.lrange(f"{name}-all", 0, -1)] == list(range(30))
    client.hset(next(client.scan_iter(f"ottla_offsets:{name}.*.0")), f"{name}:0", 20)
    with pytest.raises(CheckpointError, match="the checkpoint is gone, and Redis hash"):
        run_once(spark, pipeline, tmp_path / "third")
