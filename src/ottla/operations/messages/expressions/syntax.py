"""The syntax tree of search expressions. parser.py builds it, evaluator.py evaluates it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

KEY, VALUE, HEADER = "key", "value", "header"
OFFSET, PARTITION, TIMESTAMP = "offset", "partition", "timestamp"
POSITION_FIELDS = frozenset({OFFSET, PARTITION, TIMESTAMP})  # known without decoding the message


class LiteralKind(StrEnum):
    """The type of a literal; an unquoted word that is not a number is a string."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Literal:
    kind: LiteralKind
    text: str
    number: Decimal | None = None  # set only for NUMBER


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a message; for key and value with a path into the document, for headers with the header name."""

    part: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.part, *self.path))


@dataclass(frozen=True, slots=True)
class Text:
    """Occurs in the key, the value, a header name or a header value."""

    text: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """An RE2 pattern, searched in `field`, or in all text if there is none."""

    pattern: str
    ignores_case: bool = False
    field: Field | None = None


@dataclass(frozen=True, slots=True)
class Compare:
    """`operator` is one of = < <= > >=; the other operators are expressed with these."""

    field: Field
    operator: str
    literal: Literal


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Expression


Expression = Text | Pattern | Compare | And | Or | Not
EVERYTHING = And(())
