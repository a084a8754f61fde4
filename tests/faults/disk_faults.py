"""A broker whose disk fails on command: functions of ottla.storage.files are replaced (see failing_disk/)."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WRAPPER = Path(__file__).parent / "failing_disk"


class DiskFaults:
    """Switches for the faults of one broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def begin(self, operation: str, error: str, path_part: str = "") -> None:
        """From now on `operation` fails for paths that contain the part; in one step, so that none is half there."""
        unfinished = self.directory / f".{operation}"
        unfinished.write_text(f"{error} {path_part}\n")
        unfinished.rename(self.directory / operation)

    def end(self, operation: str) -> None:
        (self.directory / operation).unlink()

    @contextmanager
    def during(self, operation: str, error: str, path_part: str = "") -> Iterator[None]:
        self.begin(operation, error, path_part)
        try:
            yield
        finally:
            self.end(operation)


def broker_with_faults(
    broker_factory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, directory: Path, **settings: object
) -> tuple[Any, DiskFaults]:
    faults = DiskFaults(directory / "faults")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(WRAPPER), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("OTTLA_TEST_FAULTS", str(faults.directory))
    return broker_factory(**settings), faults
