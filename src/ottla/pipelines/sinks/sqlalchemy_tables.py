"""What tables are for SQLAlchemy: their columns and types, the bookkeeping beside them, and the values of rows.

Rule: no connection; columns in, tables and values out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.external_offsets import OFFSETS_TABLE
from ottla.pipelines.sinks.tables import LEDGER, Kind, Table, TableColumn

if TYPE_CHECKING:
    import sqlalchemy as sa

INSTALL = "install SQLAlchemy (pip install 'ottla[databases]') and the driver of your database"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEY_CHARACTERS_MAX = 255  # several databases have no index on text without an end
WITHOUT_INFINITY = ("mysql", "mariadb", "mssql")
# Keys that differ in upper and lower case differ.
MYSQL_OPTIONS = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}


def target_table(table: Table, columns: list[TableColumn], dialect: Any) -> sa.Table:
    """The table as it is, or would be made. Raises SinkError for a column that the database cannot hold."""
    import sqlalchemy as sa  # noqa: PLC0415

    for column in columns:
        if column.kind == "decimal" and not has_decimals(dialect):
            raise SinkError(f"table {table.name}: {dialect.name} has no exact decimals: cast {column.name!r} before")
    schema, _, name = table.name.rpartition(".")
    made = [sa.Column(each.name, column_type(each, is_key=each.name in table.key)) for each in columns]
    unique = [sa.UniqueConstraint(*table.key)] if table.key and columns else []
    return sa.Table(name, sa.MetaData(), *made, *unique, schema=schema or None, **options_of_mysql())


def has_decimals(dialect: Any) -> bool:
    """Some dialects make them floating-point numbers on the way."""
    import sqlalchemy as sa  # noqa: PLC0415

    process = sa.Numeric().dialect_impl(dialect).bind_processor(dialect)
    return process is None or not isinstance(process(Decimal("0.1")), float)


def bookkeeping() -> dict[str, sa.Table]:
    import sqlalchemy as sa  # noqa: PLC0415

    def text(name: str) -> Any:
        return sa.Column(name, sa.Unicode(KEY_CHARACTERS_MAX), primary_key=True)

    return {
        LEDGER: sa.Table(
            LEDGER,
            sa.MetaData(),
            *(text("query"), text("sink"), sa.Column("batch", sa.BigInteger)),
            sa.Column("identity", sa.Unicode(KEY_CHARACTERS_MAX)),
            **options_of_mysql(),
        ),
        OFFSETS_TABLE: sa.Table(
            OFFSETS_TABLE,
            sa.MetaData(),
            *(text("query"), text("topic"), sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False)),
            sa.Column("next_offset", sa.BigInteger),
            **options_of_mysql(),
        ),
    }


def options_of_mysql() -> dict[str, Any]:
    return {f"{name}_{key}": value for name in ("mysql", "mariadb") for key, value in MYSQL_OPTIONS.items()}


def column_type(column: TableColumn, is_key: bool) -> Any:
    """MySQL's own types where the general ones hold 64 kB, or whole seconds."""
    import sqlalchemy as sa  # noqa: PLC0415
    from sqlalchemy.dialects import mysql  # noqa: PLC0415

    family = ("mysql", "mariadb")
    if column.kind == "decimal":
        precision, _, scale = column.detail.partition(",")
        return sa.Numeric(int(precision), int(scale or 0))
    if column.kind in ("text", "json") and is_key:
        return sa.Unicode(KEY_CHARACTERS_MAX)
    types: Mapping[Kind, Any] = {
        "boolean": sa.Boolean(),
        "integer": sa.BigInteger(),
        "float": sa.Double(),
        "text": sa.UnicodeText().with_variant(mysql.LONGTEXT(), *family),
        "json": sa.UnicodeText().with_variant(mysql.LONGTEXT(), *family),
        "binary": sa.LargeBinary().with_variant(mysql.LONGBLOB(), *family),
        "date": sa.Date(),
        "timestamp": sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *family),
        "local_timestamp": sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *family),
    }
    return types[column.kind]


def row_values(batch: Any, columns: list[TableColumn], dialect: str) -> list[dict[str, Any]]:
    """Raises SinkError for a date or time that Python cannot tell."""
    try:
        values = [_values(batch.column(index).to_pylist(), each.kind, dialect) for index, each in enumerate(columns)]
    except (OverflowError, ValueError) as problem:
        raise SinkError(f"a date or time is out of range, years 1 to 9999: {problem}") from problem
    names = [column.name for column in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _values(values: list[Any], kind: Kind, dialect: str) -> list[Any]:
    if kind == "timestamp":
        return [None if each is None else EPOCH + timedelta(microseconds=each) for each in values]
    if kind == "float":
        is_no_number = math.isnan if dialect not in WITHOUT_INFINITY else lambda each: not math.isfinite(each)
        return [None if each is None or is_no_number(each) else each for each in values]
    if kind in ("text", "json") and dialect == "postgresql":  # one such character would stop the query for ever
        return [None if each is None else each.replace("\0", "\ufffd") for each in values]
    return values


def check_url(url: str) -> str:
    """The name of the dialect. Raises SinkError if there is no way to such a database here."""
    try:
        import sqlalchemy as sa  # noqa: PLC0415
    except ImportError:
        raise SinkError(f"SQLAlchemy is not there: {INSTALL}") from None
    try:
        found = sa.make_url(url)
        dialect = found.get_dialect()
        dialect.import_dbapi()
    except sa.exc.NoSuchModuleError:
        raise SinkError(f"SQLAlchemy knows no {url.partition(':')[0]}: {INSTALL}") from None
    except (sa.exc.ArgumentError, ValueError):
        raise SinkError("is no URL as SQLAlchemy writes it: mysql+pymysql://user:${PASSWORD}@host/database") from None
    except ImportError as problem:
        raise SinkError(f"{found.drivername} needs the Python package {problem.name}: pip install it") from None
    if not dialect.supports_sane_rowcount:
        raise SinkError(f"{found.drivername} does not tell how many rows were changed: choose another driver")
    if dialect.is_async:
        raise SinkError(f"{found.drivername} is for asynchronous programs: choose another driver")
    if found.get_backend_name() == "sqlite" and found.database in (None, "", ":memory:"):
        raise SinkError("a database in memory is gone after the batch: name a file")
    return str(found.get_backend_name())
