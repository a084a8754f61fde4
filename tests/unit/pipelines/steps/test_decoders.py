"""Avro and Protobuf, record by record, without Spark: decoded values, and error messages."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.steps.parsing.avro import AvroDecoder, parse_avro
from ottla.pipelines.steps.parsing.protobuf import ProtobufDecoder, compile_proto, find_message, spark_schema
from ottla.pipelines.steps.parsing.reader import PROBLEM, DecodeError, decode_or_problem, to_structs
from ottla.pipelines.steps.parsing.schema_lookup import FileSchemas, fingerprint, read_schema_folder
from ottla.pipelines.steps.parsing.schemas import SchemaError


def record(*fields: dict[str, Any], name: str = "R") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def decoder(schema: str) -> AvroDecoder:
    return AvroDecoder(schema, "raw", FileSchemas({}, {}))


def written(schema: str, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), row)
    return out.getvalue()


def test_types_of_avro_have_counterparts() -> None:
    kinds = {
        "b": "boolean",
        "i": "int",
        "l": "long",
        "f": "float",
        "d": "double",
        "y": "bytes",
        "s": "string",
        "o": ["null", "string"],
        "m": {"type": "map", "values": "long"},
        "a": {"type": "array", "items": ["null", "int"]},
        "t": {"type": "long", "logicalType": "timestamp-micros"},
        "n": {"type": "long", "logicalType": "local-timestamp-millis"},
        "u": {"type": "string", "logicalType": "uuid"},
        "x": {"type": "fixed", "name": "F", "size": 2},
        "p": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
        "k": {"type": "int", "logicalType": "time-millis"},
        "e": {"type": "enum", "name": "E", "symbols": ["A"]},
        "again": "E",
    }
    part = parse_avro(record(*({"name": name, "type": kind} for name, kind in kinds.items())))
    assert part.spark.simpleString() == (
        "struct<b:boolean,i:int,l:bigint,f:float,d:double,y:binary,s:string,o:string,m:map<string,bigint>,a:array<int>,"
        "t:timestamp,n:timestamp_ntz,u:string,x:binary,p:decimal(5,1),k:int,e:string,again:string>"
    )


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        "[]",
        '"int"',
        '{"type":"record"}',
        record({"name": "a", "type": "nope"}),
        record({"name": "a", "type": ["int", "string"]}),
        record({"name": "a", "type": ["null", "R"]}),
        record({"name": "a", "type": {"type": "array", "items": "null"}}),
        record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50}}),
        '{"type":"array","items":' * 200 + '"int"' + "}" * 200,
        "[" * 100_000,
    ],
    ids=lambda schema: schema[:40],
)
def test_schemas_that_no_table_can_hold_are_refused(schema: str) -> None:
    with pytest.raises(SchemaError):
        parse_avro(schema)


def test_a_decoder_travels() -> None:
    schema = record({"name": "a", "type": "int"})
    made = decoder(schema)
    assert made.decode(written(schema, {"a": 5})) == {"a": 5}
    assert pickle.loads(pickle.dumps(made)).decode(written(schema, {"a": 6})) == {"a": 6}


def test_noise_never_raises_anything_but_a_decode_error() -> None:
    schema = record(
        {"name": "s", "type": "string"},
        {"name": "a", "type": {"type": "array", "items": "long"}},
        {"name": "m", "type": {"type": "map", "values": "double"}},
        {"name": "u", "type": ["null", "string"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    )
    made, chance = decoder(schema), random.Random(7)
    good = written(schema, {"s": "x", "a": [1, 2], "m": {"k": 1.5}, "u": None, "e": "A", "t": 0})
    part = parse_avro(schema)
    assert isinstance(part.spark, T.StructType)
    result = T.StructType([*part.spark.fields, T.StructField(PROBLEM, T.StringType())])
    noise = [os.urandom(chance.randrange(40)) for _ in range(500)]
    for _ in range(1000):
        damaged = bytearray(good)
        damaged[chance.randrange(len(good))] = chance.randrange(256)
        noise.append(bytes(damaged))
    rows = [decode_or_problem(value, made.decode) for value in noise]
    assert len(to_structs(rows, result)) == len(noise)


def test_fingerprints_are_those_of_the_specification() -> None:
    assert fingerprint('"int"').hex() == "8f5c393f1ad57572"


def test_a_folder_of_schemas_is_known_by_id_and_by_fingerprint(tmp_path: Path) -> None:
    own, other = record({"name": "a", "type": "int"}), record({"name": "b", "type": "int"}, name="Other")
    (tmp_path / "7.avsc").write_text(other)
    (tmp_path / "named.avsc").write_text(own)
    known = read_schema_folder(tmp_path, own)
    assert known.by_id(7) == other
    assert known.by_id(8) is None
    assert known.by_fingerprint(fingerprint(other)) == other
    with pytest.raises(SchemaError, match="is not a folder"):
        read_schema_folder(tmp_path / "nope", own)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('syntax = "proto3"; message A { A a = 1; }', "is recursive"),
        ('syntax = "proto3"; import "/etc/passwd"; message A {}', "does not compile"),
        ('syntax = "proto3"; message B {}', "no message 'A'"),
        ("nonsense", "does not compile"),
    ],
)
def test_unusable_proto_files_are_an_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.proto"
    path.write_text(text)
    with pytest.raises(SchemaError, match=said):
        spark_schema(find_message(compile_proto(path), "A"))


def test_noise_is_no_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "a.proto"
    path.write_text('syntax = "proto3"; message A { string s = 1; repeated int32 n = 2; map<string, string> m = 3; }')
    made = ProtobufDecoder(compile_proto(path), "A", "raw")
    result = T.StructType(
        [*spark_schema(find_message(made.descriptors, "A")).fields, T.StructField(PROBLEM, T.StringType())]
    )
    rows = [
        decode_or_problem(os.urandom(number % 30), pickle.loads(pickle.dumps(made)).decode) for number in range(300)
    ]
    assert len(to_structs(rows, result)) == 300
    with pytest.raises(DecodeError, match="not a A"):
        made.decode(b"\x0a\xff")
    with pytest.raises(SchemaError, match="descriptor set"):
        find_message(b"\xff\xff\xff", "A")


def test_a_writers_schema_that_the_reader_cannot_resolve_is_a_reason_to_die() -> None:
    wanted = record({"name": "id", "type": "long"})
    other = record({"name": "id", "type": "string"})
    frames = AvroDecoder(wanted, "confluent", FileSchemas({7: other}, {}))
    with pytest.raises(DecodeError, match="not Avro of this schema: Schema mismatch: string is not long"):
        frames.decode(b"\0\0\0\0\7" + written(other, {"id": "x"}))
