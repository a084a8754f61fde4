"""Evaluates a search expression for one message. The prefilter must agree with this reference implementation.

Rules:
1. Text is searched in the raw bytes, in the bytes with JSON escapes resolved (`\\u00fc`), and in the document's text if
   a schema or an internal decoder was used.
2. Numbers are compared exactly: 42, 42.0 and 4.2e1 are equal. A string that is a number counts as one if it is compared
   with an unquoted number.
3. `!=` is `not … =`: it also holds if the field does not exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

from ottla.base.regular_expressions import compile_pattern
from ottla.operations.messages.expressions.parser import as_number
from ottla.operations.messages.expressions.syntax import (
    HEADER,
    KEY,
    OFFSET,
    PARTITION,
    POSITION_FIELDS,
    And,
    Compare,
    Expression,
    Field,
    Literal,
    LiteralKind,
    Not,
    Or,
    Pattern,
    Text,
)

Headers = Sequence[tuple[str, bytes | None]]
Matcher = Callable[["SearchableMessage"], bool]
BOM = b"\xef\xbb\xbf"
NO_DOCUMENT: Any = object()  # distinct from null and every document
_ESCAPE = re.compile(
    rb"""\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(["\\/bfnrt]))"""
)
_ESCAPED = {b'"': b'"', b"\\": b"\\", b"/": b"/", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


class SearchableMessage(Protocol):
    """A message, as far as an expression needs it."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...

    def document(self, part: str) -> Any:
        """The decoded key or value; NO_DOCUMENT if it is not a document."""

    def raw_bytes(self) -> bytes | None:
        """Bytes that contain all searchable parts of the message; None if there are none."""

    def document_texts(self) -> Sequence[bytes]:
        """The documents of key and value as text; empty if they are the bytes themselves."""


def compile_expression(expression: Expression) -> Matcher:
    """A function that evaluates the expression for a message."""
    match expression:
        case Text(text):
            return _text_matcher(text.encode())
        case Pattern():
            return _pattern_matcher(expression)
        case Compare():
            return _comparison(expression)
        case And(parts):
            # Cheap conditions first: decoding comes last.
            matchers = [compile_expression(part) for part in sorted(parts, key=_cost)]
            return lambda message: all(matcher(message) for matcher in matchers)
        case Or(parts):
            matchers = [compile_expression(part) for part in sorted(parts, key=_cost)]
            return lambda message: any(matcher(message) for matcher in matchers)
        case Not(part):
            inner = compile_expression(part)
            return lambda message: not inner(message)


def _text_matcher(needle: bytes) -> Matcher:
    def matches(message: SearchableMessage) -> bool:
        everything = message.raw_bytes()
        if everything is not None and needle not in everything and b"\\" not in everything:
            return False
        return any(needle in part for part in searched_texts(message))

    return matches


def searched_texts(message: SearchableMessage) -> Iterator[bytes]:
    """All parts of the message in which text is searched."""
    if message.key is not None:
        yield from _with_unescaped(message.key)
    if message.value is not None:
        yield from _with_unescaped(message.value)
    for name, value in message.headers:
        yield name.encode("utf-8", "surrogateescape")
        if value is not None:
            yield from _with_unescaped(value)
    yield from message.document_texts()


def unescaped(data: bytes) -> bytes:
    """The bytes with all JSON escapes resolved."""
    return _ESCAPE.sub(_plain, data)


def read_json(data: bytes) -> Any:
    """The JSON document in the bytes, with exact numbers; NO_DOCUMENT if they are not JSON."""
    try:
        text = data.removeprefix(BOM).decode()  # the codec utf-8-sig takes ten times as long
        try:
            return _DECODER.decode(text)
        except InvalidOperation:  # an exponent out of range
            return _LENIENT_DECODER.decode(text)
    except (ValueError, RecursionError):
        return NO_DOCUMENT


def values_at(document: Any, path: Sequence[str]) -> Iterator[Any]:
    """All values at a path. Arrays are traversed, also at the end of the path."""
    if isinstance(document, (list, tuple)):
        for item in document:
            yield from values_at(item, path)
        if path and path[0].isdecimal() and path[0].isascii() and int(path[0][:9]) < len(document):
            yield from values_at(document[int(path[0][:9])], path[1:])
    elif not path:
        yield document
    elif isinstance(document, dict) and path[0] in document:
        yield from values_at(document[path[0]], path[1:])


def _cost(expression: Expression) -> int:
    match expression:
        case Compare(field) if field.part in POSITION_FIELDS:
            return 0
        case Text():
            return 1
        case Pattern(field=None):
            return 2
    return 3


def _with_unescaped(data: bytes) -> Iterator[bytes]:
    yield data
    if b"\\" in data:
        yield unescaped(data)


def _plain(match: re.Match[bytes]) -> bytes:
    high, low, alone, letter = match.groups()
    if letter is not None:
        return _ESCAPED[letter]
    if alone is not None:
        return chr(int(alone, 16)).encode("utf-8", "surrogatepass")
    return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF)).encode()


def _number(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:
        return float(text)


_DECODER = json.JSONDecoder(parse_int=Decimal, parse_float=Decimal)
_LENIENT_DECODER = json.JSONDecoder(parse_int=_number, parse_float=_number)


def _pattern_matcher(pattern: Pattern) -> Matcher:
    compiled = compile_pattern(pattern.pattern, is_case_blind=pattern.ignores_case)
    field = pattern.field
    if field is None:
        return lambda message: any(compiled.search(part) is not None for part in searched_texts(message))
    bound = field

    def matches(message: SearchableMessage) -> bool:
        for found in _field_values(message, bound):
            text = _as_text(found)
            if text is not None and compiled.search(text) is not None:
                return True
        return False

    return matches


def _comparison(comparison: Compare) -> Matcher:
    field, literal = comparison.field, comparison.literal
    if field.part in POSITION_FIELDS:
        assert literal.number is not None, "the parser accepts only numbers there"
        test = _ORDERS[comparison.operator]
        number, part = literal.number, field.part
        return lambda message: test(_position_value(message, part), number)
    operator = comparison.operator
    return lambda message: any(_compare(found, operator, literal) for found in _field_values(message, field))


def _position_value(message: SearchableMessage, part: str) -> int:
    if part == OFFSET:
        return message.offset
    return message.partition if part == PARTITION else message.timestamp_ms


def _field_values(message: SearchableMessage, field: Field) -> Iterator[Any]:
    """The values of a field: bytes for the raw bytes, otherwise values of the document."""
    if field.part == HEADER:
        for name, value in message.headers:
            if name == field.path[0]:
                yield value
                if value is not None:
                    yield from _scalar(read_json(value))
        return
    data = message.key if field.part == KEY else message.value
    if field.path:
        if data is not None:
            document = message.document(field.part)
            if document is not NO_DOCUMENT:
                yield from values_at(document, field.path)
        return
    yield data
    if data is not None:
        yield from _scalar(message.document(field.part))


def _scalar(document: Any) -> Iterator[Any]:
    """A document that is a single string or number: the bytes "x" with quotes also equal x."""
    if document is not NO_DOCUMENT and document is not None and not isinstance(document, (dict, list, tuple)):
        yield document


def _as_text(found: Any) -> bytes | str | None:
    if isinstance(found, (bytes, str)):
        return found if isinstance(found, bytes) else found.encode("utf-8", "surrogatepass")
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, (int, float, Decimal)) else None


def _compare(found: Any, operator: str, literal: Literal) -> bool:
    if literal.kind is LiteralKind.NULL:
        return found is None
    if isinstance(found, bytes):
        try:
            found = found.decode()
        except UnicodeDecodeError:
            return False
    if literal.kind is LiteralKind.BOOLEAN:
        return found is (literal.text == "true") or (isinstance(found, str) and found == literal.text)
    if literal.number is not None:
        number = _as_decimal(found)
        return number is not None and _ORDERS[operator](number, literal.number)
    return isinstance(found, str) and _ORDERS[operator](found, literal.text)


def _as_decimal(found: Any) -> Decimal | None:
    if isinstance(found, bool):
        return None
    if isinstance(found, str):
        return as_number(found)
    if isinstance(found, float):
        found = Decimal(repr(found))
    elif isinstance(found, int):
        found = Decimal(found)
    return found if isinstance(found, Decimal) and not found.is_nan() else None


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: bool(one == other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}
