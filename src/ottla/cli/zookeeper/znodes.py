"""Reads and writes znodes for scripts that name only the ZooKeeper of their cluster: brokers and topic deletions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.base.zookeeper_connect import ZooKeeperAddress, parse_connect
from ottla.cli.terminal import ToolError, warn
from ottla.controller import tree
from ottla.controller.stores.store import CreateNode, Refusal, StoreError, StoreOperation, TransactionRefusedError

if TYPE_CHECKING:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore

CONNECT_SECONDS_MAX: Final = 1.0
OPEN_MS_MAX: Final = 3000
PROTOCOL: Final = "PLAINTEXT"  # of listeners that need no client settings


def registered_brokers(connect: str) -> list[str]:
    """host:port of each registered broker; empty without a reachable ZooKeeper or cluster."""
    try:
        address = parse_connect(connect)
    except ValueError:
        return []
    if not any(is_reachable(host, port) for host, port in address.servers):
        return []  # a ZooKeeper client would retry
    try:
        return asyncio.run(_read_brokers(address))
    except (StoreError, tree.DamagedNodeError) as problem:
        warn(f"reading the brokers from ZooKeeper at {connect} failed: {problem}")
        return []


async def _read_brokers(address: ZooKeeperAddress) -> list[str]:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 (kazoo is slow to load)

    store = ZooKeeperStore(str(address), connection_timeout_ms=OPEN_MS_MAX, makes_chroot=False)
    await store.open()
    try:
        ids = await store.children(tree.BROKER_IDS)
        nodes = await store.get_many([tree.broker_path(int(each)) for each in ids if each.isdigit()])
    finally:
        await store.close()
    brokers = [tree.decode_broker(int(path.rpartition("/")[2]), node.data, 0) for path, node in nodes.items()]
    endpoints = [end for broker in brokers for end in broker.endpoints.values() if end.protocol == PROTOCOL]
    return [f"{tree.bracketed(end.host)}:{end.port}" for end in endpoints]


def is_reachable(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS_MAX):
            return True
    except OSError:
        return False


# ---- topics marked for deletion, as Kafka's former tool did
T = TypeVar("T")


def is_zookeeper_reachable(connect: str) -> bool:
    """Whether one of the addresses accepts connections; a broker with its own metadata store has no ZooKeeper."""
    try:
        address = parse_connect(connect)
    except ValueError:
        return False
    return any(is_reachable(host, port) for host, port in address.servers)


def marked_topics(connect: str) -> frozenset[str]:
    """The marked topics; empty without ZooKeeper."""
    if not is_zookeeper_reachable(connect):
        return frozenset()

    async def read(store: ZooKeeperStore) -> list[str]:
        return await store.children(tree.DELETE_TOPICS)

    return frozenset(_with_store(connect, read))


def mark_topic_for_deletion(connect: str, topic: str) -> bool:
    """Mark a topic for deletion; False if it was already marked. Raises ToolError."""

    async def write(store: ZooKeeperStore) -> bool:
        mark: list[StoreOperation] = [CreateNode(tree.delete_topic_path(topic))]
        try:
            await store.multi(mark)
        except TransactionRefusedError as refused:
            if refused.reason is not Refusal.NODE_EXISTS:
                raise
            return False
        return True

    return _with_store(connect, write)


def _with_store(connect: str, work: Callable[[ZooKeeperStore], Awaitable[T]]) -> T:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 (kazoo is slow to load)

    async def whole() -> T:
        store = ZooKeeperStore(connect, connection_timeout_ms=OPEN_MS_MAX, makes_chroot=False)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(whole())
    except StoreError as problem:
        raise ToolError(f"ZooKeeper at {connect} does not do it: {problem}") from None
