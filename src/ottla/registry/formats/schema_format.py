"""The interface of parsed schemas, the error for invalid ones, and limits for all formats.

The limits bound the cost of every schema. Recursive code is bounded by the nesting depth of the text.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Protocol

TEXT_BYTES_MAX = 1_000_000  # the limit of a record in the topic
DEPTH_MAX = 200  # of brackets; Python's recursion limit is several times higher
NODES_MAX = 50_000  # types, fields, symbols and values of one schema with its references
TOO_LARGE = f"The schema has more than {NODES_MAX} parts"
REFERENCES_MAX = 1_000
PROBLEM_CHARACTERS_MAX = 1_000
# An unterminated string or comment extends to the end; otherwise every start would be retried, in quadratic time.
TEXT = r'"(?:[^"\\]|\\(?s:.)|\\\Z)*(?:"|\Z)'
COMMENT_OR_TEXT = re.compile(TEXT + r"|//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)")
BRACKET_OR_TEXT = re.compile(TEXT + r"|[\[{]|[\]}]")


class InvalidSchemaError(ValueError):
    """An invalid schema; str() is the reason in one line."""

    def __init__(self, problem: str) -> None:
        super().__init__(" ".join(problem.split())[:PROBLEM_CHARACTERS_MAX])


class ParsedSchema(Protocol):
    """A parsed schema. Equal `kind`, `text` and references mean equal schemas."""

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str:
        """The form that the registry stores and returns."""

    def normalized(self) -> str:
        """The form with `normalize`: equal for equivalent schemas."""

    def problems_reading(self, writer: Any) -> list[str]:
        """Why this schema cannot read data of `writer`, which is of the same kind; the first %s is the reader."""


class StepLimit:
    """A limit on the steps of an algorithm."""

    __slots__ = ("left", "what")

    def __init__(self, steps: int, what: str) -> None:
        self.left = steps
        self.what = what

    def consume(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise InvalidSchemaError(self.what)


def nodes_budget() -> StepLimit:
    return StepLimit(NODES_MAX, TOO_LARGE)


def check_size(text: str) -> None:
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        raise InvalidSchemaError(f"The schema is longer than {TEXT_BYTES_MAX} bytes")


def read_json(text: str, *, comments: bool = False, exact: bool = False) -> Any:
    """Parse JSON, at most DEPTH_MAX deep. `exact` keeps all digits of fractions."""
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
