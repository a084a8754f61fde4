"""`zookeeper-server-start.sh [-daemon] zookeeper.properties`: Kafka's script for the server that it brought along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ottla.cli.commands import zookeeper
from ottla.cli.kafka.start_script import start_in_background, take_flags
from ottla.cli.terminal import EXIT_FAILED, ToolError, warn
from ottla.cli.zookeeper.config import Wish

TOOL = "zookeeper-server-start.sh"
USAGE = f"USAGE: {TOOL} [-daemon] zookeeper.properties"
LOG_FILE = "zookeeper.out"


def run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    is_daemon = take_flags(words)
    if words and words[0] in ("--help", "-help"):
        print(USAGE)
        return 0
    if len(words) != 1 or words[0].startswith("-"):
        warn(USAGE)
        return EXIT_FAILED
    if not Path(words[0]).is_file():
        raise ToolError(f"there is no file {words[0]}: name ZooKeeper's zookeeper.properties")
    return start_in_background(TOOL, words, LOG_FILE) if is_daemon else zookeeper.start(Wish(), words[0])
