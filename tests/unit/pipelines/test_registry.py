"""Pipelines and a registry, without Spark's engine: number of requests, registered schemas, valid settings."""

from __future__ import annotations

import json
import math
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.client_config import RegistryAddress
from ottla.operations.schema_registry.errors import RegistryError, UnreachableError
from ottla.operations.schema_registry.schemas import AVRO, PROTOBUF, Schema
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.sink_factory import Setting, make_sink
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.row_encoders import AvroEncoder, ProtobufEncoder
from ottla.pipelines.sinks.subjects import Subject
from ottla.pipelines.steps.parsing import schema_lookup
from ottla.pipelines.steps.parsing.avro import AvroDecoder
from ottla.pipelines.steps.parsing.protobuf import ProtobufDecoder, compile_proto, find_message
from ottla.pipelines.steps.parsing.reader import DecodeError
from ottla.pipelines.steps.parsing.schema_lookup import RegistryLookup, newest_schema
from ottla.pipelines.steps.parsing.schemas import SchemaError
from ottla.pipelines.steps.step_table import STEPS

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
TRIP = '{"type": "record", "name": "Trip", "fields": [{"name": "a", "type": "Order"}, {"name": "b", "type": "Order"}]}'
PROTO = 'syntax = "proto3"; package shop; message Other { int32 n = 1; } message Order { int64 id = 1; }'
KNOWN = {7: Schema(AVRO, ORDER), 8: Schema(AVRO, TRIP, (("Order", ORDER),)), 9: Schema(PROTOBUF, PROTO)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The registry has KNOWN; its requests."""
    found: list[Any] = []

    def schema(_: RegistryClient, name: Any) -> Schema:
        found.append(name)
        if name == 500:
            raise UnreachableError("the registry is gone")
        if name not in KNOWN:
            raise RegistryError(f"Schema {name} not found", 40403)
        return KNOWN[name]

    monkeypatch.setattr(RegistryClient, "schema", schema)
    monkeypatch.setattr(schema_lookup, "RETRY_S", 0.0)
    return found


def lookup_at(name: str) -> RegistryLookup:
    """At an address that no other test uses, because the cache belongs to the process."""
    return RegistryLookup(RegistryAddress(f"http://{name}:8081", is_internal_allowed=True))


def test_a_schema_is_requested_once_per_process_though_every_task_has_its_own_reader(asked: list[Any]) -> None:
    decoder = AvroDecoder(ORDER, "confluent", lookup_at("once"))
    for _ in range(3):
        task = pickle.loads(pickle.dumps(decoder))
        assert task.decode(b"\0\0\0\0\7\x02") == {"id": 1}
        for _ in range(2):
            with pytest.raises(DecodeError, match="unknown schema id 99"):
                task.decode(b"\0\0\0\0\x63\x02")
    assert asked == [7, 99]
    with pytest.raises(DecodeError, match="of type PROTOBUF, not AVRO"):
        decoder.decode(b"\0\0\0\0\x09\x02")


def test_a_registry_that_is_gone_is_not_the_fault_of_a_record(asked: list[Any]) -> None:
    decoder = AvroDecoder(ORDER, "confluent", lookup_at("gone"))
    for _ in range(2):
        with pytest.raises(UnreachableError, match="the registry is gone"):
            decoder.decode(b"\0\0\0\x01\xf4\x02")
    assert asked == [500, 500], "it may come back"


def test_references_of_a_writers_schema_are_resolved(asked: list[Any]) -> None:
    reader = json.dumps({"type": "record", "name": "Trip", "fields": [{"name": "b", "type": json.loads(ORDER)}]})
    decoder = AvroDecoder(reader, "confluent", lookup_at("references"))
    assert decoder.decode(b"\0\0\0\0\x08\x02\x04") == {"b": {"id": 2}}


def test_a_record_is_the_message_at_its_path(asked: list[Any]) -> None:
    from ottla.operations.schema_registry.formats.protobuf import Messages  # noqa: PLC0415

    descriptors = Messages(KNOWN[9]).descriptors
    assert find_message(descriptors, "Order").full_name == "shop.Order"
    decoder = ProtobufDecoder(descriptors, "Order", "confluent", False, lookup_at("proto"))
    assert decoder.decode(b"\0\0\0\0\x09\x02\x02\x08\x05") == {"id": 5}
    for path, words in (
        (b"\0", "is a shop.Other, not a shop.Order"),
        (b"\x02\x06", "schema 9: the schema has no message 3"),
        (b"\x02", "does not begin with a zero byte, a schema id and a path"),
    ):
        with pytest.raises(DecodeError, match=words):
            decoder.decode(b"\0\0\0\0\x09" + path)
    with pytest.raises(DecodeError, match="unknown schema id 98"):
        decoder.decode(b"\0\0\0\0\x62\0\x08\x05")


def test_schemas_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: dict[str, Any] = {}

    def version(_: RegistryClient, subject: str) -> Any:
        raise RegistryError(f"Subject '{subject}' not found.", 40401)

    def register(_: RegistryClient, subject: str, draft: Any, **__: Any) -> int:
        stored[subject] = draft
        return len(stored)

    monkeypatch.setattr(RegistryClient, "version", version)
    monkeypatch.setattr(RegistryClient, "register", register)
    address = RegistryAddress("http://columns:8081", is_internal_allowed=True)
    rows = T.StructType([
        T.StructField("id", T.LongType(), False), T.StructField("at", T.TimestampType()),
        T.StructField("price", T.DecimalType(9, 2)), T.StructField("tags", T.ArrayType(T.StringType())),
        T.StructField("more", T.MapType(T.StringType(), T.IntegerType())),
        T.StructField("place", T.StructType([T.StructField("x", T.DoubleType())])),
    ])  # fmt: skip
    written = Subject(address, "a", "avro").resolve_schema(rows)
    assert written.prefix == b"\0\0\0\0\1"
    assert Subject(address, "a", "avro").resolve_schema(rows) is written, "asked once"
    row = {"id": 1, "at": None, "price": None, "tags": ["x", None], "more": {"k": 2}, "place": {"x": 0.5}}
    data = AvroEncoder(stored["a"].text, written.prefix).prepare()(row)
    assert AvroDecoder(stored["a"].text, "raw", None).decode(data[5:])["place"] == {"x": 0.5}  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="does not fit the Avro schema"):
        AvroEncoder(stored["a"].text, b"").prepare()(row | {"unknown": 1})
    Subject(address, "j", "json").resolve_schema(rows)
    properties = json.loads(stored["j"].text)["properties"]
    assert (properties["id"], properties["at"]["type"]) == ({"type": "integer"}, ["string", "null"])
    with pytest.raises(SinkError, match=r"subject p: Subject 'p' not found"):
        Subject(address, "p", "protobuf").resolve_schema(rows)
    for kind, words in ((T.StructField("a-b", T.LongType()), "rename"), (T.StructField("v", T.VariantType()), "cast")):
        with pytest.raises(SinkError, match=words):
            Subject(address, f"bad-{words}", "avro").resolve_schema(T.StructType([kind]))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.9), ("int", 2**31), ("int", True), ("long", 1.0), ("long", Decimal("1.5")), ("boolean", "false"),
        ("boolean", 1), ("float", 1e300), (["null", "float"], -1e39),
        ({"type": "array", "items": "int"}, [1, None, 1.5]),
        ({"type": "map", "values": "long"}, {"a": 1.5}),
        (["null", {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}], {"n": 0.5}),
    ],
)  # fmt: skip
def test_a_value_that_avro_would_write_as_another_one_ends_the_run(kind: Any, value: object) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "x", "type": kind}]}
    with pytest.raises(SinkError, match="does not fit the Avro schema"):
        AvroEncoder(json.dumps(schema)).prepare()({"x": value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", -(2**31)), ("long", 2**63 - 1), ("boolean", False), ("float", math.inf), ("float", 3.4e38),
        ("double", Decimal("0.5")), ("double", 3), (["null", "int"], None), ({"type": "array", "items": "int"}, [1, 2]),
    ],
)  # fmt: skip
def test_a_value_that_fits_an_avro_schema_is_written_as_it_is(kind: Any, value: object) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "x", "type": kind}]}
    data = AvroEncoder(json.dumps(schema)).prepare()({"x": value})
    found = AvroDecoder(json.dumps(schema), "raw", None).decode(data)["x"]  # type: ignore[arg-type]
    assert found == pytest.approx(value) if isinstance(value, float) else found == value


def test_rows_as_protobuf() -> None:
    encode = ProtobufEncoder(Schema(PROTOBUF, PROTO), b"\0\0\0\0\1", "shop.Order").prepare()
    assert encode({"id": 5}) == b"\0\0\0\0\1\x02\x02\x08\x05"
    assert encode({"id": None}) == b"\0\0\0\0\1\x02\x02"
    for row in ({"id": "x"}, {"unknown": 1}):
        with pytest.raises(SinkError, match="does not fit the Protobuf schema"):
            encode(row)


def test_values_without_a_json_number_are_written_in_protobuf(tmp_path: Path) -> None:
    schema = 'syntax = "proto3"; message Row { double x = 1; float y = 2; string price = 3; uint64 big = 4; }'
    (tmp_path / "row.proto").write_text(schema)
    row = {"x": math.nan, "y": -math.inf, "price": Decimal("2.00"), "big": Decimal(2**64 - 1)}

    data = ProtobufEncoder(Schema(PROTOBUF, schema)).prepare()(row)

    found = ProtobufDecoder(compile_proto(tmp_path / "row.proto"), "Row", "raw").decode(data[1:])  # after the index
    assert math.isnan(found.pop("x"))
    assert found == {"y": -math.inf, "price": "2.00", "big": 2**64 - 1}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"raw": "abcd"}, "raw is a text, and its field is for bytes: cast it to binary"),
        ({"name": b"abcd"}, "name has bytes, and its field is for text: cast it to string"),
        ({"inner": {"raws": [b"x", "abcd"]}}, "raws is a text"),
        ({"by_name": {"a": "abcd"}}, "by_name is a text"),
        ({"byName": {"a": "abcd"}}, "byName is a text"),
    ],
)
def test_bytes_of_protobuf_are_not_taken_for_a_text_of_base64(row: dict[str, Any], words: str) -> None:
    schema = """syntax = "proto3"; message Row {
        bytes raw = 1; string name = 2; Inner inner = 3; map<string, bytes> by_name = 4;
        message Inner { repeated bytes raws = 1; } }"""
    encode = ProtobufEncoder(Schema(PROTOBUF, schema)).prepare()
    assert encode({"raw": b"abcd", "inner": {"raws": [b"x"]}, "by_name": {"a": b"y", "b": None}})
    with pytest.raises(SinkError, match=words):
        encode(row)


@pytest.mark.parametrize(
    ("head", "parse", "sink", "words"),
    [
        ({"registry": "ftp://x"}, {}, {}, "not the address of a registry"),
        ({"registry": {"basic.auth.user.info": "a:b"}}, {}, {}, "has no url"),
        ({}, {"schema": "a.avsc"}, {}, "exclude each other"),
        ({}, {"format": "csv"}, {}, "means nothing for csv"),
        ({}, {}, {"format": "csv"}, "means nothing for format csv"),
        ({}, {}, {"format": "protobuf", "subject": None}, "needs a subject"),
        ({}, {}, {"message": "M"}, "means nothing for format avro"),
    ],
)
def test_invalid_registry_settings_are_refused(
    head: dict[str, Any], parse: dict[str, Any], sink: dict[str, Any], words: str
) -> None:
    with pytest.raises(PipelineError, match=words):
        read_pipeline(document(head, parse, sink), STEPS, ".")


def test_a_subject_needs_a_registry() -> None:
    pipeline = read_pipeline(document({}, {}, {}), STEPS, ".")
    stream = next(iter(pipeline.streams.values()))
    with pytest.raises(SinkError, match="needs a registry"):
        make_sink(stream.sinks[0], 0, Setting(pipeline, ""))
    with pytest.raises(SchemaError, match="needs a registry"):
        newest_schema(None, "s", AVRO)
    login = {"registry": {"url": "http://r:1", "basic.auth.user.info": "me:secret"}}
    address = read_pipeline(document(login, {}, {}), STEPS, ".").fields.registry_address
    assert address is not None
    assert (address.user, address.password) == ("me", "secret")
    assert "secret" not in repr(address)


def document(head: dict[str, Any], parse: dict[str, Any], sink: dict[str, Any]) -> dict[str, Any]:
    step = {"format": "avro", "encoding": "confluent", "subject": "s", **parse}
    to = {"topic": "out", "format": "avro", "subject": "out-value", **sink}
    return {"name": "p", **head, "from": {"topic": "in"}, "steps": [{"parse": step}], "to": to}
