"""Common parts of SQL databases: names, column types, and checks of a table.

Rule: no connection, no Spark session; schemas in, text out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ottla.pipelines.sinks.batch import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Mode = Literal["append", "upsert", "replace"]
ColumnKind = Literal[
    "boolean", "integer", "float", "decimal", "text", "json", "binary", "date", "timestamp", "local_timestamp"
]

LEDGER_TABLE = "ottla_batches"
STORED_ALIAS = "stored"  # alias of the stored row in an upsert
DELETED = "_deleted"  # Boolean column of a pipeline's rows: whether the row deletes that of its key
ORDERED_KINDS: tuple[ColumnKind, ...] = ("integer", "float", "decimal", "date", "timestamp", "local_timestamp")
DELETED_ROW_HINT = "a deleted row is not stored, so an older one that arrives later would bring it back"
KINDS: Mapping[str, ColumnKind] = {
    "boolean": "boolean",
    "byte": "integer",
    "short": "integer",
    "integer": "integer",
    "long": "integer",
    "float": "float",
    "double": "float",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "local_timestamp",
    "array": "json",
    "map": "json",
    "struct": "json",
    "variant": "json",
}


class TableColumn(NamedTuple):
    """One column of the rows; `detail` is the precision of a decimal."""

    name: str
    kind: ColumnKind
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """A table and its write mode.

    Of rows with the same key, upsert keeps the one with the greatest `newest_by`, also compared with the stored row.
    Without `newest_by`, the last row by the columns of `order` wins (they are not written), or, without these, the last
    one received. `delete_by` is a Boolean column that is not written: if it is true in the winning row, the row of its
    key is deleted.
    """

    name: str
    mode: Mode = "append"
    key: tuple[str, ...] = ()
    create: bool = True
    newest_by: str | None = None
    order: tuple[str, ...] | None = None
    delete_by: str | None = None

    def __post_init__(self) -> None:
        if (self.mode == "upsert") != bool(self.key):
            raise SinkError(f"table {self.name}: upsert needs key columns, and only upsert has them")
        if self.newest_by is not None and (self.mode != "upsert" or self.newest_by in self.key):
            raise SinkError(f"table {self.name}: newest_by is for upsert, and names a column that is not in the key")
        if self.delete_by is not None and (self.mode != "upsert" or self.delete_by in self.key):
            raise SinkError(f"table {self.name}: delete_by is for upsert, and names a column that is not in the key")
        if self.delete_by is not None and self.newest_by is not None:
            raise SinkError(f"table {self.name}: delete_by and newest_by exclude each other: {DELETED_ROW_HINT}")

    @property
    def quoted(self) -> str:
        """A dot separates schema and table."""
        return ".".join(quoted(part) for part in self.name.split("."))

    def columns(self, schema: StructType) -> list[TableColumn]:
        """The columns to write for rows with this schema."""
        return [column for column in table_columns(schema) if column.name not in (self.delete_by, *(self.order or ()))]

    def check_rows(self, columns: Sequence[TableColumn]) -> None:
        """Raises SinkError."""
        names = [column.name for column in columns]
        missing = [name for name in self.key if name not in names]
        if missing:
            raise SinkError(f"table {self.name}: key column {missing[0]!r} is not among {', '.join(names)}")
        problem = newest_by_problem(self.newest_by, columns) if self.newest_by is not None else None
        if problem:
            raise SinkError(f"table {self.name}: newest_by: {problem}")
        folded = [name.lower() for name in names]
        doubled = next((name for name in folded if folded.count(name) > 1), None)
        if doubled is not None:
            raise SinkError(f"table {self.name}: two columns are named {doubled!r}; rename one")

    def check_existing(
        self, columns: Sequence[TableColumn], existing: Mapping[str, str], types: Mapping[ColumnKind, str]
    ) -> None:
        """`existing`: the table's columns and their types. Raises SinkError with a hint."""
        missing = [column for column in columns if column.name not in existing]
        if missing:
            add = f"ALTER TABLE {self.quoted} ADD COLUMN {quoted(missing[0].name)} {column_type(missing[0], types)}"
            raise SinkError(
                f"table {self.name} has no column {missing[0].name!r}; it has {', '.join(existing)}:"
                f" add it ({add}) or choose the columns to write"
            )


def table_columns(schema: StructType) -> list[TableColumn]:
    return [_table_column(field.name, field.dataType) for field in schema.fields]


def column_type(column: TableColumn, types: Mapping[ColumnKind, str]) -> str:
    kind = types[column.kind]
    return f"{kind}({column.detail})" if column.detail and kind == "NUMERIC" else kind


def create_statement(table: Table, columns: Sequence[TableColumn], types: Mapping[ColumnKind, str]) -> str:
    made = ", ".join(f"{quoted(column.name)} {column_type(column, types)}" for column in columns)
    key = f", UNIQUE ({quoted_list(table.key)})" if table.key else ""
    return f"CREATE TABLE IF NOT EXISTS {table.quoted} ({made}{key})"


def newest_by_problem(name: str, columns: Sequence[TableColumn]) -> str | None:
    """Why this column cannot determine the newest row: databases sort text differently."""
    kinds = {column.name: column.kind for column in columns}
    if name not in kinds:
        return f"{name!r} is not among {', '.join(kinds)}"
    return (
        None
        if kinds[name] in ORDERED_KINDS
        else f"{name!r} is {kinds[name]}: a number, a date or a time can be compared"
    )


def conflict_clause(
    table: Table, columns: Sequence[TableColumn], compared: Mapping[ColumnKind, str] | None = None
) -> str:
    """`compared`: SQL forms for comparisons, with `{}` for the value. The stored row is named STORED."""
    others = [column.name for column in columns if column.name not in table.key]
    if not others:
        return f"ON CONFLICT ({quoted_list(table.key)}) DO NOTHING"
    changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
    clause = f"ON CONFLICT ({quoted_list(table.key)}) DO UPDATE SET {changes}"
    if table.newest_by is None:
        return clause
    return f"{clause} WHERE NOT {is_newer(STORED_ALIAS, 'excluded', table, columns, compared or {})}"


def is_newer(
    stored: str, given: str, table: Table, columns: Sequence[TableColumn], compared: Mapping[ColumnKind, str]
) -> str:
    """A condition, never null: the stored row must stay. Null is older than any value."""
    assert table.newest_by is not None
    form = compared.get(next(column.kind for column in columns if column.name == table.newest_by), "{}")
    old, new = (form.format(f"{side}.{quoted(table.newest_by)}") for side in (stored, given))
    return f"({old} IS NOT NULL AND ({new} IS NULL OR {new} < {old}))"


def quoted(name: str) -> str:
    if "\0" in name or not name:
        raise SinkError(f"{name!r} is not a valid name of a table or column")
    return '"' + name.replace('"', '""') + '"'


def quoted_list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def timestamp_text(microseconds: Any) -> Any:
    """An Arrow column as ISO 8601 text in UTC."""
    import pyarrow as pa  # noqa: PLC0415 (this package is imported without Arrow)
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.strftime(microseconds.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")


def row_values(batch: Any, columns: Sequence[TableColumn]) -> list[tuple[Any, ...]]:
    """For a database without such types: dates, times and decimals are text."""
    values = [_values(batch.column(index), column.kind) for index, column in enumerate(columns)]
    return list(zip(*values, strict=True)) if values else []


def _values(array: Any, kind: ColumnKind) -> list[Any]:
    if kind == "timestamp":
        array = timestamp_text(array)
    values: list[Any] = array.to_pylist()
    if kind in ("date", "local_timestamp"):
        return [None if each is None else each.isoformat() for each in values]
    if kind == "decimal":
        return [None if each is None else format(each, "f") for each in values]
    return values


def _table_column(name: str, kind: DataType) -> TableColumn:
    word = kind.typeName()
    if word.startswith("decimal"):
        return TableColumn(name, "decimal", f"{kind.precision},{kind.scale}")  # type: ignore[attr-defined]
    return TableColumn(name, KINDS.get(word, "text"))
