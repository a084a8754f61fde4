"""Where the rows of `ottla sql` go: tables on a terminal, tab-separated lines in a pipe, or a JSON object a line.

On a terminal the rows of a stream follow one another under one heading, and a table that changes is painted anew in its
place.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from ottla.base.counting import counted
from ottla.base.text_width import column_widths, row_text, shortened
from ottla.cli.sql.values import cell, json_line, line
from ottla.cli.tables import print_table
from ottla.cli.terminal import escape, is_terminal, warn
from ottla.pipelines.sql.execution import Batch

CELL_WIDTH_MAX = 60
WIDTH_MIN = 6
LINES_AROUND = 5  # heading, rules, the line below and the prompt

Rows = Sequence[Sequence[str]]


class Output(Protocol):
    """For one statement at a time."""

    is_whole: bool  # a table that changes is wanted as a whole, not row by row

    def batch(self, batch: Batch) -> None: ...

    def remark(self, words: str) -> None:
        """Beside the rows."""

    def end(self, batch_rows: int) -> None:
        """After the last batch."""

    def listing(self, columns: Sequence[str], rows: Rows, /) -> None:
        """What SHOW and DESCRIBE tell."""


class PipeOutput:
    """What goes to a program, row by row."""

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
    """The widths of the first rows hold for those that follow: nobody knows them yet when the heading is written."""

    is_whole = True

    def __init__(self) -> None:
        self.widths: list[int] = []
        self.painted = 0  # lines of the table that is painted in its place
        self.is_table = False

    def batch(self, batch: Batch) -> None:
        if batch.is_whole:
            self._paint(batch)
        elif batch.rows:
            self._append(batch)

    def remark(self, words: str) -> None:
        """A table that is painted after it begins below."""
        warn(words)
        self.painted = 0

    def end(self, batch_rows: int) -> None:
        if not self.is_table:
            print(f"({counted(batch_rows, 'row')})", flush=True)
        self.widths, self.painted, self.is_table = [], 0, False

    def listing(self, columns: Sequence[str], rows: Rows) -> None:
        if len(columns) == 1:  # a plan: its lines are long, and stand as they are
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
        """Up over the table before, and down again: no other screen, so that it stays when the query ends."""
        screen = shutil.get_terminal_size()
        shown = [_cells(row) for row in batch.rows[: max(screen.lines - LINES_AROUND, 1)]]
        left = len(batch.rows) - len(shown)
        wide = widths(batch.columns, shown)
        count = f"{'more than ' if batch.is_cut else ''}{counted(len(batch.rows), 'row')}"
        below = f"({count}{f', {left} not shown' if left else ''})"
        lines = [*heading(batch.columns, wide), *(row_text(row, wide) for row in shown), below]
        up = f"\x1b[{self.painted}F\x1b[J" if self.painted else ""
        print(up + "\n".join(shortened(text, screen.columns - 1) for text in lines), flush=True)
        self.painted, self.is_table = len(lines), True


def choose_output(is_json: bool) -> Output:
    if is_json:
        return JsonOutput()
    return TerminalOutput() if is_terminal(sys.stdout) else LineOutput()


def widths(columns: Sequence[str], rows: Rows) -> list[int]:
    return [max(WIDTH_MIN, width) for width in column_widths([[escape(name) for name in columns], *rows])]


def heading(columns: Sequence[str], wide: Sequence[int]) -> list[str]:
    return [row_text([escape(name) for name in columns], wide), "  ".join("-" * width for width in wide)]


def _cells(row: Sequence[Any]) -> list[str]:
    """Each on one line, harmless, and no longer than a terminal can bear."""
    texts = (escape(cell(value)).replace("\n", "\\n").replace("\t", "\\t") for value in row)
    return [shortened(text, CELL_WIDTH_MAX) for text in texts]


def _write(lines: Sequence[str]) -> None:
    if lines:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
