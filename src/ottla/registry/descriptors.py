"""Protobuf schemas as compiled files, which some clients ask for (`format=serialized`): by protoc, in a child process.

Rules:
1. protoc sees a folder of its own with the schema and what it refers to, and the well-known types; nothing else.
2. Few at a time, and the last ones are remembered: clients ask once for each id.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from ottla.operations.protoc import ProtocError, compile_proto
from ottla.registry.errors import RegistryError
from ottla.registry.parsing import SchemaParser

NAME: Final = "schema.proto"
AT_ONCE: Final = 2
CACHED_MAX: Final = 200


class Descriptors:
    """Compiles schemas."""

    def __init__(self, parser: SchemaParser) -> None:
        self.parser = parser
        self.cached: OrderedDict[tuple[str, tuple[tuple[str, str], ...]], str] = OrderedDict()
        self.places = asyncio.Semaphore(AT_ONCE)

    def __repr__(self) -> str:
        return f"<Descriptors {len(self.cached)} cached>"

    async def serialized(self, text: str, references: Mapping[str, str]) -> str:
        """The FileDescriptorProto in base64; raises RegistryError."""
        source = (text, tuple(references.items()))
        async with self.places:
            found = self.cached.get(source)
            if found is None:
                try:
                    found = await self.parser.in_thread(lambda: _compile(text, references))
                except (ProtocError, OSError) as problem:
                    raise RegistryError(500, f"The schema cannot be compiled: {problem}") from None
                self.cached[source] = found
                if len(self.cached) > CACHED_MAX:
                    self.cached.popitem(last=False)
        return found


def _compile(text: str, references: Mapping[str, str]) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 (only who has Protobuf pays for it)

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in {**references, NAME: text}.items():
            if not is_inside(name):
                raise ProtocError(f"{name} is no name of a file that can be imported")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
        files = FileDescriptorSet.FromString(compile_proto(root / NAME)).file
        own = next(item for item in files if item.name == NAME)
        return base64.b64encode(own.SerializeToString()).decode()


def is_inside(name: str) -> bool:
    """Whether a name of a file leads to a place below its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name
