"""Of the rows of a batch that have the same key, the newest one: what an upsert is given, also to delete by.

After a shuffle rows of one key lie in any task, in any order; what is written last must not depend on that. The newest
is the row with the greatest `newest_by`, among equals the last by `order`, and rows that are equal in both (a join made
them of one record) are told apart by their content: a repetition keeps the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.tables import Kind, Table, TableColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEWEST, ROW = "_newest", "_row"
MERGED: tuple[Kind, ...] = ("json", "float")


def newest_rows(rows: DataFrame, table: Table, columns: Sequence[TableColumn]) -> DataFrame:
    """One row of each key, without the columns that only tell the order. The rows are as a table takes them."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    if not has_choice(table, columns):
        return rows
    order = table.order or ()
    row = F.struct(*(F.col(_quoted(name)) for name in rows.columns if name not in order))
    told = [] if table.newest_by is None else [_comparable(rows, table.newest_by)]
    places = [column.alias(f"_{at}") for at, column in enumerate([*told, *map(F.col, order)])]
    keys = [F.col(_quoted(name)).alias(f"_key_{at}") for at, name in enumerate(table.key)]
    newest = F.max(F.struct(*places, row.alias(ROW))).alias(NEWEST)  # null is less than anything
    return rows.groupBy(*keys).agg(newest).select(f"{NEWEST}.{ROW}.*")


def has_choice(table: Table, columns: Sequence[TableColumn]) -> bool:
    """Whether a batch may have two rows of one key. Rows with nothing that tells their order were grouped by the key
    (model/row_order.py): to group them again would be a shuffle for nothing. But values that Spark tells apart may be
    one in the table, as texts of JSON, or NaN and null."""
    if table.mode != "upsert" or (table.order is None and table.newest_by is None):
        return False
    merged = any(column.kind in MERGED for column in columns if column.name in table.key)
    return bool(table.order) or table.newest_by is not None or merged


def with_deletions(rows: DataFrame, table: Table) -> DataFrame:
    """The column `delete_by` at the end, true or false. A row that deletes and has no key says not what to delete: the
    plan fails with that word, before rows are pinned, so that a better pipeline may repeat the batch."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if table.delete_by is None:
        return rows
    if table.delete_by not in rows.columns or rows.schema[table.delete_by].dataType.typeName() != "boolean":
        raise SinkError(f"table {table.name}: delete_by: there is no boolean column {table.delete_by!r}")
    others = [F.col(_quoted(name)) for name in rows.columns if name != table.delete_by]
    deletes = F.coalesce(F.col(_quoted(table.delete_by)), F.lit(False))
    without = [(F.col(_quoted(name)).isNull(), name) for name in table.key]
    for is_null, name in without:
        deletes = F.when(deletes & is_null, F.raise_error(F.lit(_no_key(table, name))).cast("boolean")).otherwise(
            deletes
        )
    return rows.select(*others, deletes.alias(table.delete_by))


def refused_deletion(problem: Exception, table: Table) -> SinkError | None:
    """What the failed plan of `with_deletions` says, in its own words."""
    texts = [_no_key(table, name) for name in table.key]
    return next((SinkError(text) for text in texts if text in str(problem)), None)


def _no_key(table: Table, name: str) -> str:
    return (
        f"table {table.name}: a row that deletes has no value in the key column {name!r}: take it from the key of the"
        " record, or let such rows die (rule)"
    )


def _comparable(rows: DataFrame, name: str) -> Column:
    """NaN is greater than anything in Spark; here it is no value."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    column = F.col(_quoted(name))
    is_float = rows.schema[name].dataType.typeName() in ("float", "double")
    return F.when(~F.isnan(column), column) if is_float else column


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
