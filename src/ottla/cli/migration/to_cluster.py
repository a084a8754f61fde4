"""`ottla migrate to-cluster`: a broker that was alone becomes the first of a cluster."""

from __future__ import annotations

import argparse
import asyncio
import os

from ottla.base.zookeeper_connect import parse_connect
from ottla.cli.arguments import Parser
from ottla.cli.terminal import ToolError, UsageError
from ottla.controller.migration.cluster_migration import (
    Migrated,
    MigrationRefusedError,
    migrate,
    read_nodes,
    set_aside,
)
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.store import Node, StoreError
from ottla.controller.tree import DamagedNodeError
from ottla.storage.adoption import look_at
from ottla.storage.errors import LogDirError

RESERVED_MAX = 1000  # reserved.broker.max.id, unless the file says otherwise


def add_command(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser("to-cluster", help="move a broker's metadata into ZooKeeper, where others can join")
    parser.add_argument("data", metavar="DIR", help="log.dirs of a stopped ottla broker (the first, if several)")
    parser.add_argument(
        "--zookeeper", required=True, metavar="CONNECT", help="HOST:PORT[,HOST:PORT ...][/chroot], without topics yet"
    )
    parser.set_defaults(action=run)


def run(options: argparse.Namespace) -> int:
    try:
        address = parse_connect(options.zookeeper)
    except ValueError as problem:
        raise UsageError(f"--zookeeper: {problem}") from None
    if not os.path.exists(os.path.join(options.data, FILE_NAME)):
        raise ToolError(f"{options.data} has no {FILE_NAME}: it is not the first log folder of an ottla broker")
    try:
        folder = look_at(options.data)
        try:
            moved = asyncio.run(_move(read_nodes(options.data), str(address)))
            backup = set_aside(options.data)
        finally:
            folder.unlock()
    except (LogDirError, StoreError, MigrationRefusedError, DamagedNodeError) as problem:
        raise ToolError(str(problem)) from None
    report(moved, str(address), backup, folder.node_id)
    return 0


def report(moved: Migrated, connect: str, backup: str, node_id: int | None) -> None:
    print(
        f"moved {moved.topics} topics with {moved.partitions} partitions of cluster {moved.cluster_id} to {connect}; "
        f"the old store is kept as {backup}"
    )
    print("Start the broker as before, with these settings beside its own (and without process.roles, controller.*):")
    print(f"  broker.id={1 if node_id is None else node_id}")
    print(f"  zookeeper.connect={connect}")
    if node_id is not None and node_id > RESERVED_MAX:
        print(f"  reserved.broker.max.id={node_id}")


async def _move(source: dict[str, Node], connect: str) -> Migrated:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 (kazoo is slow to load)

    store = ZooKeeperStore(connect)
    await store.open()
    try:
        return await migrate(source, store)
    finally:
        await store.close()
