"""Whether there is room on a disk again: by trying, since asking for free bytes tells nothing about quotas."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from ottla.storage import files

PROBE_FILE: Final = "ottla.room"
PROBE_BYTES: Final = 1 << 20  # as much as the largest batch of most topics


def has_room(path: str) -> bool:
    """In any thread: put a file into this folder and take it away again."""
    probe = f"{path}/{PROBE_FILE}"
    try:
        with files.opened(probe, files.CREATE_FLAGS | os.O_TRUNC) as descriptor:
            files.write_whole(descriptor, bytes(PROBE_BYTES), 0)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            files.remove_if_there(probe)
    return True
