"""Plants a mistake into a copy of the source, and plays seeds with it until a promise is broken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
NOT_EVEN_CODE = re.compile(
    r"^(SyntaxError|IndentationError|NameError|ImportError|ModuleNotFoundError):.*", re.MULTILINE
)


class Change(NamedTuple):
    """One place in the source."""

    file: str  # below src/ottla
    right: str
    wrong: str


class PlantedBug(NamedTuple):
    """What is done wrong."""

    name: str
    changes: tuple[Change, ...]
    theme: str = "-"  # in which it is looked for; "-": any
    first_seed: int = 0  # many before it do not show it, and each of them takes time


def plant(bug: PlantedBug, folder: Path) -> None:
    """A copy of the source with the mistake in it."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for change in bug.changes:
        path = folder / "src" / "ottla" / change.file
        text = path.read_text()
        assert text.count(change.right) == 1, f"{bug.name}: {change.file} has changed, adapt the planted bug"
        path.write_text(text.replace(change.right, change.wrong))


def play(bug: PlantedBug, folder: Path, module: str, *arguments: str) -> str | None:
    """Plant the bug and run the module; what was found, or None."""
    plant(bug, folder)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder / 'src'}:{ROOT}",
        "OTTLA_PURE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", module, *arguments]
    played = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if played.returncode == 0:
        return None
    found = (played.stdout + played.stderr).strip()
    broken = NOT_EVEN_CODE.search(found)
    assert broken is None, f"{bug.name} cannot be run, so nothing was found: {broken}"
    return found


def hunt_all(bugs: list[PlantedBug], hunt: Callable[[PlantedBug, Path], str | None]) -> None:
    """Those that the command line names, or all; a line for each."""
    for bug in bugs:
        if len(sys.argv) < 2 or sys.argv[1] in bug.name:
            with tempfile.TemporaryDirectory() as place:
                print(f"{bug.name}: {first_lines(hunt(bug, Path(place)))}", flush=True)


def first_lines(found: str | None) -> str:
    """The broken promise, and the seed that broke it."""
    if found is None:
        return "not found"
    lines = found.splitlines()
    seed = next((number for number, line in enumerate(lines) if line.startswith("seed ")), None)
    promise = next((line for line in lines if "Error: " in line), lines[max(0, (seed or 0) - 1)])
    return f"{'' if seed is None else lines[seed]}: {promise[:150]}"
