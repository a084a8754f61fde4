"""`zookeeper-server-stop.sh`: finds the ZooKeeper servers of this machine and asks them to stop (SIGTERM)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.running.broker_processes import PROC, ask_to_stop
from ottla.cli.terminal import EXIT_FAILED, ToolError, fail
from ottla.cli.zookeeper.jars import MAIN_CLASS

TOOL = "zookeeper-server-stop.sh"
USAGE = f"USAGE: {TOOL}"


def run(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--help"]:
        print(USAGE)
        return 0
    if arguments:
        raise ToolError(f"{arguments[0]} is not understood. {USAGE}")
    if not PROC.is_dir():
        raise ToolError("servers can only be found on Linux: stop them by their process ids with kill -TERM")
    pids = find_servers(PROC)
    if not pids:
        return fail(TOOL, "No zookeeper server to stop", EXIT_FAILED)
    ask_to_stop(pids)
    return 0


def find_servers(proc: Path) -> list[int]:
    """Process ids of Java processes that run a ZooKeeper server."""
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            words = [os.fsdecode(word) for word in (folder / "cmdline").read_bytes().split(b"\0")]
        except OSError:
            continue  # gone, or not ours to look at
        if Path(words[0]).name == "java" and MAIN_CLASS in words:
            found.append(int(folder.name))
    return sorted(found)
