"""What stands in a .proto file, as it is written: names are not yet resolved, nothing that has a meaning is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

SCALARS = frozenset(
    (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
)
NUMBER_MAX = 536_870_911
ENUM_MAX = 2**31 - 1


class Word(str):
    """A number, a boolean or the name of a constant: told without quotes."""

    __slots__ = ()


Value = str | Word | dict[str, "Value"] | list["Value"]  # str: a text in quotes
Span = tuple[int, int]  # both ends belong to it


@dataclass(slots=True)
class Option:
    """`path`: the names of fields inside the option, as in `(a.b).c = 1`."""

    name: str
    value: Value
    is_extension: bool = False
    path: tuple[str, ...] = ()


@dataclass(slots=True)
class Field:
    label: str  # required, optional, repeated, or empty
    type: str
    name: str
    number: int
    options: list[Option] = field(default_factory=list)
    default: Value | None = None
    json_name: str | None = None

    @property
    def map_types(self) -> tuple[str, str] | None:
        """Of the keys and of the values."""
        if not self.type.startswith("map<"):
            return None
        key, _, value = self.type[4:-1].partition(", ")
        return key, value


@dataclass(slots=True)
class Group:
    label: str
    number: int
    message: Message


@dataclass(slots=True)
class Oneof:
    name: str
    fields: list[Field] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Constant:
    name: str
    number: int
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Enum:
    name: str
    constants: list[Constant] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[list[str | Span]] = field(default_factory=list)

    def has(self, option: str) -> bool:
        return is_set(self.options, option)


@dataclass(slots=True)
class Extend:
    name: str
    fields: list[Field] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)


@dataclass(slots=True)
class Message:
    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: list[Oneof] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    types: list[Message | Enum] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[list[str | Span]] = field(default_factory=list)
    extensions: list[list[Span]] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)

    @property
    def is_map_entry(self) -> bool:
        """Made by a compiler for a field that is a map."""
        return is_set(self.options, "map_entry")

    def all_fields(self) -> Iterator[Field]:
        yield from self.fields
        for oneof in self.oneofs:
            yield from oneof.fields

    def all_groups(self) -> Iterator[Group]:
        yield from self.groups
        for oneof in self.oneofs:
            yield from oneof.groups


@dataclass(slots=True)
class Call:
    name: str
    request: str
    response: str
    is_request_stream: bool = False
    is_response_stream: bool = False
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    name: str
    calls: list[Call] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class File:
    syntax: str = ""  # empty: not said, which means proto2
    package: str = ""
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    types: list[Message | Enum] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)


def is_set(options: list[Option], name: str) -> bool:
    return any(option.name == name and option.value == "true" and not option.is_extension for option in options)
