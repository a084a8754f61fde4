"""Compatibility of Protobuf schemas by Confluent's rules.

Fields are identified by number; names of fields, enums and constants may change, fields may be added and removed. Types
may change within groups of the same wire format. A message must not be removed or replaced by another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.registry.formats.protobuf.model import SCALARS, Enum, Field, File, Found, Message, Names
from ottla.registry.formats.schema_format import StepLimit

STEPS_MAX = 200_000
# Scalars with compatible wire formats; enums are numbers.
GROUPS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool", "enum"), "general number"),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "text"),
    **dict.fromkeys(("fixed32", "sfixed32"), "32 bits"),
    **dict.fromkeys(("fixed64", "sfixed64"), "64 bits"),
    "float": "float",
    "double": "double",
}
DESCRIPTIONS = {
    "PACKAGE_CHANGED": "The package at '{path}' in the %s schema does not match the package in the %s schema",
    "MESSAGE_REMOVED": "The %s schema is missing a MESSAGE type at path '{path}' in the %s schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the %s schema does not match the %s schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the %s schema does not match its kind in the %s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the %s schema does not match its type in the %s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the %s schema does not match its label in the %s schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the %s schema is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": "The %s schema is missing a required field at path: '{path}' in the %s schema",
    "ONEOF_FIELD_REMOVED": "The %s schema is missing a oneof field at path '{path}' in the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the %s schema are outside a oneof in the %s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the %s schema is outside an existing oneof in the %s schema"
    ),
}


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    path: tuple[str, ...]

    def message(self) -> str:
        description = DESCRIPTIONS[self.kind].format(path="#/" + "/".join(self.path))
        return f'{{errorType:"{self.kind}", description:"{description}"}}'


class SchemaSide(NamedTuple):
    """One of the two schemas."""

    file: File
    names: Names


class FieldPosition(NamedTuple):
    """The position of a field: its path, and the full name of its message in both schemas."""

    path: tuple[str, ...]
    original: str
    update: str

    def inside(self, name: str) -> FieldPosition:
        return FieldPosition((*self.path, name), inner(self.original, name), inner(self.update, name))

    def at(self, part: str) -> FieldPosition:
        return self._replace(path=(*self.path, part))


def problems(update: SchemaSide, original: SchemaSide) -> list[str]:
    return [each.message() for each in Comparison(original, update).compare()]


class Comparison:
    def __init__(self, original: SchemaSide, update: SchemaSide) -> None:
        self.original, self.update = original, update
        self.budget = StepLimit(STEPS_MAX, "The schemas are too large to be compared")
        self.known: dict[tuple[int, int], list[Difference]] = {}  # imported messages are compared once

    def compare(self) -> Iterator[Difference]:
        original, update = self.original.file, self.update.file
        if original.package != update.package:
            yield Difference("PACKAGE_CHANGED", ())
        yield from self.types(original.types, update.types, FieldPosition((), original.package, update.package))

    def types(
        self, original: list[Message | Enum], update: list[Message | Enum], place: FieldPosition
    ) -> Iterator[Difference]:
        after = {each.name: each for each in update if isinstance(each, Message)}
        for old in original:
            if isinstance(old, Enum) or old.is_map_entry:
                continue
            inside = place.inside(old.name)
            if old.name not in after:
                yield Difference("MESSAGE_REMOVED", inside.path)
            else:
                yield from self.messages(old, after[old.name], inside)

    def messages(self, original: Message, update: Message, place: FieldPosition) -> Iterator[Difference]:
        self.budget.consume()
        yield from moved_into_oneofs(original, update, place)
        yield from self.oneofs(original, update, place)
        outside = {field.number for field in original.fields}
        old = {field.number: field for field in original.all_fields()}
        new = {field.number: field for field in update.all_fields()}
        common_oneofs = oneof_pairs(original, update)
        for number in dict.fromkeys((*old, *new)):
            self.budget.consume()
            path = (*place.path, str(number))
            if number not in new:
                if number in outside and old[number].label == "required":
                    yield Difference("REQUIRED_FIELD_REMOVED", path)
            elif number not in old:
                if new[number].label == "required":
                    yield Difference("REQUIRED_FIELD_ADDED", path)
            elif number not in common_oneofs:
                yield from self.fields(old[number], new[number], place.at(str(number)))
        yield from self.types(original.types, update.types, place)

    def oneofs(self, original: Message, update: Message, place: FieldPosition) -> Iterator[Difference]:
        after = {each.name: each for each in update.oneofs}
        for oneof in original.oneofs:
            if oneof.name not in after:
                continue
            new = {field.number: field for field in after[oneof.name].fields}
            for field in oneof.fields:
                inside = place.at(oneof.name).at(str(field.number))
                if field.number in new:
                    yield from self.fields(field, new[field.number], inside)
                else:
                    yield Difference("ONEOF_FIELD_REMOVED", inside.path)

    def fields(self, original: Field, update: Field, place: FieldPosition) -> Iterator[Difference]:
        old_map = self.original.names.map_of(original, place.original)
        new_map = self.update.names.map_of(update, place.update)
        if (old_map is None) != (new_map is None):
            yield Difference("FIELD_KIND_CHANGED", place.path)
        elif old_map is not None and new_map is not None:
            # The scope of a map's types matters if a compiler turned its entries into a message.
            entries = FieldPosition(place.path, old_map[2], new_map[2])
            yield from self.type_names(old_map[0], new_map[0], entries, labels=None)
            yield from self.type_names(old_map[1], new_map[1], entries, labels=None)
        else:
            labels = (original.label, update.label)
            yield from self.type_names(original.type, update.type, place, labels)

    def type_names(
        self, old: str, new: str, place: FieldPosition, labels: tuple[str, str] | None
    ) -> Iterator[Difference]:
        before = None if old in SCALARS else self.original.names.find(old, place.original)
        after = None if new in SCALARS else self.update.names.find(new, place.update)
        old_group, new_group = group_of(old, before), group_of(new, after)
        if (old_group is None) != (new_group is None):
            yield Difference("FIELD_KIND_CHANGED", place.path)
        elif old_group is None:
            yield from self.named(before, after, place)
        elif old_group != new_group:
            yield Difference("FIELD_SCALAR_KIND_CHANGED", place.path)
        elif labels is not None and all(labels) and labels[0] != labels[1] and old_group != "text":
            yield Difference("FIELD_NUMERIC_LABEL_CHANGED", place.path)

    def named(self, before: Found | None, after: Found | None, place: FieldPosition) -> Iterator[Difference]:
        if before is None or after is None or before.local_name != after.local_name:
            yield Difference("FIELD_NAMED_TYPE_CHANGED", place.path)
            return
        if (before.is_local and after.is_local) or not isinstance(before.type, Message):
            return  # it is compared at its definition
        assert isinstance(after.type, Message)
        pair = (id(before.type), id(after.type))
        if (found := self.known.get(pair)) is None:
            self.known[pair] = []
            inside = FieldPosition(tuple(before.local_name.split(".")), before.full_name, after.full_name)
            found = self.known[pair] = list(self.messages(before.type, after.type, inside))
        if found:
            yield from found
            yield Difference("FIELD_NAMED_TYPE_CHANGED", place.path)


def moved_into_oneofs(original: Message, update: Message, place: FieldPosition) -> Iterator[Difference]:
    """At most one field may move into a oneof, and only into a new one: otherwise several could have been set."""
    outside = {field.number for field in original.fields}
    inside = {field.number for oneof in original.oneofs for field in oneof.fields}
    for oneof in update.oneofs:
        moved = sum(field.number in outside for field in oneof.fields)
        if moved > 1:
            yield Difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", (*place.path, oneof.name))
        elif moved == 1 and any(field.number in inside for field in oneof.fields):
            yield Difference("FIELD_MOVED_TO_EXISTING_ONEOF", (*place.path, oneof.name))


def oneof_pairs(original: Message, update: Message) -> set[int]:
    """The field numbers in oneofs of the same name in both."""
    after = {each.name: {field.number for field in each.fields} for each in update.oneofs}
    return {
        field.number for oneof in original.oneofs for field in oneof.fields if field.number in after.get(oneof.name, ())
    }


def group_of(name: str, found: Found | None) -> str | None:
    """The group of a scalar or enum; None for a message."""
    if name in SCALARS:
        return GROUPS[name]
    return GROUPS["enum"] if found is not None and isinstance(found.type, Enum) else None


def inner(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
