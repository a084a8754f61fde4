"""Parses JSON Schemas into nodes. Keywords unknown to the draft are ignored; invalid values of known
ones are rejected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ottla.registry.formats.java_json import java_json, sorted_keys
from ottla.registry.formats.json_schema.compatibility import problems
from ottla.registry.formats.json_schema.model import ALL, ANY, ONE, Node, check_pattern
from ottla.registry.formats.json_schema.references import Documents
from ottla.registry.formats.schema_format import InvalidSchemaError, nodes_budget, read_json

TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
NUMBER_KEYS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRING_KEYS = ("minLength", "maxLength", "pattern", "format")
ARRAY_LIMITS = ("minItems", "maxItems")
OBJECT_LIMITS = ("minProperties", "maxProperties")
ARRAY_KEYS = ("items", "additionalItems", "uniqueItems", *ARRAY_LIMITS)
OBJECT_KEYS = (
    *("properties", "additionalProperties", "required", "patternProperties", "dependencies", *OBJECT_LIMITS),
)
LATER_KEYS = {  # the draft that introduced a keyword
    "array": {"contains": 6, "prefixItems": 2020, "minContains": 2019, "maxContains": 2019},
    "object": {"propertyNames": 6, "dependentRequired": 2019, "dependentSchemas": 2019},
}


class Parser:
    def __init__(self, documents: Documents, *, is_new: bool) -> None:
        self.documents = documents
        self.is_new = is_new
        self.nodes: dict[int, Node] = {}  # by object identity, which closes reference cycles
        self.pending_references: deque[tuple[Node, Any]] = deque()

    def parsed(self, root: Any) -> Node:
        """References are resolved iteratively, so long chains do not recurse."""
        result = self.node(root, self.documents.draft_at(root))
        while self.pending_references:
            reference, value = self.pending_references.popleft()
            reference.target = self.node(value, self.documents.draft_at(value))
        return result

    def node(self, value: Any, draft: int) -> Node:
        if isinstance(value, bool) and draft > 4:
            return Node("any" if value else "nothing", source=value)
        if not isinstance(value, dict):
            raise InvalidSchemaError(f"A schema is an object or a boolean, not {shown(value)}")
        if (known := self.nodes.get(id(value))) is not None:
            return known
        self.documents.budget.consume()
        check_words(value, draft)
        result = self.nodes[id(value)] = self.parse_object(value, draft)
        result.source = value
        # Siblings of `$ref` count only in newer drafts.
        result.has_default = "default" in value and (draft >= 2019 or "$ref" not in value)
        return result

    def parse_object(self, value: dict[str, Any], draft: int) -> Node:
        parts: list[Node] = []
        if "$ref" in value or "$dynamicRef" in value:
            parts.append(self.reference(value))
            if draft < 2019:
                return parts[0]
        if "enum" in value:
            parts.append(Node("enum", values=list_of(value, "enum")))
        for criterion in (ALL, ANY, ONE):
            if criterion in value:
                children = [self.node(each, draft) for each in list_of(value, criterion)]
                parts.append(Node("combined", criterion=criterion, children=children))
        if "not" in value:
            parts.append(Node("not", children=[self.node(value["not"], draft)]))
        if "const" in value and draft > 4:
            parts.append(Node("const", values=[value["const"]]))
        if "type" in value:
            parts.append(self.typed(value, draft))
        parts += self.implied_conditions(value, draft)
        if draft >= 7 and any(key in value for key in ("if", "then", "else")):
            children = [self.node(value[key], draft) for key in ("if", "then", "else") if key in value]
            parts.append(Node("conditional", children=children))
        if not parts:
            return Node("any")
        return parts[0] if len(parts) == 1 else Node("combined", criterion=ALL, children=parts)

    def reference(self, value: dict[str, Any]) -> Node:
        name = value.get("$ref", value.get("$dynamicRef"))
        if not isinstance(name, str):
            raise InvalidSchemaError(f"$ref is a text, not {shown(name)}")
        result = Node("reference")
        try:
            self.pending_references.append((result, self.documents.resolve(name, value)))
        except InvalidSchemaError:
            # Another registry may have fetched it: such a stored reference only equals another unresolved one.
            if self.is_new:
                raise
        return result

    def typed(self, value: dict[str, Any], draft: int) -> Node:
        given = value["type"]
        if isinstance(given, list):
            children = [self.of_type(each, value, draft) for each in given]
            for child in children:
                child.source = {"type": child.kind, "is_integer": child.is_integer}
            return Node("combined", criterion=ANY, children=children)
        return self.of_type(given, value, draft)

    def of_type(self, name: Any, value: dict[str, Any], draft: int) -> Node:
        if not isinstance(name, str) or name not in TYPES:
            raise InvalidSchemaError(f"unknown type: [{shown(name)}]")
        match name:
            case "string":
                return string(value)
            case "number" | "integer":
                return number(value, draft, is_integer=name == "integer")
            case "array":
                return self.array(value, draft)
            case "object":
                return self.object(value, draft)
            case _:
                return Node(name)

    def implied_conditions(self, value: dict[str, Any], draft: int) -> list[Node]:
        """Keywords for types that `type` does not list form separate conditions."""
        given = value.get("type", [])
        named = given if isinstance(given, list) else [given]
        result = []
        if "array" not in named and has_any(value, ARRAY_KEYS, LATER_KEYS["array"], draft):
            result.append(self.array(value, draft))
        if "object" not in named and has_any(value, OBJECT_KEYS, LATER_KEYS["object"], draft):
            result.append(self.object(value, draft))
        if "number" not in named and "integer" not in named and has_any(value, NUMBER_KEYS, {}, draft):
            result.append(number(value, draft, is_integer=False))
        # Up to draft 7 a format implies a string.
        if "string" not in named and has_any(value, STRING_KEYS if draft < 2019 else STRING_KEYS[:-1], {}, draft):
            result.append(string(value))
        return result

    def array(self, value: dict[str, Any], draft: int) -> Node:
        result = Node("array", limits=limits_of(value, ARRAY_LIMITS))
        if boolean_of(value, "uniqueItems"):
            result.limits["uniqueItems"] = True
        items = value.get("items")
        places = value.get("prefixItems") if draft >= 2020 else items if isinstance(items, list) else None
        if places is not None:
            result.prefix_items = [self.node(each, draft) for each in list_of({"items": places}, "items")]
            self.parse_additional(result, value, "items" if draft >= 2020 else "additionalItems", draft)
        elif draft >= 2019 and items is False:
            result.allows_additional = False
        elif items is not None and not (draft >= 2019 and items is True):
            result.items = self.node(items, draft)
        if places is None and draft < 2020:
            self.parse_additional(result, value, "additionalItems", draft)
            if result.items is not None:
                result.allows_additional = True  # no item is additional
        if "contains" in value and draft > 4:
            self.node(value["contains"], draft)
        return result

    def object(self, value: dict[str, Any], draft: int) -> Node:
        result = Node("object", limits=limits_of(value, OBJECT_LIMITS))
        result.properties = {key: self.node(each, draft) for key, each in object_of(value, "properties").items()}
        for pattern, each in object_of(value, "patternProperties").items():
            result.patterns[check_pattern(pattern)] = self.node(each, draft)
        result.required = frozenset(names_of(value.get("required", []), "required"))
        self.parse_additional(result, value, "additionalProperties", draft)
        if "propertyNames" in value and draft > 4:
            self.node(value["propertyNames"], draft)
        for key, each in object_of(value, "dependencies").items():
            if isinstance(each, list):
                result.dependent_required[key] = frozenset(names_of(each, "dependencies"))
            else:
                result.dependent_schemas[key] = self.node(each, draft)
        if draft >= 2019:
            for key, each in object_of(value, "dependentRequired").items():
                result.dependent_required[key] = frozenset(names_of(each, "dependentRequired"))
            for key, each in object_of(value, "dependentSchemas").items():
                result.dependent_schemas[key] = self.node(each, draft)
        return result

    def parse_additional(self, result: Node, value: dict[str, Any], key: str, draft: int) -> None:
        if key not in value:
            return
        given = value[key]
        if isinstance(given, bool):
            result.allows_additional = given
        else:
            result.additional = self.node(given, draft)


def string(value: dict[str, Any]) -> Node:
    result = Node("string", limits=limits_of(value, ("minLength", "maxLength")))
    if "pattern" in value:
        result.limits["pattern"] = check_pattern(value["pattern"])
    return result


def number(value: dict[str, Any], draft: int, *, is_integer: bool) -> Node:
    result = Node("number", is_integer=is_integer)
    for key in NUMBER_KEYS:
        if key not in value:
            continue
        limit = value[key]
        if draft == 4 and key.startswith("exclusive"):
            boolean_of(value, key)  # a flag of the other limit, which does not count as a change
            continue
        if isinstance(limit, bool) or not isinstance(limit, int | Decimal):
            raise InvalidSchemaError(f"{key} is a number, not {shown(limit)}")
        if key == "multipleOf" and limit == 0:
            raise InvalidSchemaError("multipleOf should not be 0")
        result.limits[key] = limit
    return result


def has_any(value: dict[str, Any], keys: tuple[str, ...], later: dict[str, int], draft: int) -> bool:
    return any(key in value for key in keys) or any(key in value and draft >= since for key, since in later.items())


def check_words(value: dict[str, Any], draft: int) -> None:
    for key in ("title", "description", "format", "$schema", "id" if draft == 4 else "$id"):
        if key in value and not isinstance(value[key], str):
            raise InvalidSchemaError(f"{key} is a text, not {shown(value[key])}")


def limits_of(value: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    result = {}
    for key in keys:
        if key in value:
            limit = value[key]
            if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit < 2**31:
                raise InvalidSchemaError(f"{key} is a whole number, not {shown(limit)}")
            result[key] = limit
    return result


def boolean_of(value: dict[str, Any], key: str) -> bool:
    given = value.get(key, False)
    if not isinstance(given, bool):
        raise InvalidSchemaError(f"{key} is true or false, not {shown(given)}")
    return given


def list_of(value: dict[str, Any], key: str) -> list[Any]:
    given = value[key]
    if not isinstance(given, list):
        raise InvalidSchemaError(f"{key} is an array, not {shown(given)}")
    return given


def object_of(value: dict[str, Any], key: str) -> dict[str, Any]:
    given = value.get(key, {})
    if not isinstance(given, dict):
        raise InvalidSchemaError(f"{key} is an object, not {shown(given)}")
    return given


def names_of(value: Any, key: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidSchemaError(f"{key} is an array of names, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else text[:100] + "..."


class JsonSchema:
    kind = "JSON"

    def __init__(self, value: Any, documents: Documents, root: Node) -> None:
        self.value = value
        self.documents = documents  # nodes are identified by the identity of its objects
        self.root = root
        self.text = java_json(value)

    def normalized(self) -> str:
        return java_json(sorted_keys(self.value))

    def problems_reading(self, writer: JsonSchema) -> list[str]:
        return problems(self.root, writer.root)


def parse(text: str, references: Mapping[str, str], *, is_new: bool = True) -> JsonSchema:
    value = read_json(text, exact=True)
    if not isinstance(value, dict | bool):
        raise InvalidSchemaError("Invalid JSON Schema: it is an object or a boolean")
    documents = Documents(value, references, nodes_budget())
    return JsonSchema(value, documents, Parser(documents, is_new=is_new).parsed(value))
