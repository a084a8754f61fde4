"""Prints the rows of `ottla sql`: tables on a terminal, tab-separated lines in a pipe, or JSON objects.

On a terminal the rows of a stream follow one heading, and a changing table is redrawn in place.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from ottla.base.text import column_widths, escape, escape_cell, format_count, row_text, truncate
from ottla.cli.sql.values import cell, json_line, line
from ottla.cli.tables import print_table
from ottla.cli.terminal import is_terminal, warn
from ottla.pipelines.sql.execution import Batch

CELL_WIDTH_MAX = 60
WIDTH_MIN = 6
LINES_AROUND = 5  # heading, rules, the line below and the prompt

Rows = Sequence[Sequence[str]]


class Output(Protocol):
    """The output of one statement."""

    is_whole: bool  # a changing table is delivered as a whole, not row by row

    def batch(self, batch: Batch) -> None: ...

    def remark(self, words: str) -> None:
        """Messages between the rows."""

    def end(self, batch_rows: int) -> None:
        """Called after the last batch."""

    def listing(self, columns: Sequence[str], rows: Rows, /) -> None:
        """The output of SHOW and DESCRIBE."""


class PipeOutput:
    """Row by row, for programs."""

    is_whole = False

    def remark(self, words: str) -> None:
        warn(words)

    def end(self, batch_rows: int) -> None:
        pass


class JsonOutput(PipeOutput):
    def batch(self, batch: Batch) -> None:
        _write([json_line(batch.columns, row) for row in batch.rows])

    def listing(self, columns: Sequence[str], rows: Rows) -> None:
        _write([json.dumps(dict(zip(map(str.lower, columns), row, strict=True)), ensure_ascii=False) for row in rows])


class LineOutput(PipeOutput):
    def batch(self, batch: Batch) -> None:
        _write([line(row) for row in batch.rows])

    def listing(self, _columns: Sequence[str], rows: Rows) -> None:
        _write([line(row) for row in rows])


class TerminalOutput:
    """The widths of the first rows apply to later ones, because the heading is written before those are known."""

    is_whole = True

    def __init__(self) -> None:
        self.widths: list[int] = []
        self.painted = 0  # lines of the table that is redrawn in place
        self.is_table = False

    def batch(self, batch: Batch) -> None:
        if batch.is_whole:
            self._paint(batch)
        elif batch.rows:
            self._append(batch)

    def remark(self, words: str) -> None:
        """A table that starts below the redrawn one."""
        warn(words)
        self.painted = 0

    def end(self, batch_rows: int) -> None:
        if not self.is_table:
            print(f"({format_count(batch_rows, 'row')})", flush=True)
        self.widths, self.painted, self.is_table = [], 0, False

    def listing(self, columns: Sequence[str], rows: Rows) -> None:
        if len(columns) == 1:  # a plan: long lines are kept as they are
            _write([escape(row[0]) for row in rows])
            return
        print_table(columns, rows)

    def _append(self, batch: Batch) -> None:
        rows = [_cells(row) for row in batch.rows]
        lines: list[str] = []
        if not self.widths:
            self.widths = widths(batch.columns, rows)
            lines = heading(batch.columns, self.widths)
        _write([*lines, *(row_text(row, self.widths) for row in rows)])

    def _paint(self, batch: Batch) -> None:
        """Redraw a table over the previous one, on the main screen, so that it stays visible when the query ends."""
        screen = shutil.get_terminal_size()
        shown = [_cells(row) for row in batch.rows[: max(screen.lines - LINES_AROUND, 1)]]
        left = len(batch.rows) - len(shown)
        wide = widths(batch.columns, shown)
        count = f"{'more than ' if batch.is_cut else ''}{format_count(len(batch.rows), 'row')}"
        below = f"({count}{f', {left} not shown' if left else ''})"
        lines = [*heading(batch.columns, wide), *(row_text(row, wide) for row in shown), below]
        up = f"\x1b[{self.painted}F\x1b[J" if self.painted else ""
        print(up + "\n".join(truncate(text, screen.columns - 1) for text in lines), flush=True)
        self.painted, self.is_table = len(lines), True


def choose_output(is_json: bool) -> Output:
    if is_json:
        return JsonOutput()
    return TerminalOutput() if is_terminal(sys.stdout) else LineOutput()


def widths(columns: Sequence[str], rows: Rows) -> list[int]:
    return [max(WIDTH_MIN, width) for width in column_widths([[escape_cell(name) for name in columns], *rows])]


def heading(columns: Sequence[str], wide: Sequence[int]) -> list[str]:
    return [row_text([escape_cell(name) for name in columns], wide), "  ".join("-" * width for width in wide)]


def _cells(row: Sequence[Any]) -> list[str]:
    """Escape each cell and limit its length for the terminal."""
    texts = (escape_cell(cell(value)) for value in row)
    return [truncate(text, CELL_WIDTH_MAX) for text in texts]


def _write(lines: Sequence[str]) -> None:
    if lines:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
