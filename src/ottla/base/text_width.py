"""How many columns of a terminal a text takes: characters of East Asia and emoji two, marks on others none. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

NO_WIDTH = ("Mn", "Me", "Cf")  # marks on the character before, and joiners
WIDE = ("W", "F")


def width_of(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_width, text))


def filled(text: str, width: int) -> str:
    """With blanks behind it, as `ljust` does where every character takes one column."""
    return text + " " * (width - width_of(text))


def shortened(text: str, width_max: int) -> str:
    """With … for what does not fit."""
    if width_of(text) <= width_max:
        return text
    end, width = 0, 0
    while width + _width(text[end]) < width_max:
        width += _width(text[end])
        end += 1
    return f"{text[:end]}…"


def column_widths(table: Sequence[Sequence[str]]) -> list[int]:
    """How wide the columns of these rows are, headings among them."""
    return [max(map(width_of, column)) for column in zip(*table, strict=True)]


def row_text(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells under one another, two blanks between columns."""
    return "  ".join(filled(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _width(character: str) -> int:
    if unicodedata.category(character) in NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in WIDE else 1
