"""Prints Protobuf schemas in the form that Confluent's registry stores: without comments, in a fixed order.

The normalized form sorts what has no order (imports, options, fields by number), prints full type names, and prints a
map as a map even if a compiler has turned it into messages. Unlike Confluent's, both forms keep nested `extend`,
reserved ranges of enums, and quoted defaults of bytes: otherwise the text would be another schema, or invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ottla.registry.formats.protobuf.model import (
    NUMBER_MAX,
    Call,
    Constant,
    Enum,
    Extend,
    Field,
    File,
    Group,
    Message,
    Names,
    Oneof,
    Option,
    Service,
    Span,
    Value,
    Word,
)

Element = TypeVar("Element")
SURROGATE = re.compile("[\ud800-\udfff]")
ESCAPES = str.maketrans(
    {chr(code): f"\\{code:03o}" for code in range(32)}
    | {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        "'": "\\'",
        '"': '\\"',
    }
)


def printed(file: File) -> str:
    return Printer(None).file(file)


def printed_normally(file: File, names: Names) -> str:
    return Printer(names).file(file)


class Printer:
    """With names: the normalized form."""

    def __init__(self, names: Names | None) -> None:
        self.names = names

    def file(self, file: File) -> str:
        parts = [f'syntax = "{file.syntax}";\n' if file.syntax else ""]
        parts += [f"package {file.package};\n" if file.package else ""]
        imports, public_imports = file.imports, file.public_imports
        if self.names is not None:
            imports, public_imports = sorted(set(imports)), sorted(set(public_imports))
        if imports or public_imports:
            parts += ["\n", *(f"import {quoted(name)};\n" for name in imports)]
            parts += [f"import public {quoted(name)};\n" for name in public_imports]
        parts += self.option_lines(file.options)
        scope = file.package
        if file.types:
            parts += ["\n", *self.types(file.types, scope)]
        parts += block(file.extends, lambda each: self.extend(each, scope))
        parts += block(file.services, lambda each: self.service(each, scope))
        return "".join(parts)

    def option_lines(self, options: list[Option]) -> list[str]:
        return block(self.sorted_options(options), self.option_line)

    def sorted_options(self, options: list[Option]) -> list[Option]:
        return options if self.names is None else sorted(options, key=lambda option: option.name)

    def types(self, types: list[Message | Enum], scope: str) -> list[str]:
        """Messages in their order, which message indexes depend on; enums after them."""
        messages = [each for each in types if isinstance(each, Message)]
        if self.names is not None:
            messages = [each for each in messages if not each.is_map_entry]
        return [self.message(each, scope) for each in messages] + [
            self.enum(each) for each in types if isinstance(each, Enum)
        ]

    def message(self, message: Message, scope: str) -> str:
        return f"message {message.name} {{{self.body(message, inner(scope, message.name))}}}\n"

    def body(self, message: Message, scope: str) -> str:
        fields, oneofs, reserved = message.fields, message.oneofs, message.reserved
        if self.names is not None:
            fields = sorted(fields, key=field_number)
            oneofs = [replace(each, fields=sorted(each.fields, key=field_number)) for each in oneofs if each.fields]
            oneofs.sort(key=lambda each: each.fields[0].number)
            reserved = [[value] for value in sorted((each for some in reserved for each in some), key=reserved_order)]
        parts = block(reserved, reserved_line)
        parts += self.option_lines(message.options)
        parts += block(fields, lambda each: self.field(each, scope))
        parts += block(oneofs, lambda each: self.oneof(each, scope))
        parts += block(message.groups, lambda each: self.group(each, scope))
        parts += block(message.extends, lambda each: self.extend(each, scope))
        parts += block(message.extensions, extensions_line)
        types = self.types(message.types, scope)
        return indented([*parts, "\n", *types] if types else parts)

    def field(self, field: Field, scope: str) -> str:
        label, kind = field.label, field.type
        if self.names is not None:
            kind = self.names.full_type(field, scope)
            label = "" if kind.startswith("map<") else label
        options = list(field.options)
        if field.default is not None:
            options.append(Option("default", field.default))
        if field.json_name is not None:
            options.append(Option("json_name", field.json_name))
        front = f"{label} " if label else ""
        return f"{front}{kind} {field.name} = {field.number}{self.options(options)};\n"

    def oneof(self, oneof: Oneof, scope: str) -> str:
        parts = self.option_lines(oneof.options)
        parts += block(oneof.fields, lambda each: self.field(each, scope))
        parts += block(oneof.groups, lambda each: self.group(each, scope))
        return f"oneof {oneof.name} {{{indented(parts)}}}\n"

    def group(self, group: Group, scope: str) -> str:
        front = f"{group.label} " if group.label else ""
        body = self.body(group.message, inner(scope, group.message.name))
        return f"{front}group {group.message.name} = {group.number} {{{body}}}\n"

    def enum(self, enum: Enum) -> str:
        constants, reserved = enum.constants, enum.reserved
        if self.names is not None:
            # Negative numbers come last: in proto3 the first one must be zero.
            constants = sorted(constants, key=lambda each: (each.number < 0, each.number, each.name))
            reserved = [[value] for value in sorted((each for some in reserved for each in some), key=reserved_order)]
        lines = [reserved_line(each) for each in reserved]
        lines += [self.option_line(each) for each in self.sorted_options(enum.options)]
        lines += [self.constant(each) for each in constants]
        body = indented(["\n", *lines]) if lines else ""
        return f"enum {enum.name} {{{body}}}\n"

    def constant(self, constant: Constant) -> str:
        return f"{constant.name} = {constant.number}{self.options(constant.options)};\n"

    def extend(self, extend: Extend, scope: str) -> str:
        lines = [self.field(each, scope) for each in extend.fields]
        lines += [self.group(each, scope) for each in extend.groups]
        body = indented(["\n", *lines])
        return f"extend {extend.name} {{{body}}}\n"

    def service(self, service: Service, scope: str) -> str:
        parts = self.option_lines(service.options)
        parts += block(service.calls, lambda each: self.call(each, inner(scope, service.name)))
        return f"service {service.name} {{{indented(parts)}}}\n"

    def call(self, call: Call, scope: str) -> str:
        request, response = call.request, call.response
        if self.names is not None:
            request, response = self.names.full(request, scope), self.names.full(response, scope)
        request = f"stream {request}" if call.is_request_stream else request
        response = f"stream {response}" if call.is_response_stream else response
        options = self.option_lines(call.options)
        body = f" {{{indented(options)}}}" if options else ""
        return f"rpc {call.name} ({request}) returns ({response}){body};\n"

    def option_line(self, option: Option) -> str:
        return f"option {self.option(option)};\n"

    def options(self, options: list[Option]) -> str:
        if not options:
            return ""
        told = [self.option(each) for each in self.sorted_options(options)]
        return f" [{told[0]}]" if len(told) == 1 else f" [{listed(told)}]"

    def option(self, option: Option) -> str:
        name = f"({option.name})" if option.is_extension else option.name
        return f"{'.'.join((name, *option.path))} = {self.value(option.value)}"

    def value(self, value: Value) -> str:
        if isinstance(value, dict):
            keys = sorted(value) if self.names is not None else list(value)
            return f"{{{listed([f'{key}: {self.value(value[key])}' for key in keys])}}}"
        if isinstance(value, list):
            return f"[{listed([self.value(each) for each in value])}]"
        return value if isinstance(value, Word) else quoted(value)


def block(elements: Sequence[Element], told: Callable[[Element], str]) -> list[str]:
    """The lines with an empty line in front, if there are any."""
    return ["\n", *(told(each) for each in elements)] if elements else []


def field_number(field: Field) -> int:
    return field.number


def reserved_order(value: str | Span) -> tuple[int, str]:
    return (2**31, value) if isinstance(value, str) else (value[0], str(value[1]))


def reserved_line(values: list[str | Span]) -> str:
    told = (quoted(each) if isinstance(each, str) else span(each) for each in values)
    return f"reserved {', '.join(told)};\n"


def extensions_line(values: list[Span]) -> str:
    return f"extensions {', '.join(span(each, end='max') for each in values)};\n"


def quoted(text: str) -> str:
    return f'"{SURROGATE.sub(escaped, text.translate(ESCAPES))}"'


def escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\{code - 0xDC00:o}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def span(value: Span, end: str = "") -> str:
    if value[0] == value[1]:
        return str(value[0])
    return f"{value[0]} to {end if end and value[1] == NUMBER_MAX else value[1]}"


def inner(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def listed(told: list[str]) -> str:
    """Each on a line, separated by commas."""
    return indented(["\n", *(f"{each}," for each in told[:-1]), *told[-1:]])


def indented(parts: Sequence[str]) -> str:
    """Empty lines between parts stay empty; those inside a part are indented, as in Confluent's."""
    lines: list[str] = []
    for part in parts:
        lines += [""] if part == "\n" else [f"  {line}" for line in part.removesuffix("\n").split("\n")]
    return "".join(f"{line}\n" for line in lines)
