"""A Protobuf schema of the registry, and the files that it may import without a reference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.registry.formats.protobuf.compatibility import SchemaSide, problems
from ottla.registry.formats.protobuf.descriptors import from_base64, from_descriptor
from ottla.registry.formats.protobuf.model import File, Names
from ottla.registry.formats.protobuf.parser import Parser
from ottla.registry.formats.protobuf.printer import printed, printed_normally
from ottla.registry.formats.protobuf.validation import Checks
from ottla.registry.formats.schema_format import (
    NODES_MAX,
    TOO_LARGE,
    InvalidSchemaError,
    StepLimit,
    check_size,
    nodes_budget,
)

# Importable without a reference: Protobuf's own files, Google's common types if installed, and those that Confluent's
# clients use.
PROTOBUF = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask"),
    *("source_context", "struct", "timestamp", "type", "wrappers"),
)
GOOGLE_TYPES = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval"),
    *("latlng", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
)
MODULES = {f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in PROTOBUF} | {
    f"google/type/{name}.proto": f"google.type.{name}_pb2" for name in GOOGLE_TYPES
}
TEXTS = {
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "confluent/meta.proto": """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
}


@lru_cache(maxsize=64)
def known_file(name: str) -> File | None:
    if name in TEXTS:
        return Parser(TEXTS[name], nodes_budget()).parsed()
    if name not in MODULES:
        return None
    try:
        module = import_module(MODULES[name])
    except ImportError:
        return None
    return from_descriptor(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))


CHECKS_MAX = 10 * NODES_MAX


class ProtobufSchema:
    kind = "PROTOBUF"

    def __init__(self, file: File, names: Names) -> None:
        self.file = file
        self.names = names
        self.text = printed(file)

    def normalized(self) -> str:
        return printed_normally(self.file, self.names)

    def problems_reading(self, writer: ProtobufSchema) -> list[str]:
        return problems(SchemaSide(self.file, self.names), SchemaSide(writer.file, writer.names))


def parse(text: str, references: Mapping[str, str], *, is_new: bool = True) -> ProtobufSchema:
    budget = nodes_budget()
    file = read(text, budget)
    given = {name: read(reference, budget) for name, reference in references.items()}
    names = Names(file, imported(file, given))
    if not file.types:
        raise InvalidSchemaError("Protobuf schema definition contains no type definitions")
    if is_new:
        Checks(file, names, StepLimit(CHECKS_MAX, TOO_LARGE)).check()
    return ProtobufSchema(file, names)


def read(text: str, budget: StepLimit) -> File:
    check_size(text)
    try:
        return Parser(text, budget).parsed()
    except InvalidSchemaError:
        if (file := from_base64(text)) is None:
            raise
        return file


def imported(file: File, given: Mapping[str, File]) -> list[File]:
    """All imported files, direct and indirect; unknown ones are left out."""
    result: dict[str, File] = {}
    waiting = [*file.imports, *file.public_imports, *given]
    while waiting:
        name = waiting.pop()
        if name in result:
            continue
        found = given.get(name) or known_file(name)
        if found is not None:
            result[name] = found
            waiting += [*found.imports, *found.public_imports]
    return list(result.values())
