"""From JSON to types, with the rules of Avro's Java parser, which Confluent's registry uses.

Rules:
1. A name without a dot belongs to the namespace around it; `namespace` beside it says another; a dot in it wins.
2. A named type may be used by its name anywhere, also before its definition; references may define it.
3. What Avro does not know stays as a property of the type or field where it stands.
4. Names and defaults are checked when the schema is new; one that was stored once is taken as it is.
"""

from __future__ import annotations

import re
from typing import Any

from ottla.registry.formats.avro.defaults import Defaults
from ottla.registry.formats.avro.model import NAMED, PRIMITIVES, Field, Type
from ottla.registry.formats.avro.printing import printed
from ottla.registry.formats.parsed import Budget, InvalidSchemaError

TYPE_KEYS = frozenset(("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"))
ENUM_KEYS = TYPE_KEYS | {"default"}
FIELD_KEYS = frozenset(("default", "doc", "name", "order", "type", "aliases"))
ORDERS = ("ascending", "descending", "ignore")
NAME = re.compile(r"[^\W\d]\w*")  # letters of any language, as Java's Character.isLetter
NUMBER = re.compile(
    r"(?P<number>[+-]?(?:NaN|Infinity|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,9}"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?"
)
SIZE_MAX = 2**31 - 1


class Parser:
    """Reads one schema and, before it, what it refers to; named types are known from then on."""

    def __init__(self, budget: Budget, *, is_new: bool) -> None:
        self.types: dict[str, Type] = {}
        self.awaited: dict[str, Type] = {}  # used, but not yet defined: filled when it is
        self.defaults: list[tuple[Field, Any]] = []  # to be checked once all types are known
        self.budget = budget
        self.is_new = is_new

    def parsed(self, value: Any) -> Type:
        result = self.type_of(value, "")
        self.check_all_defined()
        return result

    def type_of(self, value: Any, namespace: str) -> Type:
        self.budget.spend()
        if isinstance(value, str):
            return self.by_name(value, namespace)
        if isinstance(value, list):
            return self.union(value, namespace)
        if not isinstance(value, dict):
            raise InvalidSchemaError(f"No type: {shown(value)}")
        return self.object(value, namespace)

    def by_name(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        # A name that its namespace does not know may stand in none, as in schemas of old.
        found = self.types.get(full) or self.types.get(name) or self.awaited.get(full)
        if found is None:
            around, _, simple = full.rpartition(".")
            found = self.awaited[full] = Type("", name=simple, namespace=around)
        return found

    def check_all_defined(self) -> None:
        for name in self.awaited:
            raise InvalidSchemaError(f"Undefined schema: {name}")
        seen = Defaults()
        for made, value in self.defaults:
            if not seen.fits(made.type, value):
                problem = (
                    f"Invalid default for field {made.name}: {shown(value)} not a {shown(printed(made.type, set()))}"
                )
                raise InvalidSchemaError(problem)
        self.defaults.clear()

    def object(self, value: dict[str, Any], namespace: str) -> Type:
        kind = value.get("type")
        if not isinstance(kind, str):
            raise InvalidSchemaError(f"No type: {shown(value)}")
        if kind in PRIMITIVES:
            result = Type(kind)
        elif kind in NAMED or kind == "error":
            result = self.named(kind, value, namespace)
        elif kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in value:
                raise InvalidSchemaError(f"{kind.capitalize()} has no {key} type: {shown(value)}")
            result = Type(kind, items=self.type_of(value[key], namespace))
        else:
            return self.by_name(kind, namespace)
        known = ENUM_KEYS if kind == "enum" else TYPE_KEYS
        result.properties = {key: value[key] for key in value if key not in known}
        return result

    def named(self, kind: str, value: dict[str, Any], namespace: str) -> Type:
        name = self.text_of(value, "name", "No name in schema")
        given = value.get("namespace")
        if "." in name:
            namespace, name = name.rsplit(".", 1)
        elif isinstance(given, str):
            namespace = given
        self.check_name(name)
        for part in namespace.split(".") if namespace else ():
            self.check_name(part)
        full = f"{namespace}.{name}" if namespace else name
        result = self.awaited.pop(full, None) or Type("", name=name, namespace=namespace)
        result.type, result.is_error = ("record", True) if kind == "error" else (kind, False)
        doc = value.get("doc")
        result.doc = doc if isinstance(doc, str) else None
        result.aliases = [self.full_alias(alias, namespace) for alias in self.aliases(value)]
        if result.full_name in self.types:
            raise InvalidSchemaError(f"Can't redefine: {result.full_name}")
        if name in PRIMITIVES and not namespace:
            raise InvalidSchemaError(f"Schemas may not be named after primitives: {name}")
        self.types[result.full_name] = result
        if kind == "enum":
            self.enum(result, value)
        elif kind == "fixed":
            self.fixed(result, value)
        else:
            self.record(result, value)
        return result

    def record(self, result: Type, value: dict[str, Any]) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"Record has no fields: {shown(value)}")
        names: set[str] = set()
        for each in fields:
            made = self.field(each, result.namespace)
            if made.name in names:
                raise InvalidSchemaError(f"Duplicate field {made.name} in record {result.full_name}")
            names.add(made.name)
            result.fields.append(made)

    def field(self, value: Any, namespace: str) -> Field:
        self.budget.spend()
        if not isinstance(value, dict):
            raise InvalidSchemaError(f"Record field is not an object: {shown(value)}")
        name = self.text_of(value, "name", "No field name")
        self.check_name(name)
        if "type" not in value:
            raise InvalidSchemaError(f"No field type: {shown(value)}")
        result = Field(name, self.type_of(value["type"], namespace))
        doc = value.get("doc")
        result.doc = doc if isinstance(doc, str) else None
        order = value.get("order")
        if order is not None:
            if not isinstance(order, str) or order.lower() not in ORDERS:
                raise InvalidSchemaError(f"Invalid order of field {name}: {shown(order)}")
            result.order = order.lower()
        if "default" in value:
            self.default(result, value["default"])
        result.aliases = self.aliases(value)
        result.properties = {key: value[key] for key in value if key not in FIELD_KEYS}
        return result

    def default(self, made: Field, value: Any) -> None:
        if made.type.type in ("float", "double") and isinstance(value, str):
            value = java_number(value)
        if self.is_new:
            self.defaults.append((made, value))
        made.has_default, made.default = True, value

    def enum(self, result: Type, value: dict[str, Any]) -> None:
        symbols = value.get("symbols")
        if not isinstance(symbols, list):
            raise InvalidSchemaError(f"Enum has no symbols: {shown(value)}")
        for symbol in symbols:
            self.budget.spend()
            if not isinstance(symbol, str):
                raise InvalidSchemaError(f"Illegal symbol: {shown(symbol)}")
            self.check_name(symbol)
        if len(set(symbols)) != len(symbols):
            raise InvalidSchemaError(f"Duplicate enum symbol in {result.full_name}")
        result.symbols = symbols
        default = value.get("default")
        if isinstance(default, str):
            if default not in symbols:
                raise InvalidSchemaError(f"The Enum Default: {shown(default)} is not in the enum symbol set: {symbols}")
            result.default = default

    def fixed(self, result: Type, value: dict[str, Any]) -> None:
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size > SIZE_MAX:
            raise InvalidSchemaError(f"Invalid or no size: {shown(value)}")
        if size < 0:
            raise InvalidSchemaError(f"Malformed fixed size: {size}")
        result.size = size

    def union(self, value: list[Any], namespace: str) -> Type:
        branches = [self.type_of(each, namespace) for each in value]
        seen: set[str] = set()
        for branch in branches:
            if branch.type == "union":
                raise InvalidSchemaError(f"Nested union: {shown(value)}")
            if branch.full_name in seen:
                raise InvalidSchemaError(f"Duplicate in union: {branch.full_name}")
            seen.add(branch.full_name)
        return Type("union", branches=branches)

    def text_of(self, value: dict[str, Any], key: str, problem: str) -> str:
        text = value.get(key)
        if not isinstance(text, str):
            raise InvalidSchemaError(f"{problem}: {shown(value)}")
        return text

    def aliases(self, value: dict[str, Any]) -> list[str]:
        aliases = value.get("aliases")
        if aliases is None:
            return []
        if not isinstance(aliases, list):
            raise InvalidSchemaError(f"aliases not an array: {shown(value)}")
        if not all(isinstance(alias, str) for alias in aliases):
            raise InvalidSchemaError(f"alias not a string: {shown(aliases)}")
        return list(dict.fromkeys(aliases))

    def full_alias(self, alias: str, namespace: str) -> str:
        for part in alias.split("."):
            self.check_name(part)
        return alias if "." in alias or not namespace else f"{namespace}.{alias}"

    def check_name(self, name: str) -> None:
        if self.is_new and not NAME.fullmatch(name):
            problem = (
                "Empty name"
                if not name
                else "Illegal character in"
                if NAME.match(name)
                else "Illegal initial character"
            )
            raise InvalidSchemaError(f"{problem}: {shown(name)}" if name else problem)


def java_number(text: str) -> float:
    """What Java's Double.valueOf takes, which a default may be written as."""
    found = NUMBER.fullmatch(text.strip())
    if found is None:
        raise InvalidSchemaError(f'For input string: "{shown(text)}"')
    number = found["number"]
    return float.fromhex(number) if "x" in number.lower() else float(number)


def shown(value: Any) -> str:
    """A value for an error: enough of it to be found."""
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "..."
