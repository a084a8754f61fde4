"""The syntax tree of an Avro schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "enum", "fixed")
TYPES = (*PRIMITIVES, *NAMED, "array", "map", "union")


@dataclass(eq=False, slots=True)
class Type:
    """A type; attributes of other kinds are empty. A named type is one object for all its uses."""

    type: str
    name: str = ""  # without its namespace
    namespace: str = ""
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)  # full names
    properties: dict[str, Any] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    is_error: bool = False
    symbols: list[str] = field(default_factory=list)
    default: str | None = None  # of an enum
    size: int = 0
    items: Type | None = None  # of an array, or the values of a map
    branches: list[Type] = field(default_factory=list)
    by_name: dict[str, Field] | None = None  # built lazily

    def fields_by_name(self) -> dict[str, Field]:
        if self.by_name is None:
            self.by_name = {each.name: each for each in self.fields}
        return self.by_name

    @property
    def full_name(self) -> str:
        """The name with its namespace; for unnamed types the type."""
        if not self.name:
            return self.type
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: Type
    doc: str | None = None
    has_default: bool = False
    default: Any = None
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)
