"""Decoding, masking and export of messages."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from ottla.operations.messages.export import csv_line, escape_formula, json_line, time_text
from ottla.operations.messages.expressions.evaluator import NO_DOCUMENT, Headers
from ottla.operations.messages.field_masks import MaskError, Masks, parse_rule
from ottla.operations.messages.message import Message
from ottla.operations.messages.message_decoder import Decoded, Decoder
from ottla.operations.messages.record_reader import Record, RecordState
from ottla.operations.schema_registry.decoders import make_decoder
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.schemas import Schema


def record(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Record:
    return Record(0, 7, 1_700_000_000_123, False, key, value, headers, RecordState.COMMITTED, "none", -1)


def message(key: bytes | None, value: bytes | None, *rules: str, headers: Headers = (), schemas: Any = None) -> Message:
    masks = Masks([parse_rule(rule) for rule in rules], "orders")
    return Message(record(key, value, headers), Decoder("orders", schemas), masks)


class OneSchema:
    """A registry that knows schema 7."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.decoder = make_decoder(schema)

    def decode(self, schema_id: int, data: bytes) -> tuple[str, Any]:
        if schema_id != 7:
            raise SchemaError("there is no such schema")
        return self.schema.kind, self.decoder(data)


@pytest.mark.parametrize(
    ("data", "format_"),
    [
        (None, "null"),
        (b"", "text"),
        (b"hello", "text"),
        ("Grüße\n".encode(), "text"),
        ("\u202eevil".encode(), "text"),
        (b"\xff\xfe", "binary"),
        (b"a\0b", "binary"),
        (b'{"a": 1}', "json"),
        (b'{"a": 1', "text"),
        (b"[" * 100_000, "text"),
        (b"1" * 5_000, "json"),
    ],
)
def test_formats(data: bytes | None, format_: str) -> None:
    assert Decoder("orders").decode_field(data).format == format_


def test_five_megabytes_are_cut_and_deep_ones_are_text() -> None:
    shown = message(b"k", b"x" * (5 << 20)).to_json()
    assert shown["value"]["is_cut"]
    assert shown["value"]["bytes"] == 5 << 20
    assert len(shown["value"]["text"]) == 64 << 10
    deep = b"[" * 600 + b"]" * 600
    json.dumps(message(None, deep).to_json())


def test_numbers_are_shown_as_they_are() -> None:
    shown = message(None, b'{"big": 12345678901234567890, "small": 1, "price": 1.50, "nan": NaN}').to_json()["value"]
    assert shown["json"] == {"big": "12345678901234567890", "small": 1, "price": 1.5, "nan": "nan"}
    assert '"big": 12345678901234567890' in shown["text"]


def test_avro_by_its_schema() -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "DONE"]}},
            {"name": "raw", "type": "bytes"},
        ],
    }
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), {"id": 42, "state": "DONE", "raw": b"\xff"})
    value = b"\0\0\0\0\7" + data.getvalue()
    found = message(None, value, schemas=OneSchema(Schema("avro", json.dumps(schema))))
    assert found.to_json()["value"] == {
        "format": "avro",
        "bytes": len(value),
        "schema_id": 7,
        "is_cut": False,
        "json": {"id": 42, "state": "DONE", "raw": "/w=="},
        "text": '{"id": 42, "state": "DONE", "raw": "/w=="}',
    }
    assert found.document_texts() == [b'{"id": 42, "state": "DONE", "raw": "/w=="}']
    cut = message(None, value[:-1], schemas=OneSchema(Schema("avro", json.dumps(schema))))
    with pytest.raises(Exception):  # noqa: B017 (the registry makes a SchemaError of whatever it is)
        cut.to_json()
    other = message(None, b"\0\0\0\0\x08x", schemas=OneSchema(Schema("avro", json.dumps(schema))))
    assert other.to_json()["value"]["problem"] == "there is no such schema"


def test_an_avro_schema_that_can_fill_the_memory_is_refused() -> None:
    pytest.importorskip("fastavro")
    for items in ('"null"', '{"type": "record", "name": "E", "fields": []}'):
        with pytest.raises(SchemaError, match="arrays of empty items"):
            make_decoder(Schema("avro", f'{{"type": "array", "items": {items}}}'))
    with pytest.raises(SchemaError, match="not an Avro schema"):
        make_decoder(Schema("avro", "nonsense"))


def test_json_schema_is_json_behind_the_number() -> None:
    found = message(None, b'\0\0\0\0\7{"a": 1}', schemas=OneSchema(Schema("json schema", "{}")))
    assert found.to_json()["value"]["json"] == {"a": 1}
    assert found.to_json()["value"]["format"] == "json schema"


def test_protobuf_by_its_schema() -> None:
    pytest.importorskip("grpc_tools")
    text = """
        syntax = "proto3";
        package shop;
        import "parts/city.proto";
        message Other { int32 x = 1; }
        message Order { message Line { string item = 1; } int64 id = 1; repeated Line lines = 2; City to = 3; }
    """
    city = 'syntax = "proto3"; package shop; message City { string name = 1; }'
    schemas = OneSchema(Schema("protobuf", text, (("parts/city.proto", city),)))
    order = b"\x08\x2a" + b"\x12\x05\x0a\x03pen" + b"\x1a\x06\x0a\x04Rome"
    shown = message(None, b"\0\0\0\0\7" + b"\x02\x02" + order, schemas=schemas).to_json()["value"]
    assert shown["json"] == {"id": "42", "lines": [{"item": "pen"}], "to": {"name": "Rome"}}
    line = message(None, b"\0\0\0\0\7" + b"\x04\x02\x00" + b"\x0a\x03pen", schemas=schemas)
    assert line.document("value") == {"item": "pen"}
    first = message(None, b"\0\0\0\0\7" + b"\x00" + b"\x08\x05", schemas=schemas)
    assert first.document("value") == {"x": 5}
    for data, words in ((b"", "message index"), (b"\x02\x0c", "no message 6"), (b"\x02\x01", "no message -1")):
        assert words in str(message(None, b"\0\0\0\0\7" + data, schemas=schemas).to_json()["value"]["problem"])
    for name, proto in (("../../evil.proto", city), ("parts/city.proto", "nonsense")):
        with pytest.raises(SchemaError):
            make_decoder(Schema("protobuf", text, ((name, proto),)))


def test_internal_topics_are_decoded() -> None:
    key = b"\0\1" + b"\0\5group" + b"\0\6orders" + b"\0\0\0\2"
    value = b"\0\3" + (42).to_bytes(8, "big") + b"\0\0\0\1" + b"\0\0" + (5).to_bytes(8, "big")
    decoder = Decoder("__consumer_offsets")
    decoded_key, decoded_value = decoder.decode(key, value)
    assert decoded_key.document == {"type": "OffsetCommit", "group": "group", "topic": "orders", "partition": 2}
    assert decoded_value.document["offset"] == 42
    assert decoder.decode(key, None)[1] == Decoded("null")
    assert decoder.decode(b"x", b"y")[0].document is NO_DOCUMENT


@pytest.mark.parametrize(
    ("rule", "value", "hidden"),
    [
        ("*:value.a", b'{"a": 1, "b": 2}', b'{"a": "***", "b": 2}'),
        ("orders:value.a.b", b'{"a": [{"b": 1}, {"b": {"c": 2}}]}', b'{"a": [{"b": "***"}, {"b": "***"}]}'),
        (
            "o*:value.**.p",
            b'{"p": 1, "x": {"p": 2, "y": [{"p": 3}]}}',
            b'{"p": "***", "x": {"p": "***", "y": [{"p": "***"}]}}',
        ),
        ("orders:value.*.p", b'{"p": 1, "x": {"p": 2}}', b'{"p": 1, "x": {"p": "***"}}'),
        ("orders:value", b'{"a": 1}', b'"***"'),
        ("orders:value.a", b"no document", b'"***"'),
        ("orders:value.a", b'{"a": 1', b'"***"'),
        ("orders:value.a", b"\0\xff", b'"***"'),
        ("orders:value.a", b'"scalar"', b'"***"'),
        ("other:value.a", b'{"a": 1}', b'{"a": 1}'),
        ("orders:value.a", b'{"\\u0061": 1}', b'{"a": "***"}'),
        ("orders:value.b", b'{"n": 12345678901234567890.10}', b'{"n": 12345678901234567890.10}'),
    ],
)
def test_masks(rule: str, value: bytes, hidden: bytes) -> None:
    assert message(b"k", value, rule).value == hidden


def test_masks_of_headers_and_keys() -> None:
    found = message(
        b"secret", None, "*:key", "*:header.Token", headers=[("token", b"abc"), ("x", b"y"), ("token", None)]
    )
    assert found.key == b'"***"'
    assert found.value is None
    assert found.headers == [("token", b"***"), ("x", b"y"), ("token", None)]
    assert found.sizes == (6, None)


@pytest.mark.parametrize("text", ["", "orders", "orders:", ":value.a", "orders:offset", "orders:value.", "orders:x.y"])
def test_rules_that_hide_nothing_are_refused(text: str) -> None:
    with pytest.raises(MaskError, match="masks nothing"):
        parse_rule(text)


def test_lines_of_json_go_back_into_produce() -> None:
    found = json.loads(json_line("orders", message(b"\xff", b'{"a": 1}', headers=[("h", None)])))
    assert found == {
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "timestamp": 1_700_000_000_123,
        "key": {"base64": "/w=="},
        "value": '{"a": 1}',
        "headers": [["h", None]],
    }


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_cells_that_begin_as_formulas_are_harmless(cell: str) -> None:
    assert escape_formula(cell) == f"'{cell}"
    row = next(csv.reader(io.StringIO(csv_line(message(cell.encode(), cell.encode())), newline="")))
    assert row[3] == row[4] == f"'{cell}"


def test_a_line_of_csv() -> None:
    found = message(b'a"b', b"two\nlines, and a comma", headers=[("h", b"v")])
    row = next(csv.reader(io.StringIO(csv_line(found), newline="")))
    assert row == ["0", "7", "2023-11-14T22:13:20.123Z", 'a"b', "two\nlines, and a comma", '[["h", "v"]]']
    assert time_text(-1) == ""
    assert time_text(2**62) == str(2**62)
