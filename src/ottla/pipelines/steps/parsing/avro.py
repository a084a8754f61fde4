"""Avro, decoded with fastavro: raw, in single-object encoding, or with a schema id.

The schema file is the reader's schema. Writers' schemas come from a lookup, and Avro's schema resolution applies.
Logical types: timestamps, dates, decimals; times of day stay numbers, UUIDs stay text. Times in another unit than the
reader's (milliseconds, microseconds) are converted. A union with null is a nullable field; other unions and recursive
schemas have no table type.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, NamedTuple

from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.operations.schema_registry.errors import SchemaError as NoNameError
from ottla.operations.schema_registry.framing import PREFIX_BYTES, SchemaName, read_name
from ottla.pipelines.steps.parsing.reader import DecodeError, Row, timestamp_micros
from ottla.pipelines.steps.parsing.schema_lookup import SchemaLookup
from ottla.pipelines.steps.parsing.schemas import DEPTH_MAX, SchemaError

SINGLE_OBJECT = b"\xc3\x01"
BAD_DATA = (EOFError, LookupError, ValueError, TypeError, OverflowError, ArithmeticError, RecursionError, MemoryError)
PLAIN: dict[str, T.DataType] = {
    "boolean": T.BooleanType(), "int": T.IntegerType(), "long": T.LongType(), "float": T.FloatType(),
    "double": T.DoubleType(), "bytes": T.BinaryType(), "string": T.StringType(),
}  # fmt: skip
PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
TIME_LOGICAL_TYPES = {
    "int": {"time-millis"},
    "long": {"time-micros", *(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in PER_SECOND)},
}
UNIT_LOGICAL_TYPE = "ottla-unit"  # a private logical type: a count of units per second
DEFAULT_VALUE = "ottla-made"  # key of a schema field: its default as a row value

Encoding = Literal["raw", "single-object", "confluent"]
Convert = Callable[[Any], Any]


class Default(NamedTuple):
    """The reader's default for a missing field: shared by all records, already converted."""

    made: Any


class TypeMapping(NamedTuple):
    """The mapping of one Avro type: Spark type, decoded Avro type, and value conversion."""

    spark: T.DataType
    avro: Any
    convert: Convert | None = None
    default: Convert | None = None  # from the JSON form in a schema, if it differs from `convert`

    def make_default(self, value: Any) -> Any:
        make = self.default or self.convert or _same
        return None if value is None else make(value)


@dataclass(frozen=True)
class AvroDecoder:
    schema: str
    encoding: Encoding
    lookup: SchemaLookup

    def decode(self, value: bytes) -> Row:
        writer = self._by_prefix.get(value[:PREFIX_BYTES])  # the fast path for records with an id
        start = PREFIX_BYTES
        if writer is None:
            writer, start = self._writer(value)
        stream = io.BytesIO(value)
        stream.seek(start)
        reader = self._reader
        try:
            found = self._read(stream, writer, None if writer is reader.avro else reader.avro)
            made = reader.convert(found) if reader.convert else found
        except DecodeError:
            raise
        except self._bad_data as error:
            raise DecodeError(f"not Avro of this schema: {_error_text(error)}") from None
        rest = len(value) - stream.tell()
        if rest:
            raise DecodeError(f"not Avro of this schema: {rest} trailing bytes")
        return made  # type: ignore[no-any-return]

    def _writer(self, value: bytes) -> tuple[Any, int]:
        if self.encoding == "raw":
            return self._parsed(None), 0
        if self.encoding == "single-object":
            if value[:2] != SINGLE_OBJECT or len(value) < 10:
                raise DecodeError("does not begin with C3 01 and a fingerprint")
            return self._parsed(value[2:10]), 10
        try:
            name, start = read_name(value)
        except NoNameError:
            raise DecodeError("does not begin with a zero byte and a schema id") from None
        writer = self._parsed(name)
        if start == PREFIX_BYTES:
            self._by_prefix[value[:PREFIX_BYTES]] = writer
        return writer, start

    def _parsed(self, name: bytes | SchemaName | None) -> Any:
        """The writer's schema, parsed once each."""
        if name not in self._writers:
            self._writers[name] = self._found(name)
        found = self._writers[name]
        if found is None:
            raise DecodeError(f"unknown schema {name.hex() if isinstance(name, bytes) else f'id {name}'}")
        return found

    def _found(self, name: bytes | SchemaName | None) -> Any:
        if name is None:
            return self._reader.avro
        try:
            text = self.lookup.by_fingerprint(name) if isinstance(name, bytes) else self.lookup.by_id(name)
            if text is None:
                return None
            found = parse_avro(text, is_writer=True).avro
            # An equal schema needs no resolution, which fastavro would repeat for every record.
            return self._reader.avro if found == self._reader.avro else found
        except SchemaError as error:
            raise DecodeError(f"the writer's schema is unusable: {error}") from None

    @cached_property
    def _reader(self) -> TypeMapping:
        return parse_avro(self.schema)

    @cached_property
    def _writers(self) -> dict[bytes | SchemaName | None, Any]:
        return {}

    @cached_property
    def _by_prefix(self) -> dict[bytes, Any]:
        """Writers' schemas by the first bytes of records, for records that start with an id."""
        return {}

    @cached_property
    def _bad_data(self) -> tuple[type[Exception], ...]:
        from fastavro.read import SchemaResolutionError  # # noqa: PLC0415 (not a ValueError)

        return (*BAD_DATA, SchemaResolutionError)

    @cached_property
    def _read(self) -> Callable[[io.BytesIO, Any, Any], Any]:
        import fastavro  # # noqa: PLC0415 (runs on executors)

        for kind in TIME_LOGICAL_TYPES:
            fastavro.read.LOGICAL_READERS[f"{kind}-{UNIT_LOGICAL_TYPE}"] = _convert_time_unit
        return fastavro.schemaless_reader

    def __getstate__(self) -> dict[str, object]:
        """Parsed schemas and readers are rebuilt in each process."""
        return {"schema": self.schema, "encoding": self.encoding, "lookup": self.lookup}


def parse_avro(text: str, *, is_writer: bool = False) -> TypeMapping:
    """Raises SchemaError. A writer's schema may contain types without a table type, because the reader may skip
    them."""
    import fastavro  # noqa: PLC0415

    try:
        values = json.loads(text)
        fastavro.parse_schema(values)
        part = _SchemaMapper(is_writer).part(values, 0, "")
        parsed: Any = fastavro.parse_schema(part.avro)
    except SchemaError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise SchemaError(f"not an Avro schema: {_error_text(error)}") from None
    if not isinstance(part.spark, T.StructType):
        raise SchemaError("the Avro schema of a record must be a record")
    for named in parsed["__named_schemas"].values():
        for entry in named.get("fields", ()):
            if DEFAULT_VALUE in entry:
                entry["default"] = entry.pop(DEFAULT_VALUE)
    return part._replace(avro=parsed)


class _SchemaMapper:
    """Maps a schema recursively; removes logical types whose Python values have a smaller range than Avro's."""

    def __init__(self, is_writer: bool) -> None:
        self.is_writer = is_writer
        self.named: dict[str, TypeMapping | None] = {}

    def part(self, schema: Any, depth: int, space: str) -> TypeMapping:
        if depth > DEPTH_MAX:
            raise SchemaError(f"an Avro schema nested deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            return self._union(schema, depth, space)
        if isinstance(schema, str):
            return self._name(schema, space)
        kind = schema.get("type")
        if isinstance(kind, list | dict):
            return self.part(kind, depth, space)
        logical = schema.get("logicalType")
        if kind in ("record", "error"):
            return self._record(schema, depth, space)
        if kind == "enum":
            return self._register(schema, TypeMapping(T.StringType(), schema), space)
        if kind == "fixed":
            part = (
                _decimal(schema)
                if logical == "decimal"
                else TypeMapping(T.BinaryType(), _without_logical_type(schema), None, _bytes)
            )
            return self._register(schema, part, space)
        if kind == "array":
            return self._array(schema, depth, space)
        if kind == "map":
            return self._map(schema, depth, space)
        return _logical(schema, kind, logical) if kind in PLAIN else self._name(kind, space)

    def _name(self, name: str, space: str) -> TypeMapping:
        if name in PLAIN:
            return TypeMapping(PLAIN[name], name, None, _bytes if name == "bytes" else None)
        if name == "null":
            return TypeMapping(T.NullType(), name)
        full = name if "." in name or not space else f"{space}.{name}"
        full = full if full in self.named else name
        known = self.named.get(full)
        if known is None:
            if self.is_writer and full in self.named:
                return TypeMapping(T.NullType(), full)
            raise SchemaError(
                f"{name!r} is recursive, which no table can hold" if full in self.named else f"no type {name!r}"
            )
        return known._replace(avro=full)

    def _register(self, schema: dict[str, Any], part: TypeMapping, space: str) -> TypeMapping:
        self.named[_full_name(schema, space)] = part
        return part

    def _record(self, schema: dict[str, Any], depth: int, space: str) -> TypeMapping:
        full = _full_name(schema, space)
        inner = full.rpartition(".")[0]
        self.named[full] = None  # marks a recursive use until it is known
        parts = [(entry, self.part(entry["type"], depth + 1, inner)) for entry in schema["fields"]]
        spark = T.StructType([T.StructField(entry["name"], part.spark) for entry, part in parts])
        fields = [self._field(entry, part) for entry, part in parts]
        converts = {entry["name"]: convert for entry, convert in fields if convert}
        avro = {**schema, "fields": [entry for entry, _ in fields]}
        convert = _in_record(converts) if converts else None
        return self._register(schema, TypeMapping(spark, avro, convert, _default_record(parts)), space)

    def _field(self, entry: dict[str, Any], part: TypeMapping) -> tuple[dict[str, Any], Convert | None]:
        """The field as decoded, and the conversion of its value."""
        field = {**entry, "type": part.avro}
        if entry.get("default") is None:
            return field, part.convert
        try:
            made = part.make_default(entry["default"])
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            if self.is_writer:
                return field, part.convert
            raise SchemaError(f"the default of {entry['name']!r} does not fit its type: {_error_text(error)}") from None
        if part.convert is None and made == entry["default"]:
            return field, None
        return {**field, DEFAULT_VALUE: Default(made)}, _unless_default(part.convert)

    def _array(self, schema: dict[str, Any], depth: int, space: str) -> TypeMapping:
        items = self.part(schema["items"], depth + 1, space)
        _reject_empty_items(items)
        convert = items.convert
        each = (
            None if convert is None else lambda values: [None if value is None else convert(value) for value in values]
        )
        default = lambda values: [items.make_default(value) for value in values]  # noqa: E731
        return TypeMapping(T.ArrayType(items.spark), {**schema, "items": items.avro}, each, default)

    def _map(self, schema: dict[str, Any], depth: int, space: str) -> TypeMapping:
        values = self.part(schema["values"], depth + 1, space)
        convert = values.convert or _same
        pairs = lambda found: [(key, None if value is None else convert(value)) for key, value in found.items()]  # noqa: E731
        default = lambda found: [(key, values.make_default(value)) for key, value in found.items()]  # noqa: E731
        return TypeMapping(T.MapType(T.StringType(), values.spark), {**schema, "values": values.avro}, pairs, default)

    def _union(self, schema: list[Any], depth: int, space: str) -> TypeMapping:
        parts = [self.part(entry, depth + 1, space) for entry in schema]
        real = [part for part in parts if not isinstance(part.spark, T.NullType)]
        if len(real) != 1 and not self.is_writer:
            raise SchemaError("a union of several types cannot be a column; give the reader's schema one type or null")
        convert, default = (real[0].convert, real[0].default) if len(real) == 1 else (None, None)
        keep_null = None if convert is None else lambda value: None if value is None else convert(value)
        return TypeMapping(real[0].spark if real else T.NullType(), [part.avro for part in parts], keep_null, default)


def _logical(schema: dict[str, Any], kind: str, logical: str | None) -> TypeMapping:
    if logical == "decimal" and kind == "bytes":
        return _decimal(schema)
    if logical == "date" and kind == "int":
        return TypeMapping(T.DateType(), "int", _date)
    if logical is None or logical not in TIME_LOGICAL_TYPES.get(kind, ()):
        return TypeMapping(PLAIN[kind], kind, None, _bytes if kind == "bytes" else None)
    name, _, unit = logical.rpartition("-")
    per_second = PER_SECOND[unit]
    avro = {"type": kind, "logicalType": UNIT_LOGICAL_TYPE, "per-second": per_second}
    if name == "time":
        return TypeMapping(PLAIN[kind], avro)
    spark = T.TimestampNTZType() if name.startswith("local-") else T.TimestampType()
    return TypeMapping(spark, avro, lambda value: timestamp_micros(value * 1_000_000 // per_second))


def _convert_time_unit(value: Any, writer: Any, reader: Any) -> Any:
    """Avro itself would read milliseconds as microseconds if the reader's schema says so."""
    wanted = reader.get("per-second") if isinstance(reader, dict) else None
    return value if wanted is None else value * wanted // writer["per-second"]


def _decimal(schema: dict[str, Any]) -> TypeMapping:
    precision, scale = int(schema.get("precision", 0)), int(schema.get("scale", 0))
    if not 1 <= precision <= 38 or scale > precision:
        raise SchemaError(f"decimal({precision},{scale}): at most 38 digits, and no more after the decimal point")
    return TypeMapping(
        T.DecimalType(precision, scale),
        schema,
        lambda value: _fitting_decimal(value, precision),
        lambda text: _fitting_decimal(Decimal(f"{int.from_bytes(_bytes(text), signed=True)}e-{scale}"), precision),
    )


def _fitting_decimal(value: Decimal, precision: int) -> Decimal:
    if len(value.as_tuple().digits) > precision:
        raise DecodeError(f"decimal {value} has more than {precision} digits")
    return value


def _date(days: int) -> int:
    timestamp_micros(days * 86_400_000_000)
    return days


def _reject_empty_items(items: TypeMapping) -> None:
    """An array of zero-byte values may claim any length: reading it would not end."""
    is_empty = isinstance(items.spark, T.StructType) and not items.spark.fields
    if (
        isinstance(items.spark, T.NullType)
        or is_empty
        or (isinstance(items.avro, dict) and items.avro.get("size") == 0)
    ):
        raise SchemaError("an array of empty values cannot be read safely")


def _in_record(converts: dict[str, Convert]) -> Convert:
    def convert_fields(record: Any) -> Any:
        for name, convert in converts.items():
            if record[name] is not None:
                record[name] = convert(record[name])
        return record

    return convert_fields


def _default_record(parts: Sequence[tuple[dict[str, Any], TypeMapping]]) -> Convert:
    def make(values: dict[str, Any]) -> Any:
        return {
            entry["name"]: part.make_default(values[entry["name"]] if entry["name"] in values else entry["default"])
            for entry, part in parts
        }

    return make


def _unless_default(convert: Convert | None) -> Convert:
    convert = convert or _same
    return lambda value: value.made if type(value) is Default else convert(value)


def _bytes(text: str) -> bytes:
    """Avro writes a default of bytes as text, one character per byte."""
    return text.encode("latin-1")


def _without_logical_type(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "logicalType"}


def _full_name(schema: dict[str, Any], space: str) -> str:
    name = str(schema["name"])
    space = schema.get("namespace") or space
    return name if "." in name or not space else f"{space}.{name}"


def _same(value: Any) -> Any:
    return value


def _error_text(error: BaseException) -> str:
    return (
        str(error).splitlines()[0]
        if str(error)
        else "it ends too early"
        if isinstance(error, EOFError)
        else type(error).__name__
    )
