"""Pipelines and plain PySpark with a schema registry: Confluent's serializers write and read the other side."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from tests.conformance.test_registry import SECONDS_MAX, Node
from tests.pipelines.running import pipeline_of, read_all, run_once
from tests.pipelines.sink_helpers import new_topic

from ottla.operations.schema_registry.errors import SchemaError
from ottla.pipelines import from_confluent, read_topic, to_confluent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECOND = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "none"},
    ],
}  # fmt: skip
OTHER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
registry: {url}
dead_letters: {name}-dead
from: {{topic: {name}}}
steps:
  - parse: {{format: avro, encoding: confluent, subject: {name}-value}}
  - derive: {{double: id * 2}}
to: {{topic: {name}-out, format: avro, subject: {name}-out-value}}
"""


@pytest.fixture(scope="module")
def node(bootstrap: str) -> Iterator[Node]:
    made = Node(bootstrap, f"schemas-{uuid.uuid4().hex[:8]}")
    yield made
    made.stop()


def context(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def send(bootstrap: str, topic: str, *records: tuple[bytes | None, Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value, headers in records:
        producer.produce(topic, value, headers=headers)
    assert producer.flush(SECONDS_MAX) == 0


def test_a_pipeline_reads_what_any_version_wrote_and_registers_what_it_writes(
    spark: SparkSession, bootstrap: str, node: Node, tmp_path: Path
) -> None:
    name = new_topic(bootstrap, 1)
    headers: list[Any] = []
    in_header = {"schema.id.serializer": header_schema_id_serializer}
    first = AvroSerializer(node.client, json.dumps(FIRST))({"id": 1}, context(name))
    second = AvroSerializer(node.client, json.dumps(SECOND))({"id": 2, "note": "two"}, context(name))
    third = AvroSerializer(node.client, json.dumps(SECOND), conf=in_header)(
        {"id": 3, "note": "three"}, context(name, headers)
    )
    alien = AvroSerializer(node.client, json.dumps(OTHER))({"id": "x"}, context("another"))
    assert first is not None
    send(
        bootstrap, name, (first, None), (second, None), (third, headers), (alien, None), (first[:5], None),
        (b"\0\0\0\xff\xff\x02", None), (b"no frame", None),
    )  # fmt: skip
    file = FILE.format(name=name, bootstrap=bootstrap, url=node.url)
    run_once(spark, pipeline_of(file, tmp_path), tmp_path)
    deserialize = AvroDeserializer(node.client)
    found = [deserialize(each.value, context(f"{name}-out")) for each in read_all(bootstrap, f"{name}-out")]
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "note": "none", "double": 2}, {"id": 2, "note": "two", "double": 4},
        {"id": 3, "note": "three", "double": 6},
    ]  # fmt: skip
    written = json.loads(node.client.get_latest_version(f"{name}-out-value").schema.schema_str)
    assert [field["name"] for field in written["fields"]] == ["id", "note", "double"]
    reasons = sorted(each.headers["ottla.reason"] for each in read_all(bootstrap, f"{name}-dead"))
    assert len(reasons) == 4
    assert any("unknown schema id 65535" in reason for reason in reasons)
    assert any("does not begin with a zero byte and a schema id" in reason for reason in reasons)
    assert sum("not Avro of this schema" in reason for reason in reasons) == 2
    # A version that is newer than the query's: what the reader's schema does not have is left out.
    node.client.register_schema(f"{name}-value", Schema(json.dumps(SECOND), "AVRO"))


def test_columns_of_plain_pyspark(spark: SparkSession, bootstrap: str, node: Node) -> None:
    topic = new_topic(bootstrap, 1)
    headers: list[Any] = []
    in_header = {"schema.id.serializer": header_schema_id_serializer}
    plain = AvroSerializer(node.client, json.dumps(SECOND))({"id": 1, "note": "a"}, context(topic))
    bare = AvroSerializer(node.client, json.dumps(SECOND), conf=in_header)(
        {"id": 2, "note": "b"}, context(topic, headers)
    )
    send(bootstrap, topic, (plain, None), (bare, headers), (None, None))
    rows = read_topic(spark, topic, bootstrap_servers=bootstrap, headers=True)
    order = from_confluent("value", node.url, f"{topic}-value", headers="headers").alias("order")
    found = [row["order"] and row["order"].asDict() for row in rows.select(order).collect()]
    assert found == [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}, None]

    options = {"registry": node.url, "valueSubject": f"{topic}-value"}
    table = read_topic(spark, topic, bootstrap_servers=bootstrap, columns=["offset", "value"], options=options)
    assert [row.asDict() for row in table.select("offset", "value.id", "value.note").collect()] == [
        {"offset": 0, "id": 1, "note": "a"}, {"offset": 1, "id": 2, "note": "b"},
        {"offset": 2, "id": None, "note": None},
    ]  # fmt: skip

    proto = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'
    rules = '{"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}'
    struct = F.struct(F.col("id"), F.lit("n").alias("note"))
    made = spark.range(3).select(
        to_confluent(struct, node.url, f"{topic}-value").alias("avro"),
        to_confluent(struct, node.url, f"{topic}-p", schema=proto, format="protobuf").alias("protobuf"),
        to_confluent(struct, node.url, f"{topic}-j", schema=rules, format="json").alias("json"),
    )
    back = made.select(
        from_confluent("avro", node.url, f"{topic}-value").alias("a"),
        from_confluent("protobuf", node.url, f"{topic}-p", format="protobuf").alias("p"),
        "avro", "json",
    ).collect()  # fmt: skip
    assert [(row["a"]["id"], row["p"]["id"], row["p"]["note"]) for row in back] == [(n, n, "n") for n in range(3)]
    assert AvroDeserializer(node.client)(bytes(back[1]["avro"]), context(topic)) == {"id": 1, "note": "n"}
    assert json.loads(bytes(back[2]["json"])[5:]) == {"id": 2, "note": "n"}

    wrong = spark.createDataFrame([(bytearray(b"\0\0\0\xff\xff"),)], "value binary")
    with pytest.raises(Exception, match="unknown schema id 65535"):
        wrong.select(from_confluent("value", node.url, f"{topic}-value")).collect()
    kept = wrong.select(from_confluent("value", node.url, f"{topic}-value", mode="PERMISSIVE").alias("order"))
    assert kept.collect()[0]["order"] is None
    with pytest.raises(Exception, match="a row does not fit the Avro schema"):
        spark.range(1).select(to_confluent(F.struct(F.lit("x").alias("id")), node.url, f"{topic}-value")).collect()
    with pytest.raises(SchemaError, match="not found"):
        from_confluent("value", node.url, "nothing")
