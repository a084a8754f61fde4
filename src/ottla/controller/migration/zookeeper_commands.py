"""The topics of a metadata store as commands for ZooKeeper's own client, for a Kafka of ZooKeeper mode to find.

The nodes have the same paths and the same JSON on both sides, so what is printed is what is stored. Brokers and the
controller write their own nodes; partitions get leader epochs that go on where the logs end.
"""

from __future__ import annotations

import os
from typing import Final

from ottla.controller import tree
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree

TOPS: Final = (tree.BROKER_TOPICS, tree.CONFIG, "/cluster")
SINGLE: Final = (tree.PRODUCER_ID_BLOCK, tree.CONTROLLER_EPOCH)
PARENTS: Final = ("/brokers", tree.BROKER_TOPICS, tree.CONFIG, "/config/topics", "/config/brokers", "/cluster")


def commands(directory: str) -> list[str]:
    """One `create` a line; parents come before children. Reads the store only."""
    store = SqliteTree(os.path.join(directory, FILE_NAME))
    store.open()
    try:
        nodes = {path: node.data for top in TOPS for path, node in store.subtree(top).items()}
        for path in SINGLE:
            node = store.get(path)
            if node is not None:
                nodes[path] = node.data
    finally:
        store.close()
    wanted = [path for path in sorted(nodes) if path not in PARENTS and not path.startswith(tree.CONFIG_CHANGES)]
    lines = [f"create {path} {shown(b'')}" for path in PARENTS]
    return lines + [f"create {path} {shown(nodes[path])}" for path in wanted if is_shared(path, nodes[path])]


def is_shared(path: str, data: bytes) -> bool:
    """Whether Kafka needs this node from us: not the empty places for settings of clients and users."""
    return bool(data) or path.startswith(tree.BROKER_TOPICS)


def shown(data: bytes) -> str:
    """The client takes a word in single quotes as it is; JSON of ours has none inside."""
    return f"'{data.decode()}'"
