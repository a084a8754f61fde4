"""Protocol Buffers, decoded with Google's runtime. The schema is a .proto file, compiled when the pipeline starts, or a
descriptor set (`protoc --include_imports --descriptor_set_out`).

Enums become their names, google.protobuf.Timestamp a timestamp, the wrappers (StringValue, …) nullable values. A field
with presence (a message, `optional`, a oneof) is null if unset; others have their default. Recursive messages have no
table type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.operations import protoc
from ottla.operations.schema_registry.errors import SchemaError as NoNameError
from ottla.operations.schema_registry.formats.protobuf import Messages
from ottla.operations.schema_registry.framing import SchemaName, read_indexes, read_name
from ottla.pipelines.steps.parsing.reader import DecodeError, Row, timestamp_micros
from ottla.pipelines.steps.parsing.schema_lookup import RegistryLookup
from ottla.pipelines.steps.parsing.schemas import FILE_BYTES_MAX, SchemaError

WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("String", "Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "Bytes")
}
TIMESTAMP = "google.protobuf.Timestamp"
# by type number in descriptor.proto
SCALARS: dict[int, T.DataType] = {
    1: T.DoubleType(), 2: T.FloatType(), 8: T.BooleanType(), 9: T.StringType(), 12: T.BinaryType(), 14: T.StringType(),
    3: T.LongType(), 16: T.LongType(), 18: T.LongType(), 4: T.DecimalType(20, 0), 6: T.DecimalType(20, 0),
    5: T.IntegerType(), 15: T.IntegerType(), 17: T.IntegerType(), 7: T.LongType(), 13: T.LongType(),
}  # fmt: skip
MESSAGE, GROUP, ENUM = 11, 10, 14
UNSIGNED = (4, 6)

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class ProtobufDecoder:
    descriptors: bytes
    message: str
    encoding: Literal["raw", "confluent"]
    is_strict: bool = False
    lookup: RegistryLookup | None = None  # without one, the message path is not checked

    def decode(self, value: bytes) -> Row:
        from google.protobuf.message import DecodeError as WrongBytes  # # noqa: PLC0415 (runs on executors)

        message = self._class()
        try:
            message.ParseFromString(self._unframed(value) if self.encoding == "confluent" else value)
        except (WrongBytes, RecursionError, ValueError) as error:
            raise DecodeError(f"not a {self.message}: {error}") from None
        if self.is_strict:
            _refuse_unknown(message)
        return self._convert(message)  # type: ignore[no-any-return]

    def _unframed(self, value: bytes) -> bytes:
        try:
            name, start = read_name(value)
            path, length = read_indexes(value[start:])
        except NoNameError:
            words = "does not begin with a zero byte, a schema id and a path to the message"
            raise DecodeError(words) from None
        if self.lookup is not None:
            written = self._messages.get((name, path)) or self._messages.setdefault(
                (name, path), self._message_name(self.lookup, name, path)
            )
            wanted = self._class.DESCRIPTOR.full_name
            if written != wanted:
                raise DecodeError(f"is a {written}, not a {wanted}")
        return value[start + length :]

    def _message_name(self, lookup: RegistryLookup, name: SchemaName, path: tuple[int, ...]) -> str:
        """The message type of a record, from the writer's schema."""
        found = lookup.schema(name)
        if found is None:
            raise DecodeError(f"unknown schema id {name}")
        try:
            return str(Messages(found).message_class(path).DESCRIPTOR.full_name)
        except NoNameError as problem:
            raise DecodeError(f"schema {name}: {problem}") from None

    @cached_property
    def _messages(self) -> dict[tuple[SchemaName, tuple[int, ...]], str]:
        return {}

    @cached_property
    def _class(self) -> Any:
        from google.protobuf import message_factory  # noqa: PLC0415

        return message_factory.GetMessageClass(find_message(self.descriptors, self.message))

    @cached_property
    def _convert(self) -> Convert:
        return _message_converter(self._class.DESCRIPTOR)

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("descriptors", "message", "encoding", "is_strict", "lookup")}


def read_descriptors(path: Path) -> bytes:
    """The descriptor set of a .proto file or a descriptor file. Raises SchemaError."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SchemaError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB")
        return compile_proto(path) if path.suffix == ".proto" else path.read_bytes()
    except OSError as problem:
        raise SchemaError(f"cannot read {path}: {problem.strerror}") from None


def compile_proto(path: Path) -> bytes:
    """Raises SchemaError."""
    try:
        return protoc.compile_proto(path)
    except protoc.ProtocError as problem:
        raise SchemaError(str(problem)) from None


def find_message(descriptors: bytes, name: str) -> Any:
    """The message by full name, or by its last part if unambiguous. Raises SchemaError."""
    from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415
    from google.protobuf.message import DecodeError as WrongBytes  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        for file in files.file:
            pool.Add(file)
        known = [f"{file.package}.{each}".lstrip(".") for file in files.file for each in _names(file.message_type)]
        matching = [each for each in known if each == name] or [each for each in known if each.endswith(f".{name}")]
        if len(matching) != 1:
            own = [each for each in known if not each.startswith("google.protobuf.")]
            raise SchemaError(f"there is no message {name!r}; there are {', '.join(own[:20])}")
        return pool.FindMessageTypeByName(matching[0])
    except (WrongBytes, TypeError, KeyError) as error:
        raise SchemaError(f"not a descriptor set: {error}") from None


def spark_schema(descriptor: Any) -> T.StructType:
    """Raises SchemaError."""
    return _struct(descriptor, ())


def _names(messages: Any) -> list[str]:
    return [
        name
        for each in messages
        for name in (each.name, *(f"{each.name}.{inner}" for inner in _names(each.nested_type)))
    ]


def _struct(descriptor: Any, above: tuple[str, ...]) -> T.StructType:
    if descriptor.full_name in above:
        raise SchemaError(f"{descriptor.full_name} is recursive, which no table can hold")
    here = (*above, descriptor.full_name)
    return T.StructType([T.StructField(field.name, _field_type(field, here)) for field in descriptor.fields])


def _field_type(field: Any, above: tuple[str, ...]) -> T.DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return T.MapType(_single_type(key, above), _single_type(value, above))
    single = _single_type(field, above)
    return T.ArrayType(single) if field.is_repeated else single


def _single_type(field: Any, above: tuple[str, ...]) -> T.DataType:
    if field.type not in (MESSAGE, GROUP):
        return SCALARS[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return T.TimestampType()
    if field.message_type.full_name in WRAPPERS:
        return SCALARS[field.message_type.fields_by_name["value"].type]
    return _struct(field.message_type, above)


def _message_converter(descriptor: Any) -> Convert:
    parts = [(field.name, field.has_presence, _field_converter(field)) for field in descriptor.fields]

    def convert(message: Any) -> Row:
        return {
            name: None if has_presence and not message.HasField(name) else make(getattr(message, name))
            for name, has_presence, make in parts
        }

    return convert


def _field_converter(field: Any) -> Convert:
    if _is_map(field):
        make_value = _single_converter(field.message_type.fields_by_name["value"])
        make_key = _single_converter(field.message_type.fields_by_name["key"])
        return lambda entries: [(make_key(key), make_value(entries[key])) for key in entries]
    make = _single_converter(field)
    return (lambda values: [make(value) for value in values]) if field.is_repeated else make


def _single_converter(field: Any) -> Convert:
    if field.type == ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if field.type in UNSIGNED:
        from decimal import Decimal  # noqa: PLC0415

        return Decimal
    if field.type not in (MESSAGE, GROUP):
        return _same
    if field.message_type.full_name == TIMESTAMP:
        return lambda moment: timestamp_micros(moment.seconds * 1_000_000 + moment.nanos // 1_000)
    if field.message_type.full_name in WRAPPERS:
        make = _single_converter(field.message_type.fields_by_name["value"])
        return lambda wrapper: make(wrapper.value)
    return _message_converter(field.message_type)


def _is_map(field: Any) -> bool:
    return bool(field.type == MESSAGE and field.message_type.GetOptions().map_entry)


def _refuse_unknown(message: Any) -> None:
    from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: PLC0415

    unknown = UnknownFieldSet(message)
    if len(unknown):
        raise DecodeError(f"unknown field with number {unknown[0].field_number}")


def _same(value: Any) -> Any:
    return value
