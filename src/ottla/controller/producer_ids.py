"""Producer ids: each id is assigned only once in a cluster.

The store has only the newest block of a thousand ids. A broker allocates a whole block and assigns its ids from memory.
The unused ids of a block are lost in a crash, which does not matter: there are 2^63 ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import CreateNode, Node, SetNode, StoreOperation

BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1


class ProducerIdManager:
    """Assigns ids one by one, and allocates a new block when the last one is used up."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._ids = iter(range(0))
        self._fetching = asyncio.Lock()

    async def next_id(self) -> int:
        found = next(self._ids, None)
        if found is not None:
            return found
        async with self._fetching:  # only one of the waiting callers allocates
            found = next(self._ids, None)
            while found is None:
                self._ids = iter(await self._allocate())
                found = next(self._ids, None)
            return found


def decide_producer_id_block(image: MetadataImage, node: Node | None, broker: int) -> Decision[range]:
    """Return the block after the newest one."""
    try:
        # Kafka in ZooKeeper mode creates an empty node when it starts: no ids were assigned then.
        start = 0 if node is None or not node.data else tree.decode_producer_id_block(node.data).block_end + 1
    except tree.DamagedNodeError as damage:
        message = f"{damage}. Restore it: without it the assigned producer ids are unknown."
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
