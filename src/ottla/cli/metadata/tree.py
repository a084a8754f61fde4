"""Reading a metadata store from outside, a broker's own file or a cluster's ZooKeeper: how it is opened and drawn."""

from __future__ import annotations

import asyncio
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
PLACES = ("", "broker")  # a log folder itself, or the folder of `ottla up` that holds it
DATA_LENGTH_MAX = 120  # of what a line of the tree shows


class Tree(Protocol):
    """What both stores let us look at."""

    def get(self, path: str) -> Node | None: ...

    def children(self, path: str) -> list[str]: ...

    def subtree(self, path: str) -> dict[str, Node]: ...


class ZooKeeperTree:
    """A cluster's tree, for a tool that does one thing after the other."""

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
    """The tree below the chroot of a connect string, for reading only."""
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
    """The store in a folder, for reading only."""
    file = next((folder / place / FILE_NAME for place in PLACES if (folder / place / FILE_NAME).is_file()), None)
    if file is None:
        raise ToolError(f"there is no {FILE_NAME} in {folder}: name the broker's log folder with --data DIR")
    tree = SqliteTree(str(file))
    tree.open_to_read()
    try:
        yield tree
    finally:
        tree.close()


def without_secrets(data: bytes) -> bytes:
    """What a node holds, but not what guesses at passwords could be compared with."""
    return _SECRET.sub(rb"\1=[hidden]", data)


def tree_lines(path: str, nodes: Mapping[str, Node]) -> Iterator[str]:
    """Each node under its parent, with the beginning of its data."""
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
