"""Loaded by a broker's Python before anything else (this folder is in its PYTHONPATH): lets its disk fail on demand.

Each file in the folder OTTLA_TEST_FAULTS is named after a function of ottla.storage.files and holds a line
`ERRNO PATH-PART`: while it is there, calls for paths that contain PATH-PART fail with that error. `SLOW` in place of an
error lets them take half a second instead.
"""

import errno
import os
import time
from collections.abc import Callable
from typing import Any

from ottla.storage import files

FAULTS = os.environ["OTTLA_TEST_FAULTS"]
SLOW_SECONDS = 0.5
BY_DESCRIPTOR = ("sync", "write_at", "truncate")
BY_PATH = ("open_file", "rename", "unlink", "make_directory")


def failing(name: str, path_of: Callable[[Any], str]) -> Callable[..., Any]:
    original = getattr(files, name)

    def call(first: Any, *rest: Any) -> Any:
        try:
            with open(f"{FAULTS}/{name}") as fault:
                error, _, part = fault.readline().strip().partition(" ")
        except FileNotFoundError:
            return original(first, *rest)
        if part in path_of(first) and error == "SLOW":
            time.sleep(SLOW_SECONDS)
        elif part in path_of(first):
            code = getattr(errno, error)
            raise OSError(code, os.strerror(code))
        return original(first, *rest)

    return call


for function in BY_DESCRIPTOR:
    setattr(files, function, failing(function, lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}")))
for function in BY_PATH:
    setattr(files, function, failing(function, str))
