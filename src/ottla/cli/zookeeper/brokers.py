"""Which brokers a ZooKeeper knows: for scripts that name only the ZooKeeper of their cluster."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from ottla.base.zookeeper_connect import ZooKeeperAddress, parse_connect
from ottla.cli.terminal import warn
from ottla.controller import tree
from ottla.controller.stores.store import StoreError

CONNECT_SECONDS_MAX: Final = 1.0
OPEN_MS_MAX: Final = 3000
PROTOCOL: Final = "PLAINTEXT"  # of the listeners that the tools can use without further settings


def brokers_behind(connect: str) -> list[str]:
    """host:port of every broker that is alive; none where no ZooKeeper answers, or none of ours."""
    try:
        address = parse_connect(connect)
    except ValueError:
        return []
    if not any(answers(host, port) for host, port in address.servers):
        return []  # at once: a ZooKeeper client would go on trying
    try:
        return asyncio.run(_read_brokers(address))
    except (StoreError, tree.DamagedNodeError) as problem:
        warn(f"ZooKeeper at {connect} does not tell its brokers: {problem}")
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


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS_MAX):
            return True
    except OSError:
        return False
