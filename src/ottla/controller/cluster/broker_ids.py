"""Numbers for brokers that have none (`broker.id=-1`, or no broker.id in a cluster), as Kafka gives them.

Every write to /brokers/seqid raises its version by one, and the version is the number: so no two brokers get the same,
and one that is lost on the way is skipped. They start above `reserved.broker.max.id`, below which people choose.
A broker keeps its number in meta.properties: whoever starts with one there is not given another.
"""

from __future__ import annotations

from ottla.controller import tree
from ottla.controller.stores.store import (
    CreateNode,
    MetadataStore,
    Refusal,
    SetNode,
    TransactionRefusedError,
    parent_and_name,
)


async def allocate_broker_id(store: MetadataStore, reserved_max: int) -> int:
    """A number that no broker of this cluster has had from here. The store must be open."""
    while True:
        try:
            [outcome] = await store.multi([SetNode(tree.BROKER_SEQUENCE, b"")])
        except TransactionRefusedError as refused:
            if refused.reason is not Refusal.NO_NODE:
                raise
            await _make(store, parent_and_name(tree.BROKER_SEQUENCE)[0])
            await _make(store, tree.BROKER_SEQUENCE)
        else:
            return reserved_max + outcome.version


async def _make(store: MetadataStore, path: str) -> None:
    try:
        await store.multi([CreateNode(path)])
    except TransactionRefusedError as refused:
        if refused.reason is not Refusal.NODE_EXISTS:
            raise
