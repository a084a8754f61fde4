"""Prints rows in the terminal, to try a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.base.text import column_widths, row_text, truncate
from ottla.pipelines.sinks.batch import Batch, run_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 20
WIDTH_MAX = 40


@dataclass(frozen=True)
class ConsoleSink:
    """Prints the first rows of each batch as a table; prints nothing for empty batches."""

    rows: int = ROWS

    def write(self, rows: DataFrame, batch: Batch) -> None:
        kept = rows.persist()  # limit() reads only some partitions, but state and counts need all of them exactly once
        try:
            run_plan(kept)
            shown = kept.limit(self.rows + 1).collect()
        finally:
            kept.unpersist()
        more = ["  …"] if len(shown) > self.rows else []
        print(
            *table_lines(rows.columns, shown[: self.rows], batch),
            *more,
            sep="\n",
            end="\n" if shown else "",
            flush=True,
        )


def table_lines(names: list[str], rows: list[Any], batch: Batch) -> list[str]:
    if not rows:
        return []
    cells = [list(names), *([cell_text(value) for value in row] for row in rows)]
    widths = column_widths(cells)
    lines = [row_text(row, widths) for row in cells]
    rule = "  ".join("─" * width for width in widths)
    return [f"── {batch.query}, batch {batch.batch_id}", lines[0], rule, *lines[1:]]


def cell_text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="backslashreplace")
    text = "NULL" if value is None else str(value).replace("\n", "\\n")
    return truncate(text, WIDTH_MAX)
