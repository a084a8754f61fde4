"""Finds the broker processes of this machine by their command lines (Linux only)."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from ottla.base.properties import PropertiesError, read_properties
from ottla.cli.terminal import ToolError

PROC = Path("/proc")
START_SCRIPT = "kafka-server-start.sh"
CLASS_SCRIPT, BROKER_CLASS = "kafka-run-class.sh", "kafka.Kafka"
MODULE = "ottla.cli.kafka_scripts"
PROCESSES = "--processes"
ID_KEYS = ("node.id", "broker.id")
FOLDER_KEYS = ("log.dirs", "log.dir")


def terminate_processes(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue  # ended in the meantime
        except PermissionError:
            raise ToolError(f"process {pid} belongs to another user: no permission to stop it") from None


def find_brokers(proc: Path, node_id: str | None = None, data: Path | None = None) -> list[int]:
    """Process ids of ottla brokers except this process, optionally only those with log directories in `data`.

    For brokers under a supervisor (--processes) it is the supervisor's id, because the supervisor restarts its brokers.
    With `node_id` it is the broker's own.
    """
    found = {}
    for folder in proc.iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            words = command_words(folder)
            if (
                is_broker(words)
                and (node_id is None or _setting(ID_KEYS, words, folder / "cwd") == node_id)
                and (data is None or _stores_data_in(data, words, folder / "cwd"))
            ):
                found[int(folder.name)] = is_supervisor(words)
        except OSError:
            continue  # ended, or owned by another user
    if node_id is not None:
        return sorted(pid for pid, has_others in found.items() if not has_others)
    return sorted(pid for pid in found if supervisor_of(proc, pid) not in found)


def command_words(folder: Path) -> list[str]:
    return [os.fsdecode(word) for word in (folder / "cmdline").read_bytes().split(b"\0")][:-1]


def is_supervisor(words: Sequence[str]) -> bool:
    """Whether this command line starts several broker processes."""
    return any(word == PROCESSES or word.startswith(f"{PROCESSES}=") for word in words)


def supervisor_of(proc: Path, pid: int) -> int | None:
    """The supervisor of this broker, which restarts it when it ends; None without one."""
    try:
        parent = int((proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
        words = command_words(proc / str(parent))
    except (OSError, ValueError, IndexError):
        return None
    return parent if is_broker(words) and is_supervisor(words) else None


def is_broker(words: Sequence[str]) -> bool:
    """Whether this command line runs a broker, in this process or under a supervisor."""
    if not words or not Path(words[0]).name.startswith("python"):
        return False
    program, *rest = python_program(words[1:]) or [""]
    if program == MODULE:  # python -m ottla.cli.kafka_scripts kafka-server-start.sh ...
        program, *rest = rest or [""]
    if Path(program).name == START_SCRIPT or (Path(program).name == CLASS_SCRIPT and BROKER_CLASS in rest):
        return "-daemon" not in rest
    return (Path(program).name == "ottla" or program == "ottla.cli.main") and rest[:1] == ["broker"]


def python_program(words: Sequence[str]) -> list[str]:
    """The script or module that a Python interpreter runs, and its arguments."""
    left = list(words)
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if option == "-m":
            break
        if option in ("-X", "-W"):
            del left[:1]
    return left


def _stores_data_in(data: Path, words: Sequence[str], cwd: Path) -> bool:
    """Whether all log directories of a broker are in this folder, according to its command line."""
    value = _setting(FOLDER_KEYS, words, cwd)
    folders = [(cwd / each.strip()).resolve() for each in (value or "").split(",") if each.strip()]
    return bool(folders) and all(folder.is_relative_to(data.resolve()) for folder in folders)


def _setting(keys: Sequence[str], words: Sequence[str], cwd: Path) -> str | None:
    """The first of these keys in the command line, else in its properties file."""
    given = dict(word.removeprefix("--override=").partition("=")[::2] for word in words)
    if named := next((given[key] for key in keys if key in given), None):
        return named
    for word in words:
        path = cwd / word.removeprefix("--config=")
        if word.endswith(".properties") and path.is_file():
            try:
                properties = read_properties(path.read_text("utf-8", "replace"))
            except PropertiesError:
                return None
            return next((properties[key] for key in keys if key in properties), None)
    return None
