"""How a broker gets into the store: the tree that every cluster has, and the broker's own node in it.

A node with our id that we have not made is that of an earlier life, or of somebody who has the same id by mistake: a
probe of its address tells. What is refused there is dead and is replaced at once; nobody waits for its session to end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from ottla.base.clock import Clock
from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.decisions import ottla_version
from ottla.controller.image import BrokerImage, Endpoint
from ottla.controller.stores.store import (
    CreateNode,
    DeleteNode,
    Node,
    SessionStore,
    SetNode,
    StoreError,
    StoreOperation,
    StoreUnusableError,
    TransactionRefusedError,
)

logger = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 20
LOOK_SECONDS: Final = 0.25
GRACE_SECONDS: Final = 1.0

Probe = Callable[[BrokerImage], Awaitable[bool]]  # False: its port refuses connections


class Registration:
    """Writes into the store; what it came to is kept by whoever asked for it."""

    def __init__(self, store: SessionStore, clock: Clock, probe: Probe, new_uuid: Callable[[], UUID]) -> None:
        self._store = store
        self._clock = clock
        self._probe = probe
        self._new_uuid = new_uuid

    async def prepare_tree(self, cluster_id: str | None) -> None:
        """Make what every cluster has; others may be doing the same now. `cluster_id` is what the folders say."""
        paths = [*tree.SKELETON, *acl_nodes.SKELETON, *token_nodes.SKELETON, tree.CLUSTER_ID, tree.FEATURE]
        for _ in range(ATTEMPTS_MAX):
            nodes = dict(zip(paths, await asyncio.gather(*map(self._store.get, paths)), strict=True))
            check_cluster_id(nodes[tree.CLUSTER_ID], cluster_id)
            check_level(nodes[tree.FEATURE])
            missing = [path for path in paths if nodes[path] is None]
            if not missing:
                return
            fresh = tree.encode_uuid(self._new_uuid())
            features = ottla_version.OF_NEW_CLUSTERS if nodes[tree.CLUSTER_ID] is None else {}
            data = {tree.CLUSTER_ID: tree.encode_cluster_id(fresh), tree.FEATURE: tree.encode_feature(features)}
            operations: list[StoreOperation] = [CreateNode(path, data.get(path, b"")) for path in missing]
            try:
                await self._store.multi(operations)
            except TransactionRefusedError:
                continue  # somebody else has made some of it
            return
        raise StoreUnusableError("the nodes of the cluster cannot be made in the store")

    async def register(self, broker: BrokerImage, known_epoch: int, *, is_start: bool) -> int:
        """The epoch under which the broker is registered now: still `known_epoch`, or that of a new life."""
        path = tree.broker_path(broker.id)
        broker = broker._replace(features=ottla_version.SUPPORTED)
        for _ in range(ATTEMPTS_MAX):
            node = await self._store.get(path)
            if node is not None:
                if node.created_id == known_epoch:
                    await self._mend(broker, node)
                    return known_epoch
                await self._replace(broker, node, is_start=is_start)
            data = tree.encode_broker(broker, self._clock.now_ms())
            operations: list[StoreOperation] = [CreateNode(path, data, is_ephemeral=True)]
            try:
                await self._store.multi(operations)
            except TransactionRefusedError:
                continue
            node = await self._store.get(path)
            if node is not None and node.data == data:
                logger.info(
                    "Registered broker %d at path %s with addresses: %s, czxid (broker epoch): %d",
                    broker.id,
                    path,
                    ",".join(f"{name}://{end.host}:{end.port}" for name, end in broker.endpoints.items()),
                    node.created_id,
                )
                return node.created_id
        raise StoreError(f"{path} cannot be created: others change it all the time")

    async def _mend(self, broker: BrokerImage, node: Node) -> None:
        """Our own node that somebody has damaged: the others read there how to reach us."""
        if decode_or_none(broker.id, node) is not None:
            return
        path = tree.broker_path(broker.id)
        operations: list[StoreOperation] = [
            SetNode(path, tree.encode_broker(broker, self._clock.now_ms()), node.version)
        ]
        try:
            await self._store.multi(operations)
        except TransactionRefusedError:
            return  # it has changed again: we are called again
        logger.warning("%s could not be read: broker %d has written it anew", path, broker.id)

    async def _replace(self, broker: BrokerImage, node: Node, *, is_start: bool) -> None:
        """Remove the node of somebody who is dead; whoever answers is given the time of a session to go."""
        path = tree.broker_path(broker.id)
        other = decode_or_none(broker.id, node)
        deadline = asyncio.get_running_loop().time() + self._store.session_timeout_ms / 1000 + GRACE_SECONDS
        while other is None or (not is_at_same_address(broker, other) and await self._probe(other)):
            if asyncio.get_running_loop().time() > deadline:
                holder = address_of(other) if other is not None else f"somebody whose node cannot be read ({path})"
                message = f"broker id {broker.id} is already in use by {holder}"
                if is_start:
                    raise StoreUnusableError(f"{message}. Stop that broker, or give this one another broker.id.")
                raise StoreError(message)
            await asyncio.sleep(LOOK_SECONDS)
            current = await self._store.get(path)
            if current is None or current.created_id != node.created_id:
                return
        operations: list[StoreOperation] = [DeleteNode(path, node.version)]
        try:
            await self._store.multi(operations)
        except TransactionRefusedError:
            return
        logger.info("removed the registration of an earlier life of broker %d (%s)", broker.id, address_of(other))


def check_cluster_id(node: Node | None, ours: str | None) -> None:
    """Raises StoreUnusableError if the folders belong to another cluster than the store's."""
    if not ours:
        return
    if node is None:
        raise StoreUnusableError(
            f"the store holds no cluster, but the log folders belong to cluster {ours}. Check zookeeper.connect with "
            "its chroot; if the store was lost, restore it from a backup."
        )
    try:
        stored = tree.decode_cluster_id(node.data)
    except tree.DamagedNodeError as damage:
        raise StoreUnusableError(f"{damage}. Restore it: the log folders belong to cluster {ours}.") from damage
    if stored != ours:
        raise StoreUnusableError(
            f"the metadata store belongs to cluster {stored}, but the log folders to cluster {ours}. "
            "Give this broker the folders that belong together."
        )


def check_level(node: Node | None) -> None:
    """Raises StoreUnusableError if the cluster runs at a level that this broker does not know."""
    if node is None:
        return
    try:
        problem = ottla_version.why_not_here(ottla_version.level_of(tree.decode_feature(node.data)))
    except tree.DamagedNodeError:
        return  # the controller tells of it, and refuses who is too old
    if problem is not None:
        raise StoreUnusableError(problem)


def decode_or_none(broker_id: int, node: Node) -> BrokerImage | None:
    try:
        return tree.decode_broker(broker_id, node.data, node.created_id)
    except tree.DamagedNodeError:
        return None


def is_at_same_address(broker: BrokerImage, other: BrokerImage) -> bool:
    """Whoever had our address is dead: we have it now."""
    ours = {(end.host, end.port) for end in broker.endpoints.values()}
    return any((end.host, end.port) in ours for end in other.endpoints.values())


def address_of(broker: BrokerImage) -> str:
    end: Endpoint = next(iter(broker.endpoints.values()))
    return f"{end.host}:{end.port}"
