"""Schemas as the formats read them: small ones at once, others in a thread, and the last ones are remembered.

Nobody waits for somebody else's long schema: the loop never reads one of more than INLINE_CHARACTERS_MAX itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from ottla.registry.formats import InvalidSchemaError, Parsed, parse

INLINE_CHARACTERS_MAX: Final = 2_000
INLINE_KINDS: Final = ("AVRO", "JSON")  # protoc is a compiler
CACHE_CHARACTERS_MAX: Final = 600_000  # parsed, a schema takes twenty times as much
THREADS: Final = 4

T = TypeVar("T")
Source = tuple[str, str, tuple[tuple[str, str], ...]]


class SchemaParser:
    """Reads schemas; `cached` are those that were read last."""

    def __init__(self) -> None:
        self.cached: OrderedDict[Source, Parsed] = OrderedDict()
        self.cached_characters = 0
        self.good: set[Source] = set()  # those of them that were good enough for a new version
        self.threads = ThreadPoolExecutor(THREADS, "registry-schemas")

    def __repr__(self) -> str:
        return f"<SchemaParser {len(self.cached)} cached>"

    async def parse(self, kind: str, text: str, references: Mapping[str, str], *, is_new: bool = False) -> Parsed:
        """Raises InvalidSchemaError. What is new is held to stricter rules."""
        source = (kind, text, tuple(references.items()))
        found = self.cached.get(source)
        if found is not None and (not is_new or source in self.good):
            self.cached.move_to_end(source)
            return found
        length = _length(source)

        def read() -> Parsed:
            found = parse(kind, text, references, is_new=is_new)
            _ = found.text  # printed where it was read
            return found

        if length <= INLINE_CHARACTERS_MAX and kind in INLINE_KINDS:
            found = read()
        else:
            found = await self.in_thread(read)
        self._keep(source, found, length)
        if is_new and source in self.cached:
            self.good.add(source)
        return found

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def _keep(self, source: Source, parsed: Parsed, length: int) -> None:
        if source in self.cached or length > CACHE_CHARACTERS_MAX:
            return
        self.cached[source] = parsed
        self.cached_characters += length
        while self.cached_characters > CACHE_CHARACTERS_MAX:
            oldest, _ = self.cached.popitem(last=False)
            self.good.discard(oldest)
            self.cached_characters -= _length(oldest)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


def _length(source: Source) -> int:
    kind, text, references = source
    return len(kind) + len(text) + sum(len(name) + len(item) for name, item in references)


__all__ = ["InvalidSchemaError", "SchemaParser"]
