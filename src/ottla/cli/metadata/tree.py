"""Read-only access to a metadata store, in a broker's file or in ZooKeeper, and its presentation as a tree."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ottla.cli.terminal import ToolError
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import Node

if TYPE_CHECKING:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore

_SECRET = re.compile(rb"\b(salt|stored_key|server_key)=[A-Za-z0-9+/=]+")
STORE_SUBFOLDERS = ("", "broker")  # a log directory, or the folder of `ottla up` that contains it
DATA_LENGTH_MAX = 120  # shown in a line of the tree


class Tree(Protocol):
    """The read methods of both stores."""

    def get(self, path: str) -> Node | None: ...

    def children(self, path: str) -> list[str]: ...

    def subtree(self, path: str) -> dict[str, Node]: ...


class ZooKeeperTree:
    """Synchronous access to a cluster's ZooKeeper."""

    def __init__(self, store: ZooKeeperStore, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def get(self, path: str) -> Node | None:
        return self._runner.run(self._store.get(path))

    def children(self, path: str) -> list[str]:
        return self._runner.run(self._store.children(path))

    def subtree(self, path: str) -> dict[str, Node]:
        return self._runner.run(self._store.subtree(path))


@contextmanager
def open_zookeeper(connect: str) -> Iterator[ZooKeeperTree]:
    """Open the tree below the chroot of a connect string, read-only."""
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 (kazoo is slow to load)

    with asyncio.Runner() as runner:
        store = ZooKeeperStore(connect, makes_chroot=False)
        runner.run(store.open())
        try:
            yield ZooKeeperTree(store, runner)
        finally:
            runner.run(store.close())


@contextmanager
def open_tree(folder: Path) -> Iterator[SqliteTree]:
    """Open the store in a folder, read-only."""
    file = next(
        (
            folder / subfolder / FILE_NAME
            for subfolder in STORE_SUBFOLDERS
            if (folder / subfolder / FILE_NAME).is_file()
        ),
        None,
    )
    if file is None:
        raise ToolError(f"{folder} has no {FILE_NAME}: name the broker's log directory with --data DIR")
    tree = SqliteTree(str(file))
    tree.open_to_read()
    try:
        yield tree
    finally:
        tree.close()


def without_secrets(data: bytes) -> bytes:
    """The data of a node without sensitive settings and without password hashes, which allow offline guessing."""
    from ottla.base.broker_settings import find_key  # noqa: PLC0415 (only nodes of settings need it)

    data = _SECRET.sub(rb"\1=[hidden]", data)
    try:
        node = json.loads(data) if b'"config"' in data else None
    except (ValueError, RecursionError):
        return data
    config = node.get("config") if isinstance(node, dict) else None
    if not isinstance(node, dict) or not isinstance(config, dict):
        return data
    keys = {name: find_key(name) for name in config}
    hidden = {name: "[hidden]" for name, key in keys.items() if key is not None and key.is_sensitive}
    return json.dumps({**node, "config": {**config, **hidden}}, ensure_ascii=False).encode() if hidden else data


def tree_lines(path: str, nodes: Mapping[str, Node]) -> Iterator[str]:
    """Each node indented below its parent, with the beginning of its data."""
    base = path.rstrip("/")
    yield path + _data(nodes.get(path))
    for place in sorted((place for place in nodes if place != path), key=lambda place: place.split("/")):
        names = place[len(base) + 1 :].split("/")
        yield "  " * len(names) + names[-1] + _data(nodes[place])


def _data(node: Node | None) -> str:
    if node is None or not node.data:
        return ""
    text = without_secrets(node.data).decode("utf-8", "backslashreplace").replace("\n", "\\n")
    return f"  {text}" if len(text) <= DATA_LENGTH_MAX else f"  {text[:DATA_LENGTH_MAX]}..."
