"""A transaction with any database that SQLAlchemy knows: MySQL, MariaDB, Oracle, SQL Server and many more.

One way for all of them, because what cannot be tried with each must not differ from one to the other:
  upsert     row by row, UPDATE and else INSERT: no dialect of its own, columns that are not ours keep their values, and
             nothing hangs on a row that is deleted for a moment
  the ledger is changed only from what was read: of two drivers at once the second changes nothing, and asks again

Bookkeeping tables are made before the first row: in some databases making a table commits what was written so far.

Values: times are UTC, nested values are JSON text, NaN is NULL (most databases have none), and so are the infinities
where there are none. A database without exact decimals gets none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ottla.pipelines.sinks.batch import LostError, SinkError
from ottla.pipelines.sinks.database import DatabaseSink, Session
from ottla.pipelines.sinks.external_offsets import OFFSETS_TABLE, Offsets, as_rows, from_rows
from ottla.pipelines.sinks.ledger import Recorded
from ottla.pipelines.sinks.sqlalchemy_tables import bookkeeping, row_values, target_table
from ottla.pipelines.sinks.tables import LEDGER, Table, TableColumn

if TYPE_CHECKING:
    import sqlalchemy as sa

# What is too long or no number ends the batch and is not cut, and times mean UTC in columns that were made by others.
STRICT = (
    "SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',STRICT_ALL_TABLES')",
    "SET SESSION time_zone = '+00:00'",
)
GREETINGS: Mapping[str, tuple[str, ...]] = {
    "mysql": STRICT,
    "mariadb": STRICT,
    "postgresql": ("SET TIME ZONE 'UTC'",),
}
WITHOUT_TRANSACTIONS = ("myisam", "aria", "memory", "csv", "archive")  # engines of MySQL


@dataclass(frozen=True)
class SqlAlchemySink(DatabaseSink):
    """A table in a database; `url` is what SQLAlchemy takes, and is never shown."""

    url: str = field(default="", repr=False)

    def session(self) -> Session:
        return AnyDatabaseSession(self.url)


class AnyDatabaseSession:
    """Connected for one batch."""

    LOST: tuple[type[Exception], ...] = (LostError,)

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: sa.Connection | None = None
        self._subject = "the database"
        self._before: Recorded | None = None

    def __repr__(self) -> str:
        return f"AnyDatabaseSession({'open' if self._connection else 'closed'})"

    def __enter__(self) -> Self:
        import sqlalchemy as sa  # noqa: PLC0415 (installed where it is used)

        with self._told():
            engine = sa.create_engine(self._url, poolclass=sa.NullPool, hide_parameters=True)
            self._connection = engine.connect()
            for statement in GREETINGS.get(self.dialect, ()):
                self._connection.exec_driver_sql(statement)
        return self

    def __exit__(self, *problem: object) -> None:
        if self._connection is not None:
            with self._told():
                self._connection.close()  # what was not committed is rolled back

    @property
    def connection(self) -> sa.Connection:
        assert self._connection is not None
        return self._connection

    @property
    def dialect(self) -> str:
        return str(self.connection.dialect.name)

    def prepare(self, table: Table, columns: list[TableColumn]) -> None:
        self._subject = f"table {table.name}"
        with self._told():
            for each in bookkeeping().values():
                self._make(each)
            target = target_table(table, columns, self.connection.dialect)
            if not self._has(target):
                if not table.create:
                    raise SinkError(f"there is no table {table.name}: create it, or let it be created (create: true)")
                self._make(target)
                return
            self._check_existing(table, columns, target)

    def _make(self, target: sa.Table) -> None:
        from sqlalchemy import exc  # noqa: PLC0415

        if self._has(target):
            return
        try:
            target.create(self.connection)
            self.connection.commit()
        except exc.DBAPIError as problem:
            self.connection.rollback()
            if self._has(target):
                raise LostError(f"another one has made {target.name} just now") from problem
            raise SinkError(f"table {target.name} cannot be made: {words_of(problem)}") from problem

    def _has(self, target: sa.Table) -> bool:
        import sqlalchemy as sa  # noqa: PLC0415

        return bool(sa.inspect(self.connection).has_table(target.name, target.schema))

    def _check_existing(self, table: Table, columns: list[TableColumn], target: sa.Table) -> None:
        import sqlalchemy as sa  # noqa: PLC0415

        found = sa.inspect(self.connection)
        where = (target.name, target.schema)
        existing = {each["name"]: str(each["type"]) for each in found.get_columns(*where)}
        made = {column.kind: target.c[column.name].type.compile(self.connection.dialect) for column in columns}
        table.check_existing(columns, existing, made)
        if self.dialect in ("mysql", "mariadb"):
            engine = str(found.get_table_options(*where).get(f"{self.dialect}_engine", ""))
            if engine.lower() in WITHOUT_TRANSACTIONS:
                raise SinkError(f"table {table.name} has the engine {engine}, without transactions: use InnoDB")
        if not table.key:
            return
        keys: list[list[Any]] = [found.get_pk_constraint(*where)["constrained_columns"]]
        keys += [each["column_names"] for each in found.get_unique_constraints(*where)]
        keys += [each["column_names"] for each in found.get_indexes(*where) if each["unique"]]
        if set(table.key) not in [set(key) for key in keys]:
            raise SinkError(
                f"table {table.name} has no unique index on {', '.join(table.key)}, which upsert needs: make one"
            )

    def recorded(self, query: str, table: str) -> Recorded | None:
        self._before = self.remembered(table).get(query)
        return self._before

    def remembered(self, table: str) -> dict[str, Recorded]:
        """By the names of queries."""
        import sqlalchemy as sa  # noqa: PLC0415

        ledger = bookkeeping()[LEDGER]
        with self._told():
            if not self._has(ledger):
                return {}
            wanted = sa.select(ledger.c.query, ledger.c.batch, ledger.c.identity).where(ledger.c.sink == table)
            rows = self.connection.execute(wanted).fetchall()
        return {str(query): Recorded(int(batch), str(identity)) for query, batch, identity in rows}

    def record(self, query: str, table: str, recorded: Recorded) -> None:
        """Only over what `recorded` has read in this transaction."""
        ledger, before = bookkeeping()[LEDGER], self._before
        key = {"query": query, "sink": table}
        new = {"batch": recorded.batch_id, "identity": recorded.identity}
        with self._told(is_race=True):
            if before is None:
                self.connection.execute(ledger.insert().values(**key, **new))
                return
            old = {**key, "batch": before.batch_id, "identity": before.identity}
            changed = self.connection.execute(ledger.update().values(**new).filter_by(**old))
        if changed.rowcount != 1:
            raise LostError("another one wrote this batch at the same time")

    def has_table(self, table: Table) -> bool:
        with self._told():
            return self._has(target_table(table, [], self.connection.dialect))

    def forget(self, query: str, table: str) -> None:
        known = bookkeeping()
        with self._told():
            if self._has(known[LEDGER]):
                self.connection.execute(known[LEDGER].delete().filter_by(query=query, sink=table))
            if self._has(known[OFFSETS_TABLE]):
                self.connection.execute(known[OFFSETS_TABLE].delete().filter_by(query=query))

    def count(self, table: Table) -> int:
        """The rows of the table; none if there is no such table."""
        import sqlalchemy as sa  # noqa: PLC0415

        target = target_table(table, [], self.connection.dialect)
        with self._told():
            if not self._has(target):
                return 0
            return int(self.connection.execute(sa.select(sa.func.count()).select_from(target)).scalar_one())

    def clear(self, table: Table) -> None:
        if self.count(table):
            with self._told():
                self.connection.execute(target_table(table, [], self.connection.dialect).delete())

    def insert(self, table: Table, columns: list[TableColumn], batches: Iterator[Any]) -> int:
        target = target_table(table, columns, self.connection.dialect)
        count = 0
        with self._told():
            if table.mode == "replace":
                self.connection.execute(target.delete())
            for batch in batches:
                rows = row_values(batch, columns, self.dialect)
                if table.mode == "upsert":
                    gone = batch.column(len(columns)).to_pylist() if table.delete_by else [False] * len(rows)
                    for row, is_deleted in zip(rows, gone, strict=True):
                        change = remove if is_deleted else put
                        change(self.connection, target, table, row)
                elif rows:
                    self.connection.execute(target.insert(), rows)
                count += len(rows)
        return count

    def offsets(self, query: str) -> Offsets:
        import sqlalchemy as sa  # noqa: PLC0415

        kept = bookkeeping()[OFFSETS_TABLE]
        with self._told():
            if not self._has(kept):
                return {}
            wanted = sa.select(kept.c.topic, kept.c.partition, kept.c.next_offset).where(kept.c.query == query)
            return from_rows([tuple(row) for row in self.connection.execute(wanted)])

    def keep_offsets(self, query: str, offsets: Offsets) -> None:
        kept = bookkeeping()[OFFSETS_TABLE]
        rows = [dict(zip(kept.c.keys(), row, strict=True)) for row in as_rows(query, offsets)]
        with self._told():
            for row in rows:
                put(self.connection, kept, Table(OFFSETS_TABLE, "upsert", ("query", "topic", "partition")), row)

    def commit(self) -> None:
        with self._told():
            self.connection.commit()

    @contextmanager
    def _told(self, is_race: bool = False) -> Iterator[None]:
        """`is_race`: a row that is there already was written by another one just now. Raises LostError, SinkError."""
        from sqlalchemy import exc  # noqa: PLC0415

        try:
            yield
        except exc.DBAPIError as problem:
            is_lost = problem.connection_invalidated or isinstance(problem, exc.OperationalError | exc.InterfaceError)
            if is_lost or (is_race and isinstance(problem, exc.IntegrityError)):
                raise LostError(words_of(problem)) from problem
            raise SinkError(f"{self._subject} takes no row: {words_of(problem)}") from problem
        except exc.SQLAlchemyError as problem:
            raise SinkError(f"{self._subject} cannot be used: {words_of(problem)}") from problem


def put(connection: sa.Connection, target: sa.Table, table: Table, row: Mapping[str, Any]) -> None:
    """Change the row with this key, unless the stored one is newer; add it if there is none."""
    import sqlalchemy as sa  # noqa: PLC0415

    same = same_key(target, table, row)
    others = {name: value for name, value in row.items() if name not in table.key}
    if others:
        changed = connection.execute(target.update().where(same, not_newer(target, table, row)).values(others))
        if changed.rowcount > 0:
            return
    if connection.execute(sa.select(sa.literal(1)).select_from(target).where(same).limit(1)).first() is None:
        connection.execute(target.insert().values(dict(row)))


def remove(connection: sa.Connection, target: sa.Table, table: Table, row: Mapping[str, Any]) -> None:
    connection.execute(target.delete().where(same_key(target, table, row)))


def same_key(target: sa.Table, table: Table, row: Mapping[str, Any]) -> Any:
    import sqlalchemy as sa  # noqa: PLC0415

    return sa.and_(
        *(target.c[name].is_(None) if row[name] is None else target.c[name] == row[name] for name in table.key)
    )


def not_newer(target: sa.Table, table: Table, row: Mapping[str, Any]) -> Any:
    """A stored row without a value is older than any other."""
    import sqlalchemy as sa  # noqa: PLC0415

    if table.newest_by is None:
        return sa.true()
    stored, given = target.c[table.newest_by], row[table.newest_by]
    return stored.is_(None) if given is None else sa.or_(stored.is_(None), stored <= given)


def words_of(problem: Exception) -> str:
    """What the database said, without our statement."""
    said = getattr(problem, "orig", None) or problem
    return " ".join(str(said).split())
