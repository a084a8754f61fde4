"""`kafka-server-stop.sh`: finds the brokers of this machine and asks them to stop (SIGTERM)."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from ottla.base.properties import PropertiesError, read_properties
from ottla.cli.terminal import EXIT_FAILED, ToolError, fail

TOOL = "kafka-server-stop.sh"
USAGE = f"USAGE: {TOOL} [--process-role=broker] [--node-id=N]"
PROC = Path("/proc")
START_SCRIPT = "kafka-server-start.sh"
CLASS_SCRIPT, BROKER_CLASS = "kafka-run-class.sh", "kafka.Kafka"
MODULE = "ottla.cli.kafka_scripts"
ID_KEYS = ("node.id", "broker.id")


def run(arguments: Sequence[str]) -> int:
    node_id = None
    for word in arguments:
        name, _, value = word.partition("=")
        if name == "--node-id" and value:
            node_id = value
        elif word == "--help":
            print(USAGE)
            return 0
        elif word not in ("--process-role=broker", "--process-role=controller"):
            raise ToolError(f"{word} is not understood. {USAGE}")
    if not PROC.is_dir():
        raise ToolError("brokers can only be found on Linux: stop them by their process ids with kill -TERM")
    pids = find_brokers(PROC, node_id)
    if not pids:
        return fail(TOOL, "No kafka server to stop", EXIT_FAILED)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue  # ended by itself in the meantime
        except PermissionError:
            raise ToolError(f"process {pid} belongs to somebody else: not allowed to stop it") from None
    return 0


def find_brokers(proc: Path, node_id: str | None = None) -> list[int]:
    """Process ids of ottla brokers, this process left out."""
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            words = [os.fsdecode(word) for word in (folder / "cmdline").read_bytes().split(b"\0")][:-1]
            if is_broker(words) and (node_id is None or _node_id(words, folder / "cwd") == node_id):
                found.append(int(folder.name))
        except OSError:
            continue  # gone, or not ours to look at
    return sorted(found)


def is_broker(words: Sequence[str]) -> bool:
    """Whether this command line runs a broker in this very process (a supervisor does not, it starts one)."""
    if not words or not Path(words[0]).name.startswith("python"):
        return False
    program, *rest = program_of(words[1:]) or [""]
    if program == MODULE:  # python -m ottla.cli.kafka_scripts kafka-server-start.sh ...
        program, *rest = rest or [""]
    if Path(program).name == START_SCRIPT or (Path(program).name == CLASS_SCRIPT and BROKER_CLASS in rest):
        return "-daemon" not in rest
    return (Path(program).name == "ottla" or program == "ottla.cli.main") and rest[:1] == ["broker"]


def program_of(words: Sequence[str]) -> list[str]:
    """The script or module that an interpreter was told to run, and its arguments."""
    left = list(words)
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if option == "-m":
            break
        if option in ("-X", "-W"):
            del left[:1]
    return left


def _node_id(words: Sequence[str], cwd: Path) -> str | None:
    """The id on the command line, else the one in the properties file that it names."""
    for word in words:
        key, _, value = word.removeprefix("--override=").partition("=")
        if key in ID_KEYS:
            return value
    for word in words:
        path = cwd / word.removeprefix("--config=")
        if word.endswith(".properties") and path.is_file():
            try:
                properties = read_properties(path.read_text("utf-8", "replace"))
            except PropertiesError:
                return None
            return next((properties[key] for key in ID_KEYS if key in properties), None)
    return None
