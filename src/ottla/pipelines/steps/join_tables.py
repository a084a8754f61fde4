"""Tables to join with a stream: a file, or a query of SQLite or PostgreSQL, read once when the pipeline starts.

Databases are read with their Python drivers in this process, so no JDBC jar is needed; ROWS_MAX limits the rows.

CSV: a column has a type only if every value has its canonical form. Spark's inference would corrupt identifiers: 01234
and +49123 become 1234 and 49123, the code 1e5 becomes 100000, and the opening time 10:30 becomes today's date, and
tomorrow another. Such columns stay text.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ROWS_MAX = 1_000_000
DIGITS_MAX = 38  # of a decimal
EXACT_MAX = 2**53  # every integer up to here is exact in a double
TYPES = {
    bool: "boolean", int: "bigint", float: "double", str: "string", bytes: "binary", Decimal: "decimal",
    datetime: "timestamp", date: "date",
}  # fmt: skip

Rows = list[tuple[Any, ...]]

OPTIONS: dict[str, Any] = {"header": True, "escape": '"', "multiLine": True}
WHOLE = r"-?(0|[1-9][0-9]*)"
FRACTION = rf"{WHOLE}(\.[0-9]+([eE][-+]?[0-9]+)?)?|NaN"
CORRUPT_RECORD = "_bad"
MOMENT = r"[0-9]{4}-[0-9]{2}.*"


def file_table(spark: SparkSession, folder: str, file: str, texts: Collection[str] = ()) -> DataFrame:
    """CSV with a header, JSON (one object per line) or Parquet, by file extension; `texts` are text columns in CSV."""
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
    raise StepError(f"{file}: unknown file type", "end its name in .csv, .json or .parquet", "table")


def _json_table(spark: SparkSession, path: str) -> DataFrame:
    """An unreadable line would become a row of nulls, and add the column BAD to all others."""
    rows = spark.read.json(path, columnNameOfCorruptRecord=CORRUPT_RECORD)
    if CORRUPT_RECORD not in rows.columns:
        return rows
    if rows.columns == [CORRUPT_RECORD]:
        raise StepError("no line is a JSON object", "", "table")
    bad = rows.cache().filter(F.col(CORRUPT_RECORD).isNotNull()).select(CORRUPT_RECORD).head()
    rows.unpersist()
    assert bad is not None
    raise StepError(f"a line is not a JSON object: {bad[0]}", "correct it", "table")


def sqlite_table(spark: SparkSession, folder: str, file: str, table: str) -> DataFrame:
    path = Path(folder, file)
    if not path.is_file():
        raise StepError(f"there is no database {path}", "", "sqlite")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            cursor = connection.execute(_query(table))
            return _to_dataframe(spark, [each[0] for each in cursor.description], cursor.fetchmany(ROWS_MAX + 1), table)
    except sqlite3.Error as problem:
        raise StepError(f"cannot read {table} of {file}: {problem}", "", "table") from problem


def postgres_table(spark: SparkSession, address: str, table: str) -> DataFrame:
    import psycopg  # # noqa: PLC0415 (optional dependency)

    try:
        with psycopg.connect(address, connect_timeout=10) as connection:
            cursor = connection.execute(_query(table))
            names = [each.name for each in cursor.description or ()]
            return _to_dataframe(spark, names, cursor.fetchmany(ROWS_MAX + 1), table)
    except psycopg.Error as problem:
        raise StepError(f"cannot read {table} of PostgreSQL: {str(problem).splitlines()[0]}", "", "table") from problem


def _query(table: str) -> str:
    """A table name (also schema.table), or a SELECT of the user."""
    if table.lstrip().lower().startswith(("select ", "with ")):
        return table
    return f"SELECT * FROM {'.'.join(_quoted(part) for part in table.split('.'))}"  # # noqa: S608 (quoted)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _to_dataframe(spark: SparkSession, names: list[str], rows: Rows, table: str) -> DataFrame:
    if len(rows) > ROWS_MAX:
        raise StepError(
            f"{table} has more than {ROWS_MAX:,} rows", "join with a topic or a Parquet file instead", "table"
        )
    kinds = [_column_type([row[at] for row in rows if row[at] is not None]) for at in range(len(names))]
    schema = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in zip(names, kinds, strict=True))
    return spark.createDataFrame([_convert_row(row, kinds) for row in rows], schema)


def _column_type(values: Collection[Any]) -> str:
    """SQLite columns may hold any type: mixed types are read as text."""
    found = {TYPES.get(type(value), "string") for value in values}
    if found == {"bigint", "double"} and all(abs(value) <= EXACT_MAX for value in values if isinstance(value, int)):
        return "double"
    if found == {"decimal"}:
        return _decimal_kind(values)
    return found.pop() if len(found) == 1 else "string"


def _decimal_kind(values: Collection[Decimal]) -> str:
    """A decimal type for all digits; text if none fits."""
    parts = [value.as_tuple() for value in values]
    scale = max((-each.exponent if isinstance(each.exponent, int) else DIGITS_MAX + 1 for each in parts), default=0)
    scale = max(scale, 0)
    whole = max((len(each.digits) + int(each.exponent) for each in parts if isinstance(each.exponent, int)), default=0)
    return f"decimal({DIGITS_MAX},{scale})" if scale + max(whole, 0) <= DIGITS_MAX else "string"


def _convert_row(row: tuple[Any, ...], kinds: list[str]) -> tuple[Any, ...]:
    return tuple(_convert_value(value, kind) for value, kind in zip(row, kinds, strict=True))


def _convert_value(value: Any, kind: str) -> Any:
    if kind == "timestamp" and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)  # Spark would assume the local time zone
    if value is None or kind not in ("string", "double"):
        return value
    if isinstance(value, dict | list):  # PostgreSQL JSON
        return json.dumps(value, default=str)
    return str(value) if kind == "string" else float(value)


def csv_table(spark: SparkSession, path: str, wanted: Collection[str] = ()) -> DataFrame:
    """The first line holds the names; `wanted` columns are always text. Raises AnalysisException and StepError."""
    guessed = spark.read.csv(path, inferSchema=True, **OPTIONS)
    _reject_ragged(spark, path, guessed.columns)
    forms = {entry.name: _number_pattern(entry.dataType) for entry in guessed.schema.fields}
    doubtful = [name for name, form in forms.items() if form is not None]
    if not doubtful and not wanted:
        return guessed
    texts = spark.read.csv(path, schema=_schema(guessed.schema, guessed.columns), **OPTIONS)
    odd = [F.max(~F.col(quoted(name)).rlike(f"^({forms[name]})$")).alias(name) for name in doubtful]
    found: Mapping[str, bool] = texts.agg(*odd).collect()[0].asDict() if odd else {}
    plain = [name for name in guessed.columns if name in wanted or (name in doubtful and found[name])]
    return spark.read.csv(path, schema=_schema(guessed.schema, plain), **OPTIONS)


def _reject_ragged(spark: SparkSession, path: str, names: list[str]) -> None:
    """Spark would fill missing fields with nulls and drop surplus ones."""
    fields = [
        *(T.StructField(f"_{at}", T.StringType()) for at in range(len(names))),
        T.StructField(CORRUPT_RECORD, T.StringType()),
    ]
    lines = spark.read.csv(path, schema=T.StructType(fields), columnNameOfCorruptRecord=CORRUPT_RECORD, **OPTIONS)
    # cached, because Spark cannot select only this column
    bad = lines.cache().filter(F.col(CORRUPT_RECORD).isNotNull()).select(CORRUPT_RECORD).head()
    lines.unpersist()
    if bad is not None:
        raise StepError(
            f"a line does not have the {len(names)} fields of the first one: {bad[0]}", "correct it", "table"
        )


def _number_pattern(kind: T.DataType) -> str | None:
    if isinstance(kind, T.IntegralType | T.DecimalType):
        return WHOLE
    if isinstance(kind, T.FractionalType):
        return FRACTION
    return MOMENT if isinstance(kind, T.TimestampType | T.TimestampNTZType) else None


def _schema(guessed: T.StructType, texts: list[str]) -> T.StructType:
    return T.StructType(
        [T.StructField(each.name, T.StringType() if each.name in texts else each.dataType) for each in guessed.fields]
    )
