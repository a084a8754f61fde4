"""JSON as Java's libraries write it, so that texts are the same as those that Confluent's registry stores."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
SURROGATE = re.compile("[\ud800-\udfff]")
ESCAPE = re.compile(r"\\(\\|u[0-9a-f]{4})")  # with the one that stands for itself, so that none begins in its middle
DIFFERENT = re.compile(r"[0-9][.eE]|NaN|Infinity|\\u|[\ud800-\udfff]")


def java_json(value: Any) -> str:
    """JSON as Jackson writes it: no blanks, letters of all languages as they are, numbers as Java prints them."""
    try:
        text = ENCODER.encode(value)
    except TypeError:  # exact fractions
        return exact_json(value)
    # Most schemas have nothing that Java writes otherwise than Python.
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
            return str(value)  # as Java's BigDecimal, to the letter
        case _:
            return ENCODER.encode(value)


def java_string(text: str) -> str:
    quoted = ENCODER.encode(text)
    if "\\u" in quoted:
        # Jackson's numbers of control characters are in capitals.
        quoted = ESCAPE.sub(lambda found: found[0] if found[1] == "\\" else f"\\u{found[1][1:].upper()}", quoted)
    # Half of a letter cannot be written in UTF-8.
    return SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04X}", quoted)


def java_double(value: float) -> str:
    """1.0, 0.001, 1.0E7, 1.0E-5: Java writes exponents from ten million on and below a thousandth."""
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
    """The digits that `repr` gives, with the point behind the first of them."""
    sign = "-" if value < 0 else ""
    whole, _, fraction = repr(abs(value)).partition(".")
    digits = whole + fraction
    first = len(digits) - len(digits.lstrip("0"))
    exponent = len(whole) - 1 - first
    rest = digits[first + 1 :].rstrip("0")
    return f"{sign}{digits[first]}.{rest or '0'}", str(exponent)


def in_order(value: Any) -> Any:
    """With the keys of all objects sorted."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(each) for each in value] if isinstance(value, list) else value
