"""Declaration of message classes and their wire layout.

A message is a small class with typed fields. The annotation gives the wire type, `wire(...)` the versions in which the
field is sent, since when it may be null, and whether it is a tagged field:

    @message(api_key=12, versions="0-4", flexible=4)
    class HeartbeatRequest:
        group_id: str
        generation_id: Int32
        member_id: str
        group_instance_id: str | None = wire(since=3, nullable=3, default=None)

Rules:
* Fields are declared in the order in which they are on the wire.
* A field that some versions do not have needs a default, which is its value after decoding such a version.
* A tagged struct that is not nullable is annotated `Part | None` with default None: None means "omitted", which on the
wire is the same as a struct of default values.
* Encoding and decoding are in codec.py.

To a type checker the classes look like keyword-only dataclasses. They are built here because the dataclass machinery
compiles three functions per class at import, which is most of the start-up time of a broker; here only the constructor
is generated, at its first call.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, TypeVar, dataclass_transform
from uuid import UUID

from ottla.base.file_range import FileRange

Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
UInt16 = Annotated[int, "uint16"]
Int32 = Annotated[int, "int32"]
UInt32 = Annotated[int, "uint32"]
Int64 = Annotated[int, "int64"]
Float64 = Annotated[float, "float64"]

# Record batches. Decoding always gives a memoryview slice of the request's buffer. Encoding accepts bytes, bytearray,
# memoryview or a FileRange. The two names only give the type checker the usual case.
Records = Annotated[bytes | bytearray | memoryview | FileRange, "records"]
ReceivedRecords = Annotated[memoryview, "records"]

ZERO_UUID: Final = UUID(int=0)  # "no topic id"
NO_OPERATIONS: Final = -(2**31)  # "authorized operations were not requested"
OWN_TAG: Final = 10_000  # tags from here on are ottla's; other clients skip unknown tags (KIP-482)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
NO_VERSION: Final = 32767  # past every version: "never" as a start, "no end" as an end
REQUIRED: Final[Any] = object()  # a field without a default: a required argument of the constructor

T = TypeVar("T")


class Wire:
    """The arguments of `wire()` for one field."""

    __slots__ = ("default", "default_factory", "nullable", "since", "tag", "until")

    def __init__(
        self,
        since: int = 0,
        until: int = NO_VERSION,
        nullable: int = NO_VERSION,
        tag: int | None = None,
        default: Any = REQUIRED,
        default_factory: Callable[[], Any] | None = None,
    ) -> None:
        self.since = since
        self.until = until
        self.nullable = nullable
        self.tag = tag
        self.default = default
        self.default_factory = default_factory

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED and self.default_factory is None

    def default_value(self) -> Any:
        return self.default_factory() if self.default_factory is not None else self.default


class Layout:
    """Properties of a message as a whole."""

    __slots__ = ("api_key", "flexible_since", "max_version", "min_version")

    def __init__(self, api_key: int | None, min_version: int, max_version: int, flexible_since: int) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_since = flexible_since

    def __repr__(self) -> str:
        return f"<Layout key={self.api_key} v{self.min_version}-{self.max_version} flexible={self.flexible_since}>"


def wire(
    *,
    since: int = 0,
    until: int = NO_VERSION,
    nullable: int = NO_VERSION,
    tag: int | None = None,
    default: Any = REQUIRED,
    default_factory: Callable[[], Any] | None = None,
) -> Any:
    """Declare a field of the versions since..until, which may be null from version `nullable` on."""
    return Wire(since, until, nullable, tag, default, default_factory)


@dataclass_transform(field_specifiers=(wire,), kw_only_default=True)
def message(*, versions: str, flexible: int = NO_VERSION, api_key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Declare a wire message; `flexible` is the first version with compact lengths and tagged fields."""
    low, _, high = versions.partition("-")
    layout = Layout(api_key, int(low), int(high or low), flexible)

    def decorate(cls: type[T]) -> type[T]:
        made = _rebuild(cls)
        made.__layout__ = layout  # type: ignore[attr-defined]
        return made

    return decorate


@dataclass_transform(field_specifiers=(wire,), kw_only_default=True)
def part(cls: type[T]) -> type[T]:
    """Declare a struct that is nested inside messages."""
    return _rebuild(cls)


def layout_of(cls: type) -> Layout:
    layout: Layout = cls.__layout__  # type: ignore[attr-defined]
    return layout


def fields_of(cls: type) -> dict[str, Wire]:
    fields: dict[str, Wire] = cls.__wire__  # type: ignore[attr-defined]
    return fields


def _rebuild(cls: type[T]) -> type[T]:
    """Return the class with slots, a constructor, equality and a readable repr."""
    namespace = dict(cls.__dict__)
    names = tuple(namespace.get("__annotations__", ()))
    fields: dict[str, Wire] = {}
    for name in names:
        declared = namespace.pop(name, REQUIRED)
        fields[name] = declared if isinstance(declared, Wire) else Wire(default=declared)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    namespace |= {
        "__slots__": names,
        "__wire__": fields,
        "__init__": _init_once,
        "__eq__": _equals,
        "__hash__": None,
        "__repr__": _represent,
    }
    made: type[T] = type(cls.__name__, cls.__bases__, namespace)
    return made


def _init_once(self: Any, **values: Any) -> None:
    """Generate the constructor at the first call, and replace this placeholder by it."""
    cls = type(self)
    cls.__init__ = _make_init(cls)
    cls.__init__(self, **values)


def _make_init(cls: type) -> Callable[..., None]:
    names: dict[str, Any] = {"_unset": REQUIRED}
    arguments, lines = [], []
    for name, field in fields_of(cls).items():
        value = name
        if field.default_factory is not None:
            value = f"_default_{name}() if {name} is _unset else {name}"
            arguments.append(f"{name}=_unset")
        else:
            arguments.append(name if field.is_required else f"{name}=_default_{name}")
        names[f"_default_{name}"] = field.default_factory or field.default
        lines.append(f"self.{name} = {value}")
    star = "*, " if arguments else ""
    source = f"def __init__(self, {star}{', '.join(arguments)}):\n " + "\n ".join(lines or ["pass"])
    exec(compile(source, f"<constructor of {cls.__name__}>", "exec"), names)  # noqa: S102 (our own text, no input in it)
    made: Callable[..., None] = names["__init__"]
    return made


def _equals(self: Any, other: Any) -> bool:
    if type(self) is not type(other):
        return False
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _represent(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__name__}({values})"


# Types of fixed size, and their letters in a struct format.
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

TAGGED_NULL: Final = 0  # the first byte of a tagged struct that is null; other values begin with -1


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
    """Return the fields that `version` sends, in wire order, tagged ones included."""
    found = []
    for name, type_ in types_of(cls).items():
        wire = fields_of(cls)[name]
        if wire.since <= version <= wire.until:
            found.append(Field(name, type_, version >= wire.nullable, wire))
    return found


def absent_in(cls: type, version: int) -> list[tuple[str, Wire]]:
    """Return the fields that `version` does not send: decoding sets their defaults."""
    return [(name, wire) for name, wire in fields_of(cls).items() if not wire.since <= version <= wire.until]


@cache
def types_of(cls: type) -> dict[str, Type]:
    return {name: _type_of(hint) for name, hint in typing.get_type_hints(cls, include_extras=True).items()}


def least_bytes(type_: Type, version: int, flexible: bool, nullable: bool = False) -> int:
    """Return the minimum size of a value, for rejecting arrays whose count exceeds the remaining bytes."""
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
