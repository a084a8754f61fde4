"""From one broker with its own metadata store to a cluster: the same nodes, in ZooKeeper.

Pure but for `migrate`. Nodes have the same paths and the same JSON in both stores; only versions begin anew. What
belongs to a running broker (its registration, the controller) and what only wakes others (notices of changes) stays.
A migration that was interrupted can be repeated: what is there already must be what would be written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.decisions.splitting import split
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode, MetadataStore, Node

NOTICES: Final = (tree.CONFIG_CHANGES, *acl_nodes.CHANGES, token_nodes.CHANGES)
LEFT_OUT: Final = (f"{tree.BROKER_IDS}/", *(f"{path}/" for path in NOTICES))
# Places, not contents: they may hold anything in a cluster that is new.
MAY_DIFFER: Final = (tree.BROKER_SEQUENCE, tree.CONTROLLER_EPOCH)
MIGRATED_SUFFIX: Final = ".migrated"
SQLITE_SUFFIXES: Final = ("", "-wal", "-shm")


class MigrationRefusedError(Exception):
    """Why nothing was written: one line with the cause and the cure."""


class Migrated(NamedTuple):
    """What was moved."""

    cluster_id: str
    topics: int
    partitions: int
    nodes: int  # written now


def read_nodes(directory: str) -> dict[str, Node]:
    """All nodes of a stopped broker's store."""
    store = SqliteTree(os.path.join(directory, FILE_NAME))
    store.open()  # not only to read: what a kill has left in the write-ahead log is taken in
    try:
        return store.subtree("/")
    finally:
        store.close()


async def migrate(source: Mapping[str, Node], store: MetadataStore) -> Migrated:
    """Write the nodes into an open store, or raise MigrationRefusedError before anything is written."""
    target = await store.subtree("/")
    operations = plan(source, target)
    for piece in split(operations):
        await store.multi(piece)
    topics = [path for path in source if is_topic(path)]
    partitions = sum(path.endswith("/state") for path in source)
    return Migrated(tree.decode_cluster_id(source[tree.CLUSTER_ID].data), len(topics), partitions, len(operations))


def plan(source: Mapping[str, Node], target: Mapping[str, Node]) -> list[CreateNode]:
    """What to create, parents first."""
    if tree.CLUSTER_ID not in source:
        raise MigrationRefusedError("the metadata store is new: there is nothing to move. Just start the broker.")
    wanted = {path: node.data for path, node in source.items() if is_moved(path)}
    _check_target(wanted, target)
    return [CreateNode(path, data) for path, data in wanted.items() if path not in target]


def is_moved(path: str) -> bool:
    return path != tree.CONTROLLER and not path.startswith(LEFT_OUT)


def is_topic(path: str) -> bool:
    return path.startswith(f"{tree.BROKER_TOPICS}/") and path.count("/") == tree.BROKER_TOPICS.count("/") + 1


def set_aside(directory: str) -> str:
    """The store is used no more: under another name it is a backup, and nobody starts on it by mistake."""
    path = os.path.join(directory, FILE_NAME)
    for suffix in SQLITE_SUFFIXES:
        if os.path.exists(path + suffix):
            os.replace(path + suffix, path + MIGRATED_SUFFIX + suffix)
    return path + MIGRATED_SUFFIX


def _check_target(wanted: Mapping[str, bytes], target: Mapping[str, Node]) -> None:
    cluster = target.get(tree.CLUSTER_ID)
    if cluster is not None and cluster.data != wanted[tree.CLUSTER_ID]:
        raise MigrationRefusedError(
            f"there is another cluster already ({tree.decode_cluster_id(cluster.data)}): "
            "name an unused chroot, such as HOST:2181/ottla"
        )
    if any(path.startswith(f"{tree.BROKER_IDS}/") for path in target):
        raise MigrationRefusedError("brokers are running there: stop them, or name an unused chroot")
    for path, node in target.items():
        is_same = path in wanted and node.data == wanted[path]
        if path.startswith(f"{tree.BROKER_TOPICS}/") and not is_same:
            raise MigrationRefusedError(f"there are topics already ({path}): name an unused chroot")
        if path in wanted and not is_same and path not in MAY_DIFFER:
            raise MigrationRefusedError(f"{path} holds something else already: name an unused chroot")
