"""The types of an Avro schema as a graph, in which a type may contain itself."""

from __future__ import annotations

from typing import Any, NamedTuple

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Field(NamedTuple):
    name: str
    node: Node
    has_default: bool
    default: Any


class Node:
    """One type of a schema. Mutable until the schema is read: a type may contain itself."""

    __slots__ = ("branches", "fields", "inner", "kind", "logical", "name", "scale", "size", "symbols")

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        self.name = name or kind
        self.logical: str | None = None
        self.scale = 0
        self.size = 0
        self.symbols: list[str] = []
        self.fields: list[Field] = []
        self.branches: list[Node] = []
        self.inner: Node | None = None

    def __repr__(self) -> str:
        return f"<Node {self.name}>"


def make_node(schema: Any, space: str, named: dict[str, Node]) -> Node:
    """A schema that fastavro has read already: it is well-formed."""
    if isinstance(schema, list):
        union = Node("union")
        union.branches = [make_node(each, space, named) for each in schema]
        return union
    if isinstance(schema, str):
        return Node(schema) if schema in PRIMITIVES else named[_full(schema, space, named)]
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return make_node(kind, space, named)
    if kind in ("record", "error", "enum", "fixed"):
        return _named(schema, space, named)
    if kind not in (*PRIMITIVES, "array", "map"):
        return make_node(kind, space, named)
    node = Node(kind)
    node.logical, node.scale = schema.get("logicalType"), int(schema.get("scale") or 0)
    if kind == "array":
        node.inner = make_node(schema["items"], space, named)
    elif kind == "map":
        node.inner = make_node(schema["values"], space, named)
    return node


def _named(schema: dict[str, Any], space: str, named: dict[str, Node]) -> Node:
    name = str(schema["name"])
    outer = schema.get("namespace", space)
    full = name if "." in name or not outer else f"{outer}.{name}"
    node = Node("record" if schema["type"] == "error" else schema["type"], full)
    named[full] = node
    node.logical, node.scale = schema.get("logicalType"), int(schema.get("scale") or 0)
    node.size, node.symbols = int(schema.get("size") or 0), list(schema.get("symbols") or ())
    inner = full.rpartition(".")[0]
    node.fields = [
        Field(str(each["name"]), make_node(each["type"], inner, named), "default" in each, each.get("default"))
        for each in schema.get("fields") or ()
    ]
    return node


def _full(name: str, space: str, named: dict[str, Node]) -> str:
    full = name if "." in name or not space else f"{space}.{name}"
    return full if full in named else name
