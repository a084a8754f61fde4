"""Values decoded by a schema registry: with the options `registry` and `valueSubject`, the column `value` is a struct.

The reader's schema is fetched when Spark asks for the columns and stays fixed for the query; a newer version of the
subject applies to the next query. Writers' schemas are found by the ids in the records, once per process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.errors import SchemaError as ClientSchemaError
from ottla.operations.schema_registry.framing import schema_header
from ottla.operations.schema_registry.schemas import AVRO, PROTOBUF, TYPES
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.source.options import SPARK_TYPES, OptionError, Options

if TYPE_CHECKING:
    import pyarrow as pa

VALUE, HEADERS = "value", "headers"
FORMATS = {AVRO: "avro", PROTOBUF: "protobuf"}


@dataclass(frozen=True)
class Decoding:
    """Pickled to the tasks."""

    decoder: Any
    fields: T.StructType
    is_permissive: bool
    columns: tuple[str, ...]  # requested columns; headers are always read in addition

    def spark_schema(self) -> str:
        return ", ".join(
            f"`{name}` {ddl(self.fields) if name == VALUE else SPARK_TYPES[name]}" for name in self.columns
        )

    def source_options(self, options: Options) -> Options:
        """The source options for the columns that decoding needs."""
        return replace(options, columns=(*dict.fromkeys((*self.columns, HEADERS)),))

    def decode_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises SourceError for an unreadable record, unless the mode is permissive."""
        import pyarrow as pa  # noqa: PLC0415 (Arrow is needed in tasks only)
        from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

        wanted = to_arrow_type(self.fields, timezone="UTC")
        for batch in batches:
            headers = batch.column(HEADERS)
            names = headers.to_pylist() if len(headers.flatten()) else [None] * batch.num_rows
            rows = [self._row(value, each) for value, each in zip(batch.column(VALUE).to_pylist(), names, strict=True)]
            made = {name: pa.array(rows, wanted) if name == VALUE else batch.column(name) for name in self.columns}
            yield pa.RecordBatch.from_pydict(made)

    def _row(self, value: bytes | None, headers: list[dict[str, Any]] | None) -> Any:
        from ottla.pipelines.steps.parsing.reader import DecodeError  # noqa: PLC0415

        if value is None:
            return None
        prefix = schema_header(((each["key"], each["value"]) for each in headers or ()), is_key=False)
        if prefix is not None:
            value = prefix + value
        try:
            return self.decoder.decode(value)
        except DecodeError as problem:
            if self.is_permissive:
                return None
            raise SourceError(f"a value does not match its schema: {problem}") from None


def registry_decoding(options: Options) -> Decoding | None:
    """Query the registry. Return None if values stay bytes. Raises OptionError."""
    if options.registry is None or options.value_subject is None:
        return None
    from ottla.pipelines.steps.parse import Parse, choose_reader  # noqa: PLC0415
    from ottla.pipelines.steps.parsing.reader import BinaryReader  # noqa: PLC0415
    from ottla.pipelines.steps.parsing.schemas import SchemaError  # noqa: PLC0415

    subject = options.value_subject
    try:
        kind = RegistryClient(options.registry).version(subject).draft.kind
        if kind not in FORMATS:
            raise OptionError(f"valueSubject {subject}: {TYPES[kind]} is text: read it with from_json")
        spec = Parse(format=FORMATS[kind], encoding="confluent", subject=subject)  # type: ignore[arg-type]
        reader, _ = choose_reader(spec, ".", options.registry)
    except (ClientSchemaError, SchemaError) as problem:
        raise OptionError(f"valueSubject {subject}: {problem}") from None
    assert isinstance(reader, BinaryReader)
    return Decoding(reader.decoder, reader.schema, options.is_permissive, options.columns)


def ddl(kind: T.DataType) -> str:
    """A type in Spark's DDL, with quoted field names."""
    if isinstance(kind, T.StructType):
        quoted = ((each.name.replace("`", "``"), each.dataType) for each in kind.fields)
        return f"struct<{', '.join(f'`{name}`: {ddl(inner)}' for name, inner in quoted)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{ddl(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{ddl(kind.keyType)}, {ddl(kind.valueType)}>"
    return kind.simpleString()
