"""What must be known of the numbers in samples to choose a type that holds them as they were written."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation

EXACT_MAX = 1 << 53  # whole numbers up to here are the same as a double
BIGINT_MAX = (1 << 63) - 1
DECIMAL_DIGITS = 38

Digits = tuple[int, int]  # before and behind the point


def exact(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent that no machine reaches
        return Decimal("Infinity")


def whole_kind(size: int) -> str:
    if size <= EXACT_MAX:
        return "bigint"
    if size <= BIGINT_MAX:
        return "wide"
    return "huge" if size < 10**DECIMAL_DIGITS else "giant"


def broken_kind(value: Decimal) -> str:
    rounded = float(value)
    if not math.isfinite(rounded):
        return "giant"
    return "double" if Decimal(repr(rounded)) == value else "fine"


def digits_of(value: Decimal) -> Digits:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return 0, 0
    return max(0, len(digits) + exponent), max(0, -exponent)


def widest(one: Digits, other: Digits) -> Digits:
    return max(one[0], other[0]), max(one[1], other[1])
