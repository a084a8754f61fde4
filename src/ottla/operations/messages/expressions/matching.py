"""What an expression means for one message: the slow, obvious way, which every faster one must agree with.

Rules:
1. Text is looked for in the bytes as they are, and in the bytes with the escapes of JSON resolved (`\\u00fc`), and in
   the text of the document where a schema or a decoder of internal topics made one.
2. Numbers are compared as numbers, exactly: 42, 42.0 and 4.2e1 are the same. A text that is a number counts as one if
   it is compared with a number without quotes.
3. `!=` is `not … =`: it also holds where the field does not exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

from ottla.operations.messages.expressions.parser import as_number, compile_pattern
from ottla.operations.messages.expressions.syntax import (
    HEADER,
    KEY,
    OFFSET,
    PARTITION,
    PLACES,
    And,
    Compare,
    Expression,
    Field,
    Kind,
    Literal,
    Not,
    Or,
    Pattern,
    Text,
)

Headers = Sequence[tuple[str, bytes | None]]
Matcher = Callable[["Searched"], bool]
BOM = b"\xef\xbb\xbf"
NO_DOCUMENT: Any = object()  # neither null nor anything else that a document can be
_ESCAPE = re.compile(
    rb"""\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(["\\/bfnrt]))"""
)
_ESCAPED = {b'"': b'"', b"\\": b"\\", b"/": b"/", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


class Searched(Protocol):
    """A message as far as a search looks at it."""

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
        """What the key or value says, decoded; NO_DOCUMENT if it is nothing but bytes."""

    def everything(self) -> bytes | None:
        """Bytes in which all of the message lies, and nothing else of it can be searched; None: not known."""

    def texts(self) -> Sequence[bytes]:
        """What decoders made of key and value, as text; empty where that is the bytes themselves."""


def compile_expression(expression: Expression) -> Matcher:
    """A function that tells whether a message is meant."""
    match expression:
        case Text(text):
            return _text_matcher(text.encode())
        case Pattern():
            return _pattern_matcher(expression)
        case Compare():
            return _comparison(expression)
        case And(parts):
            # where a message lies is known already; what must be decoded comes last
            matchers = [compile_expression(part) for part in sorted(parts, key=_cost)]
            return lambda message: all(matcher(message) for matcher in matchers)
        case Or(parts):
            matchers = [compile_expression(part) for part in sorted(parts, key=_cost)]
            return lambda message: any(matcher(message) for matcher in matchers)
        case Not(part):
            inner = compile_expression(part)
            return lambda message: not inner(message)


def _text_matcher(needle: bytes) -> Matcher:
    def matches(message: Searched) -> bool:
        everything = message.everything()
        if everything is not None and needle not in everything and b"\\" not in everything:
            return False
        return any(needle in part for part in searched_texts(message))

    return matches


def searched_texts(message: Searched) -> Iterator[bytes]:
    """Everything in which text is looked for."""
    if message.key is not None:
        yield from _spellings(message.key)
    if message.value is not None:
        yield from _spellings(message.value)
    for name, value in message.headers:
        yield name.encode("utf-8", "surrogateescape")
        if value is not None:
            yield from _spellings(value)
    yield from message.texts()


def unescaped(data: bytes) -> bytes:
    """The bytes with the escapes of JSON resolved, wherever they stand."""
    return _ESCAPE.sub(_plain, data)


def read_json(data: bytes) -> Any:
    """The document that some bytes are, its numbers exact; NO_DOCUMENT if they are no JSON."""
    try:
        text = data.removeprefix(BOM).decode()  # the codec for it, utf-8-sig, takes ten times as long
        try:
            return _DECODER.decode(text)
        except InvalidOperation:  # an exponent beyond all bounds
            return _PATIENT_DECODER.decode(text)
    except (ValueError, RecursionError):
        return NO_DOCUMENT


def values_at(document: Any, path: Sequence[str]) -> Iterator[Any]:
    """All that stands at a path; arrays are gone through, at the end of the path too."""
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
        case Compare(field) if field.part in PLACES:
            return 0
        case Text():
            return 1
        case Pattern(field=None):
            return 2
    return 3


def _spellings(data: bytes) -> Iterator[bytes]:
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
_PATIENT_DECODER = json.JSONDecoder(parse_int=_number, parse_float=_number)


def _pattern_matcher(pattern: Pattern) -> Matcher:
    compiled = compile_pattern(pattern)
    field = pattern.field
    if field is None:
        return lambda message: any(compiled.search(part) is not None for part in searched_texts(message))
    bound = field

    def matches(message: Searched) -> bool:
        for found in _found(message, bound):
            text = _as_text(found)
            if text is not None and compiled.search(text) is not None:
                return True
        return False

    return matches


def _comparison(comparison: Compare) -> Matcher:
    field, literal = comparison.field, comparison.literal
    if field.part in PLACES:
        assert literal.number is not None, "the parser takes only numbers there"
        test = _ORDERS[comparison.operator]
        number, part = literal.number, field.part
        return lambda message: test(_place(message, part), number)
    operator = comparison.operator
    return lambda message: any(_holds(found, operator, literal) for found in _found(message, field))


def _place(message: Searched, part: str) -> int:
    if part == OFFSET:
        return message.offset
    return message.partition if part == PARTITION else message.timestamp_ms


def _found(message: Searched, field: Field) -> Iterator[Any]:
    """The values that a field has in a message: bytes for the bytes themselves, else what the document holds."""
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
    """A document that is one text or number: the bytes "x" with quotes are x as well."""
    if document is not NO_DOCUMENT and document is not None and not isinstance(document, (dict, list, tuple)):
        yield document


def _as_text(found: Any) -> bytes | str | None:
    if isinstance(found, (bytes, str)):
        return found if isinstance(found, bytes) else found.encode("utf-8", "surrogatepass")
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, (int, float, Decimal)) else None


def _holds(found: Any, operator: str, literal: Literal) -> bool:
    if literal.kind is Kind.NULL:
        return found is None
    if isinstance(found, bytes):
        try:
            found = found.decode()
        except UnicodeDecodeError:
            return False
    if literal.kind is Kind.BOOLEAN:
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
