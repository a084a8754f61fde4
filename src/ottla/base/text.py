"""Text for messages and terminals: escaping of control characters, numbers with nouns, display widths. Pure.

In terminal columns East Asian characters and emoji take two, combining marks none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# C0 and C1 controls and the characters that reorder or hide text; tab and newline are harmless within a text.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_DANGEROUS = re.compile(f"[{_CONTROLS}]")
_LINE_CONTROL = re.compile(f"[{_CONTROLS}\n\u2028\u2029]")


def escape(text: str) -> str:
    """The text with every control character written out, such as \\x1b; it keeps its lines."""
    return _DANGEROUS.sub(_escape_match, text)


def escape_line(text: str) -> str:
    """The text as one line: a name with a newline in it must not make a line of its own."""
    return _LINE_CONTROL.sub(_escape_match, text)


def escape_cell(text: str) -> str:
    """The text as one cell of a line whose cells are separated by tabs."""
    return escape_line(text).replace("\t", "\\t")


def escape_json(text: str) -> str:
    """A JSON document with such characters as JSON writes them; it means the same."""
    return _DANGEROUS.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _escape_match(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


MANY = {"is": "are", "has": "have", "stays": "stay", "gets": "get"}


def format_count(number: int, noun: str, verb: str = "") -> str:
    """A number with its noun and, if given, its verb in the matching form; pass the verb in the singular."""
    words = f"{number} {noun}{'' if number == 1 else 's'}"
    if not verb:
        return words
    return f"{words} {verb if number == 1 else MANY[verb]}"


NO_WIDTH = ("Mn", "Me", "Cf")  # combining marks and joiners
WIDE = ("W", "F")


def width_of(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_width, text))


def pad(text: str, width: int) -> str:
    """Pads with blanks, as `ljust` does where every character takes one column."""
    return text + " " * (width - width_of(text))


def truncate(text: str, width_max: int) -> str:
    """Truncates with … to the width."""
    if width_of(text) <= width_max:
        return text
    end, width = 0, 0
    while width + _width(text[end]) < width_max:
        width += _width(text[end])
        end += 1
    return f"{text[:end]}…"


def column_widths(table: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column of these rows, headings included."""
    return [max(map(width_of, column)) for column in zip(*table, strict=True)]


def row_text(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One row of a table, with two blanks between columns."""
    return "  ".join(pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _width(character: str) -> int:
    if unicodedata.category(character) in NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in WIDE else 1
