"""Thread pools that read and search messages for pages, with a pool of clients.

Rules:
1. Searches have their own threads, so a page of messages never waits for a search. Searches beyond the limit are
   refused.
2. Idle clients are reused for the same cluster; they reopen lost connections.
3. All readers of a cluster share one schema registry client and its cache.
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
from ottla.console.clusters.cluster import ClusterAddress
from ottla.console.slots import Slots
from ottla.operations.messages.message_decoder import Schemas
from ottla.operations.schema_registry.client_config import address_of
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.framing import SchemaName
from ottla.operations.schema_registry.serdes import SchemaDecoder

READ_THREADS = 4  # at once
SEARCH_THREADS = 4
IDLE_CLIENTS_MAX = 4  # of a cluster
TIMEOUT_MS = 10_000

T = TypeVar("T")


class MessageWorkers:
    """The thread pools, idle clients and schema registries; one instance for each console."""

    def __init__(self, allows_private: bool = False) -> None:
        self.allows_private = allows_private  # also for schema registries of clusters that were added in a page
        self.read_pool = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="console-messages")
        self.search_pool = ThreadPoolExecutor(SEARCH_THREADS, thread_name_prefix="console-search")
        self.searches = Slots(SEARCH_THREADS, "{0} searches are running: stop one, or wait", 2)
        self._idle_clients: defaultdict[ClusterAddress, list[Client]] = defaultdict(list)
        self._registries: dict[ClusterAddress, Schemas | None] = {}

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a reader thread."""
        return await asyncio.get_running_loop().run_in_executor(self.read_pool, work, *arguments)

    async def batches(self, events: Iterator[T], take: Callable[[Iterator[T]], list[T]]) -> AsyncIterator[list[T]]:
        """The events of a search, in batches that `take` makes in a search thread; ends at an empty batch."""
        loop = asyncio.get_running_loop()
        while found := await loop.run_in_executor(self.search_pool, take, events):
            yield found

    @contextmanager
    def client(self, address: ClusterAddress) -> Iterator[Client]:
        """A client for one `with` block, in one thread."""
        idle = self._idle_clients[address]
        client = idle.pop() if idle else address.make_client(TIMEOUT_MS)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        if len(idle) < IDLE_CLIENTS_MAX:
            idle.append(client)
        else:
            client.close()

    def schemas(self, address: ClusterAddress) -> Schemas | None:
        """The schema registry named in the properties of a cluster."""
        if address not in self._registries:
            self._registries[address] = self._registry(address)
        return self._registries[address]

    def discard(self, address: ClusterAddress) -> None:
        """Close the clients of an address that is no longer used."""
        for client in self._idle_clients.pop(address, ()):
            client.close()
        self._registries.pop(address, None)

    def stop(self) -> None:
        for pool in (self.read_pool, self.search_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        for address in list(self._idle_clients):
            self.discard(address)

    def _registry(self, address: ClusterAddress) -> Schemas | None:
        properties = read_properties(address.properties)
        allows_private = self.allows_private or not address.is_stored  # the command line is trusted
        found = address_of(properties, is_internal_allowed=allows_private)
        if found is None:
            return None
        if address.is_stored:  # properties from a page must not open files
            found = found._replace(ca_file=None, certificate_file=None, key_file=None)
        try:
            return SchemaDecoder(found)
        except SchemaError as problem:
            return _InvalidRegistry(str(problem))

    def __repr__(self) -> str:
        return f"<MessageWorkers searches={self.searches}>"


class _InvalidRegistry:
    """An invalid registry address: decoding reports the problem with each message."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def decode(self, name: SchemaName, _data: bytes) -> tuple[str, Any]:
        raise SchemaError(f"schema {name}: {self.problem}")
