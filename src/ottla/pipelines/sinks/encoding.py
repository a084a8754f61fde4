"""From rows to records: the columns `key` and `value` (and `headers`, `topic`, `timestamp`) of a topic.

JSON contains every column, null or not; timestamps are ISO 8601 in UTC, binary is base64. JSON has no NaN and no
infinity:
they become null, as in JavaScript, so a reader of a number finds a number or null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ottla.operations.schema_registry.formats.avro import inline_references
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.row_encoders import AvroEncoder, ProtobufEncoder, RowEncoder, checked_json
from ottla.pipelines.sinks.subjects import Subject

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

Format = Literal["json", "csv", "text", "avro", "protobuf", "raw"]

TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
TIME_OPTIONS = {"timestampFormat": TIMESTAMP, "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "timeZone": "UTC"}
JSON_OPTIONS = {**TIME_OPTIONS, "ignoreNullFields": "false"}
# As in RFC 4180 and `parse`: Spark's defaults write \" for a quote and trim blanks around text.
CSV_TEXT_OPTIONS = {"escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
# For rows that are records already. Topic and partition are excluded: in a record that was read they name its source.
RAW_RECORD_COLUMNS = ("key", "headers", "timestamp")
RECORD_TYPES = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "bigint",
    "timestamp": "timestamp",
}


@dataclass(frozen=True)
class Encoding:
    """How a row becomes a record. By default, rows with a column `value` are taken as records.

    `format`: json, csv, text (one column), avro (with `schema`, a file), raw (the columns exist). None: raw or json.
    `key`: columns of the key: a single one as text (binary unchanged), several as a JSON object.
    `columns`: columns of the value (all except `topic_column` and `partition`).
    `subject`: json, avro and protobuf with a schema of a registry, whose id precedes the data.
    """

    format: Format | None = None
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    topic_column: str | None = None
    partition: str | None = None
    time: str | None = None
    schema: str | None = None
    subject: Subject | None = None

    def apply(self, rows: DataFrame) -> DataFrame:
        """Raises SinkError for missing columns."""
        form = self.format or ("raw" if "value" in rows.columns and not self.columns else "json")
        self._check(rows)
        if form in ("avro", "protobuf"):
            return self._encode_in_python(rows, form)
        value = self._raw(rows) if form == "raw" else self._value(rows, form)
        return rows.select(*self._record_columns(rows, form), value.alias("value"))

    def value_columns(self, rows: DataFrame) -> list[str]:
        return list(self.columns) or [name for name in rows.columns if name not in (self.topic_column, self.partition)]

    def _check(self, rows: DataFrame) -> None:
        named = (*self.key, *self.columns, *self.headers, *filter(None, (self.topic_column, self.partition, self.time)))
        missing = [name for name in named if name not in rows.columns]
        if missing:
            raise SinkError(f"there is no column {missing[0]!r} to write; there are: {', '.join(rows.columns)}")

    def _value(self, rows: DataFrame, form: str) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

        names = self.value_columns(rows)
        types = {field.name: field.dataType for field in rows.schema.fields}
        if form == "text":
            name = _single_column(names)
            return as_bytes(_column(name), types[name])
        if form == "csv":
            plain = [csv_column(name, types[name]) for name in names]
            line = F.to_csv(F.struct(*plain), {**TIME_OPTIONS, **CSV_TEXT_OPTIONS})
            return line if len(names) > 1 else F.when(_column(names[0]).isNull(), F.lit("")).otherwise(line)
        text = F.to_json(F.struct(*(json_column(name, types[name]) for name in names)), JSON_OPTIONS)
        if self.subject is None:
            return text
        prefix, schema = self.subject.resolve_schema(rows.select(*map(_column, names)).schema)
        return checked_json(prefix, schema)(text)

    def _raw(self, rows: DataFrame) -> Column:
        if "value" not in rows.columns:
            raise SinkError(f"format raw needs a column 'value'; there are: {', '.join(rows.columns)}")
        return _column("value")

    def _record_columns(self, rows: DataFrame, form: str) -> list[Column]:
        """All columns of the record except its value."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        types = {field.name: field.dataType for field in rows.schema.fields}
        made: dict[str, Column] = {}
        if form == "raw":
            made = {name: _column(name) for name in RAW_RECORD_COLUMNS if name in rows.columns}
        if self.key:
            made["key"] = key_column(rows, self.key)
        if self.headers:
            made["headers"] = F.array(*(header(name, types[name]) for name in self.headers))
        if self.topic_column:
            made["topic"] = _column(self.topic_column).cast("string")
        if self.partition:
            made["partition"] = partition_number(self.partition)
        if self.time:
            made["timestamp"] = _column(self.time).cast("timestamp")
        return [column.alias(name) for name, column in made.items()]

    def _encode_in_python(self, rows: DataFrame, form: str) -> DataFrame:
        """Encode with a Python encoder over Arrow."""
        around = self._record_columns(rows, form)
        names = [name for name in RECORD_TYPES if name in rows.select(*around).columns] if around else []
        inside = [_column(name).alias(f"_{number}") for number, name in enumerate(self.value_columns(rows))]
        schema = ", ".join(f"`{name}` {RECORD_TYPES[name]}" for name in [*names, "value"])
        selected = [
            column.cast(RECORD_TYPES[name]).alias(name) for column, name in _pair_with_names(rows, around, names)
        ]
        encode = BatchEncoder(self._encoder(rows, form), tuple(self.value_columns(rows)), tuple(names))
        return rows.select(*selected, *inside).mapInArrow(encode, schema)

    def _encoder(self, rows: DataFrame, form: str) -> RowEncoder:
        if self.subject is None:
            if self.schema is None or form != "avro":
                raise SinkError(f"format {form} needs the file of a schema, or a subject")
            return AvroEncoder(Path(self.schema).read_text())
        prefix, schema = self.subject.resolve_schema(rows.select(*map(_column, self.value_columns(rows))).schema)
        if form == "protobuf":
            return ProtobufEncoder(schema, prefix, self.subject.message)
        return AvroEncoder(inline_references(schema), prefix)


@dataclass(frozen=True)
class BatchEncoder:
    """Runs in Spark's workers: columns `_0`, `_1`, … are the fields; other columns pass unchanged."""

    encoder: RowEncoder
    fields: tuple[str, ...]
    passthrough: tuple[str, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415

        encode = self.encoder.prepare()
        for batch in batches:
            columns = [
                batch.column(f"_{number}").to_pylist(maps_as_pydicts="strict") for number in range(len(self.fields))
            ]
            values = [encode(dict(zip(self.fields, row, strict=True))) for row in zip(*columns, strict=True)]
            passing = {name: batch.column(name) for name in self.passthrough}
            yield pa.RecordBatch.from_pydict({**passing, "value": pa.array(values, pa.binary())})


def key_column(rows: DataFrame, names: tuple[str, ...]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    types = {field.name: field.dataType for field in rows.schema.fields}
    if len(names) == 1:
        return as_bytes(_column(names[0]), types[names[0]])
    return F.to_json(F.struct(*(json_column(name, types[name]) for name in names)), JSON_OPTIONS)


def null_non_finite(column: Column, kind: DataType) -> Column:
    """The value with null for NaN and infinity, at any depth."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType  # noqa: PLC0415

    if not _has_floats(kind):
        return column
    if isinstance(kind, FloatType | DoubleType):
        return F.when(~F.isnan(column) & (F.abs(column) != float("inf")), column)
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda each: null_non_finite(each, kind.elementType))
    if isinstance(kind, MapType):
        return F.transform_values(column, lambda _, each: null_non_finite(each, kind.valueType))
    assert isinstance(kind, StructType)
    inside = [null_non_finite(column.getField(each.name), each.dataType).alias(each.name) for each in kind.fields]
    return F.when(column.isNotNull(), F.struct(*inside))


def partition_number(name: str) -> Column:
    """Whether the partition exists is checked when rows are sent; text that is not a number fails here."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    column = _column(name)
    number, text = column.try_cast("bigint"), column.cast("string")
    words = F.concat(F.lit(f"column {name}: '"), text, F.lit("' is not a partition number: correct it"))
    return F.when(column.isNotNull() & number.isNull(), F.raise_error(words)).otherwise(number)


def header(name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.struct(F.lit(name).alias("key"), as_bytes(_column(name), kind).alias("value"))


def as_bytes(column: Column, kind: DataType) -> Column:
    """The text form as in a JSON value, without quotes, in UTF-8; binary is unchanged."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    name = kind.typeName()
    if name == "binary":
        return column
    if name == "timestamp":
        text = F.when(column.isNotNull(), F.to_csv(F.struct(column), TIME_OPTIONS))
    elif name in ("struct", "array", "map"):
        text = F.to_json(null_non_finite(column, kind), JSON_OPTIONS)
    else:
        text = column.cast("string")
    return text.cast("binary")


def json_column(name: str, kind: DataType) -> Column:
    """JSON has no NaN: Spark would write text where a number is expected."""
    return null_non_finite(_column(name), kind).alias(name)


def csv_column(name: str, kind: DataType) -> Column:
    """CSV has no nesting: nested values become JSON text, binary becomes base64."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    column = _column(name)
    if kind.typeName() in ("struct", "array", "map"):
        return F.to_json(null_non_finite(column, kind), JSON_OPTIONS).alias(name)
    return F.base64(column).alias(name) if kind.typeName() == "binary" else column.alias(name)


def _single_column(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    if "value" in names:
        return "value"
    raise SinkError(f"format text takes one column; choose one of {', '.join(names)} with `columns`")


def _has_floats(kind: DataType) -> bool:
    text = kind.simpleString()
    return "double" in text or "float" in text


def _column(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.col("`" + name.replace("`", "``") + "`")


def _pair_with_names(rows: DataFrame, columns: list[Column], names: list[str]) -> Iterator[tuple[Column, str]]:
    order = rows.select(*columns).columns if columns else []
    by_name = dict(zip(order, columns, strict=True))
    for name in names:
        yield by_name[name], name
