"""Puts the files of a deployment into a folder: all of them, or none, and never over somebody's own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ottla.cli.terminal import ToolError, UsageError

FILES_NAMED_MAX = 3


def check_target(folder: Path) -> None:
    """Raises UsageError for a folder that holds something, or is none."""
    if folder.is_symlink() and not folder.exists():
        raise UsageError(f"{folder} is a link that leads nowhere: choose another folder")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: choose another")
    try:
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    except OSError as problem:
        raise ToolError(f"cannot look into {folder}: {(problem.strerror or str(problem)).lower()}") from None
    if found:
        more = ", ..." if len(found) > FILES_NAMED_MAX else ""
        raise UsageError(
            f"{folder} is not empty ({', '.join(found[:FILES_NAMED_MAX])}{more}): choose a new or empty folder. "
            "Nothing was written"
        )


def write_files(folder: Path, written: Mapping[str, str]) -> None:
    """All of them are there before any has its name: a full disk leaves no half of a deployment behind.

    A folder that is there stays the one that it is: somebody may stand in it, and it may be a disk of its own.
    """
    check_target(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=".unfinished-"))
        try:
            for name, text in written.items():
                path = unfinished / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            for path in list(unfinished.iterdir()):
                path.rename(folder / path.name)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as problem:
        raise ToolError(f"cannot write to {folder}: {(problem.strerror or str(problem)).lower()}") from None
