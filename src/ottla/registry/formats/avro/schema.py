"""Parses Avro schemas with the rules of Avro's Java parser, which Confluent's registry uses.

Rules:
1. A name without a dot is in the enclosing namespace; `namespace` next to it overrides that; a dot in the name wins.
2. A named type may be used before its definition; references may define it.
3. Unknown keys are kept as properties of their type or field.
4. Names and defaults are checked only for new schemas; stored ones are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ottla.registry.formats.avro.compatibility import problems
from ottla.registry.formats.avro.model import NAMED, PRIMITIVES, Field, Type
from ottla.registry.formats.avro.printer import printed
from ottla.registry.formats.schema_format import InvalidSchemaError, StepLimit, nodes_budget, read_json

TYPE_KEYS = frozenset(("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"))
ENUM_KEYS = TYPE_KEYS | {"default"}
FIELD_KEYS = frozenset(("default", "doc", "name", "order", "type", "aliases"))
ORDERS = ("ascending", "descending", "ignore")
NAME = re.compile(r"[^\W\d]\w*")  # letters of any language, as Java's Character.isLetter
NUMBER = re.compile(
    r"(?P<number>[+-]?(?:NaN|Infinity|0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,9}"
    r"|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?"
)
SIZE_MAX = 2**31 - 1


class Parser:
    """Parses a schema after its references; named types remain known."""

    def __init__(self, budget: StepLimit, *, is_new: bool) -> None:
        self.types: dict[str, Type] = {}
        self.undefined_types: dict[str, Type] = {}  # used, but not defined yet
        self.defaults: list[tuple[Field, Any]] = []  # to check once all types are known
        self.budget = budget
        self.is_new = is_new

    def parsed(self, value: Any) -> Type:
        result = self.type_of(value, "")
        self.check_all_defined()
        return result

    def type_of(self, value: Any, namespace: str) -> Type:
        self.budget.consume()
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
        # A name missing in its namespace may have none, as in old schemas.
        found = self.types.get(full) or self.types.get(name) or self.undefined_types.get(full)
        if found is None:
            around, _, simple = full.rpartition(".")
            found = self.undefined_types[full] = Type("", name=simple, namespace=around)
        return found

    def check_all_defined(self) -> None:
        for name in self.undefined_types:
            raise InvalidSchemaError(f"Undefined schema: {name}")
        seen = DefaultValidator()
        for made, value in self.defaults:
            if not seen.is_valid(made.type, value):
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
        result = self.undefined_types.pop(full, None) or Type("", name=name, namespace=namespace)
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
        self.budget.consume()
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
            self.budget.consume()
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
    """A number as accepted by Java's Double.valueOf."""
    found = NUMBER.fullmatch(text.strip())
    if found is None:
        raise InvalidSchemaError(f'For input string: "{shown(text)}"')
    number = found["number"]
    return float.fromhex(number) if "x" in number.lower() else float(number)


def shown(value: Any) -> str:
    """A value for an error message, truncated."""
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "..."


# ---- defaults
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


class DefaultValidator:
    """Checks default values, like Avro's Java. Results are cached, because unions may try a value many times."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], bool] = {}

    def is_valid(self, of: Type, value: Any) -> bool:
        """A union accepts the default of any of its branches."""
        if of.type in SCALARS:
            return SCALARS[of.type](value)
        pair = (id(of), id(value))
        if pair not in self.known:
            self.known[pair] = self.is_composed(of, value)
        return self.known[pair]

    def is_composed(self, of: Type, value: Any) -> bool:
        if of.type == "union":
            return any(self.is_valid(branch, value) for branch in of.branches)
        if of.type == "array":
            return isinstance(value, list) and all(self.is_valid(of.items or of, each) for each in value)
        if of.type == "map":
            return isinstance(value, dict) and all(self.is_valid(of.items or of, each) for each in value.values())
        return isinstance(value, dict) and all(
            self.is_valid(each.type, value[each.name]) if each.name in value else each.has_default for each in of.fields
        )


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_int(value: Any) -> bool:
    return is_whole(value, INT_MAX)


def is_long(value: Any) -> bool:
    return is_whole(value, LONG_MAX)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def is_null(value: Any) -> bool:
    return value is None


def is_whole(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -limit - 1 <= value <= limit


SCALARS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("string", "bytes", "enum", "fixed"), is_text),
    **dict.fromkeys(("float", "double"), is_number),
    "int": is_int,
    "long": is_long,
    "boolean": is_boolean,
    "null": is_null,
}


class AvroSchema:
    kind = "AVRO"

    def __init__(self, root: Type, referenced: frozenset[str]) -> None:
        self.root = root
        self.referenced = referenced  # full names of references
        self.text = printed(root, set(referenced))

    def normalized(self) -> str:
        return printed(self.root, set(self.referenced), is_normal=True)

    def problems_reading(self, writer: AvroSchema) -> list[str]:
        return problems(self.root, writer.root)


def parse(text: str, references: Mapping[str, str], *, is_new: bool = True) -> AvroSchema:
    parser = Parser(nodes_budget(), is_new=is_new)
    referenced: set[str] = set()
    for name, reference in references.items():
        try:
            # Types nested in a reference are printed again, as in Java.
            referenced.add(parser.parsed(read_json(reference, comments=True)).full_name)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"Reference {name}: {error}") from None
    return AvroSchema(parser.parsed(read_json(text, comments=True)), frozenset(referenced))
