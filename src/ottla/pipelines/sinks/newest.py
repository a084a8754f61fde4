"""Of the rows of a batch that have the same key, the newest one: what an upsert is given.

After a shuffle rows of one key lie in any task, in any order; what is written last must not depend on that. The newest
is the row with the greatest `newest_by`, among equals the last by `order`, and rows that are equal in both (a join made
them of one record) are told apart by their content: a repetition keeps the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines.sinks.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEWEST, ROW = "_newest", "_row"


def newest_rows(rows: DataFrame, table: Table) -> DataFrame:
    """One row of each key, without the columns that only tell the order. The columns are those that a table takes."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    if table.mode != "upsert" or (table.order is None and table.newest_by is None):
        return rows
    order = table.order or ()
    row = F.struct(*(F.col(_quoted(name)) for name in rows.columns if name not in order))
    told = [] if table.newest_by is None else [_comparable(rows, table.newest_by)]
    places = [column.alias(f"_{at}") for at, column in enumerate([*told, *map(F.col, order)])]
    keys = [F.col(_quoted(name)).alias(f"_key_{at}") for at, name in enumerate(table.key)]
    newest = F.max(F.struct(*places, row.alias(ROW))).alias(NEWEST)  # null is less than anything
    return rows.groupBy(*keys).agg(newest).select(f"{NEWEST}.{ROW}.*")


def _comparable(rows: DataFrame, name: str) -> Column:
    """NaN is greater than anything in Spark; here it is no value."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    column = F.col(_quoted(name))
    is_float = rows.schema[name].dataType.typeName() in ("float", "double")
    return F.when(~F.isnan(column), column) if is_float else column


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
