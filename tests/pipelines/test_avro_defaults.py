"""Avro of an older writer: defaults of the reader's schema, and values in another unit."""

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
from tests.pipelines.frames import living, records, through, utc

from ottla.pipelines.steps.parsing.avro import parse_avro
from ottla.pipelines.steps.parsing.schemas import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
SEEN = {"type": "record", "name": "Seen", "fields": [
    {"name": "at", "type": MOMENT}, {"name": "by", "type": "string", "default": "unknown"},
]}  # fmt: skip
ADDED: dict[str, tuple[Any, Any, Any]] = {
    "mark": ("bytes", "\u00ff\u0000", b"\xff\x00"),
    "code": ({"type": "fixed", "name": "Code", "size": 2}, "\u0001\u00ff", b"\x01\xff"),
    "price": ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "\u0001\u0000", Decimal("2.56")),
    "loss": (
        {"type": "fixed", "name": "Loss", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1},
        "\u00ff\u00ff",
        Decimal("-0.1"),
    ),
    "seen": (SEEN, {"at": 1000}, {"at": utc(1970, 1, 1, 0, 0, 1), "by": "unknown"}),
    "days": ({"type": "array", "items": {"type": "int", "logicalType": "date"}}, [1], [date(1970, 1, 2)]),
    "moments": ({"type": "map", "values": MOMENT}, {"a": 1}, {"a": utc(1970, 1, 1, 0, 0, 0, 1000)}),
    "note": (["string", "null"], "none", "none"),
    "last": (["null", MOMENT], None, None),
}


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *fields]}


def read(
    spark: SparkSession, folder: Path, writer: dict[str, Any], reader: dict[str, Any], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    (folder / "order.avsc").write_text(json.dumps(reader))
    (folder / "7.avsc").write_text(json.dumps(writer))
    values = []
    for row in rows:
        stream = io.BytesIO(b"\x00" + struct.pack(">i", 7))
        stream.seek(5)
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(writer))), row)
        values.append(stream.getvalue())
    fields = {"format": "avro", "encoding": "confluent", "schema": "order.avsc", "schemas": "."}
    return living(through(records(spark, values, folder), {"parse": fields}))


def test_a_field_that_was_not_written_has_the_readers_default_in_every_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    added = [{"name": name, "type": kind, "default": default} for name, (kind, default, _) in ADDED.items()]

    found = read(spark, tmp_path, record(), record(*added), [{"id": 1}, {"id": 2}, {"id": 3}])

    wanted = {name: value for name, (_, _, value) in ADDED.items()}
    assert found == [{"id": number, **wanted} for number in (1, 2, 3)]


def test_a_field_with_a_default_that_was_written_is_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    schema = record({"name": "seen", "type": SEEN, "default": {"at": 1000}})
    row = {"id": 1, "seen": {"at": datetime(2026, 1, 1, tzinfo=UTC), "by": "ann"}}

    found = read(spark, tmp_path, {**schema, "doc": "older"}, schema, [row, row])

    assert found == [{"id": 1, "seen": {"at": utc(2026, 1, 1), "by": "ann"}}] * 2


@pytest.mark.parametrize(
    ("written", "wanted", "expected"),
    [
        ("timestamp-millis", "timestamp-micros", utc(2026, 1, 2, 3, 4, 5, 678000)),
        ("timestamp-micros", "timestamp-millis", utc(2026, 1, 2, 3, 4, 5, 678000)),
        ("timestamp-micros", "timestamp-nanos", utc(2026, 1, 2, 3, 4, 5, 678000)),
        ("time-millis", "time-micros", 11_045_678_000),
    ],
)
def test_a_time_in_another_unit_than_the_readers_is_the_same_time(
    spark: SparkSession, tmp_path: Path, written: str, wanted: str, expected: object
) -> None:
    def schema(logical: str) -> dict[str, Any]:
        kind = "int" if logical == "time-millis" else "long"
        return record({"name": "at", "type": ["null", {"type": kind, "logicalType": logical}]})

    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    value = moment.time() if written.startswith("time-") else moment

    found = read(spark, tmp_path, schema(written), schema(wanted), [{"id": 1, "at": value}, {"id": 2, "at": None}])

    assert found == [{"id": 1, "at": expected}, {"id": 2, "at": None}]


def test_a_default_that_does_not_fit_is_refused() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    with pytest.raises(SchemaError, match="the default of 'price' does not fit its type: decimal 256 has more than 2"):
        parse_avro(json.dumps(record({"name": "price", "type": price, "default": "\u0001\u0000"})))
