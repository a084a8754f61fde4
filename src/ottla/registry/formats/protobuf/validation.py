"""Validation of a parsed .proto file, as by protoc: duplicate, reserved, out-of-range and undefined names and numbers.

Unresolved imports are accepted unless a type of them is used: custom options of other files are kept, not resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.registry.formats.protobuf.model import (
    NUMBER_MAX,
    SCALARS,
    Enum,
    Extend,
    Field,
    File,
    Group,
    Message,
    Names,
    Span,
    Word,
)
from ottla.registry.formats.schema_format import InvalidSchemaError, StepLimit

RESERVED_NUMBERS = (19_000, 19_999)
INTEGER = re.compile(r"-?(?:[0-9]+|0[xX][0-9a-fA-F]+)")
KEYS = SCALARS - {"double", "float", "bytes"}


class Checks:
    def __init__(self, file: File, names: Names, budget: StepLimit) -> None:
        self.file = file
        self.names = names
        self.budget = budget
        self.is_proto3 = file.syntax == "proto3"

    def check(self) -> None:
        file = self.file
        self.check_unique(
            [each.name for each in file.types]
            + [service.name for service in file.services]
            + constants_of(file.types)
            + [field.name for extend in file.extends for field in extend.fields],
            file.package or "the file",
        )
        self.types(file.types, file.package)
        for extend in file.extends:
            self.extend(extend, file.package)
        for service in file.services:
            self.check_unique([call.name for call in service.calls], service.name)
            scope = inner(file.package, service.name)
            for call in service.calls:
                self.message_named(call.request, scope)
                self.message_named(call.response, scope)

    def types(self, types: list[Message | Enum], scope: str) -> None:
        for each in types:
            if isinstance(each, Message):
                self.message(each, inner(scope, each.name))
            else:
                self.enum(each, inner(scope, each.name))

    def message(self, message: Message, name: str) -> None:
        fields, groups = list(message.all_fields()), list(message.all_groups())
        self.check_unique(
            [each.name for each in (*fields, *message.oneofs, *message.types)]
            + [group.message.name for group in groups]
            + constants_of(message.types)
            + [field.name for extend in message.extends for field in extend.fields],
            name,
        )
        spans = [value for some in message.reserved for value in some if not isinstance(value, str)]
        extensions = [value for some in message.extensions for value in some]
        self.check_disjoint(spans + extensions, name)
        if self.is_proto3 and extensions:
            raise InvalidSchemaError(f"{name}: extension ranges are not allowed in proto3")
        numbers = [(field.name, field.number) for field in fields]
        numbers += [(group.message.name, group.number) for group in groups]
        self.numbers(numbers, sorted(spans + extensions), name)
        reserved_names = {value for some in message.reserved for value in some if isinstance(value, str)}
        for field in fields:
            if field.name in reserved_names:
                raise InvalidSchemaError(f"{name}: the name {field.name} is reserved")
            self.field(field, name)
        for oneof in message.oneofs:
            if not oneof.fields and not oneof.groups:
                raise InvalidSchemaError(f"{name}: oneof {oneof.name} must have at least one field")
        for group in groups:
            self.group(group, name)
        for extend in message.extends:
            self.extend(extend, name)
        self.types(message.types, name)

    def numbers(self, numbers: list[tuple[str, int]], taken: list[Span], name: str) -> None:
        """`taken`: sorted and disjoint."""
        used: dict[int, str] = {}
        place = 0
        for field, number in sorted(numbers, key=lambda each: each[1]):
            self.budget.consume()
            self.number(field, number, name)
            if number in used:
                raise InvalidSchemaError(f"{name}: field number {number} is used by {used[number]} and {field}")
            used[number] = field
            while place < len(taken) and taken[place][1] < number:
                place += 1
            if place < len(taken) and taken[place][0] <= number:
                raise InvalidSchemaError(f"{name}: field {field} uses the reserved number {number}")

    def number(self, field: str, number: int, name: str) -> None:
        if not 1 <= number <= NUMBER_MAX:
            raise InvalidSchemaError(f"{name}: field number {number} of {field} is not in 1 to {NUMBER_MAX}")
        if RESERVED_NUMBERS[0] <= number <= RESERVED_NUMBERS[1]:
            raise InvalidSchemaError(f"{name}: field numbers 19000 to 19999 are reserved for Protobuf: {field}")

    def check_disjoint(self, spans: list[Span], name: str) -> None:
        before = 0
        for first, last in sorted(spans):
            self.budget.consume()
            if not 1 <= first <= last <= NUMBER_MAX:
                raise InvalidSchemaError(f"{name}: {first} to {last} is not a range of field numbers")
            if first <= before:
                raise InvalidSchemaError(f"{name}: ranges of reserved numbers overlap at {first}")
            before = last

    def field(self, field: Field, scope: str) -> None:
        self.budget.consume()
        if self.is_proto3 and field.default is not None:
            raise InvalidSchemaError(f"{scope}: defaults are not allowed in proto3: {field.name}")
        if field.default is not None:
            check_default(field, scope)
        kind = field.type
        if (kinds := field.map_types) is not None:
            if kinds[0] not in KEYS:
                raise InvalidSchemaError(f"{scope}: {kinds[0]} cannot be the key of a map: {field.name}")
            kind = kinds[1]
        if kind in SCALARS:
            return
        found = self.names.find(kind, scope)
        if found is None:
            raise InvalidSchemaError(f'{scope}: "{kind}" is not defined')
        if field.default is not None and isinstance(found.type, Message):
            raise InvalidSchemaError(f"{scope}: a message has no default: {field.name}")

    def group(self, group: Group, scope: str) -> None:
        if self.is_proto3:
            raise InvalidSchemaError(f"{scope}: groups are not allowed in proto3: {group.message.name}")
        self.message(group.message, inner(scope, group.message.name))

    def enum(self, enum: Enum, name: str) -> None:
        if not enum.constants:
            raise InvalidSchemaError(f"{name}: enums must contain at least one value")
        if self.is_proto3 and enum.constants[0].number != 0:
            raise InvalidSchemaError(f"{name}: the first enum value must be zero in proto3")
        spans = sorted(value for some in enum.reserved for value in some if not isinstance(value, str))
        reserved_names = {value for some in enum.reserved for value in some if isinstance(value, str)}
        used: set[int] = set()
        for constant in enum.constants:
            self.budget.consume(1 + len(spans))
            if not -(2**31) <= constant.number < 2**31:
                raise InvalidSchemaError(f"{name}: {constant.number} is not a number of 32 bits")
            if constant.number in used and not enum.has("allow_alias"):
                raise InvalidSchemaError(f"{name}: {constant.name} uses the number {constant.number} again")
            if constant.name in reserved_names or any(low <= constant.number <= high for low, high in spans):
                raise InvalidSchemaError(f"{name}: {constant.name} = {constant.number} is reserved")
            used.add(constant.number)

    def extend(self, extend: Extend, scope: str) -> None:
        found = self.names.find(extend.name, scope)
        if found is None and not extend.name.lstrip(".").startswith("google.protobuf."):
            raise InvalidSchemaError(f'{scope}: "{extend.name}" is not defined')
        spans = found.type.extensions if found is not None and isinstance(found.type, Message) else []
        for field in extend.fields:
            self.budget.consume(1 + sum(len(some) for some in spans))
            if found is not None and not may_extend(found.type, field.number):
                raise InvalidSchemaError(f"{extend.name} does not declare {field.number} as an extension number")
            self.number(field.name, field.number, extend.name)
            self.field(field, scope)
        for group in extend.groups:
            self.group(group, scope)

    def message_named(self, name: str, scope: str) -> None:
        found = self.names.find(name, scope)
        if found is None or not isinstance(found.type, Message):
            raise InvalidSchemaError(f'{scope}: "{name}" is not a message')

    def check_unique(self, names: Iterable[str], where: str) -> None:
        seen: set[str] = set()
        for name in names:
            self.budget.consume()
            if name in seen:
                raise InvalidSchemaError(f'"{name}" is already defined in {where}')
            seen.add(name)


def may_extend(extended: Message | Enum, number: int) -> bool:
    return isinstance(extended, Message) and any(
        first <= number <= last for some in extended.extensions for first, last in some
    )


def check_default(field: Field, scope: str) -> None:
    if field.label == "repeated" or field.map_types is not None:
        raise InvalidSchemaError(f"{scope}: what is repeated has no default: {field.name}")
    value = field.default
    is_text = isinstance(value, str) and not isinstance(value, Word)
    is_right = is_text if field.type in ("string", "bytes") else isinstance(value, Word)
    if field.type == "bool":
        is_right = value in ("true", "false")
    elif field.type in SCALARS - {"string", "bytes", "float", "double"}:
        is_right = isinstance(value, Word) and INTEGER.fullmatch(value) is not None
    if not is_right:
        raise InvalidSchemaError(f"{scope}: the default of {field.name} is not a {field.type}")


def constants_of(types: list[Message | Enum]) -> list[str]:
    """Enum constants are names in the enclosing scope."""
    return [constant.name for each in types if isinstance(each, Enum) for constant in each.constants]


def inner(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
