"""Rules out most messages at once: what an expression cannot do without is looked for in the bytes of whole batches.

Rules:
1. Never lose a hit: a pattern finds everything that matching.py would take for the same, in every spelling that JSON
   allows (`\\u0041`, `4.2e1`), and may find more. Where no such pattern exists there is no prefilter.
2. A message begins where its key begins, and ends where the next one's key begins: what is found there makes it a
   candidate. What lies between (lengths, headers) belongs to the one before.
3. Only for messages whose document is their own JSON. Schemas and decoders make other documents: no prefilter there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

import re2

from ottla.operations.messages.expressions.number_ranges import numbers_beyond
from ottla.operations.messages.expressions.parser import compile_pattern
from ottla.operations.messages.expressions.syntax import (
    HEADER,
    PLACES,
    And,
    Compare,
    Expression,
    Kind,
    Literal,
    Or,
    Pattern,
    Text,
)

PATTERN_MEMORY_BYTES = 16 << 20
PATTERNS_MAX = 32  # in one alternative expression; more are not worth it
CROSSINGS_MAX = 16  # finds that reach into the next message: then looking at each is quicker than looking far ahead
# What makes an expression depend on where a text begins and ends; and what only looks like it.
BOUNDARY = re.compile(r"(\\[bBAz]|[\^$])|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)
SPELLED_MAX = 64  # characters: RE2 refuses expressions that are too large
BLANK = "[ \\t\\r\\n]*"
SHORT = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\", "/": "/"}


class Needle(NamedTuple):
    """What must be there: as plain bytes if nothing is escaped (None: only as an expression), and in every spelling."""

    plain: bytes | None
    strict: str  # where no backslash is
    tolerant: str  # where there is one
    weight: int  # the more, the fewer messages have it
    knows_escapes: bool = True  # no: what has a backslash must be looked at, whatever it is


class Prefilter:
    """Finds the rows of walked batches that can be hits."""

    def __init__(self, needles: Sequence[Needle]) -> None:
        self.needles = needles
        self._plain = [needle.plain for needle in needles if needle.plain is not None]
        self._is_plain = len(self._plain) == len(needles)
        self._knows_escapes = all(needle.knows_escapes for needle in needles)
        self._strict = _compile("|".join(needle.strict for needle in needles))
        self._tolerant = _compile("|".join(needle.tolerant for needle in needles))

    def candidates(self, data: bytes, starts: Sequence[int], end: int) -> Iterator[int]:
        """The rows, in order, that may be hits; `starts` is where each key begins, `end` where the walked bytes end."""
        if not len(starts):
            return
        if data.find(b"\\", starts[0], end) >= 0:
            found = self._by_pattern(self._tolerant, data, starts, end)
            yield from found if self._knows_escapes else sorted({*found, *_by_bytes(b"\\", data, starts, end)})
        elif not self._is_plain:
            yield from self._by_pattern(self._strict, data, starts, end)
        elif len(self._plain) == 1:
            yield from _by_bytes(self._plain[0], data, starts, end)
        else:
            rows = {row for needle in self._plain for row in _by_bytes(needle, data, starts, end)}
            yield from sorted(rows)

    def _by_pattern(self, pattern: re2._Regexp, data: bytes, starts: Sequence[int], end: int) -> Iterator[int]:
        position = starts[0]
        crossings = 0
        while (match := pattern.search(data, position, end)) is not None:
            row = bisect_right(starts, match.start()) - 1
            yield row
            if row + 1 >= len(starts):
                return
            position = starts[row + 1]
            crossings += match.end() > position
            if crossings > CROSSINGS_MAX:
                yield from range(row + 1, len(starts))
                return

    def __repr__(self) -> str:
        return f"<Prefilter {[needle.plain or needle.strict for needle in self.needles]}>"


def prefilter_of(expression: Expression) -> Prefilter | None:
    """The prefilter of an expression; None if every message must be looked at."""
    needles = _needles(expression)
    if needles is None or len(needles) > PATTERNS_MAX:
        return None
    try:
        return Prefilter(needles)
    except re2.error:  # together they are too large for RE2
        return None


def _by_bytes(needle: bytes, data: bytes, starts: Sequence[int], end: int) -> Iterator[int]:
    position = data.find(needle, starts[0], end)
    while position >= 0:
        row = bisect_right(starts, position) - 1
        yield row
        if row + 1 >= len(starts):
            return
        position = data.find(needle, starts[row + 1], end)


def _needles(expression: Expression) -> list[Needle] | None:
    """Of these at least one is in every hit; None: nothing is known."""
    match expression:
        case Text(text):
            return _one(_text(text))
        case Compare(field) if field.part not in PLACES:
            return _one(_comparison(expression))
        case Pattern(field=None):
            return _one(_expression(expression))
        case Pattern(field=field) if field is not None:
            return _one(_text(field.path[0], False) if field.part == HEADER else _name(field.path))
        case And(parts):
            known = [needles for needles in map(_needles, parts) if needles is not None]
            return max(known, key=lambda needles: min(needle.weight for needle in needles), default=None)
        case Or(parts):
            everywhere: list[Needle] = []
            for part in parts:
                needles = _needles(part)
                if needles is None:
                    return None
                everywhere += needles
            return everywhere
    return None


def _one(needle: Needle | None) -> list[Needle] | None:
    return None if needle is None else [needle]


def _expression(pattern: Pattern) -> Needle | None:
    """An expression that does not care for boundaries finds in all bytes what it finds in a part of them."""
    if "\\Q" in pattern.pattern:  # what follows is quoted
        return None
    free = BOUNDARY.sub(lambda match: "" if match[1] else match[0], pattern.pattern)
    try:
        if compile_pattern(Pattern(free)).search(b"") is not None:
            return None
    except re2.error:  # something was repeated that is not there any more
        return None
    text = f"(?i:{free})" if pattern.is_case_blind else f"(?:{free})"
    return Needle(None, text, text, 2, knows_escapes=False)


def _comparison(comparison: Compare) -> Needle | None:
    field, literal = comparison.field, comparison.literal
    if field.part == HEADER:
        is_text = comparison.operator == "=" and literal.kind is Kind.STRING and literal.text
        return _text(literal.text) if is_text else _text(field.path[0], False)
    if comparison.operator != "=":
        return _beyond(comparison) or _name(field.path)
    if not field.path:
        if literal.kind is Kind.NULL or not literal.text:
            return None
        if literal.number is not None:
            return Needle(None, _digits(literal.number, False), _digits(literal.number, True), len(literal.text))
        return _text(literal.text)
    if not _is_telling(field.path[-1]):
        return _name(field.path)
    strict, tolerant = (
        f'"{_spelled(field.path[-1], is_tolerant)}"{BLANK}:{BLANK}(?:\\[|{_spelled_value(literal, is_tolerant)})'
        for is_tolerant in (False, True)
    )
    return Needle(None, strict, tolerant, len(field.path[-1]) + len(literal.text))


def _beyond(comparison: Compare) -> Needle | None:
    """A name and a number that is large or small enough, or an array, or a text that may be such a number."""
    field, literal = comparison.field, comparison.literal
    if literal.number is None or not field.path or not _is_telling(field.path[-1]):
        return None
    numbers = numbers_beyond(comparison.operator, literal.number)
    if numbers is None:
        return None
    strict, tolerant = (
        f'"{_spelled(field.path[-1], is_tolerant)}"{BLANK}:{BLANK}(?:\\[|{text}|{numbers})'
        for is_tolerant, text in ((False, f'"{numbers}'), (True, '"[-0-9\\\\]'))
    )
    return Needle(None, strict, tolerant, len(field.path[-1]) + 1)


def _name(path: Sequence[str]) -> Needle | None:
    """The last name of a path that is telling, followed by a colon."""
    for name in reversed(path):
        if _is_telling(name):
            strict, tolerant = (f'"{_spelled(name, is_tolerant)}"{BLANK}:' for is_tolerant in (False, True))
            return Needle(None, strict, tolerant, 1)
    return None


def _is_telling(name: str) -> bool:
    """A number may be the place in an array: what stands there has no name of its own."""
    return not name.isdecimal() and len(name) <= SPELLED_MAX


def _text(text: str, can_be_escaped: bool = True) -> Needle | None:
    """A text, or as much of it as is enough; names of headers are never escaped."""
    if not text:
        return None
    text = text[:SPELLED_MAX]
    return Needle(text.encode(), _spelled(text, False), _spelled(text, can_be_escaped), len(text))


def _spelled_value(literal: Literal, is_tolerant: bool) -> str:
    if literal.kind is Kind.NULL:
        return "null"
    if literal.kind is Kind.BOOLEAN:
        return f'"?{_spelled(literal.text, is_tolerant)}'
    if literal.number is not None:
        return f'"?{_digits(literal.number, is_tolerant)}'
    end = '"' if len(literal.text) <= SPELLED_MAX else ""
    return f'"{_spelled(literal.text[:SPELLED_MAX], is_tolerant)}{end}'


def _digits(number: Decimal, is_tolerant: bool) -> str:
    """The digits that count, however the number is written: zeros and one dot may stand before, a dot between."""
    minus, dot, zero = (_spelled(character, is_tolerant) for character in "-.0")
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")[:SPELLED_MAX]
    if not digits:
        return f"(?:{minus})?{zero}"
    between = f"(?:{dot})?"
    return f"(?:{minus})?(?:{zero}|{dot})*" + between.join(_spelled(digit, is_tolerant) for digit in digits)


def _spelled(text: str, is_tolerant: bool) -> str:
    """RE2 for a text, on request with every character in every spelling that JSON allows."""
    return "".join(_spellings(character) if is_tolerant else re2.escape(character) for character in text)


def _spellings(character: str) -> str:
    units = character.encode("utf-16-be")
    codes = [units[index : index + 2].hex() for index in range(0, len(units), 2)]
    escaped = "".join(f"\\\\u{''.join(_either_case(digit) for digit in code)}" for code in codes)
    short = f"|\\\\{re2.escape(SHORT[character])}" if character in SHORT else ""
    return f"(?:{re2.escape(character)}|{escaped}{short})"


def _either_case(digit: str) -> str:
    return digit if digit.isdecimal() else f"[{digit}{digit.upper()}]"


def _compile(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    return re2.compile(pattern, options)
