"""Files that may be imported without a reference: Protobuf's own, Google's common types if they are installed, and
those that Confluent's clients write."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.registry.formats.parsed import nodes_budget
from ottla.registry.formats.protobuf.descriptors import from_descriptor
from ottla.registry.formats.protobuf.model import File
from ottla.registry.formats.protobuf.parsing import Parser

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
