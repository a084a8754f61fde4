"""What SQL databases have in common for us: names, types of columns, and what is wrong with a table.

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
Kind = Literal[
    "boolean", "integer", "float", "decimal", "text", "json", "binary", "date", "timestamp", "local_timestamp"
]

LEDGER = "ottla_batches"
STORED = "stored"  # the row that an upsert meets
DELETED = "_deleted"  # of the rows of a pipeline: whether this one removes the row of its key
ORDERED: tuple[Kind, ...] = ("integer", "float", "decimal", "date", "timestamp", "local_timestamp")
FORGOTTEN = "a row that was deleted is not remembered, so an older one that comes later would bring it back"
KINDS: Mapping[str, Kind] = {
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
    kind: Kind
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """A table and how rows get into it.

    Of rows with the same key, upsert keeps the one with the greatest `newest_by`, compared with what is stored, too.
    Without it the last by the columns of `order` counts (they are not written), or, without these, the last that comes.
    `delete_by` is a boolean column that is not written: where it is true the row that counts removes that of its key.
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
            raise SinkError(f"table {self.name}: delete_by and newest_by exclude each other: {FORGOTTEN}")

    @property
    def quoted(self) -> str:
        """A dot separates schema and table."""
        return ".".join(quoted(part) for part in self.name.split("."))

    def columns(self, schema: StructType) -> list[TableColumn]:
        """What is written of rows with this schema."""
        return [column for column in table_columns(schema) if column.name not in (self.delete_by, *(self.order or ()))]

    def check_rows(self, columns: Sequence[TableColumn]) -> None:
        """Raises SinkError."""
        names = [column.name for column in columns]
        missing = [name for name in self.key if name not in names]
        if missing:
            raise SinkError(f"table {self.name}: key column {missing[0]!r} is not among {', '.join(names)}")
        problem = newest_problem(self.newest_by, columns) if self.newest_by is not None else None
        if problem:
            raise SinkError(f"table {self.name}: newest_by: {problem}")
        folded = [name.lower() for name in names]
        doubled = next((name for name in folded if folded.count(name) > 1), None)
        if doubled is not None:
            raise SinkError(f"table {self.name}: two columns are named {doubled!r}; rename one")

    def check_existing(
        self, columns: Sequence[TableColumn], existing: Mapping[str, str], types: Mapping[Kind, str]
    ) -> None:
        """`existing`: the table's columns and their types. Raises SinkError with what to do about it."""
        missing = [column for column in columns if column.name not in existing]
        if missing:
            add = f"ALTER TABLE {self.quoted} ADD COLUMN {quoted(missing[0].name)} {column_type(missing[0], types)}"
            raise SinkError(
                f"table {self.name} has no column {missing[0].name!r}; it has {', '.join(existing)}:"
                f" add it ({add}) or choose the columns to write"
            )


def table_columns(schema: StructType) -> list[TableColumn]:
    return [_table_column(field.name, field.dataType) for field in schema.fields]


def column_type(column: TableColumn, types: Mapping[Kind, str]) -> str:
    kind = types[column.kind]
    return f"{kind}({column.detail})" if column.detail and kind == "NUMERIC" else kind


def create_statement(table: Table, columns: Sequence[TableColumn], types: Mapping[Kind, str]) -> str:
    made = ", ".join(f"{quoted(column.name)} {column_type(column, types)}" for column in columns)
    key = f", UNIQUE ({quoted_list(table.key)})" if table.key else ""
    return f"CREATE TABLE IF NOT EXISTS {table.quoted} ({made}{key})"


def newest_problem(name: str, columns: Sequence[TableColumn]) -> str | None:
    """Why this column cannot tell which row is the newest: databases differ in the order of text."""
    kinds = {column.name: column.kind for column in columns}
    if name not in kinds:
        return f"{name!r} is not among {', '.join(kinds)}"
    return None if kinds[name] in ORDERED else f"{name!r} is {kinds[name]}: a number, a date or a time can be compared"


def conflict_clause(table: Table, columns: Sequence[TableColumn], compared: Mapping[Kind, str] | None = None) -> str:
    """`compared`: how values are written for a comparison, `{}` being the value. The stored row is named STORED."""
    others = [column.name for column in columns if column.name not in table.key]
    if not others:
        return f"ON CONFLICT ({quoted_list(table.key)}) DO NOTHING"
    changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
    clause = f"ON CONFLICT ({quoted_list(table.key)}) DO UPDATE SET {changes}"
    if table.newest_by is None:
        return clause
    return f"{clause} WHERE NOT {is_newer(STORED, 'excluded', table, columns, compared or {})}"


def is_newer(
    stored: str, given: str, table: Table, columns: Sequence[TableColumn], compared: Mapping[Kind, str]
) -> str:
    """A condition, true or false: the stored row must stay. One without a value is older than any other."""
    assert table.newest_by is not None
    form = compared.get(next(column.kind for column in columns if column.name == table.newest_by), "{}")
    old, new = (form.format(f"{side}.{quoted(table.newest_by)}") for side in (stored, given))
    return f"({old} IS NOT NULL AND ({new} IS NULL OR {new} < {old}))"


def quoted(name: str) -> str:
    if "\0" in name or not name:
        raise SinkError(f"{name!r} is no name for a table or column")
    return '"' + name.replace('"', '""') + '"'


def quoted_list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def timestamp_text(microseconds: Any) -> Any:
    """An Arrow column as ISO-8601 text in UTC."""
    import pyarrow as pa  # noqa: PLC0415 (this package is imported without Arrow)
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.strftime(microseconds.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")


def row_values(batch: Any, columns: Sequence[TableColumn]) -> list[tuple[Any, ...]]:
    """Of a database without types for them: dates, times and decimals are text."""
    values = [_values(batch.column(index), column.kind) for index, column in enumerate(columns)]
    return list(zip(*values, strict=True)) if values else []


def _values(array: Any, kind: Kind) -> list[Any]:
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
