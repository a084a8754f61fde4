"""Brokers of the version before this one: its sources from git, run by the same Python.

`older_version.txt` names the commit. Its sources are written once into a folder of the user's cache, so that the next
run finds them with what Python has compiled of them; nothing of it is installed.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ottla.testing.cluster import ClusterBroker

NAMED_IN = Path(__file__).parent / "older_version.txt"
ROOT = Path(__file__).parents[2]
VARIABLE = "PYTHONPATH"


class OlderVersionMissingError(Exception):
    """This clone cannot tell what the older version was; the message says what to do."""


def older_commit() -> str:
    lines = NAMED_IN.read_text().splitlines()
    return next(line for line in lines if line and not line.startswith("#"))


def older_sources() -> Path:
    """The folder that PYTHONPATH has to name for the older version."""
    commit = older_commit()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "versions"
    folder = cache / commit
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as place:
            write_sources(commit, Path(place) / "sources")
            try:
                os.rename(Path(place) / "sources", folder)
            except OSError:
                if not folder.is_dir():  # or another process has created the same folder at the same time
                    raise
    return folder / "src"


def write_sources(commit: str, folder: Path) -> None:
    git = shutil.which("git")
    if git is None:
        raise OlderVersionMissingError("git is not installed: it has the sources of the older version")
    folder.mkdir()
    archive = subprocess.run([git, "-C", str(ROOT), "archive", commit, "src/ottla"], capture_output=True, check=False)
    if archive.returncode:
        raise OlderVersionMissingError(
            f"this clone lacks commit {commit}, which {NAMED_IN.name} names as the version to upgrade from "
            f"(`git fetch --unshallow` brings it): {archive.stderr.decode().strip()}"
        )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def make_older(broker: ClusterBroker, sources: Path) -> None:
    """From its next start on."""
    broker.environment[VARIABLE] = str(sources)


def make_newer(broker: ClusterBroker) -> None:
    broker.environment.pop(VARIABLE, None)
