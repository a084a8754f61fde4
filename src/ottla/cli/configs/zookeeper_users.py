"""Writes SCRAM credentials directly to ZooKeeper, for the first user of a cluster whose brokers log in with SCRAM.

The format is that of Kafka 3.9, with a change notification: running brokers of ottla and Kafka pick it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.base.zookeeper_connect import ZooKeeperAddress, parse_connect
from ottla.cli.configs.quota_entities import parse_credential
from ottla.cli.java.options import OptionError
from ottla.cli.terminal import ToolError
from ottla.cli.zookeeper.znodes import OPEN_MS_MAX, is_reachable
from ottla.controller import tree
from ottla.controller.stores.store import CreateNode, SetNode, StoreError, StoreOperation
from ottla.security.scram_credentials import NUMBERS, make_credential

if TYPE_CHECKING:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore

PARENTS = (tree.CONFIG, tree.CONFIG_CHANGES, f"{tree.CONFIG}/{tree.USER_CONFIG}")


def reachable_zookeeper(text: str) -> ZooKeeperAddress | None:
    """The address, or None if no ZooKeeper accepts connections there."""
    try:
        address = parse_connect(text)
    except ValueError as problem:
        raise ToolError(f"--zookeeper {text}: {problem}") from None
    return address if any(is_reachable(host, port) for host, port in address.servers) else None


def alter_users(address: ZooKeeperAddress, user: str, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    unknown = [key for key in (*added, *deleted) if key not in NUMBERS]
    if unknown:
        raise OptionError(f"Only SCRAM credentials of users are changed in ZooKeeper: {', '.join(unknown)}")
    if not user:
        raise OptionError("The default of all users has no password: name one")
    changed = {}
    for mechanism, text in added.items():
        given = parse_credential(mechanism, text)
        changed[mechanism] = make_credential(mechanism, given.password, iterations=given.iterations).to_text()
    try:
        asyncio.run(_write(address, user, changed, deleted))
    except (StoreError, tree.DamagedNodeError) as problem:
        raise ToolError(f"ZooKeeper at {address}: {problem}") from None


async def _write(address: ZooKeeperAddress, user: str, changed: Mapping[str, str], deleted: Sequence[str]) -> None:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 (kazoo is slow to load)

    store = ZooKeeperStore(str(address), connection_timeout_ms=OPEN_MS_MAX)
    await store.open()
    try:
        await store.multi(await _operations(store, user, changed, deleted))
    finally:
        await store.close()


async def _operations(
    store: ZooKeeperStore, user: str, changed: Mapping[str, str], deleted: Sequence[str]
) -> list[StoreOperation]:
    operations: list[StoreOperation] = [CreateNode(path) for path in PARENTS if await store.get(path) is None]
    path = tree.config_path(tree.USER_CONFIG, user)
    node = await store.get(path)
    config = tree.decode_config(path, node.data) if node is not None else {}
    missing = [name for name in deleted if name not in config]
    if missing:
        raise OptionError(f"Invalid config(s): {','.join(missing)}")
    data = tree.encode_config({key: value for key, value in {**config, **changed}.items() if key not in deleted})
    operations.append(CreateNode(path, data) if node is None else SetNode(path, data, node.version))
    notification = tree.encode_config_change(tree.USER_CONFIG, tree.sanitize(user))
    return [*operations, CreateNode(tree.CONFIG_CHANGE_PREFIX, notification, is_sequential=True)]
