"""Prints Avro schemas like Java's `Schema.toString()`, the form that the registry stores.

The normalized form has the same order of Avro's keys; custom properties, aliases and defaults are sorted, and defaults
of floating point types are printed as such. Confluent's loses a default that only a later branch of a union accepts;
here it is kept.
"""

from __future__ import annotations

from typing import Any

from ottla.registry.formats.avro.model import TYPES, Field, Type
from ottla.registry.formats.java_json import java_json, sorted_keys

# A valid logical type comes before the other properties in the normalized form.
LOGICAL_TYPES = {
    "int": ("date", "time-millis"),
    "long": (
        *("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
        *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
    ),
    "string": ("uuid",),
    "bytes": ("decimal", "big-decimal"),
    "fixed": ("decimal", "duration", "uuid"),
}
DECIMAL_KEYS = ("precision", "scale")
LOGICAL_SIZES = {"duration": 12, "uuid": 16}  # of a fixed type


def printed(of: Type, known: set[str], *, is_normal: bool = False) -> str:
    """`known`: full names defined in references, printed by name only."""
    return java_json(Printer(set(known), is_normal=is_normal).type(of, ""))


class Printer:
    def __init__(self, known: set[str], *, is_normal: bool) -> None:
        self.known = known
        self.is_normal = is_normal

    def type(self, of: Type, namespace: str) -> Any:
        if of.name:
            if of.full_name in self.known:
                return reference(of, namespace)
            self.known.add(of.full_name)
            return self.named(of, namespace)
        if of.type == "union":
            return [self.type(branch, namespace) for branch in of.branches]
        properties = self.properties(of)
        if of.items is None:
            return {"type": of.type, **properties} if properties else of.type
        part = "items" if of.type == "array" else "values"
        return {"type": of.type, part: self.type(of.items, namespace), **properties}

    def named(self, of: Type, namespace: str) -> dict[str, Any]:
        is_error = of.is_error and not self.is_normal
        result: dict[str, Any] = {"type": "error" if is_error else of.type, "name": of.name}
        if of.namespace != namespace:
            result["namespace"] = of.namespace
        if of.doc is not None:
            result["doc"] = of.doc
        if of.type == "record":
            result["fields"] = [self.field(each, of.namespace) for each in of.fields]
        elif of.type == "enum":
            result["symbols"] = of.symbols
            if of.default is not None:
                result["default"] = of.default
        else:
            result["size"] = of.size
        result |= self.properties(of)
        if of.aliases:
            aliases = sorted(of.aliases) if self.is_normal else of.aliases
            result["aliases"] = [short(alias, of.namespace) for alias in aliases]
        return result

    def field(self, of: Field, namespace: str) -> dict[str, Any]:
        result: dict[str, Any] = {"name": of.name, "type": self.type(of.type, namespace)}
        if of.doc is not None:
            result["doc"] = of.doc
        if of.has_default:
            result["default"] = sorted_keys(normal_default(of.type, of.default)) if self.is_normal else of.default
        if of.order != "ascending":
            result["order"] = of.order
        if of.aliases:
            result["aliases"] = sorted(of.aliases) if self.is_normal else of.aliases
        return result | (sorted_keys(of.properties) if self.is_normal else of.properties)

    def properties(self, of: Type) -> dict[str, Any]:
        if not self.is_normal:
            return of.properties
        first = logical_keys(of)
        result = {key: of.properties[key] for key in first if key in of.properties}
        rest: dict[str, Any] = sorted_keys(of.properties)
        return result | {key: rest[key] for key in rest if key not in result}


def logical_keys(of: Type) -> tuple[str, ...]:
    """The keys of a logical type that is valid for this type."""
    logical = of.properties.get("logicalType")
    if logical not in LOGICAL_TYPES.get(of.type, ()):
        return ()
    if of.type == "fixed" and LOGICAL_SIZES.get(logical, of.size) != of.size:
        return ()
    if logical != "decimal":
        return ("logicalType",)
    precision, scale = (of.properties.get(key, 0) for key in DECIMAL_KEYS)
    is_valid = type(precision) is type(scale) is int and 0 <= scale <= precision > 0
    return ("logicalType", *DECIMAL_KEYS) if is_valid else ()


def normal_default(of: Type, value: Any) -> Any:
    if of.type in ("float", "double") and isinstance(value, int) and abs(value) < 2**63:
        return float(value)
    if of.type == "union" and of.branches:
        return normal_default(of.branches[0], value)
    if of.items is not None and isinstance(value, list):
        return [normal_default(of.items, each) for each in value]
    if of.items is not None and isinstance(value, dict):
        return {key: normal_default(of.items, each) for key, each in value.items()}
    if of.type == "record" and isinstance(value, dict):
        types = {each.name: each.type for each in of.fields}
        return {key: normal_default(types[key], each) if key in types else each for key, each in value.items()}
    return value


def reference(of: Type, namespace: str) -> str:
    # A type whose simple name is one of Avro's types is always printed with its namespace.
    return of.full_name if of.name in TYPES else short(of.full_name, namespace)


def short(full_name: str, namespace: str) -> str:
    around, _, name = full_name.rpartition(".")
    return name if around == namespace else full_name
