"""`format=serialized`: a compiled schema registered again is the same schema."""

import base64
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from tests.unit.registry.nodes import Node
from tests.virtual_time import run

PLAIN = 'syntax = "proto3"; package p; message M { string first_name = 1; int32 an_id = 2; repeated bytes x = 3; }'
WRITTEN = 'syntax = "proto3"; message M { string a_b = 1 [json_name = "aB"]; string c_d = 2 [json_name = "other"]; }'
NESTED = """syntax = "proto2"; message M { message Inner { optional string some_name = 1; }
  oneof one_of { string of_one = 1; } extensions 100 to 200; enum E { NONE = 0; } required int32 an_id = 2; }"""
TYPES = 'syntax = "proto3"; package p; message M { N a_n = 1; message N { int32 a_b = 1; } }'
MAPS = 'syntax = "proto3"; message M { map<string, int32> a_map = 1; }'


async def serialized(node: Node, target: str) -> tuple[str, FileDescriptorProto]:
    reply = await node.ask("GET", target)
    assert reply.status == 200, reply.body
    text: Any = reply.body["schema"]
    return text, FileDescriptorProto.FromString(base64.b64decode(text))


@pytest.mark.parametrize("text", [PLAIN, WRITTEN, NESTED])
def test_the_serialized_form_registered_again_makes_no_second_id(text: str) -> None:
    async def main() -> None:
        node = Node()
        first = await node.register("s", text, schemaType="PROTOBUF")
        for target in ("/schemas/ids/1?format=serialized", "/subjects/s/versions/1?format=serialized"):
            compiled, _ = await serialized(node, target)
            again = await node.register("s", compiled, schemaType="PROTOBUF")
            assert again.body["id"] == first.body["id"] == 1

    run(main())


@pytest.mark.parametrize("text", [TYPES, MAPS])
def test_types_and_maps_are_the_same_when_normalized(text: str) -> None:
    """A compiled file has full names of types and a message for a map, also in Confluent's registry."""

    async def main() -> None:
        node = Node()
        await node.register("s", text, schemaType="PROTOBUF")
        compiled, _ = await serialized(node, "/schemas/ids/1?format=serialized")
        ids = set()
        for schema in (text, compiled):
            body = {"schema": schema, "schemaType": "PROTOBUF"}
            reply = await node.ask("POST", "/subjects/t/versions?normalize=true", body)
            ids.add(reply.body["id"])
        assert len(ids) == 1

    run(main())


def test_json_names_are_those_that_are_written() -> None:
    async def main() -> None:
        node = Node()
        await node.register("s", WRITTEN, schemaType="PROTOBUF")
        await node.register("t", PLAIN, schemaType="PROTOBUF")
        _, written = await serialized(node, "/schemas/ids/1?format=serialized")
        assert [field.json_name for field in written.message_type[0].field] == ["aB", "other"]
        _, plain = await serialized(node, "/schemas/ids/2?format=serialized")
        assert not any(field.HasField("json_name") for field in plain.message_type[0].field)

    run(main())


@pytest.mark.parametrize("form", ["", "resolved", "ignore_extensions", "nonsense", "SERIALIZED"])
def test_other_formats_return_the_text(form: str) -> None:
    async def main() -> None:
        node = Node()
        await node.register("s", PLAIN, schemaType="PROTOBUF")
        reply = await node.ask("GET", f"/schemas/ids/1?format={form}")
        assert reply.status == 200
        assert reply.body["schema"] == (await node.ask("GET", "/schemas/ids/1")).body["schema"]

    run(main())


def test_with_references() -> None:
    async def main() -> None:
        node = Node()
        await node.register(
            "other", 'syntax = "proto3"; message Other { int32 the_number = 1; }', schemaType="PROTOBUF"
        )
        text = 'syntax = "proto3"; import "other.proto"; message M { Other an_other = 1; }'
        references = [{"name": "other.proto", "subject": "other", "version": 1}]
        await node.register("s", text, schemaType="PROTOBUF", references=references)
        compiled, file = await serialized(node, "/schemas/ids/2?format=serialized")
        assert not file.message_type[0].field[0].HasField("json_name")
        again = await node.register("s", compiled, schemaType="PROTOBUF", references=references)
        assert again.status == 200

    run(main())
