"""`ottla metadata`: inspects the metadata store of a broker, or the ZooKeeper of a cluster.

Read-only, also while brokers run: SQLite allows readers next to its one writer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.arguments import Argument, Command, Parser, flag
from ottla.cli.metadata.tree import Tree, open_tree, open_zookeeper, tree_lines, without_secrets
from ottla.cli.terminal import ToolError, UsageError, escape_bytes, is_terminal, print_line
from ottla.controller.stores.store import Node, StoreError

EXAMPLES = """
ottla metadata ls /brokers --data ottla-data
ottla metadata get /brokers/ids/1 --data ottla-data
ottla metadata tree /config --data /var/lib/ottla
ottla metadata get /controller --zookeeper localhost:2181/ottla
"""
ROOT = "/"  # always exists and has no data
DEFAULT_FOLDER = "ottla-data"  # the data folder of `ottla up`


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    path = checked_path(options.path)
    try:
        with open_zookeeper(options.zookeeper) if options.zookeeper else open_tree(Path(options.data)) as tree:
            options.action(tree, path, options)
    except ValueError as problem:
        raise UsageError(f"--zookeeper: {problem}") from None
    except StoreError as problem:
        raise ToolError(str(problem)) from None
    return 0


def _parser() -> Parser:
    place = (
        Argument("path", nargs="?", default="/", metavar="PATH", help="such as /brokers/ids"),
        Argument(
            "--data", default=DEFAULT_FOLDER, metavar="DIR", help=f"the broker's folder (default: {DEFAULT_FOLDER})"
        ),
        Argument("--zookeeper", metavar="HOST:PORT/CHROOT", help="that of a cluster, instead of a folder"),
    )
    stat = flag("-s", "--stat", help="also its version and children")
    return Parser(
        prog="ottla metadata",
        description="Inspect the metadata of a broker or a cluster: topics, settings, leaders. Read-only.",
        examples=EXAMPLES,
        commands=(
            Command("ls", "list the nodes below a path", _ls, *place, examples=EXAMPLES),
            Command("get", "show the data of a path", _get, *place, stat, examples=EXAMPLES),
            Command("tree", "show a path and everything below it", _tree, *place, examples=EXAMPLES),
        ),
    )


def checked_path(text: str) -> str:
    """The path in the store's form, without a trailing slash."""
    path = "/" + text.strip("/")
    if any(part in ("", ".", "..") for part in path[1:].split("/")) and path != "/":
        raise ToolError(f"{text!r} is not a path: write for example /brokers/ids/1")
    return path


def _ls(tree: Tree, path: str, _options: argparse.Namespace) -> None:
    _get_node(tree, path)
    children = tree.children(path)
    if is_terminal(sys.stdout):
        for name in children:
            print_line(name)
    else:
        print_line(f"[{', '.join(children)}]")  # the format of zookeeper-shell.sh, for scripts


def _get(tree: Tree, path: str, options: argparse.Namespace) -> None:
    node = _get_node(tree, path)
    data = without_secrets(node.data)
    data = escape_bytes(_pretty(data)) if is_terminal(sys.stdout) else data
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    if options.stat:
        print(f"cZxid = {node.created_id:#x}")
        print(f"dataVersion = {node.version}")
        print(f"dataLength = {len(node.data)}")
        print(f"numChildren = {len(tree.children(path))}")


def _tree(tree: Tree, path: str, _options: argparse.Namespace) -> None:
    _get_node(tree, path)
    for line in tree_lines(path, tree.subtree(path)):
        print_line(line.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def _get_node(tree: Tree, path: str) -> Node:
    node = tree.get(path) if path != ROOT else Node(b"", 0, 0)
    if node is None:
        raise ToolError(f"Node does not exist: {path}")
    return node


def _pretty(data: bytes) -> bytes:
    """JSON with line breaks; other data unchanged."""
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return data
