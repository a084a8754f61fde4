"""Tables that fit the terminal: the first layout that is narrow enough; numbers are never truncated.

Given up in this order: sparklines, the long form of numbers, the ends of names. Pure except for `FittingTable`, which
reads the terminal's width from rich.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

GAP = 2  # as rich draws them
NAME_WIDTH_MIN = 4

Cell = tuple[str, str]  # text and style


class Layout(NamedTuple):
    """One layout. Columns in `words` are left-aligned and may be truncated."""

    columns: tuple[str, ...]
    rows: list[list[Cell]]
    words: tuple[str, ...]

    @property
    def widths(self) -> list[int]:
        texts = [self.columns, *([text for text, _ in row] for row in self.rows)]
        return [max(len(row[place]) for row in texts) for place in range(len(self.columns))]

    @property
    def width(self) -> int:
        return sum(self.widths) + GAP * (len(self.columns) - 1)

    def without(self, column: int) -> Layout:
        rows = [[*row[:column], *row[column + 1 :]] for row in self.rows]
        return self._replace(columns=(*self.columns[:column], *self.columns[column + 1 :]), rows=rows)

    def cut(self, width: int) -> Layout:
        """Truncate the longest names until the table fits."""
        layout = self
        while layout.width > width:
            widths = layout.widths
            places = [place for place, name in enumerate(self.columns) if name in self.words]
            longest = max(places, key=lambda place: widths[place], default=None)
            if longest is None or widths[longest] <= NAME_WIDTH_MIN:
                return layout
            layout = layout._shortened(longest, widths[longest] - 1)
        return layout

    def _shortened(self, column: int, width: int) -> Layout:
        name = self.columns[column][:width]
        rows = [
            [(_cut(text, width) if place == column else text, style) for place, (text, style) in enumerate(row)]
            for row in self.rows
        ]
        columns = (*self.columns[:column], name, *self.columns[column + 1 :])
        words = tuple(name if word == self.columns[column] else word for word in self.words)
        return Layout(columns, rows, words)


class FittingTable:
    """A rich renderable that chooses the layout when the width is known."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.layouts = layouts

    def __repr__(self) -> str:
        return f"FittingTable({[layout.width for layout in self.layouts]})"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        yield drawn(chosen(self.layouts, options.max_width))


def chosen(layouts: Sequence[Layout], width: int) -> Layout:
    """The first layout that fits, else the last one with truncated names."""
    return next((layout for layout in layouts if layout.width <= width), layouts[-1].cut(width))


def drawn(layout: Layout) -> Table:
    from rich.table import Table  # noqa: PLC0415 (50 ms, and only for a terminal)
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, header_style="bold cyan", pad_edge=False)
    for name in layout.columns:
        table.add_column(name, justify="left" if name in layout.words else "right", no_wrap=True)
    for row in layout.rows:
        table.add_row(*(Text(text, style) for text, style in row))
    return table


def _cut(text: str, width: int) -> str:
    """Truncate in the middle, because names of one pipeline often have a common prefix."""
    if len(text) <= width:
        return text
    end = width // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"
