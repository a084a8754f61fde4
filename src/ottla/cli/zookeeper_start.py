"""`zookeeper-server-start.sh [-daemon] zookeeper.properties`: Kafka's script for the server that it brought along."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.cli import zookeeper
from ottla.cli.terminal import EXIT_FAILED, ToolError, warn
from ottla.cli.zookeeper_config import Wish

TOOL = "zookeeper-server-start.sh"
USAGE = f"USAGE: {TOOL} [-daemon] zookeeper.properties"
LOG_FILE = "zookeeper.out"


def run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    is_daemon = False
    while words and words[0] in ("-daemon", "-loggc", "-name"):
        word = words.pop(0)
        is_daemon |= word == "-daemon"
        if word == "-name" and words:
            words.pop(0)
    if words and words[0] in ("--help", "-help"):
        print(USAGE)
        return 0
    if len(words) != 1 or words[0].startswith("-"):
        warn(USAGE)
        return EXIT_FAILED
    if not Path(words[0]).is_file():
        raise ToolError(f"there is no file {words[0]}: name ZooKeeper's zookeeper.properties")
    return _start_in_background(words) if is_daemon else zookeeper.start(Wish(), words[0])


def _start_in_background(words: Sequence[str]) -> int:
    """Start a server that outlives this terminal; what it says goes to a file, as with Kafka's script."""
    folder = Path(os.environ.get("LOG_DIR") or "logs")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOG_FILE, "ab") as log:
        subprocess.Popen(  # noqa: S603 (our own command line)
            [sys.executable, "-m", "ottla.cli.kafka_scripts", TOOL, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return 0
