"""Converts compiled file descriptors to the model: some clients register them, in base64, instead of text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from ottla.registry.formats.protobuf.model import (
    Call,
    Constant,
    Enum,
    Extend,
    Field,
    File,
    Group,
    Message,
    Oneof,
    Option,
    Service,
    Span,
    Value,
    Word,
)
from ottla.registry.formats.protobuf.parser import unquoted

NO_MESSAGE = Message("")
TYPE_GROUP = FieldDescriptorProto.TYPE_GROUP
LABELS = {1: "optional", 2: "required", 3: "repeated"}
# The options that Confluent's registry keeps, in its order.
FILE_OPTIONS = (
    *("java_package", "java_outer_classname", "java_multiple_files", "java_generate_equals_and_hash"),
    *("java_string_check_utf8", "optimize_for", "go_package", "cc_generic_services", "java_generic_services"),
    *("py_generic_services", "deprecated", "cc_enable_arenas", "objc_class_prefix", "csharp_namespace"),
    *("swift_prefix", "php_class_prefix", "php_namespace", "php_metadata_namespace", "ruby_package"),
)
MESSAGE_OPTIONS = ("no_standard_descriptor_accessor", "deprecated", "map_entry")
FIELD_OPTIONS = ("ctype", "packed", "jstype", "deprecated")
ENUM_OPTIONS = ("allow_alias", "deprecated")
CALL_OPTIONS = ("deprecated", "idempotency_level")


def from_base64(text: str) -> File | None:
    """None if the text is not a compiled file."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
        descriptor = FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return from_descriptor(descriptor) if descriptor.name or descriptor.message_type else None


def from_descriptor(descriptor: Any) -> File:
    syntax = descriptor.syntax if descriptor.syntax in ("proto2", "proto3") else ""
    public = set(descriptor.public_dependency)
    imports = list(enumerate(descriptor.dependency))
    types: list[Message | Enum] = [message(each, syntax) for each in descriptor.message_type]
    types += [enum(each) for each in descriptor.enum_type]
    return File(
        syntax=syntax,
        package=descriptor.package,
        imports=[name for place, name in imports if place not in public],
        public_imports=[name for place, name in imports if place in public],
        options=options(descriptor.options, FILE_OPTIONS),
        types=types,
        extends=extends(descriptor.extension, syntax),
        services=[service(each) for each in descriptor.service],
    )


def message(descriptor: Any, syntax: str) -> Message:
    result = Message(descriptor.name, options=options(descriptor.options, MESSAGE_OPTIONS))
    oneofs = [Oneof(each.name) for each in descriptor.oneof_decl]
    nested = {each.name: each for each in descriptor.nested_type}
    for each in descriptor.field:
        made = nested.pop(each.type_name.rpartition(".")[2], None) if each.type == TYPE_GROUP else None
        if made is not None:
            groups = oneofs[each.oneof_index].groups if each.HasField("oneof_index") else result.groups
            label = "" if each.HasField("oneof_index") else LABELS[each.label]
            groups.append(Group(label, each.number, message(made, syntax)))
        elif each.HasField("oneof_index") and not each.proto3_optional:
            oneofs[each.oneof_index].fields.append(field(each, syntax, in_oneof=True))
        else:
            result.fields.append(field(each, syntax))
    result.oneofs = [each for each in oneofs if each.fields or each.groups]
    result.types = [message(each, syntax) for each in nested.values()]
    result.types += [enum(each) for each in descriptor.enum_type]
    result.reserved = [[(each.start, each.end - 1)] for each in descriptor.reserved_range]
    result.reserved += [[name] for name in descriptor.reserved_name]
    spans: list[Span] = [(each.start, each.end - 1) for each in descriptor.extension_range]
    result.extensions = [[each] for each in spans]
    result.extends = extends(descriptor.extension, syntax)
    return result


def field(descriptor: Any, syntax: str, *, in_oneof: bool = False) -> Field:
    label = LABELS[descriptor.label]
    if in_oneof or (syntax == "proto3" and label != "repeated" and not descriptor.proto3_optional):
        label = ""
    kind = descriptor.type_name or FieldDescriptorProto.Type.Name(descriptor.type).removeprefix("TYPE_").lower()
    result = Field(label, kind, descriptor.name, descriptor.number, options(descriptor.options, FIELD_OPTIONS))
    if descriptor.HasField("json_name"):
        result.json_name = descriptor.json_name
    if descriptor.HasField("default_value") and syntax != "proto3":
        result.default = default(descriptor)
    return result


def restore_source_form(descriptor: Any, file: File) -> None:
    """Undo what protoc adds: a JSON name for every field; and restore the syntax "proto2", which it omits."""
    if file.syntax:
        descriptor.syntax = file.syntax
    _keep_json_names(descriptor.message_type, descriptor.extension, file.types, file.extends)


def _keep_json_names(
    messages: Any, extensions: Any, types: Iterable[Message | Enum], extends: Iterable[Extend]
) -> None:
    written = {each.name for extend in extends for each in extend.fields if each.json_name is not None}
    for extension in extensions:
        if extension.name not in written:
            extension.ClearField("json_name")
    models = {each.name: each for each in types if isinstance(each, Message)}
    for found in messages:
        model = models.get(found.name, NO_MESSAGE)  # generated map entries have none
        numbers = {each.number for each in model.all_fields() if each.json_name is not None}
        for each in found.field:
            if each.number not in numbers:
                each.ClearField("json_name")
        extended = (each for extend in model.extends for each in extend.groups)
        groups = (group.message for group in (*model.all_groups(), *extended))
        _keep_json_names(found.nested_type, found.extension, [*model.types, *groups], model.extends)


def default(descriptor: Any) -> Value:
    if descriptor.type == FieldDescriptorProto.TYPE_BYTES:
        return unquoted(f'"{descriptor.default_value}"')  # protoc writes them with escapes
    is_text = descriptor.type == FieldDescriptorProto.TYPE_STRING
    return str(descriptor.default_value) if is_text else Word(descriptor.default_value)


def enum(descriptor: Any) -> Enum:
    result = Enum(descriptor.name, options=options(descriptor.options, ENUM_OPTIONS))
    result.constants = [
        Constant(each.name, each.number, options(each.options, ("deprecated",))) for each in descriptor.value
    ]
    result.reserved = [[(each.start, each.end)] for each in descriptor.reserved_range]
    result.reserved += [[name] for name in descriptor.reserved_name]
    return result


def extends(descriptors: Any, syntax: str) -> list[Extend]:
    result: dict[str, Extend] = {}
    for each in descriptors:
        result.setdefault(each.extendee, Extend(each.extendee)).fields.append(field(each, syntax))
    return list(result.values())


def service(descriptor: Any) -> Service:
    calls = [
        Call(
            each.name,
            each.input_type,
            each.output_type,
            each.client_streaming,
            each.server_streaming,
            options(each.options, CALL_OPTIONS),
        )
        for each in descriptor.method
    ]
    return Service(descriptor.name, calls, options(descriptor.options, ("deprecated",)))


def options(given: Any, names: tuple[str, ...]) -> list[Option]:
    return [Option(name, option_value(given, name)) for name in names if given.HasField(name)]


def option_value(given: Any, name: str) -> Value:
    value = getattr(given, name)
    if isinstance(value, bool):
        return Word("true" if value else "false")
    if isinstance(value, int):
        kind = given.DESCRIPTOR.fields_by_name[name].enum_type
        return Word(kind.values_by_number[value].name)
    return str(value)
