"""How a message class describes its own wire layout.

A message is a small class with typed fields.  The annotation says the wire type, `wire(...)` says in which
versions the field is sent, since when it may be null, and whether it is a tagged field:

    @message(api_key=12, versions="0-4", flexible=4)
    class HeartbeatRequest:
        group_id: str
        generation_id: Int32
        member_id: str
        group_instance_id: str | None = wire(since=3, nullable=3, default=None)

Rules:
* Fields are declared in the order in which they are on the wire.
* A field that some version does not have needs a default: that is its value after decoding such a version.
* A tagged struct that is not nullable is annotated `Part | None` with default None: None means "left out",
  which on the wire is the same as a struct of default values.
* Nothing here touches bytes: see codec.py.

The classes look like keyword-only dataclasses to a type checker.  They are built by hand because the dataclass
machinery compiles three functions per class at import, which is most of the start-up time of a broker; here only
the constructor is generated, and only when it is first called.
"""

from __future__ import annotations

from collections.abc import Callable
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

# Record batches.  Whatever was declared, decoding gives a memoryview slice of the request's buffer, and encoding
# takes bytes, bytearray, memoryview or a FileRange: the two names only tell the type checker the usual case.
Records = Annotated[bytes | bytearray | memoryview | FileRange, "records"]
ReceivedRecords = Annotated[memoryview, "records"]

ZERO_UUID: Final = UUID(int=0)  # "no topic id"
NO_OPERATIONS: Final = -(2**31)  # "authorized operations were not asked for"
OWN_TAG: Final = 10_000  # tags from here on are ours alone: whoever does not know a tag skips it (KIP-482)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
NO_VERSION: Final = 32767  # past every version: "never" as a start, "for ever" as an end
REQUIRED: Final[Any] = object()  # a field without default: the constructor must be given it

T = TypeVar("T")


class Wire:
    """What `wire()` says about one field."""

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
    """Facts about one message that are not facts about a single field."""

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
    """A field that exists only in versions since..until and may be null from version `nullable` on."""
    return Wire(since, until, nullable, tag, default, default_factory)


@dataclass_transform(field_specifiers=(wire,), kw_only_default=True)
def message(*, versions: str, flexible: int = NO_VERSION, api_key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Make a class a wire message; `flexible` is the first version with compact lengths and tagged fields."""
    low, _, high = versions.partition("-")
    layout = Layout(api_key, int(low), int(high or low), flexible)

    def decorate(cls: type[T]) -> type[T]:
        made = _rebuild(cls)
        made.__layout__ = layout  # type: ignore[attr-defined]
        return made

    return decorate


@dataclass_transform(field_specifiers=(wire,), kw_only_default=True)
def part(cls: type[T]) -> type[T]:
    """Make a class a struct that is nested inside messages."""
    return _rebuild(cls)


def layout_of(cls: type) -> Layout:
    layout: Layout = cls.__layout__  # type: ignore[attr-defined]
    return layout


def fields_of(cls: type) -> dict[str, Wire]:
    fields: dict[str, Wire] = cls.__wire__  # type: ignore[attr-defined]
    return fields


def _rebuild(cls: type[T]) -> type[T]:
    """The same class with slots, a constructor, equality and a readable repr."""
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
    """Stands in for the constructor until it is called for the first time, and then replaces itself."""
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
