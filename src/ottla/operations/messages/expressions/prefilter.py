"""Prefilter: searches whole batches for bytes that every match of an expression must contain.

Rules:
1. Never lose a hit: a pattern finds everything that evaluator.py accepts, in every notation of JSON (`\\u0041`,
   `4.2e1`), and may find more. If no such pattern exists there is no prefilter.
2. A row extends from its key to the key of the next row; an occurrence in between makes it a candidate. The bytes
   between (lengths, headers) belong to the row before them.
3. It applies only if the document is the JSON of the bytes themselves. Schemas and internal decoders produce other
   documents.

Patterns for comparisons with a number find all numbers beyond the limit, and few others. A number is judged by its sign
and its integer digits, so `> 41.5` also finds 41.2. Numbers with an exponent (`4.2e1`), Infinity and NaN always match.
They must also not lose a hit: -0 equals 0, and a number ends before the first character that is not a digit. Limits
with more than DIGITS_MAX integer digits have no pattern, because it would be too large.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from ottla.base.regular_expressions import OPERATOR, PatternError, compile_pattern, literal_pattern
from ottla.operations.messages.expressions.syntax import (
    HEADER,
    POSITION_FIELDS,
    And,
    Compare,
    Expression,
    Literal,
    LiteralKind,
    Or,
    Pattern,
    Text,
)

DIGITS_MAX = 18
ALWAYS_MATCHED = "-?[0-9]+(?:\\.[0-9]+)?[eE]|-?[IN]"
NUMBER_END = "(?:[^0-9]|$)"


def number_range_pattern(operator: str, limit: Decimal) -> str | None:
    """RE2 for the beginnings of numbers that may be `operator` (< <= > >=) the limit; None if it is too
    large.
    """
    if not limit.is_finite() or limit.adjusted() >= DIGITS_MAX:
        return None
    is_greater = operator in (">", ">=")
    whole = int(abs(limit))
    if is_greater == (limit >= 0):  # away from zero, on the limit's side
        sign = "" if is_greater else "-"
        found = [f"{sign}{_at_least(whole)}"]
        if whole == 0:
            found.append("-0" if is_greater else "0")
    else:  # the other side of zero, and numbers closer to zero than the limit
        sign = "-" if is_greater else ""
        found = [f"{'[0-9]' if is_greater else '-'}", f"{sign}{_at_most(whole)}{NUMBER_END}"]
    return f"(?:{'|'.join([*found, ALWAYS_MATCHED])})"


def _at_least(number: int) -> str:
    """Digits of integers at or above the number; for longer ones a prefix suffices."""
    if number == 0:
        return "[0-9]"
    digits = str(number)
    ways = [f"[1-9][0-9]{{{len(digits)}}}", digits]
    for place, digit in enumerate(digits):
        if digit != "9":
            ways.append(f"{digits[:place]}[{int(digit) + 1}-9]{_any(len(digits) - place - 1)}")
    return f"(?:{'|'.join(ways)})"


def _at_most(number: int) -> str:
    """Digits of integers at or below the number."""
    digits = str(number)
    ways = [digits] + ([f"[0-9]{{1,{len(digits) - 1}}}"] if len(digits) > 1 else [])
    for place, digit in enumerate(digits):
        if digit != "0":
            ways.append(f"{digits[:place]}[0-{int(digit) - 1}]{_any(len(digits) - place - 1)}")
    return f"(?:{'|'.join(ways)})"


def _any(count: int) -> str:
    return f"[0-9]{{{count}}}" if count else ""


LIMITS = OPERATOR._replace(memory_bytes=16 << 20)  # for many small patterns combined
PATTERNS_MAX = 32  # in one alternation; more are slower than evaluation
ROW_OVERLAPS_MAX = 16  # matches that extend into the next row; beyond it, evaluating each row is faster
# Anchors and word boundaries, and constructs that only look like them.
BOUNDARY = re.compile(r"(\\[bBAz]|[\^$])|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)
SPELLED_MAX = 64  # characters: RE2 rejects larger patterns
BLANK = "[ \\t\\r\\n]*"
SHORT = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\", "/": "/"}


class RequiredPattern(NamedTuple):
    """A required pattern: as plain bytes if nothing is escaped (None: only as a pattern), and in every
    JSON notation.
    """

    plain: bytes | None
    strict: str  # for rows without a backslash
    tolerant: str  # for rows with a backslash
    selectivity: int  # selectivity: the higher, the fewer rows match
    handles_escapes: bool = True  # False: every row with a backslash is a candidate


class Prefilter:
    """Finds the candidate rows of a chunk of batches."""

    def __init__(self, needles: Sequence[RequiredPattern]) -> None:
        self.needles = needles
        self._plain = [needle.plain for needle in needles if needle.plain is not None]
        self._is_plain = len(self._plain) == len(needles)
        self._knows_escapes = all(needle.handles_escapes for needle in needles)
        self._strict = _compile("|".join(needle.strict for needle in needles))
        self._tolerant = _compile("|".join(needle.tolerant for needle in needles))

    def candidates(self, data: bytes, starts: Sequence[int], end: int) -> Iterator[int]:
        """The candidate rows in order; `starts` are the key positions, `end` is the end of the last row."""
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

    def _by_pattern(self, pattern: Any, data: bytes, starts: Sequence[int], end: int) -> Iterator[int]:
        position = starts[0]
        crossings = 0
        while (match := pattern.search(data, position, end)) is not None:
            row = bisect_right(starts, match.start()) - 1
            yield row
            if row + 1 >= len(starts):
                return
            position = starts[row + 1]
            crossings += match.end() > position
            if crossings > ROW_OVERLAPS_MAX:
                yield from range(row + 1, len(starts))
                return

    def __repr__(self) -> str:
        return f"<Prefilter {[needle.plain or needle.strict for needle in self.needles]}>"


def prefilter_of(expression: Expression) -> Prefilter | None:
    """The prefilter of an expression; None if every message must be evaluated."""
    needles = _required_patterns(expression)
    if needles is None or len(needles) > PATTERNS_MAX:
        return None
    try:
        return Prefilter(needles)
    except PatternError:  # the combined pattern is too large for RE2
        return None


def _by_bytes(needle: bytes, data: bytes, starts: Sequence[int], end: int) -> Iterator[int]:
    position = data.find(needle, starts[0], end)
    while position >= 0:
        row = bisect_right(starts, position) - 1
        yield row
        if row + 1 >= len(starts):
            return
        position = data.find(needle, starts[row + 1], end)


def _required_patterns(expression: Expression) -> list[RequiredPattern] | None:
    """Every match contains at least one of these; None if nothing is known."""
    match expression:
        case Text(text):
            return _single_pattern(_text(text))
        case Compare(field) if field.part not in POSITION_FIELDS:
            return _single_pattern(_comparison(expression))
        case Pattern(field=None):
            return _single_pattern(_expression(expression))
        case Pattern(field=field) if field is not None:
            return _single_pattern(_text(field.path[0], False) if field.part == HEADER else _name(field.path))
        case And(parts):
            known = [needles for needles in map(_required_patterns, parts) if needles is not None]
            return max(known, key=lambda needles: min(needle.selectivity for needle in needles), default=None)
        case Or(parts):
            everywhere: list[RequiredPattern] = []
            for part in parts:
                needles = _required_patterns(part)
                if needles is None:
                    return None
                everywhere += needles
            return everywhere
    return None


def _single_pattern(needle: RequiredPattern | None) -> list[RequiredPattern] | None:
    return None if needle is None else [needle]


def _expression(pattern: Pattern) -> RequiredPattern | None:
    """A pattern without anchors matches in the whole row wherever it matches in a part of it."""
    if "\\Q" in pattern.pattern:  # the text after it is literal
        return None
    free = BOUNDARY.sub(lambda match: "" if match[1] else match[0], pattern.pattern)
    try:
        if compile_pattern(free).search(b"") is not None:
            return None
    except PatternError:  # removing an anchor left a repetition without an operand
        return None
    text = f"(?i:{free})" if pattern.ignores_case else f"(?:{free})"
    return RequiredPattern(None, text, text, 2, handles_escapes=False)


def _comparison(comparison: Compare) -> RequiredPattern | None:
    field, literal = comparison.field, comparison.literal
    if field.part == HEADER:
        is_text = comparison.operator == "=" and literal.kind is LiteralKind.STRING and literal.text
        return _text(literal.text) if is_text else _text(field.path[0], False)
    if comparison.operator != "=":
        return _range_pattern(comparison) or _name(field.path)
    if not field.path:
        if literal.kind is LiteralKind.NULL or not literal.text:
            return None
        if literal.number is not None:
            return RequiredPattern(
                None, _digits(literal.number, False), _digits(literal.number, True), len(literal.text)
            )
        return _text(literal.text)
    if not _is_specific(field.path[-1]):
        return _name(field.path)
    strict, tolerant = (
        f'"{_escape_pattern(field.path[-1], is_tolerant)}"{BLANK}:{BLANK}(?:\\[|{_value_pattern(literal, is_tolerant)})'
        for is_tolerant in (False, True)
    )
    return RequiredPattern(None, strict, tolerant, len(field.path[-1]) + len(literal.text))


def _range_pattern(comparison: Compare) -> RequiredPattern | None:
    """The field name, followed by a number beyond the limit, an array, or a string that may be such a number."""
    field, literal = comparison.field, comparison.literal
    if literal.number is None or not field.path or not _is_specific(field.path[-1]):
        return None
    numbers = number_range_pattern(comparison.operator, literal.number)
    if numbers is None:
        return None
    strict, tolerant = (
        f'"{_escape_pattern(field.path[-1], is_tolerant)}"{BLANK}:{BLANK}(?:\\[|{text}|{numbers})'
        for is_tolerant, text in ((False, f'"{numbers}'), (True, '"[-0-9\\\\]'))
    )
    return RequiredPattern(None, strict, tolerant, len(field.path[-1]) + 1)


def _name(path: Sequence[str]) -> RequiredPattern | None:
    """The last specific name of the path, followed by a colon."""
    for name in reversed(path):
        if _is_specific(name):
            strict, tolerant = (f'"{_escape_pattern(name, is_tolerant)}"{BLANK}:' for is_tolerant in (False, True))
            return RequiredPattern(None, strict, tolerant, 1)
    return None


def _is_specific(name: str) -> bool:
    """A decimal name may be an array index, which does not occur in the bytes."""
    return not name.isdecimal() and len(name) <= SPELLED_MAX


def _text(text: str, can_be_escaped: bool = True) -> RequiredPattern | None:
    """A text, truncated to SPELLED_MAX; header names are never escaped."""
    if not text:
        return None
    text = text[:SPELLED_MAX]
    return RequiredPattern(
        text.encode(), _escape_pattern(text, False), _escape_pattern(text, can_be_escaped), len(text)
    )


def _value_pattern(literal: Literal, is_tolerant: bool) -> str:
    if literal.kind is LiteralKind.NULL:
        return "null"
    if literal.kind is LiteralKind.BOOLEAN:
        return f'"?{_escape_pattern(literal.text, is_tolerant)}'
    if literal.number is not None:
        return f'"?{_digits(literal.number, is_tolerant)}'
    end = '"' if len(literal.text) <= SPELLED_MAX else ""
    return f'"{_escape_pattern(literal.text[:SPELLED_MAX], is_tolerant)}{end}'


def _digits(number: Decimal, is_tolerant: bool) -> str:
    """The significant digits, in any notation: leading zeros and a dot before, a dot between."""
    minus, dot, zero = (_escape_pattern(character, is_tolerant) for character in "-.0")
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")[:SPELLED_MAX]
    if not digits:
        return f"(?:{minus})?{zero}"
    between = f"(?:{dot})?"
    return f"(?:{minus})?(?:{zero}|{dot})*" + between.join(_escape_pattern(digit, is_tolerant) for digit in digits)


def _escape_pattern(text: str, is_tolerant: bool) -> str:
    """RE2 for a text; if tolerant, each character in every notation of JSON."""
    return "".join(_spellings(character) if is_tolerant else literal_pattern(character) for character in text)


def _spellings(character: str) -> str:
    units = character.encode("utf-16-be")
    codes = [units[index : index + 2].hex() for index in range(0, len(units), 2)]
    escaped = "".join(f"\\\\u{''.join(_either_case(digit) for digit in code)}" for code in codes)
    short = f"|\\\\{literal_pattern(SHORT[character])}" if character in SHORT else ""
    return f"(?:{literal_pattern(character)}|{escaped}{short})"


def _either_case(digit: str) -> str:
    return digit if digit.isdecimal() else f"[{digit}{digit.upper()}]"


def _compile(pattern: str) -> Any:
    return compile_pattern(pattern, limits=LIMITS)
