"""What every format has in common: what a parsed schema is, how a wrong one is refused, and how large one may be.

The limits stand for all formats, so that no text costs more than a moment: whoever walks a schema recurses as deep as
its text is nested, and never further.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Protocol

TEXT_BYTES_MAX = 1_000_000  # a record of the topic holds no more
DEPTH_MAX = 200  # brackets inside brackets; Python's own stack holds a few times as many
NODES_MAX = 50_000  # types, fields, symbols and values of one schema, with all that it refers to
TOO_LARGE = f"The schema has more than {NODES_MAX} parts"
REFERENCES_MAX = 1_000
PROBLEM_CHARACTERS_MAX = 1_000
# What does not close goes to the end: else each beginning would be tried again, and the time be square.
TEXT = r'"(?:[^"\\]|\\(?s:.)|\\\Z)*(?:"|\Z)'
COMMENT_OR_TEXT = re.compile(TEXT + r"|//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)")
BRACKET_OR_TEXT = re.compile(TEXT + r"|[\[{]|[\]}]")


class InvalidSchemaError(ValueError):
    """A schema that cannot be taken; the text says why, in one line, whatever it quotes."""

    def __init__(self, problem: str) -> None:
        super().__init__(" ".join(problem.split())[:PROBLEM_CHARACTERS_MAX])


class Parsed(Protocol):
    """A schema that was read. Same `kind`, `text` and references: same schema."""

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str:
        """What the registry stores and gives back."""

    def normalized(self) -> str:
        """What it stores when `normalize` is asked for: equal for schemas that mean the same."""

    def problems_reading(self, writer: Any) -> list[str]:
        """Why it does not understand what `writer`, of the same kind, writes; %s is the reader, then the writer."""


class Budget:
    """Counts what a walk has done, so that no schema makes it long."""

    __slots__ = ("left", "what")

    def __init__(self, steps: int, what: str) -> None:
        self.left = steps
        self.what = what

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise InvalidSchemaError(self.what)


def nodes_budget() -> Budget:
    return Budget(NODES_MAX, TOO_LARGE)


def check_size(text: str) -> None:
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        raise InvalidSchemaError(f"The schema is longer than {TEXT_BYTES_MAX} bytes")


def read_json(text: str, *, comments: bool = False, exact: bool = False) -> Any:
    """The value that the text holds; no deeper than DEPTH_MAX. Exact: fractions keep all their digits."""
    check_size(text)
    if comments and "/" in text:
        text = COMMENT_OR_TEXT.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
    check_depth(text)
    try:
        return json.loads(text, parse_constant=refuse_constant, parse_float=Decimal if exact else None)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise InvalidSchemaError(f"Not JSON: {error}") from None


def check_depth(text: str) -> None:
    depth = 0
    for found in BRACKET_OR_TEXT.finditer(text):
        bracket = found[0]
        if bracket in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise InvalidSchemaError(f"The schema is nested deeper than {DEPTH_MAX}")
        elif bracket in "]}":
            depth -= 1


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value of JSON")
