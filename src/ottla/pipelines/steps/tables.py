"""Tables to join a stream with: a file, a query of SQLite or PostgreSQL, read once when the pipeline starts.

Databases are read by their Python drivers in this process, so no JDBC jar is needed; ROWS_MAX bounds what is read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.steps.csv_tables import BAD, csv_table
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_MAX = 1_000_000
DIGITS_MAX = 38  # of a decimal
EXACT_MAX = 2**53  # up to here every whole number is a double
TYPES = {
    bool: "boolean", int: "bigint", float: "double", str: "string", bytes: "binary", Decimal: "decimal",
    datetime: "timestamp", date: "date",
}  # fmt: skip

Rows = list[tuple[Any, ...]]


def file_table(spark: SparkSession, folder: str, file: str, texts: Collection[str] = ()) -> DataFrame:
    """CSV with a header, JSON (an object a line) or Parquet, by the name's ending; `texts` are no numbers in CSV."""
    kind = Path(file).suffix.lower().lstrip(".")
    path = file if "://" in file else str(Path(folder, file))
    try:
        if kind == "csv":
            return csv_table(spark, path, texts)
        if kind in ("json", "jsonl", "ndjson"):
            return _json_table(spark, path)
        if kind == "parquet":
            return spark.read.parquet(path)
    except AnalysisException as problem:
        raise StepError(f"cannot read {file}: {str(problem).splitlines()[0]}", "", "table") from problem
    except StepError as problem:
        raise StepError(f"cannot read {file}: {problem.cause}", problem.cure, "table") from None
    raise StepError(f"{file}: is it CSV, JSON or Parquet?", "end its name in .csv, .json or .parquet", "table")


def _json_table(spark: SparkSession, path: str) -> DataFrame:
    """A line that cannot be read would be a row of nulls, and the column BAD of every other."""
    rows = spark.read.json(path, columnNameOfCorruptRecord=BAD)
    if BAD not in rows.columns:
        return rows
    if rows.columns == [BAD]:
        raise StepError("no line is a JSON object", "", "table")
    bad = rows.cache().filter(F.col(BAD).isNotNull()).select(BAD).head()
    rows.unpersist()
    assert bad is not None
    raise StepError(f"a line is no JSON object: {bad[0]}", "correct it", "table")


def sqlite_table(spark: SparkSession, folder: str, file: str, table: str) -> DataFrame:
    path = Path(folder, file)
    if not path.is_file():
        raise StepError(f"there is no database {path}", "", "sqlite")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            cursor = connection.execute(_query(table))
            return _made(spark, [each[0] for each in cursor.description], cursor.fetchmany(ROWS_MAX + 1), table)
    except sqlite3.Error as problem:
        raise StepError(f"cannot read {table} of {file}: {problem}", "", "table") from problem


def postgres_table(spark: SparkSession, address: str, table: str) -> DataFrame:
    import psycopg  # noqa: PLC0415 (only who reads PostgreSQL needs it)

    try:
        with psycopg.connect(address, connect_timeout=10) as connection:
            cursor = connection.execute(_query(table))
            names = [each.name for each in cursor.description or ()]
            return _made(spark, names, cursor.fetchmany(ROWS_MAX + 1), table)
    except psycopg.Error as problem:
        raise StepError(f"cannot read {table} of PostgreSQL: {str(problem).splitlines()[0]}", "", "table") from problem


def _query(table: str) -> str:
    """A table by its name (schema.table, too), or a SELECT of the user's own."""
    if table.lstrip().lower().startswith(("select ", "with ")):
        return table
    return f"SELECT * FROM {'.'.join(_quoted(part) for part in table.split('.'))}"  # noqa: S608 (quoted)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _made(spark: SparkSession, names: list[str], rows: Rows, table: str) -> DataFrame:
    if len(rows) > ROWS_MAX:
        raise StepError(
            f"{table} has more than {ROWS_MAX:,} rows", "join with a topic or a Parquet file instead", "table"
        )
    kinds = [_kind([row[at] for row in rows if row[at] is not None]) for at in range(len(names))]
    schema = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in zip(names, kinds, strict=True))
    return spark.createDataFrame([_fitting(row, kinds) for row in rows], schema)


def _kind(values: Collection[Any]) -> str:
    """SQLite may hold anything in any column: what differs is read as text."""
    found = {TYPES.get(type(value), "string") for value in values}
    if found == {"bigint", "double"} and all(abs(value) <= EXACT_MAX for value in values if isinstance(value, int)):
        return "double"
    if found == {"decimal"}:
        return _decimal_kind(values)
    return found.pop() if len(found) == 1 else "string"


def _decimal_kind(values: Collection[Decimal]) -> str:
    """With room for every digit; text, where there is none."""
    parts = [value.as_tuple() for value in values]
    scale = max((-each.exponent if isinstance(each.exponent, int) else DIGITS_MAX + 1 for each in parts), default=0)
    scale = max(scale, 0)
    whole = max((len(each.digits) + int(each.exponent) for each in parts if isinstance(each.exponent, int)), default=0)
    return f"decimal({DIGITS_MAX},{scale})" if scale + max(whole, 0) <= DIGITS_MAX else "string"


def _fitting(row: tuple[Any, ...], kinds: list[str]) -> tuple[Any, ...]:
    return tuple(_as(value, kind) for value, kind in zip(row, kinds, strict=True))


def _as(value: Any, kind: str) -> Any:
    if kind == "timestamp" and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)  # Spark would take it for one of this machine's zone
    if value is None or kind not in ("string", "double"):
        return value
    if isinstance(value, dict | list):  # JSON of PostgreSQL
        return json.dumps(value, default=str)
    return str(value) if kind == "string" else float(value)
