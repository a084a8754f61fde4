"""The text of an Avro schema as Java's `Schema.toString()` prints it: the registry stores and gives back that one."""

from __future__ import annotations

import json
import math
from typing import Any

from ottla.registry.formats.avro.model import TYPES, Field, Type


def printed(of: Type, known: set[str]) -> str:
    """`known`: full names that are told by their name alone, because a reference defines them."""
    return java_json(as_json(of, set(known), ""))


def as_json(of: Type, known: set[str], namespace: str) -> Any:
    if of.name:
        if of.full_name in known:
            return reference(of, namespace)
        known.add(of.full_name)
    if of.type == "union":
        return [as_json(branch, known, namespace) for branch in of.branches]
    if not of.name and of.items is None:
        return {"type": of.type, **of.properties} if of.properties else of.type
    result: dict[str, Any] = {"type": "error" if of.is_error else of.type}
    if of.items is not None:
        result["items" if of.type == "array" else "values"] = as_json(of.items, known, namespace)
        return result | of.properties
    result["name"] = of.name
    if of.namespace != namespace:
        result["namespace"] = of.namespace
    if of.doc is not None:
        result["doc"] = of.doc
    if of.type == "record":
        result["fields"] = [field_json(each, known, of.namespace) for each in of.fields]
    elif of.type == "enum":
        result["symbols"] = of.symbols
        if of.default is not None:
            result["default"] = of.default
    else:
        result["size"] = of.size
    result |= of.properties
    if of.aliases:
        result["aliases"] = [short(alias, of.namespace) for alias in of.aliases]
    return result


def field_json(of: Field, known: set[str], namespace: str) -> dict[str, Any]:
    result: dict[str, Any] = {"name": of.name, "type": as_json(of.type, known, namespace)}
    if of.doc is not None:
        result["doc"] = of.doc
    if of.has_default:
        result["default"] = of.default
    if of.order != "ascending":
        result["order"] = of.order
    if of.aliases:
        result["aliases"] = of.aliases
    return result | of.properties


def reference(of: Type, namespace: str) -> str:
    # A type that is called like one of Avro's own is always told in full.
    return of.full_name if of.name in TYPES else short(of.full_name, namespace)


def short(full_name: str, namespace: str) -> str:
    around, _, name = full_name.rpartition(".")
    return name if around == namespace else full_name


def java_json(value: Any) -> str:
    """JSON as Jackson writes it: no blanks, letters of all languages as they are, numbers as Java prints them."""
    match value:
        case dict():
            return "{" + ",".join(f"{java_string(key)}:{java_json(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ",".join(java_json(each) for each in value) + "]"
        case str():
            return java_string(value)
        case float():
            return java_double(value)
        case _:
            return json.dumps(value)


def java_string(text: str) -> str:
    # Jackson's numbers of control characters are in capitals.
    quoted = json.dumps(text, ensure_ascii=False)
    if "\\u" in quoted:
        for code in range(32):
            quoted = quoted.replace(f"\\u{code:04x}", f"\\u{code:04X}")
    return quoted.replace("\x7f", "\x7f")


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
