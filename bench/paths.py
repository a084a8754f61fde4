"""Locations. Nothing is written outside of the cache folder, the output folder and docs/."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
BENCH = PROJECT / "bench"
DOCS = PROJECT / "docs"


def cache_folder() -> Path:
    """Jars, ballast, data of running brokers and results: big, and worth keeping between runs."""
    shared = os.environ.get("XDG_CACHE_HOME")
    folder = Path(shared) / "ottla-bench" if shared else PROJECT / ".cache" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
