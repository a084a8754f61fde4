"""Floating point numbers as Java reads and writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal

# What Double.parseDouble takes, but for hexadecimal numbers: other digits and underscores are Python's alone.
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_SPACE = "".join(map(chr, range(33)))


def parse_double(text: str) -> float:
    """ValueError for what Java would not take either."""
    trimmed = text.strip(_SPACE)
    if not _DOUBLE.fullmatch(trimmed):
        raise ValueError(f"not a number: {text}")
    return float(trimmed if trimmed[-1] in "Ny" else trimmed.rstrip("fFdD"))


def java_float(value: float, shortest: Callable[[float], str] = repr) -> str:
    """A floating point number as Java writes it: with an exponent below 0.001 and from ten million on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = shortest(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text if "e" not in text else f"{value:.1f}"
    number = Decimal(text)
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"
