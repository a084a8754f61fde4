"""Which life of a broker a log folder belongs to, and whether it has everything that this life wrote.

In a cluster every registration of a broker is a new life with an epoch of its own. A broker that comes back says which
life it goes on with, and only if its folders have all that it had acknowledged then: after a clean stop
(`.kafka_cleanshutdown` tells the epoch), or after a crash of the process alone, because what was written is in the
kernel's hands. That the machine did not go down is told by the boot id that Linux makes anew with every boot.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from typing import Any, Final

from ottla.storage import files
from ottla.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

FILE_NAME: Final = "ottla.broker.epoch"
BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"
UNKNOWN: Final = -1


def previous_life(dirs: Sequence[LogDir], boot_id: str | None = None) -> int:
    """The epoch of the life that these folders go on with; UNKNOWN if one of them may lack something."""
    boot_id = current_boot_id() if boot_id is None else boot_id
    lives = {life_of(log_dir, boot_id) for log_dir in dirs if log_dir.failure is None}
    return lives.pop() if len(lives) == 1 else UNKNOWN


def note_life(dirs: Sequence[LogDir], epoch: int, boot_id: str | None = None) -> None:
    """Write down which life goes on from here. A folder that cannot be written to will be told so by its logs."""
    fields = {"version": 1, "broker_epoch": epoch, "boot_id": current_boot_id() if boot_id is None else boot_id}
    for log_dir in dirs:
        if log_dir.failure is not None:
            continue
        try:
            files.replace_file(f"{log_dir.path}/{FILE_NAME}", json.dumps(fields).encode(), durable=True)
        except OSError as problem:
            logger.warning("cannot note the broker's epoch in %s: %s", log_dir.path, problem)


def has_lived_in_cluster(dirs: Sequence[LogDir]) -> bool:
    """Whether a broker of a cluster has used one of these folders."""
    return any(os.path.exists(f"{log_dir.path}/{FILE_NAME}") for log_dir in dirs)


def life_of(log_dir: LogDir, boot_id: str) -> int:
    if log_dir.marker is not None:
        return epoch_in(fields_of(log_dir.marker), "brokerEpoch")
    try:
        fields = fields_of(files.read_whole(f"{log_dir.path}/{FILE_NAME}"))
    except OSError:
        return UNKNOWN
    return epoch_in(fields, "broker_epoch") if boot_id and fields.get("boot_id") == boot_id else UNKNOWN


def epoch_in(fields: dict[str, Any], key: str) -> int:
    epoch = fields.get(key)
    return epoch if isinstance(epoch, int) and epoch >= 0 else UNKNOWN


def fields_of(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def current_boot_id() -> str:
    """Empty where the system has none: then a crash counts as one of the machine."""
    try:
        return files.read_whole(BOOT_ID_FILE).decode().strip()
    except OSError:
        return ""
