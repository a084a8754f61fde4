"""The text of a file that says what a cluster shall be, and what to say when it is wrong."""

from __future__ import annotations

import os
from typing import Final

from ottla.cli.security.entries import PROBLEMS_MAX, FileError
from ottla.cli.terminal import UsageError, stdin_bytes, warn

FILE_BYTES_MAX: Final = 16 << 20  # 100,000 entries: read in seconds, with less than a gigabyte of memory
STDIN: Final = "-"
LINES_MAX: Final = 20


def load_text(path: str) -> str:
    """Raises UsageError; warns if others can read the hashed passwords in it."""
    try:
        if path == STDIN:
            data = stdin_bytes().read(FILE_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
                is_open = os.fstat(file.fileno()).st_mode & 0o077
            if is_open and b"salted_password" in data:
                warn(f"warning: {path} holds hashed passwords and others can read it: chmod 600 {path}")
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB: split it by sections")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None


def shown_path(path: str) -> str:
    return "<stdin>" if path == STDIN else path


def tell_problems(tool: str, problem: FileError) -> None:
    for line in problem.lines[:LINES_MAX]:
        warn(f"{tool}: {line}")
    if len(problem.lines) > LINES_MAX:
        words = "or more besides" if len(problem.lines) >= PROBLEMS_MAX else "more"
        warn(f"{tool}: and {len(problem.lines) - LINES_MAX} {words}")
