"""A metadata store as commands for ZooKeeper's own client, for a Kafka of ZooKeeper mode to find: topics, settings,
users, quotas and access rules.

The nodes have the same paths and the same JSON on both sides, so what is printed is what is stored. Brokers and the
controller write their own nodes; partitions get leader epochs that go on where the logs end.
"""

from __future__ import annotations

import os
import re
from typing import Final

from ottla.controller import acl_nodes, tree
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree

TOPS: Final = (tree.BROKER_TOPICS, tree.CONFIG, "/cluster", acl_nodes.LITERAL, acl_nodes.PREFIXED)
SINGLE: Final = (tree.PRODUCER_ID_BLOCK, tree.CONTROLLER_EPOCH)
PARENTS: Final = (
    "/brokers",
    tree.BROKER_TOPICS,
    tree.CONFIG,
    "/config/topics",
    "/config/brokers",
    "/config/users",
    "/cluster",
    *(path for path in acl_nodes.SKELETON if path != acl_nodes.ESCAPED),
)
_BARE: Final = re.compile(r"[^\s'\"\\]+")


class NotForKafkaError(Exception):
    """What cannot be handed over: one line."""


def commands(directory: str) -> list[str]:
    """One `create` a line; parents come before children. Reads the store only. Raises NotForKafkaError."""
    store = SqliteTree(os.path.join(directory, FILE_NAME))
    store.open()
    try:
        nodes = {path: node.data for top in TOPS for path, node in store.subtree(top).items()}
        for path in SINGLE:
            node = store.get(path)
            if node is not None:
                nodes[path] = node.data
        if store.subtree(acl_nodes.ESCAPED).keys() - {acl_nodes.ESCAPED}:
            raise NotForKafkaError("there are access rules about names with a slash, which Kafka 3.9 cannot keep")
    finally:
        store.close()
    wanted = [path for path in sorted(nodes) if path not in PARENTS and not path.startswith(tree.CONFIG_CHANGES)]
    lines = [f"create {path} {shown(b'')}" for path in PARENTS]
    shared = {path for path in wanted if nodes[path] or path.startswith(tree.BROKER_TOPICS)}
    above = {path[:place] for path in shared for place, letter in enumerate(path) if letter == "/"}
    # Empty places for settings of clients and users that have none are Kafka's own to make.
    return lines + [f"create {word(path)} {shown(nodes[path])}" for path in wanted if path in shared | above]


def shown(data: bytes) -> str:
    """The client takes a word in single quotes as it is; JSON can do without one inside."""
    return "'" + data.decode().replace("'", "\\u0027") + "'"


def word(path: str) -> str:
    if _BARE.fullmatch(path):
        return path
    if "'" in path:
        raise NotForKafkaError(f"{path}: ZooKeeper's client cannot be told a name with a quote")
    return f"'{path}'"
