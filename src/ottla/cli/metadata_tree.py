"""Reading a broker's metadata store from outside: where its file is, how to open it, how to draw it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ottla.cli.terminal import ToolError
from ottla.controller.embedded import FILE_NAME
from ottla.controller.sqlite_tree import SqliteTree
from ottla.controller.store import Node

PLACES = ("", "broker")  # a log folder itself, or the folder of `ottla up` that holds it
DATA_LENGTH_MAX = 120  # of what a line of the tree shows


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
    text = node.data.decode("utf-8", "backslashreplace").replace("\n", "\\n")
    return f"  {text}" if len(text) <= DATA_LENGTH_MAX else f"  {text[:DATA_LENGTH_MAX]}..."
