"""Encoding and decoding in three formats, compatible with Confluent's serializers in both directions."""

from __future__ import annotations

import io
import json
import re
import struct
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.operations.schema_registry.decoders import Style, make_decoder, make_encoder
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.framing import (
    VALUE_HEADER,
    frame,
    read_frame,
    read_indexes,
    schema_header,
    write_indexes,
)
from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, PROTOBUF, Schema

EVERYTHING = {
    "type": "record", "name": "All", "namespace": "shop", "fields": [
        {"name": "yes", "type": "boolean"}, {"name": "i", "type": "int"}, {"name": "l", "type": "long"},
        {"name": "f", "type": "float"}, {"name": "d", "type": "double"}, {"name": "b", "type": "bytes"},
        {"name": "s", "type": "string"}, {"name": "n", "type": "null"},
        {"name": "e", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "x", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "a", "type": {"type": "array", "items": "long"}},
        {"name": "m", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "u", "type": ["null", "int", "string", "Colour", "All"]},
    ],
}  # fmt: skip
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "children", "type": {"type": "array", "items": "Tree"}}],
}
PROTO = """syntax = "proto3"; package shop;
message Order { string item = 1; int64 price = 2; message Line { string text = 1; message Deep { int32 n = 1; } } }
message Other { repeated double numbers = 1; }
"""
CONTEXT = SerializationContext("orders", MessageField.VALUE)


def avro(document: Any) -> Schema:
    return Schema(AVRO, json.dumps(document))


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_avro_in_its_own_json_encoding_both_ways() -> None:
    document = {
        "yes": True, "i": -5, "l": 2**40, "f": 0.5, "d": "NaN", "b": "\x00\xff", "s": "grüße", "n": None, "e": "BLUE",
        "x": "\x01\x80", "a": [1, -1], "m": {"k": {"string": "v"}, "o": None}, "u": {"shop.Colour": "RED"},
    }  # fmt: skip
    schema = avro(EVERYTHING)
    data = make_encoder(schema, "confluent")(document)
    value = dict(document, d=float("nan"), b=b"\0\xff", x=b"\1\x80", m={"k": "v", "o": None})
    expected = bytearray(written(EVERYTHING, value | {"u": None})[:-1]) + bytes([6, 0])
    assert data == expected, "as fastavro writes it, but the branch of the union is the one that was named"
    assert make_decoder(schema, "confluent")(data) == document


@pytest.mark.parametrize("style", ["plain", "confluent"])
def test_what_one_side_wrote_the_other_reads_in_both_styles(style: Style) -> None:
    schema = avro(EVERYTHING)
    value = {
        "yes": False, "i": 1, "l": 2, "f": 1.5, "d": 2.5, "b": b"ab", "s": "s", "n": None, "e": "RED", "x": b"xy",
        "a": [], "m": {"a": "b"}, "u": 7,
    }  # fmt: skip
    data = written(EVERYTHING, value)
    assert make_encoder(schema, style)(make_decoder(schema, style)(data)) == data


def test_logical_types_in_common_notations() -> None:
    kinds = {
        "t": {"type": "long", "logicalType": "timestamp-millis"}, "d": {"type": "int", "logicalType": "date"},
        "l": {"type": "long", "logicalType": "local-timestamp-micros"},
        "h": {"type": "int", "logicalType": "time-millis"}, "u": {"type": "string", "logicalType": "uuid"},
        "p": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    }  # fmt: skip
    schema = avro({"type": "record", "name": "R", "fields": [{"name": n, "type": k} for n, k in kinds.items()]})
    uuid = "9f5c0fa1-6b34-4c5e-bd17-1a2b3c4d5e6f"
    document = {
        "t": "2026-11-17T09:00:00.250000+00:00", "d": "2026-11-17", "l": "2026-11-17T09:00:00.000001",
        "h": "09:00:00.001000", "u": uuid, "p": "-1234.50",
    }  # fmt: skip
    data = make_encoder(schema)(document)
    shown = make_decoder(schema)(data)
    assert shown | {"p": str(shown["p"])} == document
    assert make_decoder(schema, "confluent")(data)["t"] == 1_794_906_000_250
    assert make_encoder(schema)(document | {"t": 1_794_906_000_250}) == data, "numbers are taken as they are"
    for field, wrong in (("t", "tomorrow"), ("p", "1.005"), ("p", "x"), ("d", "2026-13-01")):
        with pytest.raises(SchemaError, match=f"^{field}: "):
            make_encoder(schema)(document | {field: wrong})


@pytest.mark.parametrize(
    ("schema", "document", "words"),
    [
        ("int", 2**31, "the document: 2147483648 is not of type int"),
        ("int", True, "the document: true is not of type int"),
        ("int", 1.5, "is not of type int"),
        ("string", 5, "5 is not of type string"),
        (["null", "int"], "x", '"x" is not of type int'),
        (["int", "string", "null"], [], "is none of int, string, null"),
        (TREE, {"children": [{"children": [{}]}]}, r"children\[0\].children\[0\].children is missing"),
        (TREE, {"children": [], "more": 1}, "more is not a field of Tree"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", '"B" is not of type E'),
        ({"type": "fixed", "name": "F", "size": 2}, "YQ==", "is not of type F"),
        ("bytes", "é", "bytes are written as base64"),
        ("float", 1e300, "is not of type float"),
    ],
)
def test_documents_that_do_not_fit_an_avro_schema(schema: Any, document: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        make_encoder(avro(schema))(document)


def test_defaults_stand_in_for_what_is_missing_but_not_in_avros_own_encoding() -> None:
    field = {"name": "n", "type": ["string", "null"], "default": "none"}
    schema = avro({"type": "record", "name": "R", "fields": [field]})
    assert make_decoder(schema)(make_encoder(schema)({})) == {"n": "none"}
    with pytest.raises(SchemaError, match="n is missing"):
        make_encoder(schema, "confluent")({})


def test_recursive_schemas_end_at_a_depth() -> None:
    document: dict[str, Any] = {"children": []}
    for _ in range(50):
        document = {"children": [document]}
    schema = avro(TREE)
    assert make_decoder(schema, "confluent")(make_encoder(schema)(document)) == document
    for _ in range(100):
        document = {"children": [document]}
    with pytest.raises(SchemaError, match="nested deeper than 200"):
        make_encoder(schema)(document)
    with pytest.raises(SchemaError, match="nested deeper than 200"):
        make_decoder(schema, "confluent")(b"\x02" * 1000)


def test_bytes_that_are_no_avro_of_the_schema() -> None:
    decode = make_decoder(avro(EVERYTHING), "confluent")
    whole = written(EVERYTHING, {
        "yes": False, "i": 1, "l": 2, "f": 1.5, "d": 2.5, "b": b"ab", "s": "s", "n": None, "e": "RED", "x": b"xy",
        "a": [1], "m": {"a": "b"}, "u": "x",
    })  # fmt: skip
    for end in range(len(whole)):
        with pytest.raises(SchemaError):
            decode(whole[:end])
    with pytest.raises(SchemaError, match="1 bytes follow"):
        decode(whole + b"\0")
    for data in (b"\x09", b"\xff\xff\xff\xff\x0f"):
        with pytest.raises(SchemaError):
            make_decoder(avro(["null", "int"]), "confluent")(data)


def test_json_schema_checks_what_is_written() -> None:
    shared = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    schema = {
        "type": "object",
        "properties": {"to": {"$ref": "address.json"}, "code": {"type": "string", "pattern": "^(a+)+$"}},
        "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": False,
    }
    encode = make_encoder(Schema(JSON_SCHEMA, json.dumps(schema), (("address.json", json.dumps(shared)),)))
    good = {"to": {"city": "Rome"}, "code": "aaa", "x-one": 1}
    assert json.loads(encode(good)) == good
    for bad, words in (
        ({"to": {}}, "'city' is a required property"),
        ({"code": "a" * 40 + "!"}, "does not match"),
        ({"x-one": "1"}, "is not of type 'integer'"),
        ({"more": 1}, "additional property 'more'"),
        ([], "is not of type 'object'"),
    ):
        with pytest.raises(SchemaError, match=re.escape(words)):
            encode(bad)
    with pytest.raises(SchemaError, match=r"refers to 'file:///etc/passwd', which is not among its references"):
        make_encoder(Schema(JSON_SCHEMA, '{"$ref": "file:///etc/passwd"}'))(1)
    with pytest.raises(SchemaError, match="RE2 does not support"):
        make_encoder(Schema(JSON_SCHEMA, '{"pattern": "(?=x)y"}'))("y")
    for text in ("7", "nonsense", '{"type": "nothing"}'):
        with pytest.raises(SchemaError, match="not a JSON Schema"):
            make_encoder(Schema(JSON_SCHEMA, text))


def test_protobuf_with_maps_as_a_registry_writes_them_that_came_compiled() -> None:
    text = """syntax = "proto3"; package shop;
message Order {
  repeated .shop.Order.CountsEntry counts = 1;
  .shop.Order.Place place = 2;

  message Place {
    repeated .shop.Order.Place.NamesEntry names = 1;

    message NamesEntry {
      option map_entry = true;

      string key = 1;
      string value = 2;
    }
  }
  message CountsEntry {
    option map_entry = true;

    string key = 1;
    int64 value = 2;
  }
}
"""
    place = "message Place { map<string, string> names = 1; }"
    plain = f"message Order {{ map<string, int64> counts = 1; Place place = 2; {place} }}"
    document = {"counts": {"a": 1}, "place": {"names": {"en": "Cologne"}}}
    written = make_encoder(Schema(PROTOBUF, f'syntax = "proto3"; package shop; {plain}'))(document)
    schema = Schema(PROTOBUF, text)
    assert make_encoder(schema)(document) == written
    assert make_decoder(schema)(written) == {"counts": {"a": "1"}, "place": {"names": {"en": "Cologne"}}}


def test_protobuf_by_the_path_to_its_message() -> None:
    schema = Schema(PROTOBUF, PROTO)
    document = {"item": "chair", "price": "5"}
    data = make_encoder(schema)(document)
    assert data[0] == 0
    assert make_decoder(schema)(data) == document
    deep = make_encoder(schema, message="shop.Order.Line.Deep")({"n": 3})
    assert deep == bytes([6, 0, 0, 0]) + b"\x08\x03"
    assert make_decoder(schema)(deep) == {"n": 3}
    assert make_decoder(schema)(make_encoder(schema, message="Other")({"numbers": [1.5]})) == {"numbers": [1.5]}
    assert make_decoder(schema, "confluent")(b"\0") == {"item": "", "price": "0"}
    for wrong in (b"", b"\x02", b"\x02\x04\x08\x03", b"\x02\x01", b"\x04\x00\x10", b"\xff\xff\xff\xff\xff\x7f"):
        with pytest.raises(SchemaError):
            make_decoder(schema)(wrong)
    with pytest.raises(SchemaError, match=r"no message 'Nothing'; it has shop.Order, shop.Other"):
        make_encoder(schema, message="Nothing")
    with pytest.raises(SchemaError, match=r"not a shop.Order"):
        make_encoder(schema)({"item": 5})


def test_frames_and_headers() -> None:
    assert read_frame(frame(2**31 - 1, b"x")) == (2**31 - 1, b"x")
    assert read_frame(b"\0\0\0\0") is None
    assert read_frame(b"") is None
    assert read_frame(b"{}plain") is None
    guid = "0123456789abcdef0123456789abcdef"
    header = b"\1" + bytes.fromhex(guid) + b"\2\2"
    assert schema_header([("a", b"b"), (VALUE_HEADER, header)], is_key=False) == header
    assert schema_header([(VALUE_HEADER, header)], is_key=True) is None
    name, data = read_frame(b"data", header) or (None, b"")
    assert (str(name).replace("-", ""), data) == (guid, b"\2\2data")
    assert read_frame(b"data", b"\0" + struct.pack(">i", 7)) == (7, b"data")
    for wrong in (b"", b"\1short", b"\0\0\0", b"\2" + b"x" * 20):
        with pytest.raises(SchemaError, match="neither an ID nor a GUID"):
            read_frame(b"data", wrong)
    for path in ((0,), (1,), (0, 0), (2, 3, 70)):
        assert read_indexes(write_indexes(path)) == (path, len(write_indexes(path)))


def test_confluents_serializers_and_ours_read_each_other() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    schema = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": ["null", "string"]}]}
    text = json.dumps(schema)
    theirs = AvroSerializer(client, text)({"item": "chair"}, CONTEXT)
    name, data = read_frame(theirs) or (0, b"")
    assert make_decoder(avro(schema))(data) == {"item": "chair"}
    ours = frame(int(name), make_encoder(avro(schema))({"item": "table"}))
    assert AvroDeserializer(client)(ours, CONTEXT) == {"item": "table"}

    context = SerializationContext("orders", MessageField.VALUE, [])
    options = {"schema.id.serializer": header_schema_id_serializer}
    bare = AvroSerializer(client, text, conf=options)({"item": "bed"}, context)
    name, data = read_frame(bare, schema_header(context.headers, is_key=False)) or (0, b"")
    assert client.get_schema_by_guid(str(name)).schema_str
    assert make_decoder(avro(schema))(data) == {"item": "bed"}

    rules = '{"type": "object", "title": "Order", "properties": {"item": {"type": "string"}}}'
    client.register_schema("json-value", TheirSchema(rules, "JSON"))
    theirs = JSONSerializer(rules, client)({"item": "chair"}, SerializationContext("json", MessageField.VALUE))
    name, data = read_frame(theirs) or (0, b"")
    assert make_decoder(Schema(JSON_SCHEMA, rules))(data) == {"item": "chair"}
    ours = frame(int(name), make_encoder(Schema(JSON_SCHEMA, rules))({"item": "table"}))
    assert JSONDeserializer(rules)(ours, CONTEXT) == {"item": "table"}
