"""Topics that are marked for deletion in ZooKeeper: what Kafka's tool wrote and read itself in those days."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.base.zookeeper_connect import parse_connect
from ottla.cli.terminal import ToolError
from ottla.cli.zookeeper.brokers import OPEN_MS_MAX, answers
from ottla.controller import tree
from ottla.controller.stores.store import CreateNode, Refusal, StoreError, StoreOperation, TransactionRefusedError

if TYPE_CHECKING:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore

T = TypeVar("T")


def is_zookeeper_there(connect: str) -> bool:
    """Whether anybody answers at one of the addresses; a broker that keeps its own metadata has no ZooKeeper."""
    try:
        address = parse_connect(connect)
    except ValueError:
        return False
    return any(answers(host, port) for host, port in address.servers)


def marked_topics(connect: str) -> frozenset[str]:
    """Names that are marked; none where there is no ZooKeeper."""
    if not is_zookeeper_there(connect):
        return frozenset()

    async def read(store: ZooKeeperStore) -> list[str]:
        return await store.children(tree.DELETE_TOPICS)

    return frozenset(_with_store(connect, read))


def mark_topic(connect: str, topic: str) -> bool:
    """Mark it; False if it was marked before. ToolError says what is in the way."""

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
