"""CRC-32C, the checksum of record batches and snapshots.

The import of the crc32c package reads the package's version, and loads email, zipfile and csv for that: 2 MB, and a
twentieth of a broker's start. So only its extension module is loaded, and the package if that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final

PACKAGE: Final = "crc32c"
EXTENSION: Final = "crc32c._crc32c"


def load() -> Callable[..., int]:
    """Return the library's function: crc32c(data, so_far=0)."""
    package = PathFinder.find_spec(PACKAGE)  # find_spec() does not run the package
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(EXTENSION, folders) if folders else None
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        found: Callable[..., int] | None = getattr(module, "crc32c", None)
        if found is not None:
            return found
    from crc32c import crc32c as whole  # noqa: PLC0415 (a release whose extension has another name)

    function: Callable[..., int] = whole
    return function


crc32c: Final = load()
