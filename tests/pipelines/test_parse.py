"""`parse` on a real Spark: every format, and every kind of invalid record."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf import message_factory
from tests.pipelines.frames import living, records, through, utc

from ottla.pipelines.steps.frame import FATE, REASON
from ottla.pipelines.steps.parsing.protobuf import compile_proto, find_message
from ottla.pipelines.steps.parsing.schema_lookup import fingerprint
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = {
    "id": "long",
    "age": "int",
    "name": "string",
    "at": "timestamp",
    "price": "double",
    "paid": "decimal(10,2)",
    "where": "struct<city:string,zip:int>",
    "tags": "array<int>",
    "since": "struct<at:timestamp>",
}
GOOD_JSON = [
    b'{"id":1,"age":3,"name":"x","at":"2026-01-01T00:00:00Z","price":1.5,"paid":12.345,"where":{"city":"q"},"tags":[1,2]}',
    b'{"id":1099511627776, "name": 5, "unknown": {"x": [1]}}',
    b'{"id":1,"id":2}',
    b'{"id":1,"at":"1960-02-03T04:05:06.123456+01:00","since":{"at":"2026-01-01"}}',
    b'{"id":1,"paid":"12.5","name":{"a":1},"price":5}',
    b'\r\n {"id":1,"tags":null}\t\n',
    b'{"id":1,"name":"' + b"x" * 10_000_000 + b'"}',
    '{"id":1,"name":"größe } { ,"}'.encode(),
    b'{"id":1,"where":{"city":"a"},"x":[{"a":1}, {"b":2}]}',
]
BAD_JSON = {
    b'{"id":1,"age":"abc","name":"x"}': 'field `age`: "abc" is no int',
    b'{"id":1,"age":1.5}': 'field `age`: "1.5" is no int',
    b'{"id":1,"age":1099511627776}': 'field `age`: "1099511627776" is no int',
    b'{"id":true,"age":2}': 'field `id`: "true" is no long',
    b'{"id":""}': 'field `id`: "" is no long',
    b'{"id":1,"where":"zzz"}': 'field `where`: "zzz" is no struct<city:string,zip:int>',
    b'{"id":1,"where":{"city":"a","zip":"q"}}': 'field `where.zip`: "q" is no int',
    b'{"id":1,"tags":["a"]}': 'field `tags`: "["a"]" is no array<int>',
    b'{"id":1,"at":"12:30"}': 'field `at`: "12:30" is no timestamp',
    b'{"id":1,"at":1700000000}': 'field `at`: "1700000000" is no timestamp '
    "(number of seconds or milliseconds? say timestamp_format)",
    b'{"id":1,"since":{"at":"x"}}': "field `since`: a timestamp in it cannot be read",
    b'{"id":1,"price":1e999}': "field `price`: the number is too large for double",
    b'{"id":1,"price":NaN}': 'not JSON: "{"id":1,"price":NaN}"',
    b"{'id':1}": "not JSON: \"{'id':1}\"",
    b"not json": 'not JSON: "not json"',
    b'{"id":1': 'not JSON: "{"id":1"',
    b"\x00\x00": 'not JSON: "\x00\x00"',
    b"[" * 100_000: 'not JSON: "' + "[" * 80 + '…"',
    b'{"id":1,"x":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}": 'not JSON: "{"id":1,"x":' + '{"a":' * 13 + '{"a…"',
    b"": "empty value",
    b" \n": "empty value",
    b"null": 'not a JSON object: "null"',
    b'[{"id":1}]': 'not a JSON object: "[{"id":1}]"',
    b"5": 'not a JSON object: "5"',
    b'{"id":1} trailing': "the JSON object is followed by other text",
    b'{"id":1}{"id":2}': "more than one JSON object",
    b'{"id":1}\n{"id":2}': "more than one JSON object",
    b'{"id":1}, {"id":2}': "more than one JSON object",
    b'{"id":1} trailing }': "the JSON object is followed by other text",
    b'{"id":1}}': "the JSON object is followed by other text",
    b'{"id":1},"c":{}': "the JSON object is followed by other text",
    b'{"id":1}],[{"id":2}': "the JSON object is followed by other text",
    b'{"id":1}, "}': "the JSON object is followed by other text",
    b'x {"id":1}': 'not JSON: "x {"id":1}"',
    b'5 {"id":1}': 'not a JSON object: "5 {"id":1}"',
    b'null {"id":1}': 'not a JSON object: "null {"id":1}"',
    b'[{"id":1}': 'not JSON: "[{"id":1}"',
    b'"{"id":1}': 'not a JSON object: ""{"id":1}"',
    b"{}": "missing required field `id`",
    b"}": 'not JSON: "}"',
    b'{"id":1,"name":"\xff"}': 'not UTF-8 text: "{"id":1,"name":"\ufffd"}"',
    b'{"age":5}': "missing required field `id`",
    b'{"id":null}': "missing required field `id`",
}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "paid",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}],
            "default": None,
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]},
            },
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
AVRO_ROW: dict[str, Any] = {
    "id": 7,
    "at": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    "paid": Decimal("12.34"),
    "kind": "OLD",
    "tags": {"a": 1},
    "lines": [{"n": 1}, {"n": 2}],
    "day": date(2026, 1, 2),
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  enum Kind { NEW = 0; OLD = 1; }
  int64 id = 1;
  optional string name = 2;
  google.protobuf.Timestamp at = 3;
  Kind kind = 4;
  repeated Line lines = 5;
  map<string, int32> tags = 6;
  uint64 big = 7;
  google.protobuf.StringValue note = 8;
}
message Line { int32 n = 1; }
"""


def outcome(
    spark: SparkSession, values: list[bytes | None], fields: dict[str, Any], folder: object = "."
) -> list[tuple[Any, Any]]:
    """(row without hidden columns or None, reason) for each value, in one job."""
    frame = through(records(spark, values, folder), {"parse": fields})
    rows = frame.rows.select(*(f"`{name}`" for name in frame.columns), FATE, REASON).collect()
    made = [row.asDict(recursive=True) for row in rows]
    return [({key: row[key] for key in frame.columns} if row[FATE] == 0 else None, row[REASON]) for row in made]


@pytest.fixture(scope="module")
def json_outcome(spark: SparkSession) -> list[tuple[Any, Any]]:
    values: list[bytes | None] = [*GOOD_JSON, *BAD_JSON, None]
    return outcome(spark, values, {"format": "json", "schema": ORDER, "required": ["id"]})


def test_json_that_fits_lives(json_outcome: list[tuple[Any, Any]]) -> None:
    good = json_outcome[: len(GOOD_JSON)]
    assert [reason for _, reason in good] == [None] * len(GOOD_JSON)
    first, second, doubled, old, lenient = (row for row, _ in good[:5])
    assert first["at"] == utc(2026, 1, 1)
    assert first["paid"] == Decimal("12.35")
    assert first["where"] == {"city": "q", "zip": None}
    assert first["tags"] == [1, 2]
    assert second["name"] == "5"
    assert second["id"] == 1 << 40
    assert doubled["id"] == 2
    assert old["at"] == utc(1960, 2, 3, 3, 5, 6, 123456)
    assert old["since"] == {"at": utc(2026, 1, 1)}
    assert lenient["paid"] == Decimal("12.50")
    assert lenient["name"] == '{"a":1}'
    assert lenient["price"] == 5.0
    assert len(good[6][0]["name"]) == 10_000_000


def test_json_that_does_not_fit_dies_with_a_reason_that_tells_what_was_wrong(
    json_outcome: list[tuple[Any, Any]],
) -> None:
    bad = json_outcome[len(GOOD_JSON) : -1]
    assert [reason for _, reason in bad] == list(BAD_JSON.values())
    assert {row is None for row, _ in bad} == {True}


def test_a_record_without_value_dies_is_filtered_or_kept(
    spark: SparkSession, json_outcome: list[tuple[Any, Any]]
) -> None:
    assert json_outcome[-1] == (None, "no value (tombstone)")
    fields = {"format": "json", "schema": {"id": "int"}, "required": ["id"]}
    filtered = through(records(spark, [None, b'{"id":1}']), {"parse": {**fields, "tombstone": "filter"}})
    assert [(row[FATE], row[REASON]) for row in filtered.rows.collect()] == [(1, None), (0, None)]
    kept = outcome(spark, [None, b'{"id":1}'], {**fields, "tombstone": "keep"})
    assert kept == [({"id": None}, None), ({"id": 1}, None)]


def test_strict_json_refuses_fields_that_the_schema_does_not_know(spark: SparkSession) -> None:
    found = outcome(
        spark, [b'{"id":1}', b'{"id":1,"x":2}', b'{"ID":1}'], {"format": "json", "schema": "id int", "strict": True}
    )
    assert [reason for _, reason in found] == [None, 'unknown field "x"', 'unknown field "ID"']


def test_strict_json_refuses_half_characters(spark: SparkSession) -> None:
    values = [rb'{"t":"\ud83d\ude00"}', rb'{"t":"\\ud800"}', rb'{"t":"a\ud800"}', rb'{"t":"\ude00"}']
    found = outcome(spark, values, {"format": "json", "schema": "t string", "strict": True})
    assert [row["t"] for row, _ in found[:2]] == ["\U0001f600", r"\ud800"]
    assert [reason is None or "without its second half" in reason for _, reason in found] == [True] * 4
    assert [reason is None for _, reason in found] == [True, True, False, False]


def test_epochs_and_patterns_are_read_where_the_pipeline_says_so(spark: SparkSession) -> None:
    values = [
        b'{"s":1700000000.25,"ms":-1,"d":"31.12.2025 23:59"}',
        b'{"s":"1700000000","ms":1700000000123}',
        b'{"s":"soon"}',
        b'{"ms":99999999999999999}',
        b'{"d":"2026-01-01"}',
    ]
    formats = {"s": "epoch seconds", "ms": "epoch milliseconds", "d": "dd.MM.yyyy HH:mm"}
    schema = {"s": "timestamp", "ms": "timestamp", "d": "timestamp"}
    found = outcome(spark, values, {"format": "json", "schema": schema, "timestamp_format": formats})
    assert found[0][0] == {
        "s": utc(2023, 11, 14, 22, 13, 20, 250000),
        "ms": utc(1969, 12, 31, 23, 59, 59, 999000),
        "d": utc(2025, 12, 31, 23, 59),
    }
    assert found[1][0]["ms"] == utc(2023, 11, 14, 22, 13, 20, 123000)
    assert [reason for _, reason in found[2:]] == [
        'field `s`: "soon" is no timestamp (epoch seconds)',
        'field `ms`: "99999999999999999" is no timestamp (epoch milliseconds)',
        'field `d`: "2026-01-01" is no timestamp (dd.MM.yyyy HH:mm)',
    ]


def test_columns_of_the_record_are_carried_along(spark: SparkSession) -> None:
    found = outcome(spark, [b'{"id":1}'], {"format": "json", "schema": "id int", "keep": ["offset", "topic"]})
    assert found == [({"offset": 0, "topic": "events", "id": 1}, None)]
    with pytest.raises(StepError, match="is in keep and a field"):
        outcome(spark, [], {"format": "json", "schema": "offset int", "keep": ["offset"]})
    with pytest.raises(StepError, match="there is no column 'text'"):
        outcome(spark, [], {"format": "json", "schema": "id int", "column": "text"})


def test_csv(spark: SparkSession) -> None:
    values: list[bytes | None] = [
        b"1,a,2.5,2026-01-02T03:04:05Z",
        b'2,"say ""hi"", you",3,',
        b"1,a",
        b"1,a,2,2026-01-01,zz",
        b"x,a,2,",
        b"",
        b'3,"open,3,',
        b"1,\xff,2,",
        b"99999999999,a,2,",
        b"1," + b"x" * 10_000_000 + b",2,",
        None,
    ]
    found = outcome(spark, values, {"format": "csv", "schema": "id int, name string, price double, at timestamp"})
    assert found[0][0] == {"id": 1, "name": "a", "price": 2.5, "at": utc(2026, 1, 2, 3, 4, 5)}
    assert found[1][0] == {"id": 2, "name": 'say "hi", you', "price": 3.0, "at": None}
    assert [reason for _, reason in found[2:]] == [
        'not the 4 fields of the schema: "1,a"',
        'not the 4 fields of the schema: "1,a,2,2026-01-01,zz"',
        'field `id`: "x" is no int',
        "empty value",
        'not the 4 fields of the schema: "3,"open,3,"',
        'not UTF-8 text: "1,\ufffd,2,"',
        'field `id`: "99999999999" is no int',
        None,
        "no value (tombstone)",
    ]


def test_a_record_of_csv_is_one_line_with_or_without_its_end(spark: SparkSession) -> None:
    values: list[bytes | None] = [b"1,a\r\n", b"1,a\n", b'1,"a\nb"', b"1,a\n2", b"1,a\n\n", b"1,a\n2,b"]
    found = outcome(spark, values, {"format": "csv", "schema": "id int, name string"})
    assert [row and row["name"] for row, _ in found] == ["a", "a", "a\nb", None, None, None]
    assert [reason for _, reason in found[3:]] == [
        'more than one line: "1,a\n2"',
        'more than one line: "1,a\n\n"',
        'not the 2 fields of the schema: "1,a\n2,b"',
    ]


def test_what_spark_takes_for_a_number_or_a_date_and_is_none_dies(spark: SparkSession) -> None:
    values: list[bytes | None] = [
        b"1.5d,",
        b"1F,",
        b"inf,",
        b",2026-01-01 x",
        b",2026-01-01Tx",
        b",2026-01-01T23:30:00-05:00",
    ]
    found = outcome(spark, values, {"format": "csv", "schema": "ratio double, day date"})
    assert [reason for _, reason in found] == [
        'field `ratio`: "1.5d" is no double',
        'field `ratio`: "1F" is no double',
        None,
        'field `day`: "2026-01-01 x" is no date',
        'field `day`: "2026-01-01Tx" is no date',
        None,
    ]
    assert found[2][0] == {"ratio": float("inf"), "day": None}
    assert found[5][0] == {"ratio": None, "day": date(2026, 1, 1)}  # as it is written


def test_a_regular_expression_makes_columns_of_its_groups(spark: SparkSession) -> None:
    fields = {
        "format": "regex",
        "pattern": r"^(?<level>[A-Z]+) (?P<took>\d+|-)ms(?: by (?P<who>\w+))?$",
        "schema": {"took": "int"},
    }
    found = outcome(spark, [b"INFO 12ms by me", b"WARN -ms", b"what?", b"INFO 99999999999ms", b"a" * 5_000_000], fields)
    assert found[0][0] == {"level": "INFO", "took": 12, "who": "me"}
    assert [reason for _, reason in found[1:]] == [
        'field `took`: "-" is no int',
        'does not match the pattern: "what?"',
        'field `took`: "99999999999" is no int',
        'does not match the pattern: "' + "a" * 80 + '…"',
    ]


def test_an_expression_that_hangs_elsewhere_does_not_hang_here(spark: SparkSession) -> None:
    found = outcome(spark, [b"a" * 100_000 + b"!"], {"format": "regex", "pattern": "^(?P<x>(?:a+)+)$"})
    assert found[0][0] is None


def test_lines_of_apache_and_nginx(spark: SparkSession) -> None:
    lines: list[bytes | None] = [
        (
            rb'203.0.113.7 - frank [10/Oct/2025:13:55:36 -0700] "GET /logo.gif?x=1 HTTP/1.1" 200 2326 '
            rb'"https://example.com/a" "Agent/4.0 (a; \"b\")"'
        ),
        rb'2001:db8::1 - - [10/Oct/2025:13:55:36 +0000] "\x16\x03\x01" 400 - "-" "-"',
        b'host.example.com - - [10/Oct/2025:13:55:36 +0000] "-" 408 0 "-" "-"',
        b"Oct 10 13:55:36 web1 sshd[77]: not a web log",
    ]
    fields = {
        "format": "grok",
        "pattern": "%{COMBINEDAPACHELOG}",
        "schema": {"timestamp": "timestamp"},
        "timestamp_format": "httpdate",
    }
    found = outcome(spark, lines, fields)
    assert found[0][0] == {
        "clientip": "203.0.113.7",
        "ident": "-",
        "auth": "frank",
        "timestamp": utc(2025, 10, 10, 20, 55, 36),
        "verb": "GET",
        "request": "/logo.gif?x=1",
        "httpversion": "1.1",
        "rawrequest": None,
        "response": 200,
        "bytes": 2326,
        "referrer": "https://example.com/a",
        "agent": r"Agent/4.0 (a; \"b\")",
    }
    assert found[1][0]["clientip"] == "2001:db8::1"
    assert found[1][0]["rawrequest"] == r"\x16\x03\x01"
    assert found[1][0]["bytes"] is None
    assert found[2][0]["rawrequest"] == "-"
    assert found[3][1] == 'does not match the pattern: "Oct 10 13:55:36 web1 sshd[77]: not a web log"'


def test_text_in_another_charset(spark: SparkSession) -> None:
    found = outcome(spark, ["größe".encode("latin-1")], {"format": "text", "charset": "iso-8859-1"})
    assert found == [({"text": "größe"}, None)]
    assert outcome(spark, ["größe".encode("latin-1")], {"format": "text"})[0][0] is None


def avro_bytes(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


@pytest.fixture
def avro_folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "schemas").mkdir()
    older = {**AVRO, "fields": [entry for entry in AVRO["fields"] if entry["name"] != "paid"]}
    (tmp_path / "schemas" / "42.avsc").write_text(json.dumps(older))
    (tmp_path / "schemas" / "43.avsc").write_text(json.dumps(AVRO))
    return tmp_path


def test_avro(spark: SparkSession, avro_folder: Path) -> None:
    good = avro_bytes(AVRO, AVRO_ROW)
    far = avro_bytes(AVRO, {**AVRO_ROW, "at": 0})
    far = far.replace(
        avro_bytes(AVRO, {**AVRO_ROW, "at": 0})[:2], b"\x0e" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    )
    values: list[bytes | None] = [good, good[:-3], good + b"x", b"", b"\xff" * 50, far, None]
    found = outcome(spark, values, {"format": "avro", "schema": "order.avsc"}, avro_folder)
    assert found[0][0] == {**AVRO_ROW, "at": utc(1969, 12, 31, 23, 59, 59)}
    assert all(row is None for row, _ in found[1:])
    assert found[2][1] == "not Avro of this schema: 1 trailing bytes"
    assert all(reason.startswith("not Avro of this schema") for _, reason in found[1:5])
    assert "outside the years" in found[5][1]


def test_avro_behind_a_schema_id_or_a_fingerprint(spark: SparkSession, avro_folder: Path) -> None:
    older = json.loads((avro_folder / "schemas" / "42.avsc").read_text())
    row = {key: value for key, value in AVRO_ROW.items() if key != "paid"}
    values: list[bytes | None] = [
        b"\x00" + struct.pack(">i", 43) + avro_bytes(AVRO, AVRO_ROW),
        b"\x00" + struct.pack(">i", 42) + avro_bytes(older, row),
        b"\x00" + struct.pack(">i", 44) + b"x",
        b"\x01abcde",
        b"\x00\x00",
    ]
    fields = {"format": "avro", "schema": "order.avsc", "schemas": "schemas"}
    found = outcome(spark, values, {**fields, "encoding": "confluent"}, avro_folder)
    assert found[0][0]["paid"] == Decimal("12.34")
    assert found[1][0]["paid"] is None
    assert found[1][0]["lines"] == [{"n": 1}, {"n": 2}]
    assert [reason for _, reason in found[2:]] == [
        "unknown schema id 44",
        "does not begin with a zero byte and a schema id",
        "does not begin with a zero byte and a schema id",
    ]
    mark = b"\xc3\x01" + fingerprint(json.dumps(older))
    marked: list[bytes | None] = [mark + avro_bytes(older, row), b"\xc3\x01" + b"12345678" + b"x", b"zz"]
    found = outcome(spark, marked, {**fields, "encoding": "single-object"}, avro_folder)
    assert found[0][0]["id"] == 7
    assert [reason for _, reason in found[1:]] == [
        "unknown schema 3132333435363738",
        "does not begin with C3 01 and a fingerprint",
    ]


def test_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "order.proto"
    path.write_text(PROTO)
    descriptors = compile_proto(path)
    (tmp_path / "order.desc").write_bytes(descriptors)
    order = message_factory.GetMessageClass(find_message(descriptors, "Order"))()
    order.id, order.kind, order.big = 7, 1, 2**64 - 1
    order.at.seconds, order.at.nanos = -1, 500_000_000
    order.lines.add().n = 3
    order.tags["a"] = 1
    order.note.value = "n"
    good = order.SerializeToString()
    values: list[bytes | None] = [good, b"", good[:-1], b"\xff\xff\xff", None]
    fields = {"format": "protobuf", "schema": "order.proto", "message": "shop.Order"}
    found = outcome(spark, values, fields, tmp_path)
    assert found[0][0] == {
        "id": 7,
        "name": None,
        "at": utc(1969, 12, 31, 23, 59, 59, 500000),
        "kind": "OLD",
        "lines": [{"n": 3}],
        "tags": {"a": 1},
        "big": Decimal(2**64 - 1),
        "note": "n",
    }
    assert found[1][0]["id"] == 0
    assert found[1][0]["at"] is None
    assert [reason[:16] for _, reason in found[2:4]] == ["not a shop.Order"] * 2
    unknown = good + b"\x9a\x06\x01x"
    headed = [b"\x00\x00\x00\x00\x01\x00" + good, b"\x00\x00\x00\x00\x01\x02\x00" + unknown, b"\x00"]
    fields = {**fields, "schema": "order.desc", "message": "Order", "encoding": "confluent", "strict": True}
    found = outcome(spark, headed, fields, tmp_path)  # type: ignore[arg-type]
    assert found[0][0]["id"] == 7
    assert found[1][1] == "unknown field with number 99"
    assert found[2][0] is None


def test_json_behind_a_schema_id(spark: SparkSession) -> None:
    found = outcome(
        spark,
        [b'\x00\x00\x00\x00\x07{"id":1}', b'{"id":2}'],
        {"format": "json", "schema": "id int", "encoding": "confluent"},
    )
    assert [row["id"] for row, _ in found] == [1, 2]


def test_lines_of_common_loggers(spark: SparkSession) -> None:
    lines = [
        b'{"timestamp":"2026-01-02T03:04:05.678Z","level":"info","logger":"app","message":"started","context":{"pid":7}}',
        b'{"timestamp":"2026-01-02 03:04:05.678","level":"WARN","message":"caf\\u00e9","exc_info":null}',
    ]
    schema = "timestamp timestamp, level string, logger string, message string, context struct<pid:int>"
    found = living(through(records(spark, lines), {"parse": {"format": "json", "schema": schema}}))
    assert [row["timestamp"] for row in found] == [utc(2026, 1, 2, 3, 4, 5, 678000)] * 2
    assert found[0]["context"] == {"pid": 7}
    assert found[1]["message"] == "café"
