"""The tree of a search expression. Only data: what it means is in matching.py, how it is written in parser.py."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

KEY, VALUE, HEADER = "key", "value", "header"
OFFSET, PARTITION, TIMESTAMP = "offset", "partition", "timestamp"
PLACES = frozenset({OFFSET, PARTITION, TIMESTAMP})  # where a message lies, known without looking into it


class Kind(StrEnum):
    """What a literal is; one without quotes that is no number is a string as well."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Literal:
    kind: Kind
    text: str
    number: Decimal | None = None  # only of a number


@dataclass(frozen=True, slots=True)
class Field:
    """`part` of a message; of a key or value a path into its document, of headers the one name."""

    part: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.part, *self.path))


@dataclass(frozen=True, slots=True)
class Text:
    """Occurs in the key, the value, a header's name or a header's value."""

    text: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """An RE2 expression, looked for in `field`, or everywhere where text is looked for."""

    pattern: str
    is_case_blind: bool = False
    field: Field | None = None


@dataclass(frozen=True, slots=True)
class Compare:
    """`operator` is one of = < <= > >=; other signs are written with these."""

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
