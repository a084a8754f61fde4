"""What Kafka's scripts that start a server have in common: flags before the file, and a life behind the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def take_flags(words: list[str]) -> bool:
    """Take the flags of Kafka's launcher from the front of the words; whether one of them is -daemon."""
    is_daemon = False
    while words and words[0] in ("-daemon", "-loggc", "-name"):
        word = words.pop(0)
        is_daemon |= word == "-daemon"
        if word == "-name" and words:
            words.pop(0)
    return is_daemon


def log_folder() -> Path:
    """Where a server in the background writes."""
    return Path(os.environ.get("LOG_DIR") or "logs")


def start_in_background(
    tool: str, words: Sequence[str], log_file: str, environment: Mapping[str, str] | None = None
) -> int:
    """Start a server that outlives this terminal; what it says goes to a file, as with Kafka's scripts."""
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
