"""Protocol Buffers behind a schema's number: which message of the schema it is, then the message, decoded by Google's
runtime. The schema comes as text and is compiled once.

    indexes: 0 for the first message of the file, else how many numbers follow and the numbers, as zigzag varints: a
    path from the file into its messages
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ottla.base.errors import KafkaError
from ottla.operations.messages.decoding import SchemaError
from ottla.operations.protoc import ProtocError, compile_proto
from ottla.protocol.records import read_varint

MAIN = "ottla_schema.proto"
DEPTH_MAX = 32


def protobuf_decoder(schema: Any) -> Callable[[bytes], Any]:
    """Raises SchemaError for schemas of which nothing can be made."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory  # noqa: PLC0415
    except ImportError:
        raise SchemaError("Protobuf needs protobuf and grpcio-tools: pip install 'ottla[console]'") from None
    files = descriptor_pb2.FileDescriptorSet.FromString(_compiled(schema))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    top = pool.FindFileByName(MAIN)
    by_path: dict[tuple[int, ...], Any] = {}

    def decode(data: bytes) -> Any:
        path, start = _indexes(data)
        if path not in by_path:
            by_path[path] = message_factory.GetMessageClass(_message(top, files.file[-1], path))
        message = by_path[path]()
        message.ParseFromString(data[start:])
        return json.loads(json_format.MessageToJson(message, preserving_proto_field_name=True, descriptor_pool=pool))

    return decode


def _compiled(schema: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (*schema.references, (MAIN, schema.text)):
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts or "\0" in name:
                raise SchemaError(f"the schema refers to {name!r}, which is no name of a file")
            target = Path(folder, *place.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        try:
            return compile_proto(Path(folder, MAIN))
        except ProtocError as problem:
            raise SchemaError(str(problem)) from None


def _indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    try:
        count, position = read_varint(data, 0, 32)
        if count == 0:
            return (0,), position
        if not 0 < count <= DEPTH_MAX:
            raise SchemaError(f"a message cannot lie {count} deep in its schema")
        found = []
        for _ in range(count):
            index, position = read_varint(data, position, 32)
            found.append(index)
    except (KafkaError, IndexError):
        raise SchemaError("the bytes end before they say which message they are") from None
    return tuple(found), position


def _message(top: Any, file: Any, path: Sequence[int]) -> Any:
    """The descriptor at a path; the order in a file is that of its text."""
    try:
        names = file.message_type
        found = top.message_types_by_name[names[_index(path[0])].name]
        for index in path[1:]:
            found = found.nested_types[_index(index)]
    except (IndexError, KeyError):
        raise SchemaError(f"the schema has no message {'.'.join(map(str, path))}") from None
    return found


def _index(index: int) -> int:
    if index < 0:
        raise IndexError(index)
    return index
