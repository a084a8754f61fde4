"""Which type a name means: the innermost one around the place where it stands, as C++ finds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.registry.formats.protobuf.model import SCALARS, Enum, Field, File, Message


class Found(NamedTuple):
    full_name: str
    package: str
    type: Message | Enum
    is_local: bool  # in the schema itself, not in what it imports

    @property
    def local_name(self) -> str:
        """Without the package."""
        return self.full_name[len(self.package) + 1 :] if self.package else self.full_name


class Names:
    """All types of a schema and of what it imports."""

    def __init__(self, file: File, imported: list[File]) -> None:
        self.types: dict[str, Found] = {}
        for each in imported:
            self.add(each, is_local=False)
        self.add(file, is_local=True)

    def add(self, file: File, *, is_local: bool) -> None:
        for name, element in elements(file.types, file.package):
            self.types[name] = Found(name, file.package, element, is_local)

    def find(self, name: str, scope: str) -> Found | None:
        if name.startswith("."):
            return self.types.get(name[1:])
        while scope:
            if (found := self.types.get(f"{scope}.{name}")) is not None:
                return found
            scope = scope.rpartition(".")[0]
        return self.types.get(name)

    def full(self, name: str, scope: str) -> str:
        found = self.find(name, scope)
        return name if found is None else f".{found.full_name}"

    def full_type(self, field: Field, scope: str) -> str:
        """With all names in full; a message that stands for an entry of a map becomes the map again."""
        kinds = self.map_of(field, scope)
        if kinds is None:
            return field.type if field.type in SCALARS else self.full(field.type, scope)
        key, value, inside = kinds
        return f"map<{key}, {value if value in SCALARS else self.full(value, inside)}>"

    def map_of(self, field: Field, scope: str) -> tuple[str, str, str] | None:
        """The types of keys and values, and where they stand."""
        if (kinds := field.map_types) is not None:
            return (*kinds, scope)
        found = None if field.type in SCALARS else self.find(field.type, scope)
        if found is None or not isinstance(found.type, Message) or not found.type.is_map_entry:
            return None
        by_name = {each.name: each.type for each in found.type.fields}
        if "key" not in by_name or "value" not in by_name:
            return None
        return by_name["key"], by_name["value"], found.full_name


def elements(types: list[Message | Enum], scope: str) -> Iterator[tuple[str, Message | Enum]]:
    """All types, also those inside of others, with their full names."""
    for each in types:
        name = f"{scope}.{each.name}" if scope else each.name
        yield name, each
        if isinstance(each, Message):
            yield from elements(each.types, name)
            for group in each.all_groups():
                yield from elements([group.message], name)
