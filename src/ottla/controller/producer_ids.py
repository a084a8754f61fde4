"""Producer ids: each one is given once in the life of a cluster.

The store remembers only the newest block of a thousand ids; a broker takes a whole block and hands out its ids from
memory. Ids of a block that a crash interrupted are never used: there are 2^63 of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.decisions.machine import Decision
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import CreateNode, Node, SetNode, StoreOperation

BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1


class ProducerIds:
    """Hands out ids one by one and fetches a new block when the last one is used up."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._ids = iter(range(0))
        self._fetching = asyncio.Lock()

    async def next_id(self) -> int:
        found = next(self._ids, None)
        if found is not None:
            return found
        async with self._fetching:  # of many that wait, one fetches
            found = next(self._ids, None)
            while found is None:
                self._ids = iter(await self._allocate())
                found = next(self._ids, None)
            return found


def decide_producer_ids(image: MetadataImage, node: Node | None, broker: int) -> Decision[range]:
    """The block after the newest one."""
    try:
        # Kafka of ZooKeeper mode makes the node empty when it starts: then no ids were given either.
        start = 0 if node is None or not node.data else tree.decode_producer_id_block(node.data).block_end + 1
    except tree.DamagedNodeError as damage:
        message = f"{damage}. Restore it: without it nobody knows which producer ids were given."
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, message) from damage
    end = start + BLOCK_SIZE - 1
    if end > PRODUCER_ID_MAX:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
    data = tree.encode_producer_id_block(tree.ProducerIdBlock(broker, start, end))
    operation: StoreOperation
    if node is None:
        operation = CreateNode(tree.PRODUCER_ID_BLOCK, data)
    else:
        operation = SetNode(tree.PRODUCER_ID_BLOCK, data, node.version)
    return Decision((operation,), image, range(start, end + 1))
