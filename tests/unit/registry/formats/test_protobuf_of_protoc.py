"""Protobuf: protoc accepts what we accept, and its output equals the parsed schema."""

from __future__ import annotations

import base64
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from tests.unit.registry.formats.test_protobuf import REFUSED, REFUSED_FIELDS, REFUSED_OTHERS, in_message
from tests.unit.registry.formats.test_protobuf_verdicts import PAIRS

from ottla.registry.formats import InvalidSchemaError, parse
from ottla.registry.formats.compatibility import check

KNOWN = Path(grpc_tools.__file__).parent / "_proto"
# Rejected here though protoc accepts it: empty schemas, and syntax that Confluent's parser does not support.
STRICTER = ('syntax = "proto3";', 'edition = "2023"; message A {}')
# A compiled map cannot be compiled again; its normalized form can.
TAKEN = sorted({text for pair in PAIRS for text in (pair.old, pair.new) if "map_entry" not in text})
MORE = [
    in_message(text)
    for text in (
        "string a = 536870911;",
        "int32 a = 010; int32 b = 0x0a;",
        "enum E { option allow_alias = true; X = 0; Y = 0; Z = -1; }",
        "enum E { X = 0; } E e = 1; M.E f = 2; .M.E g = 3;",
        "message M { M m = 1; } M n = 2;",
        "string message = 1; string enum = 2; string option = 3; string syntax = 4; string reserved = 5;",
        "reserved 100 to max; string a = 99;",
        "oneof o { string a = 1; M b = 2; } optional string c = 3; repeated string d = 4;",
        "map<string, M> a = 1; map<int32, bytes> b = 2; map<bool, E> c = 3; enum E { X = 0; }",
        "string a = 1; ; option deprecated = true;",
    )
]


def compiled(text: str, folder: Path) -> FileDescriptorProto | None:
    (folder / "schema.proto").write_text(text)
    arguments = [f"-I{folder}", f"-I{KNOWN}", f"--descriptor_set_out={folder / 'out'}", str(folder / "schema.proto")]
    if protoc.main(["protoc", *arguments]) != 0:
        return None
    return FileDescriptorSet.FromString((folder / "out").read_bytes()).file[0]


def test_the_normal_form_of_a_compiled_map_can_be_compiled_again(tmp_path: Path) -> None:
    file = compiled(in_message("map<string, M> a = 1;"), tmp_path)
    assert file is not None
    schema = parse("PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), {})
    assert "map_entry" in schema.text
    assert compiled(schema.normalized(), tmp_path) is not None


def without_json_names(messages: list[DescriptorProto]) -> None:
    """protoc adds JSON names to all fields."""
    for message in messages:
        for field in (*message.field, *message.extension):
            field.ClearField("json_name")
        without_json_names(list(message.nested_type))


@pytest.mark.parametrize("text", [*TAKEN, *MORE])
def test_what_is_compiled_is_what_was_read(text: str, tmp_path: Path) -> None:
    file = compiled(text, tmp_path)
    assert file is not None
    schema = parse("PROTOBUF", text, {})
    if "json_name" not in text:
        without_json_names(list(file.message_type))
    from_compiler = parse("PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), {})
    assert not check("FULL_TRANSITIVE", from_compiler, [schema])
    if "extend" not in text and "json_name" not in text:
        told = from_compiler.normalized().removeprefix("\n")
        assert told == schema.normalized().removeprefix('syntax = "proto2";\n\n').removeprefix("\n")
    # protoc reads what we print as the same file.
    again = compiled(schema.text, tmp_path)
    assert again is not None
    assert parse("PROTOBUF", base64.b64encode(again.SerializeToString()).decode(), {}).normalized()


@pytest.mark.parametrize(
    "text", [text for text, _ in (*REFUSED, *((in_message(text), "") for text, _ in REFUSED_FIELDS), *REFUSED_OTHERS)]
)
def test_what_we_refuse_protoc_refuses(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSchemaError):
        parse("PROTOBUF", text, {})
    assert (compiled(text, tmp_path) is None) == (text not in STRICTER)
