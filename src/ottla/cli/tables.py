"""Tables: aligned and coloured on a terminal, tab-separated values in a pipe.

rich draws them if it is installed (`pip install 'ottla[cli]'`); otherwise columns are padded with spaces.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ottla.base.text import column_widths, escape_cell, row_text
from ottla.cli.terminal import is_terminal


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    """Print rows under their headings; the columns named in `numbers` are right-aligned."""
    if not is_terminal(sys.stdout):
        for row in rows:
            print("\t".join(map(escape_cell, row)))
        return
    try:
        _print_rich(columns, rows, numbers)
    except ImportError:
        for line in padded(columns, [list(map(escape_cell, row)) for row in rows]):
            print(line)


def padded(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Headings and rows as lines with aligned columns."""
    table = [tuple(columns), *map(tuple, rows)]
    widths = column_widths(table)
    return [row_text(row, widths) for row in table]


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 (50 ms, and only for a terminal)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape_cell(cell)) for cell in row))
    Console().print(table)
