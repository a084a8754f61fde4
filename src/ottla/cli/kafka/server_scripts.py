"""Kafka's scripts that start and stop servers.

`kafka-server-start.sh [-daemon] server.properties [--override property=value]*`, `kafka-server-stop.sh`,
`zookeeper-server-start.sh [-daemon] zookeeper.properties` and `zookeeper-server-stop.sh`. A start script becomes the
server, so each function imports only what its own server needs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla import __version__
from ottla.base.log4j import VARIABLE as LOG4J_VARIABLE
from ottla.cli.arguments import parse_pairs
from ottla.cli.java.options import KAFKA_VERSION
from ottla.cli.terminal import EXIT_FAILED, ToolError, fail, warn

BROKER_START: Final = "kafka-server-start.sh"
BROKER_START_USAGE: Final = f"USAGE: {BROKER_START} [-daemon] server.properties [--override property=value]*"
BROKER_LOG_FILE: Final = "kafkaServer.out"
BROKER_STOP: Final = "kafka-server-stop.sh"
BROKER_STOP_USAGE: Final = f"USAGE: {BROKER_STOP} [--process-role=broker] [--node-id=N]"
ZOOKEEPER_START: Final = "zookeeper-server-start.sh"
ZOOKEEPER_START_USAGE: Final = f"USAGE: {ZOOKEEPER_START} [-daemon] zookeeper.properties"
ZOOKEEPER_LOG_FILE: Final = "zookeeper.out"
ZOOKEEPER_STOP: Final = "zookeeper-server-stop.sh"
ZOOKEEPER_STOP_USAGE: Final = f"USAGE: {ZOOKEEPER_STOP}"


def start_broker(arguments: Sequence[str]) -> int:
    """`kafka-server-start.sh`: runs one broker."""
    from ottla.cli.commands import broker  # noqa: PLC0415 (the other scripts need no broker)

    words = list(arguments)
    is_daemon = take_flags(words)
    if words and words[0] in ("--help", "-help"):
        print(BROKER_START_USAGE)
        return 0
    if words and words[0] == "--version":
        print(f"{KAFKA_VERSION} (ottla {__version__})")
        return 0
    if not words or words[0].startswith("-"):
        warn(BROKER_START_USAGE)
        return EXIT_FAILED
    overrides = parse_overrides(words[1:])
    if not Path(words[0]).is_file():
        raise ToolError(f"{words[0]} does not exist: name the broker's server.properties")
    if is_daemon:
        options = {LOG4J_VARIABLE: log4j_options(log_folder())}
        return start_in_background(BROKER_START, words, BROKER_LOG_FILE, options)
    return broker.start(words[0], overrides, os.environ)


def start_zookeeper(arguments: Sequence[str]) -> int:
    """`zookeeper-server-start.sh`: runs a ZooKeeper server."""
    from ottla.cli.commands import zookeeper  # noqa: PLC0415 (the other scripts need no ZooKeeper)
    from ottla.cli.zookeeper.server import ServerOptions  # noqa: PLC0415

    words = list(arguments)
    is_daemon = take_flags(words)
    if words and words[0] in ("--help", "-help"):
        print(ZOOKEEPER_START_USAGE)
        return 0
    if len(words) != 1 or words[0].startswith("-"):
        warn(ZOOKEEPER_START_USAGE)
        return EXIT_FAILED
    if not Path(words[0]).is_file():
        raise ToolError(f"{words[0]} does not exist: name ZooKeeper's zookeeper.properties")
    if is_daemon:
        return start_in_background(ZOOKEEPER_START, words, ZOOKEEPER_LOG_FILE)
    return zookeeper.start(ServerOptions(), words[0])


def stop_brokers(arguments: Sequence[str]) -> int:
    """`kafka-server-stop.sh`: sends SIGTERM to the brokers of this machine."""
    from ottla.cli.processes.broker_processes import PROC, find_brokers, terminate_processes  # noqa: PLC0415

    node_id = None
    for word in arguments:
        name, _, value = word.partition("=")
        if name == "--node-id" and value:
            node_id = value
        elif word == "--help":
            print(BROKER_STOP_USAGE)
            return 0
        elif word not in ("--process-role=broker", "--process-role=controller"):
            raise ToolError(f"{word} is not understood. {BROKER_STOP_USAGE}")
    if not PROC.is_dir():
        raise ToolError("brokers can be found only on Linux: stop them by process id with kill -TERM")
    pids = find_brokers(PROC, node_id)
    if not pids:
        return fail(BROKER_STOP, "No kafka server to stop", EXIT_FAILED)
    terminate_processes(pids)
    return 0


def stop_zookeepers(arguments: Sequence[str]) -> int:
    """`zookeeper-server-stop.sh`: sends SIGTERM to the ZooKeeper servers of this machine."""
    from ottla.cli.processes.broker_processes import PROC, terminate_processes  # noqa: PLC0415

    if list(arguments) == ["--help"]:
        print(ZOOKEEPER_STOP_USAGE)
        return 0
    if arguments:
        raise ToolError(f"{arguments[0]} is not understood. {ZOOKEEPER_STOP_USAGE}")
    if not PROC.is_dir():
        raise ToolError("servers can be found only on Linux: stop them by process id with kill -TERM")
    pids = find_servers(PROC)
    if not pids:
        return fail(ZOOKEEPER_STOP, "No zookeeper server to stop", EXIT_FAILED)
    terminate_processes(pids)
    return 0


def take_flags(words: list[str]) -> bool:
    """Remove the flags of Kafka's launcher from the front of the words; return whether one of them is -daemon."""
    is_daemon = False
    while words and words[0] in ("-daemon", "-loggc", "-name"):
        word = words.pop(0)
        is_daemon |= word == "-daemon"
        if word == "-name" and words:
            words.pop(0)
    return is_daemon


def parse_overrides(words: Sequence[str]) -> dict[str, str]:
    """`--override a=b --override c=d` or `--override=a=b` as a dictionary."""
    pairs, left = [], list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--override="):
            pairs.append(word.partition("=")[2])
        elif word == "--override" and left:
            pairs.append(left.pop(0))
        else:
            raise ToolError(f"{word} is not understood. {BROKER_START_USAGE}")
    return parse_pairs(pairs, allow_bare=False)


def log_folder() -> Path:
    """The folder of log files of a server in the background."""
    return Path(os.environ.get("LOG_DIR") or "logs")


def log4j_options(folder: Path) -> str:
    """Pass the folder of log files on as Kafka's scripts do; a folder that is already set stays."""
    given = os.environ.get(LOG4J_VARIABLE, "")
    return f"-Dkafka.logs.dir={shlex.quote(str(folder))} {given}".strip()


def start_in_background(
    tool: str, words: Sequence[str], log_file: str, environment: Mapping[str, str] | None = None
) -> int:
    """Start a server that outlives this terminal; its output goes to a file, as with Kafka's scripts."""
    folder = log_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / log_file, "ab") as log:
        subprocess.Popen(  # noqa: S603 (our own command line)
            [sys.executable, "-m", "ottla.cli.kafka_scripts", tool, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | dict(environment or {}),
        )
    return 0


def find_servers(proc: Path) -> list[int]:
    """Process ids of Java processes that run a ZooKeeper server."""
    from ottla.cli.zookeeper.jars import MAIN_CLASS  # noqa: PLC0415

    found = []
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            words = [os.fsdecode(word) for word in (folder / "cmdline").read_bytes().split(b"\0")]
        except OSError:
            continue  # the process has ended, or belongs to another user
        if Path(words[0]).name == "java" and MAIN_CLASS in words:
            found.append(int(folder.name))
    return sorted(found)
