"""Copies the metadata store of a standalone broker to ZooKeeper: for a cluster of ottla, or as commands for Kafka.

Nodes have the same paths and JSON in both stores; only the versions differ. The nodes of a running broker (its
registration and the controller) and change notifications are not copied. An interrupted migration can be repeated:
nodes that exist already must be equal.

For Kafka in ZooKeeper mode, the nodes are printed as `create` commands of ZooKeeper's client. Brokers and the
controller create their own nodes; partitions get leader epochs that continue those of the logs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.base.broker_settings import is_password
from ottla.base.password_encoder import is_encoded
from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.decisions.decision import split_into_transactions
from ottla.controller.lost_metadata import LogDirState, check_no_loss
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode, MetadataStore, Node

CHANGE_NOTIFICATIONS: Final = (tree.CONFIG_CHANGES, *acl_nodes.CHANGE_NOTIFICATIONS, token_nodes.CHANGE_NOTIFICATIONS)
EXCLUDED_PREFIXES: Final = (f"{tree.BROKER_IDS}/", *(f"{path}/" for path in CHANGE_NOTIFICATIONS))
# Nodes whose contents may differ in a new cluster.
IGNORED_DIFFERENCES: Final = (tree.BROKER_SEQUENCE, tree.CONTROLLER_EPOCH)
MIGRATED_SUFFIX: Final = ".migrated"
SQLITE_SUFFIXES: Final = ("", "-wal", "-shm")


class MigrationRefusedError(Exception):
    """Nothing was written; the message has the cause and the solution in one line."""


class MigrationResult(NamedTuple):
    """The result of a migration."""

    cluster_id: str
    topics: int
    partitions: int
    nodes: int  # written now


def read_nodes(directory: str, folders: Sequence[LogDirState]) -> dict[str, Node]:
    """Read the store of a stopped broker; raises StoreUnusableError if it lacks topics of the log directories."""
    path = os.path.join(directory, FILE_NAME)
    store = SqliteTree(path)
    store.open(
        partial(check_no_loss, path, folders)
    )  # writable, so that the write-ahead log of a killed process is applied
    try:
        return store.subtree("/")
    finally:
        store.close()


async def migrate(source: Mapping[str, Node], store: MetadataStore) -> MigrationResult:
    """Write the nodes into an open store, or raise MigrationRefusedError before anything is written."""
    target = await store.subtree("/")
    operations = plan_migration(source, target)
    for piece in split_into_transactions(operations):
        await store.multi(piece)
    topics = [path for path in source if is_topic(path)]
    partitions = sum(path.endswith("/state") for path in source)
    return MigrationResult(
        tree.decode_cluster_id(source[tree.CLUSTER_ID].data), len(topics), partitions, len(operations)
    )


def plan_migration(source: Mapping[str, Node], target: Mapping[str, Node]) -> list[CreateNode]:
    """Return the nodes to create, parents first."""
    if tree.CLUSTER_ID not in source:
        raise MigrationRefusedError("the metadata store is new: there is nothing to move. Just start the broker.")
    wanted = {path: node.data for path, node in source.items() if is_moved(path)}
    _check_target(wanted, target)
    return [CreateNode(path, data) for path, data in wanted.items() if path not in target]


def is_moved(path: str) -> bool:
    return path != tree.CONTROLLER and not path.startswith(EXCLUDED_PREFIXES)


def is_topic(path: str) -> bool:
    return path.startswith(f"{tree.BROKER_TOPICS}/") and path.count("/") == tree.BROKER_TOPICS.count("/") + 1


def rename_migrated_store(directory: str) -> str:
    """Rename the migrated store to a backup, so that no broker starts with it."""
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
        if path in wanted and not is_same and path not in IGNORED_DIFFERENCES:
            raise MigrationRefusedError(f"{path} holds something else already: name an unused chroot")


# ---- commands for Kafka

EXPORTED_ROOTS: Final = (tree.BROKER_TOPICS, tree.CONFIG, "/cluster", acl_nodes.LITERAL_ROOT, acl_nodes.PREFIXED_ROOT)
EXPORTED_NODES: Final = (tree.PRODUCER_ID_BLOCK, tree.CONTROLLER_EPOCH)
PARENT_PATHS: Final = (
    "/brokers",
    tree.BROKER_TOPICS,
    tree.CONFIG,
    "/config/topics",
    "/config/brokers",
    "/config/users",
    "/cluster",
    *(path for path in acl_nodes.PERSISTENT_PATHS if path != acl_nodes.ESCAPED_ROOT),
)
_UNQUOTED: Final = re.compile(r"[^\s'\"\\]+")


class UnsupportedByKafkaError(Exception):
    """The store has metadata that Kafka does not support; the message has one line."""


def export_commands(directory: str, folders: Sequence[LogDirState]) -> list[str]:
    """Return the `create` commands, parents first. Raises NotForKafkaError."""
    path = os.path.join(directory, FILE_NAME)
    store = SqliteTree(path)
    store.open(partial(check_no_loss, path, folders))
    try:
        nodes = {path: node.data for top in EXPORTED_ROOTS for path, node in store.subtree(top).items()}
        for path in EXPORTED_NODES:
            node = store.get(path)
            if node is not None:
                nodes[path] = node.data
        if store.subtree(acl_nodes.ESCAPED_ROOT).keys() - {acl_nodes.ESCAPED_ROOT}:
            raise UnsupportedByKafkaError(
                "there are access rules about names with a slash, which Kafka 3.9 cannot keep"
            )
    finally:
        store.close()
    wanted = [path for path in sorted(nodes) if path not in PARENT_PATHS and not path.startswith(tree.CONFIG_CHANGES)]
    lines = [f"create {path} {quote_data(b'')}" for path in PARENT_PATHS]
    shared = {path for path in wanted if nodes[path] or path.startswith(tree.BROKER_TOPICS)}
    above = {path[:place] for path in shared for place, letter in enumerate(path) if letter == "/"}
    # Empty nodes without settings are omitted: Kafka creates them itself.
    printed = {path: without_plain_passwords(path, nodes[path]) for path in wanted if path in shared | above}
    return lines + [f"create {quote_path(path)} {quote_data(data)}" for path, data in printed.items()]


def without_plain_passwords(path: str, data: bytes) -> bytes:
    """Return the settings without plain passwords:

    Kafka 3.9 cannot decrypt these, and any client of ZooKeeper could read them.
    """
    if not path.startswith(f"{tree.CONFIG}/{tree.BROKER_CONFIG}/"):
        return data
    config = tree.decode_config(path, data)
    kept = {name: text for name, text in config.items() if is_encoded(text) or not is_password(name)}
    return data if kept == config else tree.encode_config(kept)


def quote_data(data: bytes) -> str:
    """Quote data for the client, which reads single-quoted words literally; JSON can escape single quotes."""
    return "'" + data.decode().replace("'", "\\u0027") + "'"


def quote_path(path: str) -> str:
    if _UNQUOTED.fullmatch(path):
        return path
    if "'" in path:
        raise UnsupportedByKafkaError(f"{path}: ZooKeeper's client does not support names with a quote")
    return f"'{path}'"
