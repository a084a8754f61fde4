"""The fields of a message class as one version has them on the wire, ready for the code generators."""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any, Final
from uuid import UUID

from ottla.protocol.schema import Wire, fields_of

# Kinds with a fixed size, and their letter in a struct format.
FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
SIZES: Final = {"b": 1, "B": 1, "?": 1, "x": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}
PLAIN_CLASSES: Final = {str: "string", bytes: "bytes", bool: "bool", UUID: "uuid"}

TAGGED_NULL: Final = 0  # what a tagged struct that is null begins with; any other one begins with -1


class Type:
    """A wire type: a fixed kind, "string", "bytes", "records", "array" (of `item`) or "struct" (`struct`)."""

    __slots__ = ("item", "kind", "struct")

    def __init__(self, kind: str, item: Type | None = None, struct: type | None = None) -> None:
        self.kind = kind
        self.item = item
        self.struct = struct

    @property
    def is_fixed(self) -> bool:
        return self.kind in FIXED

    @property
    def array_item(self) -> Type:
        assert self.item is not None
        return self.item

    @property
    def struct_class(self) -> type:
        assert self.struct is not None
        return self.struct


class Field:
    """One field in one version."""

    __slots__ = ("name", "nullable", "tag", "type", "wire")

    def __init__(self, name: str, type_: Type, nullable: bool, wire: Wire) -> None:
        self.name = name
        self.type = type_
        self.nullable = nullable
        self.tag = wire.tag
        self.wire = wire


def fields_in(cls: type, version: int) -> list[Field]:
    """The fields that `version` sends, in wire order, tagged ones included."""
    found = []
    for name, type_ in types_of(cls).items():
        wire = fields_of(cls)[name]
        if wire.since <= version <= wire.until:
            found.append(Field(name, type_, version >= wire.nullable, wire))
    return found


def absent_in(cls: type, version: int) -> list[tuple[str, Wire]]:
    """The fields that `version` does not send: after decoding they have their defaults."""
    return [(name, wire) for name, wire in fields_of(cls).items() if not wire.since <= version <= wire.until]


@cache
def types_of(cls: type) -> dict[str, Type]:
    return {name: _type_of(hint) for name, hint in typing.get_type_hints(cls, include_extras=True).items()}


def least_bytes(type_: Type, version: int, flexible: bool, nullable: bool = False) -> int:
    """How few bytes a value can take: an array that announces more items than fit is refused unread."""
    if type_.is_fixed:
        return SIZES[FIXED[type_.kind]]
    if type_.kind != "struct":
        return 1 if flexible else (2 if type_.kind == "string" else 4)
    if nullable:
        return 1
    size = 1 if flexible else 0
    for field in fields_in(type_.struct_class, version):
        if field.tag is None:
            size += least_bytes(field.type, version, flexible, field.nullable)
    return size


def _type_of(hint: Any) -> Type:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = [argument for argument in typing.get_args(hint) if argument is not type(None)]
    if typing.get_origin(hint) is typing.Annotated:
        return Type(hint.__metadata__[0])
    if typing.get_origin(hint) is list:
        return Type("array", item=_type_of(typing.get_args(hint)[0]))
    kind = PLAIN_CLASSES.get(hint)
    return Type(kind) if kind is not None else Type("struct", struct=hint)
