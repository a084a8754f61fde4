"""SQL statements, table checks, and the rows that a database gets."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.database import PostgresSink, SqliteSink, StagedRows, may_have_duplicates
from ottla.pipelines.sinks.postgresql import TYPES, csv_text
from ottla.pipelines.sinks.sql_tables import ColumnKind, Table, TableColumn, conflict_clause, create_statement, quoted
from ottla.pipelines.sinks.sqlite import SqliteSession
from ottla.pipelines.sinks.staging import StagedBatch

COLUMNS = [TableColumn("page", "text"), TableColumn("views", "integer"), TableColumn("price", "decimal", "12,3")]


def test_names_are_quoted_and_a_dot_separates_the_schema() -> None:
    assert Table('public.odd"name').quoted == '"public"."odd""name"'
    assert quoted('x"; DROP TABLE t; --') == '"x""; DROP TABLE t; --"'


def test_a_table_is_made_from_the_columns() -> None:
    assert create_statement(Table("v", "upsert", ("page",)), COLUMNS, TYPES) == (
        'CREATE TABLE IF NOT EXISTS "v" ("page" TEXT, "views" BIGINT, "price" NUMERIC(12,3), UNIQUE ("page"))'
    )


def test_rows_that_were_grouped_by_the_key_are_not_grouped_again() -> None:
    grouped = Table("v", "upsert", ("page",), order=())
    assert not may_have_duplicates(grouped, COLUMNS)
    assert not may_have_duplicates(replace(grouped, order=None), COLUMNS)  # no order: the last row received counts
    assert may_have_duplicates(replace(grouped, order=("_offset",)), COLUMNS)
    assert may_have_duplicates(replace(grouped, newest_by="views"), COLUMNS)
    kinds: tuple[ColumnKind, ...] = ("json", "float")  # several values in Spark may be equal in the table
    for kind in kinds:
        assert may_have_duplicates(grouped, [TableColumn("page", kind)])


def test_upsert_changes_columns_outside_the_key() -> None:
    table = Table("v", "upsert", ("page",))
    assert conflict_clause(table, COLUMNS[:2]) == 'ON CONFLICT ("page") DO UPDATE SET "views" = excluded."views"'
    assert conflict_clause(table, COLUMNS[:1]) == 'ON CONFLICT ("page") DO NOTHING'


def test_upsert_and_key_belong_together() -> None:
    with pytest.raises(SinkError, match="upsert needs key columns"):
        Table("v", "upsert")
    with pytest.raises(SinkError, match="only upsert has them"):
        Table("v", key=("page",))


def test_rows_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(SinkError, match="key column 'id' is not among page"):
        Table("v", "upsert", ("id",)).check_rows(COLUMNS[:1])
    with pytest.raises(SinkError, match="two columns are named 'page'"):
        Table("v").check_rows([TableColumn("page", "text"), TableColumn("Page", "text")])
    with pytest.raises(SinkError, match=r'no column .views.; it has page: add it \(ALTER TABLE "v" ADD COLUMN "views"'):
        Table("v").check_existing(COLUMNS, {"page": "text"}, TYPES)


def test_text_for_postgresql_distinguishes_null_from_empty() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array(["", None, 'x,"\n', "\0"]), "b": pa.array([b"", None, b"\xff", b"\0"], pa.binary())}
    )
    text = csv_text(batch, [TableColumn("a", "text"), TableColumn("b", "binary")])
    assert text == '"","\\x"\n,\n"x,""\n","\\xff"\n"\ufffd","\\x00"\n'.encode()


def test_numbers_and_times_for_postgresql() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "f": pa.array([float("nan"), float("-inf"), 0.1]),
            "d": pa.array([Decimal("1.500"), None, Decimal("-0.001")], pa.decimal128(12, 3)),
            "t": pa.array([0, 1_700_000_000_123_456, None], pa.int64()),
        }
    )
    columns = [TableColumn("f", "float"), TableColumn("d", "decimal"), TableColumn("t", "timestamp")]
    assert csv_text(batch, columns).decode().splitlines() == [
        '"nan","1.500","1970-01-01T00:00:00.000000Z"',
        '"-inf",,"2023-11-14T22:13:20.123456Z"',
        '"0.1","-0.001",',
    ]


def test_uncommitted_rows_are_not_visible(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    columns = [TableColumn("id", "integer")]
    rows = pa.RecordBatch.from_pydict({"id": [1, 2]})
    for commits in (False, True):
        with SqliteSession(path) as session:
            session.prepare(Table("t"), columns)
            assert session.insert(Table("t"), columns, iter([rows])) == 2
            session.store_batch("q", "t", LastBatch(3, "rows"))
            if commits:
                session.commit()
    with SqliteSession(path) as session:
        assert session.last_batch("q", "t") == LastBatch(3, "rows")
        assert session.last_batch("another", "t") is None
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("certainly not a database, and long enough to be looked at" * 20)
    with pytest.raises(SinkError, match="not a database"), SqliteSession(str(tmp_path / "x.db")):
        pass


def test_a_connection_is_never_shown() -> None:
    assert "secret" not in repr(PostgresSink(Table("t"), connection="postgresql://me:secret@host/db"))


def upserted(path: Path, table: Table, columns: list[TableColumn], *batches: list[tuple[object, ...]]) -> list[object]:
    """The contents of SQLite after these batches of rows."""
    for rows in batches:
        arrays = [pa.array(values) for values in zip(*rows, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
        with SqliteSession(str(path)) as session:
            session.prepare(table, columns)
            session.insert(table, columns, iter([batch]))
            session.commit()
    with sqlite3.connect(path) as database:
        return sorted(database.execute(f"SELECT * FROM {table.name}").fetchall(), key=repr)


def test_a_batch_with_one_key_without_value_twice_leaves_one_row(tmp_path: Path) -> None:
    columns = [TableColumn("page", "text"), TableColumn("views", "integer")]
    table = Table("v", "upsert", ("page",))
    rows: list[tuple[object, ...]] = [("a", 1), (None, 2), ("a", 3), (None, 4)]
    assert upserted(tmp_path / "x.db", table, columns, rows, rows[:2]) == [("a", 1), (None, 2)]
    assert upserted(tmp_path / "y.db", table, columns, rows) == [("a", 3), (None, 4)]


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        ("integer", 9, 10),
        ("integer", 2**62, 2**62 + 1),
        ("float", -0.5, 1e300),
        ("decimal", Decimal("9.50"), Decimal("10.25")),
        ("decimal", Decimal("-10.25"), Decimal("-9.50")),
        (
            "decimal",
            Decimal("99999999999999999999999999999999999998"),
            Decimal("99999999999999999999999999999999999999"),
        ),
        ("date", date(1999, 12, 31), date(2026, 1, 1)),
        ("timestamp", 999_999, 1_000_000),
        ("local_timestamp", datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    ],
)
@pytest.mark.parametrize("made", ["", "BLOB", "TEXT"])
def test_an_older_row_never_replaces_a_newer_one(
    tmp_path: Path, kind: ColumnKind, older: object, newer: object, made: str
) -> None:
    columns = [TableColumn("page", "text"), TableColumn("at", kind), TableColumn("views", "integer")]
    table = Table("v", "upsert", ("page",), newest_by="at")
    path = tmp_path / "x.db"
    if made:  # created elsewhere, with another type
        with sqlite3.connect(path) as database:
            database.execute(f"CREATE TABLE v (page TEXT UNIQUE, at {made}, views INTEGER)")
    first = [("a", newer, 1), ("b", older, 1), (None, newer, 1), ("c", older, 1)]
    second = [("a", older, 2), ("b", newer, 2), (None, older, 2), ("c", older, 2)]
    found = {(row[0], row[2]) for row in upserted(path, table, columns, first, second)}  # type: ignore[index]
    assert found == {("a", 1), ("b", 2), (None, 1), ("c", 2)}


def test_a_row_without_a_value_in_newest_by_is_older_than_any_other(tmp_path: Path) -> None:
    columns = [TableColumn("page", "text"), TableColumn("at", "float"), TableColumn("views", "integer")]
    table = Table("v", "upsert", ("page",), newest_by="at")
    first = [("a", 1.0, 1), ("b", None, 1), (None, None, 1), ("c", None, 1), ("d", 1.0, 1)]
    second = [("a", None, 2), ("b", None, 2), (None, 1.0, 2), ("c", 1.0, 2), ("d", float("nan"), 2)]
    found = {(row[0], row[2]) for row in upserted(tmp_path / "x.db", table, columns, first, second)}  # type: ignore[index]
    assert found == {("a", 1), ("b", 2), (None, 2), ("c", 2), ("d", 1)}


def test_a_column_without_a_portable_order_cannot_be_newest_by() -> None:
    columns = [TableColumn("page", "text"), TableColumn("at", "text")]
    with pytest.raises(SinkError, match="newest_by: 'at' is text: a number, a date or a time can be compared"):
        Table("v", "upsert", ("page",), newest_by="at").check_rows(columns)
    with pytest.raises(SinkError, match="newest_by: 'views' is not among page, at"):
        Table("v", "upsert", ("page",), newest_by="views").check_rows(columns)
    for wrong in ({"mode": "append"}, {"mode": "upsert", "key": ("at",)}):
        with pytest.raises(SinkError, match="newest_by is for upsert"):
            Table("v", newest_by="at", **wrong)  # type: ignore[arg-type]


def test_the_last_row_of_a_key_deletes_or_is_kept(tmp_path: Path) -> None:
    columns = [TableColumn("page", "text"), TableColumn("land", "text"), TableColumn("views", "integer")]
    table = Table("v", "upsert", ("land", "page"), delete_by="gone")
    flagged = [*columns, TableColumn("gone", "boolean")]
    kept = [("a", "x", 1, False), ("a", "y", 1, False), ("b", "x", 1, False), ("c", None, 1, False)]
    changed = [("a", "x", 2, True), ("b", "x", 2, True), ("b", "x", 3, False), ("d", "x", 3, False)]
    again = [("d", "x", None, True), ("never", "x", None, True), ("c", None, 4, False)]
    found = []
    for rows in (kept, changed, again):
        arrays = [pa.array(values) for values in zip(*rows, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in flagged])
        with SqliteSession(str(tmp_path / "x.db")) as session:
            session.prepare(table, columns)
            assert session.insert(table, columns, iter([batch])) == len(rows)
            session.commit()
        with sqlite3.connect(tmp_path / "x.db") as database:
            found.append(set(database.execute("SELECT page, land, views FROM v").fetchall()))
    assert found[0] == {row[:3] for row in kept}
    assert found[1] == {("a", "y", 1), ("b", "x", 3), ("c", None, 1), ("d", "x", 3)}
    assert found[2] == {("a", "y", 1), ("b", "x", 3), ("c", None, 4)}


def test_delete_options_must_be_complete() -> None:
    for wrong in ({"mode": "append"}, {"mode": "upsert", "key": ("gone",)}):
        with pytest.raises(SinkError, match="delete_by is for upsert"):
            Table("v", delete_by="gone", **wrong)  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="delete_by and newest_by exclude each other"):
        Table("v", "upsert", ("page",), newest_by="at", delete_by="gone")


class Rows:
    """Staged rows of a batch; unreadable after release."""

    def __init__(self, staged: StagedBatch) -> None:
        self.staged = staged

    def batches(self) -> Iterator[pa.RecordBatch]:
        assert not self.staged.is_released
        yield pa.RecordBatch.from_pydict({"page": ["/"], "views": [self.staged.batch_id]})


def test_the_database_and_not_the_staged_rows_decides_whether_a_batch_is_written(
    tmp_path: Path,
) -> None:
    """Rows released by an earlier query are not those of this one, even with the same batch number."""
    sink = SqliteSink(Table("v"), path=str(tmp_path / "a.db"))

    def write(batch_id: int, is_released: bool = False) -> int:
        rows = cast("StagedRows", Rows(StagedBatch(batch_id, f"i{batch_id}", (), is_released)))
        with sink.session() as session:
            return sink._transaction(session, COLUMNS[:2], Batch("q", batch_id, ""), rows, None)

    assert sink.last_batches() == {}
    assert not (tmp_path / "a.db").exists()
    assert [write(0), write(1)] == [1, 1]
    assert write(1, is_released=True) == 0
    with pytest.raises(SinkError, match=r"table v: batch 2 was published, but the target has no entry for it"):
        write(2, is_released=True)
    assert sink.last_batches() == {"q": LastBatch(1, "i1")}
