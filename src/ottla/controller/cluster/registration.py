"""Registration of brokers in the store: the persistent nodes of a cluster, broker nodes, broker ids, failed brokers.

If a node with the id of this broker exists already, it belongs to a previous registration, or to another broker with
the same id by mistake: a probe of its address decides. A node whose address refuses connections is replaced at once,
without waiting for its session to expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from uuid import UUID

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.decisions import ottla_version
from ottla.controller.image import BrokerImage, Endpoint
from ottla.controller.stores.store import (
    CreateNode,
    DeleteNode,
    MetadataStore,
    Node,
    Refusal,
    SessionStore,
    SetNode,
    StoreError,
    StoreUnusableError,
    TransactionRefusedError,
    parent_and_name,
)

logger = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 20
RETRY_SECONDS: Final = 0.25
GRACE_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 0.3  # how long a new controller waits for probes before it elects leaders
# The connections of a killed process are closed before its port refuses new ones, so a probe is repeated.
PROBE_PAUSES_SECONDS: Final = (0.02, 0.03, 0.05, 0.1, 0.1, 0.2, 0.5, 1.0)

Probe = Callable[[BrokerImage], Awaitable[bool]]  # False: its port refuses connections


class BrokerRegistration:
    """Creates and replaces the node of this broker; the caller keeps the resulting epoch."""

    def __init__(self, store: SessionStore, clock: Clock, probe: Probe, new_uuid: Callable[[], UUID]) -> None:
        self._store = store
        self._clock = clock
        self._probe = probe
        self._new_uuid = new_uuid

    async def prepare_tree(self, cluster_id: str | None) -> None:
        """Create the persistent nodes, possibly at the same time as other brokers.

        `cluster_id` is the one in the log directories.
        """
        paths = [
            *tree.SKELETON,
            *acl_nodes.PERSISTENT_PATHS,
            *token_nodes.PERSISTENT_PATHS,
            tree.CLUSTER_ID,
            tree.FEATURE,
        ]
        for _ in range(ATTEMPTS_MAX):
            nodes = dict(zip(paths, await asyncio.gather(*map(self._store.get, paths)), strict=True))
            check_cluster_id(nodes[tree.CLUSTER_ID], cluster_id)
            check_cluster_level(nodes[tree.FEATURE])
            missing = [path for path in paths if nodes[path] is None]
            if not missing:
                return
            fresh = tree.encode_uuid(self._new_uuid())
            features = ottla_version.NEW_CLUSTER_FEATURES if nodes[tree.CLUSTER_ID] is None else {}
            data = {tree.CLUSTER_ID: tree.encode_cluster_id(fresh), tree.FEATURE: tree.encode_feature(features)}
            try:
                await self._store.multi([CreateNode(path, data.get(path, b"")) for path in missing])
            except TransactionRefusedError:
                continue  # another broker has created some of them
            return
        raise StoreUnusableError("the nodes of the cluster cannot be created in the store")

    async def register(self, broker: BrokerImage, known_epoch: int, *, is_start: bool) -> int:
        """Register the broker; returns `known_epoch` if it is still registered, otherwise the new broker epoch."""
        path = tree.broker_path(broker.id)
        broker = broker._replace(features=ottla_version.SUPPORTED)
        for _ in range(ATTEMPTS_MAX):
            node = await self._store.get(path)
            if node is not None:
                if node.created_id == known_epoch:
                    await self._repair(broker, node)
                    return known_epoch
                await self._replace_stale(broker, node, is_start=is_start)
            data = tree.encode_broker(broker, self._clock.now_ms())
            try:
                await self._store.multi([CreateNode(path, data, is_ephemeral=True)])
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
        raise StoreError(f"{path} cannot be created: too many concurrent changes")

    async def _repair(self, broker: BrokerImage, node: Node) -> None:
        """Restore this broker's own damaged node: the other brokers need the addresses in it."""
        if decode_or_none(broker.id, node) is not None:
            return
        path = tree.broker_path(broker.id)
        try:
            await self._store.multi([SetNode(path, tree.encode_broker(broker, self._clock.now_ms()), node.version)])
        except TransactionRefusedError:
            return  # it has changed again: the watch calls this again
        logger.warning("%s could not be read: broker %d has restored it", path, broker.id)

    async def _replace_stale(self, broker: BrokerImage, node: Node, *, is_start: bool) -> None:
        """Delete the node of a failed broker; that of a live one may exist for a session timeout."""
        path = tree.broker_path(broker.id)
        other = decode_or_none(broker.id, node)
        deadline = asyncio.get_running_loop().time() + self._store.session_timeout_ms / 1000 + GRACE_SECONDS
        while other is None or (not is_at_same_address(broker, other) and await self._probe(other)):
            if asyncio.get_running_loop().time() > deadline:
                holder = address_of(other) if other is not None else f"a broker whose node cannot be read ({path})"
                message = f"broker id {broker.id} is already in use by {holder}"
                if is_start:
                    raise StoreUnusableError(f"{message}. Stop that broker, or give this one another broker.id.")
                raise StoreError(message)
            await asyncio.sleep(RETRY_SECONDS)
            current = await self._store.get(path)
            if current is None or current.created_id != node.created_id:
                return
        try:
            await self._store.multi([DeleteNode(path, node.version)])
        except TransactionRefusedError:
            return
        logger.info("removed a previous registration of broker %d (%s)", broker.id, address_of(other))


def check_cluster_id(node: Node | None, ours: str | None) -> None:
    """Check that log directories and store belong to the same cluster. Raises StoreUnusableError."""
    if not ours:
        return
    if node is None:
        raise StoreUnusableError(
            f"the store has no cluster id, but the log directories belong to cluster {ours}. Check zookeeper.connect "
            "with its chroot; if the store was lost, restore it from a backup."
        )
    try:
        stored = tree.decode_cluster_id(node.data)
    except tree.DamagedNodeError as damage:
        raise StoreUnusableError(f"{damage}. Restore it: the log directories belong to cluster {ours}.") from damage
    if stored != ours:
        raise StoreUnusableError(
            f"the metadata store belongs to cluster {stored}, but the log directories to cluster {ours}. "
            "Give this broker the folders that belong together."
        )


def check_cluster_level(node: Node | None) -> None:
    """Check that this broker supports the level of the cluster. Raises StoreUnusableError."""
    if node is None:
        return
    try:
        problem = ottla_version.unsupported_level_problem(ottla_version.level_of(tree.decode_feature(node.data)))
    except tree.DamagedNodeError:
        return  # the controller logs the damage, and rejects brokers that are too old
    if problem is not None:
        raise StoreUnusableError(problem)


def decode_or_none(broker_id: int, node: Node) -> BrokerImage | None:
    try:
        return tree.decode_broker(broker_id, node.data, node.created_id)
    except tree.DamagedNodeError:
        return None


def is_at_same_address(broker: BrokerImage, other: BrokerImage) -> bool:
    """Return whether two brokers share an address: then the other one has stopped, because this broker uses it now."""
    ours = {(end.host, end.port) for end in broker.endpoints.values()}
    return any((end.host, end.port) in ours for end in other.endpoints.values())


def address_of(broker: BrokerImage) -> str:
    end: Endpoint = next(iter(broker.endpoints.values()))
    return f"{end.host}:{end.port}"


# ---- broker ids
async def allocate_broker_id(store: MetadataStore, reserved_max: int) -> int:
    """Generate a unique id for a broker without broker.id, as Kafka does. The store must be open.

    Every write to /brokers/seqid raises its version, and the version is the id, so ids are unique. They start above
    `reserved.broker.max.id`; lower ids are for configured brokers. A broker keeps its id in meta.properties.
    """
    while True:
        try:
            [outcome] = await store.multi([SetNode(tree.BROKER_SEQUENCE, b"")])
        except TransactionRefusedError as refused:
            if refused.reason is not Refusal.NO_NODE:
                raise
            await _create_node(store, parent_and_name(tree.BROKER_SEQUENCE)[0])
            await _create_node(store, tree.BROKER_SEQUENCE)
        else:
            return reserved_max + outcome.version


async def _create_node(store: MetadataStore, path: str) -> None:
    try:
        await store.multi([CreateNode(path)])
    except TransactionRefusedError as refused:
        if refused.reason is not Refusal.NODE_EXISTS:
            raise


# ---- dead brokers
#


async def find_dead_brokers(brokers: Iterable[BrokerImage], probe: Probe) -> list[BrokerImage]:
    """Return the brokers whose ports refuse connections now."""
    probes = {tasks.spawn_awaited(probe(broker), f"a probe of broker {broker.id}"): broker for broker in brokers}
    if not probes:
        return []
    done, late = await asyncio.wait(probes, timeout=PROBE_SECONDS)
    for task in late:
        task.cancel()
    return [probes[task] for task in done if task.exception() is None and not task.result()]


async def is_broker_dead(broker: BrokerImage, probe: Probe, is_relevant: Callable[[], bool]) -> bool:
    """Probe a broker repeatedly for about two seconds."""
    for seconds in PROBE_PAUSES_SECONDS:
        if not is_relevant():
            return False
        if not await probe(broker):
            return True
        await asyncio.sleep(seconds)
    return False


async def remove_registration(store: SessionStore, broker: BrokerImage) -> None:
    """Delete exactly this registration of a broker, whose session may not have expired yet."""
    path = tree.broker_path(broker.id)
    node = await store.get(path)
    if node is None or node.created_id != broker.epoch:
        return
    try:
        await store.multi([DeleteNode(path, node.version)])
    except TransactionRefusedError:
        return
    logger.info("broker %d (%s) refuses connections: its registration was removed", broker.id, address_of(broker))
