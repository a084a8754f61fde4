"""Columns with schemas of a registry for plain PySpark: Confluent's five-byte header, which Spark does not read.

    orders = read_topic(spark, "orders").select(from_confluent("value", "http://127.0.0.1:8081", "orders-value"))
    orders.select(to_confluent(F.struct("id", "price"), "http://127.0.0.1:8081", "prices-value").alias("value"))

Each process fetches a schema once, not for each record. An unreadable record fails the query, or is null with
mode="PERMISSIVE", as in Spark's own from_avro. A registry that does not answer fails the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.client_config import RegistryAddress, address_of
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.framing import KEY_HEADER, VALUE_HEADER, frame
from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, KINDS, UnregisteredSchema
from ottla.operations.schema_registry.serdes import SchemaChoice, choose_schema

if TYPE_CHECKING:
    from pyspark.sql import Column

    from ottla.pipelines.sinks.row_encoders import RowEncoder
    from ottla.pipelines.steps.parsing.reader import Decoder

Format = Literal["avro", "protobuf"]
Mode = Literal["FAILFAST", "PERMISSIVE"]


def from_confluent(
    column: Column | str,
    registry: str,
    subject: str,
    *,
    format: Format = "avro",  # noqa: A002 (Spark's name)
    message: str | None = None,
    headers: Column | str | None = None,
    is_key: bool = False,
    mode: Mode = "FAILFAST",
    options: Mapping[str, str] | None = None,
) -> Column:
    """Decode bytes to a struct with the fields of the subject's newest schema. Writers' schemas are found by id.

    `headers`: the column of headers, for ids that are written there. `options`: properties such as
    basic.auth.user.info. Raises SchemaError.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    from ottla.pipelines.steps.parse import Parse, choose_reader  # noqa: PLC0415
    from ottla.pipelines.steps.parsing.reader import BinaryReader  # noqa: PLC0415
    from ottla.pipelines.steps.parsing.schemas import SchemaError as NoSchemaError  # noqa: PLC0415

    if mode not in ("FAILFAST", "PERMISSIVE"):
        raise SchemaError(f"mode {mode!r}: use FAILFAST or PERMISSIVE")
    spec = Parse(format=format, encoding="confluent", subject=subject, message=message)
    try:
        reader, _ = choose_reader(spec, ".", _address(registry, options))
    except NoSchemaError as problem:
        raise SchemaError(str(problem)) from None
    assert isinstance(reader, BinaryReader)
    source = F.col(column) if isinstance(column, str) else column
    if headers is not None:
        given = F.col(headers) if isinstance(headers, str) else headers
        wanted = KEY_HEADER if is_key else VALUE_HEADER
        named = F.filter(given, lambda each: (each["key"] == wanted) & each["value"].isNotNull())
        source = F.when(F.size(named) > 0, F.concat(F.element_at(named, -1)["value"], source)).otherwise(source)
    made: Column = _decoding(reader.decoder, reader.schema, mode)(source)
    return made


def to_confluent(
    column: Column | str,
    registry: str,
    subject: str,
    *,
    schema: str | None = None,
    format: Format | Literal["json"] = "avro",  # noqa: A002 (Spark's name)
    message: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Column:
    """Encode a struct to bytes with a schema id in front: of `schema`, which is registered, or of the subject's newest
    schema.

    A row that does not fit fails the query. Raises SchemaError.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from ottla.operations.schema_registry.formats.avro import inline_references  # noqa: PLC0415
    from ottla.pipelines.sinks.encoding import JSON_OPTIONS  # noqa: PLC0415
    from ottla.pipelines.sinks.row_encoders import AvroEncoder, ProtobufEncoder, checked_json  # noqa: PLC0415

    kind = KINDS.get(format.upper())
    if kind is None:
        raise SchemaError(f"there is no format {format!r}: use avro, json or protobuf")
    client = RegistryClient(_address(registry, options))
    draft = None if schema is None else UnregisteredSchema(kind, schema)
    schema_id, found = choose_schema(client, SchemaChoice(subject, draft))
    if found.kind != kind:
        raise SchemaError(f"subject {subject} is of type {found.kind}, not {kind}")
    source, prefix = F.col(column) if isinstance(column, str) else column, frame(schema_id, b"")
    if kind == JSON_SCHEMA:
        return checked_json(prefix, found)(F.to_json(source, JSON_OPTIONS))
    encoder = AvroEncoder(inline_references(found), prefix) if kind == AVRO else ProtobufEncoder(found, prefix, message)
    made: Column = _encoding(encoder)(source)
    return made


def _decoding(decoder: Decoder, schema: Any, mode: Mode) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

    from ottla.pipelines.steps.parsing.reader import DecodeError  # noqa: PLC0415

    def decode_one(value: bytes | None) -> Any:
        if value is None:
            return None
        try:
            return decoder.decode(value)
        except DecodeError as problem:
            if mode == "PERMISSIVE":
                return None
            raise SchemaError(f"a record cannot be read: {problem}") from None

    def decode(values: pa.Array) -> pa.Array:
        rows = [decode_one(value) for value in values.to_pylist()]
        return pa.array(rows, type=to_arrow_type(schema, timezone="UTC"))

    decode.__annotations__ = {"values": pa.Array, "return": pa.Array}  # Spark evaluates annotations; ours are only text
    return F.arrow_udf(decode, schema)  # type: ignore[attr-defined]


def _encoding(encoder: RowEncoder) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    def encode_all(rows: pa.Array) -> pa.Array:
        encode = encoder.prepare()
        values = rows.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if row is None else encode(row) for row in values], pa.binary())

    encode_all.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return F.arrow_udf(encode_all, "binary")  # type: ignore[attr-defined]


def _address(registry: str, options: Mapping[str, str] | None) -> RegistryAddress:
    found = address_of(options or {}, registry)
    if found is None:
        raise SchemaError("the address of a registry is empty: write http://host:8081")
    return found
