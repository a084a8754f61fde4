"""Parses and compiles schemas, with caches: small schemas on the event loop, others in threads.

A schema longer than INLINE_CHARACTERS_MAX never blocks the event loop.
Protobuf schemas are compiled for clients that request them (`format=serialized`) by protoc in a child process, a few at
a time. protoc sees a folder with the schema and its references, and the well-known types, nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from ottla.operations.protoc import ProtocError, compile_proto
from ottla.registry.errors import RegistryError
from ottla.registry.formats import InvalidSchemaError, ParsedSchema, parse
from ottla.registry.formats.protobuf.descriptors import restore_source_form
from ottla.registry.formats.protobuf.schema import read
from ottla.registry.formats.schema_format import nodes_budget

INLINE_CHARACTERS_MAX: Final = 2_000
INLINE_KINDS: Final = ("AVRO", "JSON")  # Protobuf is too slow
CACHE_CHARACTERS_MAX: Final = 600_000  # a parsed schema takes twenty times as much memory
THREADS: Final = 4

T = TypeVar("T")
Source = tuple[str, str, tuple[tuple[str, str], ...]]


class SchemaParser:
    """A cache of parsed schemas."""

    def __init__(self) -> None:
        self.cached: OrderedDict[Source, ParsedSchema] = OrderedDict()
        self.cached_characters = 0
        self.validated: set[Source] = set()  # entries that passed the checks for new schemas
        self.threads = ThreadPoolExecutor(THREADS, "registry-schemas")

    def __repr__(self) -> str:
        return f"<SchemaParser {len(self.cached)} cached>"

    async def parse(self, kind: str, text: str, references: Mapping[str, str], *, is_new: bool = False) -> ParsedSchema:
        """Raises InvalidSchemaError. New schemas are checked more strictly."""
        source = (kind, text, tuple(references.items()))
        found = self.cached.get(source)
        if found is not None and (not is_new or source in self.validated):
            self.cached.move_to_end(source)
            return found
        length = _length(source)

        def read() -> ParsedSchema:
            found = parse(kind, text, references, is_new=is_new)
            _ = found.text  # printing is also done in the thread
            return found

        if length <= INLINE_CHARACTERS_MAX and kind in INLINE_KINDS:
            found = read()
        else:
            found = await self.in_thread(read)
        self._keep(source, found, length)
        if is_new and source in self.cached:
            self.validated.add(source)
        return found

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def _keep(self, source: Source, parsed: ParsedSchema, length: int) -> None:
        if source in self.cached or length > CACHE_CHARACTERS_MAX:
            return
        self.cached[source] = parsed
        self.cached_characters += length
        while self.cached_characters > CACHE_CHARACTERS_MAX:
            oldest, _ = self.cached.popitem(last=False)
            self.validated.discard(oldest)
            self.cached_characters -= _length(oldest)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


def _length(source: Source) -> int:
    kind, text, references = source
    return len(kind) + len(text) + sum(len(name) + len(item) for name, item in references)


__all__ = ["InvalidSchemaError", "SchemaParser"]


# ---- compiled Protobuf schemas
NAME: Final = "schema.proto"
COMPILATIONS_MAX: Final = 2
CACHED_MAX: Final = 200


class Descriptors:
    """A cache of compiled schemas."""

    def __init__(self, parser: SchemaParser) -> None:
        self.parser = parser
        self.cached: OrderedDict[tuple[str, tuple[tuple[str, str], ...]], str] = OrderedDict()
        self.slots = asyncio.Semaphore(COMPILATIONS_MAX)

    def __repr__(self) -> str:
        return f"<Descriptors {len(self.cached)} cached>"

    async def serialized(self, text: str, references: Mapping[str, str]) -> str:
        """The FileDescriptorProto in base64. Raises RegistryError."""
        source = (text, tuple(references.items()))
        async with self.slots:
            found = self.cached.get(source)
            if found is None:
                try:
                    found = await self._compiled(text, references)
                except (ProtocError, OSError) as problem:
                    raise RegistryError(500, f"The schema cannot be compiled: {problem}") from None
                self.cached[source] = found
                if len(self.cached) > CACHED_MAX:
                    self.cached.popitem(last=False)
        return found

    async def _compiled(self, text: str, references: Mapping[str, str]) -> str:
        try:
            return await self.parser.in_thread(lambda: _compile(text, references))
        except ProtocError:
            # Maps of a schema that was registered compiled are stored as messages; protoc accepts only the normalized
            # form.
            parsed = await self.parser.parse("PROTOBUF", text, references)
            return await self.parser.in_thread(lambda: _compile(parsed.normalized(), references))


def _compile(text: str, references: Mapping[str, str]) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 (only who has Protobuf pays for it)

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in {**references, NAME: text}.items():
            if not is_inside(name):
                raise ProtocError(f"{name} is not a file name that can be imported")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
        files = FileDescriptorSet.FromString(compile_proto(root / NAME)).file
        own = next(item for item in files if item.name == NAME)
        restore_source_form(own, read(text, nodes_budget()))
        return base64.b64encode(own.SerializeToString()).decode()


def is_inside(name: str) -> bool:
    """Whether a file name stays within its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name
