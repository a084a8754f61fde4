"""Databases through SQLAlchemy, tested with SQLite: stored values, refusals, and concurrent writers."""

import sqlite3
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateTable

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.sql_tables import Table, TableColumn
from ottla.pipelines.sinks.sqlalchemy_database import (
    SqlAlchemySession,
    SqlAlchemySink,
    TransactionLostError,
    check_url,
    row_values,
    target_table,
)

Rows = list[tuple[object, ...]]

COLUMNS = [TableColumn("page", "text"), TableColumn("at", "integer"), TableColumn("views", "integer")]


def batch(rows: Rows, columns: list[TableColumn] = COLUMNS) -> pa.RecordBatch:
    arrays = [pa.array([row[place] for row in rows]) for place in range(len(columns))]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def write(url: str, table: Table, *batches: Rows) -> list[object]:
    """Each in its own transaction; return the contents of the table."""
    for number, rows in enumerate(batches):
        with SqlAlchemySession(url) as session:
            session.prepare(table, COLUMNS)
            session.last_batch("q", table.name)
            assert session.insert(table, COLUMNS, iter([batch(rows)])) == len(rows)
            session.store_batch("q", table.name, LastBatch(number, "rows"))
            session.commit()
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        return sorted(database.execute(f"SELECT * FROM {table.name}").fetchall(), key=repr)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'rows.db'}"


def test_append_adds_replace_replaces_and_upsert_keeps_one_row_of_a_key(url: str) -> None:
    rows: Rows = [("a", 1, 1), ("a", 1, 2), (None, 1, 3)]
    assert len(write(url, Table("added"), rows, rows)) == 6
    assert write(url, Table("replaced", "replace"), rows, rows[:1]) == [("a", 1, 1)]
    upserted = write(url, Table("upserted", "upsert", ("page",)), rows, [(None, 2, 4), ("b", 2, 5)])
    assert upserted == [("a", 1, 2), ("b", 2, 5), (None, 2, 4)]


def test_an_older_row_never_replaces_a_newer_one(url: str) -> None:
    first: Rows = [("a", 9, 1), ("b", 10, 1), (None, 9, 1), ("c", None, 1), ("d", 1, 1)]
    second: Rows = [("a", 10, 2), ("b", 9, 2), (None, 8, 2), ("c", None, 2), ("d", None, 2), ("e", None, 2)]
    found = write(url, Table("v", "upsert", ("page",), newest_by="at"), first, second)
    assert {(row[0], row[2]) for row in found} == {  # type: ignore[index]
        ("a", 2),
        ("b", 1),
        (None, 1),
        ("c", 2),
        ("d", 1),
        ("e", 2),
    }


def test_a_row_that_deletes_removes_that_of_its_key(url: str) -> None:
    table = Table("v", "upsert", ("page",), delete_by="is_gone")
    assert write(url, Table("v", "upsert", ("page",)), [("a", 1, 1), ("b", 1, 1)]) == [("a", 1, 1), ("b", 1, 1)]
    flagged = batch([("a", 2, 2, True), ("c", 2, 2, False), ("d", 2, 2, True)], [*COLUMNS, TableColumn("g", "boolean")])
    with SqlAlchemySession(url) as session:
        session.prepare(table, COLUMNS)
        session.insert(table, COLUMNS, iter([flagged]))
        session.commit()
    assert write(url, Table("v", "upsert", ("page",)), [("e", 3, 3)]) == [("b", 1, 1), ("c", 2, 2), ("e", 3, 3)]


def test_columns_of_others_keep_their_values(url: str) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        database.execute("CREATE TABLE v (page TEXT PRIMARY KEY, at INTEGER, views INTEGER, note TEXT)")
        database.execute("INSERT INTO v VALUES ('a', 1, 1, 'mine')")
    assert write(url, Table("v", "upsert", ("page",)), [("a", 2, 2)]) == [("a", 2, 2, "mine")]


def test_a_key_alone_is_a_row_too(url: str) -> None:
    table, columns = Table("v", "upsert", ("page",)), COLUMNS[:1]
    with SqlAlchemySession(url) as session:
        session.prepare(table, columns)
        session.insert(table, columns, iter([batch([("a",), ("a",), ("b",)], columns)]))
        assert session.count(table) == 2


def test_uncommitted_rows_are_not_visible(url: str) -> None:
    table = Table("v")
    with SqlAlchemySession(url) as session:
        session.prepare(table, COLUMNS)
        session.insert(table, COLUMNS, iter([batch([("a", 1, 1)])]))
        session.store_batch("q", "v", LastBatch(0, "rows"))
    with SqlAlchemySession(url) as session:
        assert session.last_batch("q", "v") is None
        assert session.count(table) == 0


@pytest.mark.parametrize("known", [0, 1])
def test_of_two_drivers_with_the_same_batch_the_second_writes_nothing(url: str, known: int) -> None:
    table = Table("v")
    if known:
        write(url, table, [("a", 1, 1)])
    late = SqlAlchemySession(url)
    with late:
        late.prepare(table, COLUMNS)
        late.last_batch("q", "v")
        with SqlAlchemySession(url) as quick:
            quick.last_batch("q", "v")
            quick.insert(table, COLUMNS, iter([batch([("a", 1, 1)])]))
            quick.store_batch("q", "v", LastBatch(known, "rows"))
            quick.commit()
        late.insert(table, COLUMNS, iter([batch([("a", 1, 1)])]))
        with pytest.raises(TransactionLostError):
            late.store_batch("q", "v", LastBatch(known, "rows"))
    with SqlAlchemySession(url) as session:
        assert session.count(table) == known + 1


def test_offsets_are_stored_and_deleted(url: str) -> None:
    with SqlAlchemySession(url) as session:
        assert session.offsets("q") == {}  # reading creates nothing
        session.delete_batch("q", "v")
        assert session.last_batches("v") == {}
    write(url, Table("v"), [("a", 1, 1)])
    for end in (5, 7):
        with SqlAlchemySession(url) as session:
            session.store_offsets("q", {"t": {0: end, 1: 3}})
            session.commit()
    with SqlAlchemySession(url) as session:
        assert session.offsets("q") == {"t": {0: 7, 1: 3}}
        assert session.last_batches("v") == {"q": LastBatch(0, "rows")}
        session.delete_batch("q", "v")
        session.clear(Table("v"))
        assert (session.offsets("q"), session.last_batches("v"), session.count(Table("v"))) == ({}, {}, 0)


def test_a_table_that_does_not_fit_is_an_error(url: str) -> None:
    write(url, Table("v"), [("a", 1, 1)])
    with SqlAlchemySession(url) as session:
        with pytest.raises(SinkError, match="there is no table w: create it"):
            session.prepare(Table("w", create=False), COLUMNS)
        with pytest.raises(SinkError, match="table v has no column 'more'; it has page, at, views: add it"):
            session.prepare(Table("v"), [*COLUMNS, TableColumn("more", "text")])
        with pytest.raises(SinkError, match="no unique index on page, which upsert needs"):
            session.prepare(Table("v", "upsert", ("page",)), COLUMNS)
        with pytest.raises(SinkError, match="sqlite has no exact decimals: cast 'price' before"):
            session.prepare(Table("w"), [TableColumn("price", "decimal", "12,2")])


def test_rows_that_the_database_refuses_end_the_batch_without_showing_them(url: str) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        database.execute("CREATE TABLE v (page TEXT NOT NULL, at INTEGER, views INTEGER)")
    with pytest.raises(SinkError, match="table v accepts no row: NOT NULL constraint failed") as caught:
        write(url, Table("v"), [(None, 123456, 1)])
    assert "123456" not in str(caught.value)


def test_a_database_that_is_read_only_or_away_is_tried_again(url: str, tmp_path: Path) -> None:
    write(url, Table("v"), [("a", 1, 1)])
    with pytest.raises(TransactionLostError, match="attempt to write a readonly database"):
        write(f"sqlite:///file:{tmp_path / 'rows.db'}?mode=ro&uri=true", Table("v"), [("a", 1, 1)])
    with pytest.raises(TransactionLostError, match="unable to open database file"):
        write(f"sqlite:///{tmp_path / 'nowhere' / 'rows.db'}", Table("v"), [("a", 1, 1)])


def test_times_out_of_range_are_refused(url: str) -> None:
    columns = [TableColumn("at", "timestamp")]
    with SqlAlchemySession(url) as session:
        session.prepare(Table("v"), columns)
        with pytest.raises(SinkError, match="out of range, years 1 to 9999"):
            session.insert(Table("v"), columns, iter([batch([(2**60,)], columns)]))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("certainly not", "is not a SQLAlchemy URL"),
        ("fantasy://host/db", "SQLAlchemy has no dialect fantasy"),
        ("mssql+nosuchdriver://host/db", "SQLAlchemy has no dialect mssql"),
        ("oracle+cx_oracle://host/db", "oracle.cx_oracle needs the Python package cx_Oracle"),
        ("sqlite://", "lost after the batch"),
        ("sqlite:///:memory:", "lost after the batch"),
    ],
)
def test_an_unreachable_database_is_an_error(wrong: str, words: str) -> None:
    with pytest.raises(SinkError, match=words):
        check_url(wrong)


def test_a_url_is_never_shown() -> None:
    assert "secret" not in repr(SqlAlchemySink(Table("t"), url="mysql+pymysql://me:secret@host/db"))


def test_decimals_are_columns_of_their_precision_where_there_are_some() -> None:
    columns = [TableColumn("page", "text"), TableColumn("price", "decimal", "12,3"), TableColumn("at", "timestamp")]
    dialect = mysql.dialect()  # type: ignore[no-untyped-call]
    table = target_table(Table("v", "upsert", ("page",)), columns, dialect)
    made = " ".join(str(CreateTable(table).compile(dialect=dialect)).split())
    assert "page VARCHAR(255), price NUMERIC(12, 3), at DATETIME(6), UNIQUE (page)" in made
    assert made.endswith("ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin")
    values = row_values(batch([("a", Decimal("1.500"), 1)], columns), columns, "mysql")
    assert values[0]["price"] == Decimal("1.500")
