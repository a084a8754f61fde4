"""JSON in the format of Java's libraries, so that texts equal those that Confluent's registry stores."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
SURROGATE = re.compile("[\ud800-\udfff]")
ESCAPE = re.compile(r"\\(\\|u[0-9a-f]{4})")  # including the escaped backslash, so that no match begins inside one
DIFFERENT = re.compile(r"[0-9][.eE]|NaN|Infinity|\\u|[\ud800-\udfff]")


def java_json(value: Any) -> str:
    """JSON in Jackson's format: compact, no escaped letters, numbers as in Java."""
    try:
        text = ENCODER.encode(value)
    except TypeError:  # Decimals
        return exact_json(value)
    # Most schemas contain nothing that Java formats differently.
    return exact_json(value) if DIFFERENT.search(text) else text


def exact_json(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{java_string(key)}:{exact_json(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ",".join(exact_json(each) for each in value) + "]"
        case str():
            return java_string(value)
        case float():
            return java_double(value)
        case Decimal():
            return str(value)  # equal to Java's BigDecimal
        case _:
            return ENCODER.encode(value)


def java_string(text: str) -> str:
    quoted = ENCODER.encode(text)
    if "\\u" in quoted:
        # Jackson escapes control characters with upper-case digits.
        quoted = ESCAPE.sub(lambda found: found[0] if found[1] == "\\" else f"\\u{found[1][1:].upper()}", quoted)
    # A lone surrogate cannot be encoded in UTF-8.
    return SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04X}", quoted)


def java_double(value: float) -> str:
    """1.0, 0.001, 1.0E7, 1.0E-5: Java uses exponents from ten million on and below 0.001."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    size = abs(value)
    if value == 0 or 1e-3 <= size < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, exponent = scientific(value)
    if "." not in digits:
        digits += ".0"
    return f"{digits}E{int(exponent)}"


def scientific(value: float) -> tuple[str, str]:
    """The digits of `repr` in scientific notation."""
    sign = "-" if value < 0 else ""
    whole, _, fraction = repr(abs(value)).partition(".")
    digits = whole + fraction
    first = len(digits) - len(digits.lstrip("0"))
    exponent = len(whole) - 1 - first
    rest = digits[first + 1 :].rstrip("0")
    return f"{sign}{digits[first]}.{rest or '0'}", str(exponent)


def sorted_keys(value: Any) -> Any:
    """The value with sorted object keys."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(each) for each in value] if isinstance(value, list) else value
