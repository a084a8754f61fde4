"""Who reads messages for pages: a few threads, each with a client of its own while it works.

Rules:
1. Searches have threads of their own: a page of messages never waits behind one. Who comes when all are busy is told.
2. A client that is done is kept for whoever asks next about the same cluster; what it has lost, it opens again.
3. The registry of a cluster is one object, so that everybody profits from the schemas that it knows.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from ottla.base.properties import read_properties
from ottla.client.client import Client
from ottla.console.api.errors import ApiError, Sentence
from ottla.console.clusters.cluster import Address
from ottla.operations.messages.decoding import Schemas
from ottla.operations.schema_registry.addresses import address_of
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.framing import SchemaName
from ottla.operations.schema_registry.registry import Registry

READS_MAX = 4  # at once
SEARCHES_MAX = 4
IDLE_CLIENTS_MAX = 4  # of a cluster
TIMEOUT_MS = 10_000

T = TypeVar("T")


class MessageWorkers:
    """Lives as long as the console."""

    def __init__(self, allows_private: bool = False) -> None:
        self.allows_private = allows_private  # registries of clusters that were added in a page may be anywhere
        self.readers = ThreadPoolExecutor(READS_MAX, thread_name_prefix="console-messages")
        self.searchers = ThreadPoolExecutor(SEARCHES_MAX, thread_name_prefix="console-search")
        self.searches = 0
        self._idle: defaultdict[Address, list[Client]] = defaultdict(list)
        self._registries: dict[Address, Schemas | None] = {}

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run something in a thread for reading."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, work, *arguments)

    async def batches(self, events: Iterator[T], take: Callable[[Iterator[T]], list[T]]) -> AsyncIterator[list[T]]:
        """What a search tells, in batches that `take` makes in the search's thread; ends with an empty one."""
        loop = asyncio.get_running_loop()
        while found := await loop.run_in_executor(self.searchers, take, events):
            yield found

    def check_free(self) -> None:
        """Raises ApiError if as many search already as may."""
        if self.searches >= SEARCHES_MAX:
            words = Sentence("{0} searches are running: stop one, or wait", SEARCHES_MAX)
            raise ApiError(429, "TOO_MANY", words, {"Retry-After": "2"})

    @contextmanager
    def place_for_search(self) -> Iterator[None]:
        self.check_free()
        self.searches += 1
        try:
            yield
        finally:
            self.searches -= 1

    @contextmanager
    def client(self, address: Address) -> Iterator[Client]:
        """A client for the time of a `with`, in one thread."""
        idle = self._idle[address]
        client = idle.pop() if idle else address.client(TIMEOUT_MS)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        if len(idle) < IDLE_CLIENTS_MAX:
            idle.append(client)
        else:
            client.close()

    def schemas(self, address: Address) -> Schemas | None:
        """The registry that the properties of a cluster name."""
        if address not in self._registries:
            self._registries[address] = self._registry(address)
        return self._registries[address]

    def forget(self, address: Address) -> None:
        """The cluster is reached in another way now, or not at all."""
        for client in self._idle.pop(address, ()):
            client.close()
        self._registries.pop(address, None)

    def stop(self) -> None:
        for pool in (self.readers, self.searchers):
            pool.shutdown(wait=False, cancel_futures=True)
        for address in list(self._idle):
            self.forget(address)

    def _registry(self, address: Address) -> Schemas | None:
        properties = read_properties(address.properties)
        is_inside_allowed = self.allows_private or not address.is_stored  # whoever starts us knows what he names
        found = address_of(properties, inside=is_inside_allowed)
        if found is None:
            return None
        if address.is_stored:  # what somebody typed into a page opens no file
            found = found._replace(ca_file=None, certificate_file=None, key_file=None)
        try:
            return Registry(found)
        except SchemaError as problem:
            return _NoRegistry(str(problem))

    def __repr__(self) -> str:
        return f"<MessageWorkers searches={self.searches}>"


class _NoRegistry:
    """An address that makes no sense: messages that need it say so."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def decode(self, name: SchemaName, _data: bytes) -> tuple[str, Any]:
        raise SchemaError(f"schema {name}: {self.problem}")
