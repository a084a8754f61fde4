"""Protobuf with Google's runtime: the message index, then the message.

The schema is text and compiled once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

from ottla.operations.protoc import ProtocError, compile_proto
from ottla.operations.schema_registry.decoders import Decode, Encode
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.framing import FIRST_MESSAGE, read_indexes, write_indexes
from ottla.operations.schema_registry.schemas import Schema

MAIN = "ottla_schema.proto"
# A registry writes the maps of a schema that was registered compiled, as Python's clients do, as messages with the
# option map_entry. protoc rejects that option in text, so an unused option marks these messages.
MAP_ENTRY = "option map_entry = true;"
MARKED = "option no_standard_descriptor_accessor = true;"


class Messages:
    """The messages of one schema."""

    def __init__(self, schema: Schema) -> None:
        """Raises SchemaError for an unusable schema."""
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415
        except ImportError:
            raise SchemaError("Protobuf needs protobuf and grpcio-tools: pip install 'ottla[registry]'") from None
        self.descriptors = compiled(schema)
        files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptors)
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)
        self.file = files.file[-1]
        self.top = self.pool.FindFileByName(MAIN)
        self._classes: dict[tuple[int, ...], Any] = {}

    def decoder(self, *, own_names: bool = True, with_defaults: bool = False) -> Decode:
        from google.protobuf import json_format  # noqa: PLC0415

        def decode(data: bytes) -> Any:
            path, start = read_indexes(data)
            message = self.message_class(path)()
            message.ParseFromString(data[start:])
            text = json_format.MessageToJson(
                message,
                preserving_proto_field_name=own_names,
                always_print_fields_with_no_presence=with_defaults,
                descriptor_pool=self.pool,
            )
            return json.loads(text)

        return decode

    def encoder(self, name: str | None = None) -> Encode:
        """Raises SchemaError if the message does not exist."""
        from google.protobuf import json_format  # noqa: PLC0415

        made, prefix = self.message_class_by_name(name), write_indexes(self._path_of(name))

        def encode(document: Any) -> bytes:
            message = made()
            try:
                json_format.ParseDict(_floats(document), message, descriptor_pool=self.pool)
                return prefix + bytes(message.SerializeToString())
            except (json_format.ParseError, ValueError, TypeError, RecursionError) as problem:
                raise SchemaError(f"not a {message.DESCRIPTOR.full_name}: {problem!s:.200}") from None
            except Exception as problem:
                if type(problem).__name__ != "EncodeError":  # a required field (proto2) is missing
                    raise
                raise SchemaError(f"not a {message.DESCRIPTOR.full_name}: {problem!s:.200}") from None

        return encode

    def message_class_by_name(self, name: str | None) -> Any:
        """The class of the named message, or of the first one. Raises SchemaError."""
        return self.message_class(self._path_of(name))

    def message_class(self, path: Sequence[int]) -> Any:
        """The class of the message at an index path; indexes follow the order in the file. Raises SchemaError."""
        key = tuple(path)
        if key not in self._classes:
            from google.protobuf import message_factory  # noqa: PLC0415

            self._classes[key] = message_factory.GetMessageClass(self._descriptor(key))
        return self._classes[key]

    def _path_of(self, name: str | None) -> tuple[int, ...]:
        return FIRST_MESSAGE if name is None else self.message_path(name)

    def message_path(self, name: str) -> tuple[int, ...]:
        """The index path of a message. Raises SchemaError."""
        package = f"{self.file.package}." if self.file.package else ""
        found = _find(self.file.message_type, name.removeprefix(package).split("."))
        if found is None:
            names = ", ".join(package + each.name for each in self.file.message_type)
            raise SchemaError(f"the schema has no message {name!r}; it has {names or 'none'}")
        return found

    def _descriptor(self, path: tuple[int, ...]) -> Any:
        try:
            if min(path) < 0:
                raise IndexError(path)
            found = self.top.message_types_by_name[self.file.message_type[path[0]].name]
            for index in path[1:]:
                found = found.nested_types[index]
        except (IndexError, KeyError):
            raise SchemaError(f"the schema has no message {'.'.join(map(str, path))}") from None
        return found


def compiled(schema: Schema) -> bytes:
    """The schema as a descriptor set, with its own file last. Raises SchemaError."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (*schema.references, (MAIN, schema.text)):
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts or "\0" in name:
                raise SchemaError(f"the schema refers to {name!r}, which is not a file name")
            target = Path(folder, *place.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.replace(MAP_ENTRY, MARKED), encoding="utf-8")
        try:
            descriptors = compile_proto(Path(folder, MAIN))
        except ProtocError as problem:
            raise SchemaError(str(problem)) from None
    texts = [schema.text, *(text for _, text in schema.references)]
    return with_maps(descriptors) if any(MAP_ENTRY in text for text in texts) else descriptors


def with_maps(descriptors: bytes) -> bytes:
    """Restore the option map_entry of marked messages."""
    from google.protobuf import descriptor_pb2  # noqa: PLC0415

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    waiting = [message for file in files.file for message in file.message_type]
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        if message.options.no_standard_descriptor_accessor:
            message.options.Clear()
            message.options.map_entry = True
    return bytes(files.SerializeToString())


def _find(messages: Any, names: list[str]) -> tuple[int, ...] | None:
    for index, message in enumerate(messages):
        if message.name == names[0]:
            inner = _find(message.nested_type, names[1:]) if len(names) > 1 else ()
            return None if inner is None else (index, *inner)
    return None


def _floats(document: Any) -> Any:
    """Convert Decimals, which Google's parser does not accept."""
    if isinstance(document, dict):
        return {name: _floats(item) for name, item in document.items()}
    if isinstance(document, list):
        return [_floats(item) for item in document]
    return float(document) if isinstance(document, Decimal) else document
