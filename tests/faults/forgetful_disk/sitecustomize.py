"""Loaded by a broker's Python before anything else: notes what has really reached the disk.

Each sync of a file writes its size into a file of the folder OTTLA_TEST_SYNCED. A power cut is then a kill, after
which every log is cut back to the size that is noted, or to nothing (`cluster_disks.lose_power`).
"""

import hashlib
import os

from ottla.storage import files

SYNCED = os.environ["OTTLA_TEST_SYNCED"]
sync = files.sync


def noted_sync(descriptor: int) -> None:
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    size = os.fstat(descriptor).st_size  # what was written before the sync is what it promises
    sync(descriptor)
    name = f"{SYNCED}/{hashlib.sha1(path.encode()).hexdigest()}"
    with open(f"{name}.{os.getpid()}", "w") as note:
        note.write(f"{size} {path}")
    os.rename(note.name, name)


files.sync = noted_sync
