"""`ottla.broker.epoch`: the broker epoch that a log directory belongs to, and whether it is complete for that epoch.

In a cluster every registration of a broker gets a new broker epoch. A restarted broker reports its previous epoch only
if its log directories contain everything that it acknowledged in that epoch. This holds after a clean shutdown
(`.kafka_cleanshutdown` has the epoch), and after a crash of the process alone: written data is still in the page cache.
The boot id, which Linux generates at every boot, shows that the machine did not restart.
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


def previous_broker_epoch(dirs: Sequence[LogDir], boot_id: str | None = None) -> int:
    """Return the previous broker epoch of these log directories; UNKNOWN if one of them may be incomplete."""
    boot_id = current_boot_id() if boot_id is None else boot_id
    lives = {stored_broker_epoch(log_dir, boot_id) for log_dir in dirs if log_dir.offline_reason is None}
    return lives.pop() if len(lives) == 1 else UNKNOWN


def write_broker_epoch(dirs: Sequence[LogDir], epoch: int, boot_id: str | None = None) -> None:
    """Write the broker epoch to each log directory. A failure is only logged: the logs of that directory report it."""
    fields = {"version": 1, "broker_epoch": epoch, "boot_id": current_boot_id() if boot_id is None else boot_id}
    for log_dir in dirs:
        if log_dir.offline_reason is not None:
            continue
        try:
            files.replace_file(f"{log_dir.path}/{FILE_NAME}", json.dumps(fields).encode(), is_durable=True)
        except OSError as problem:
            logger.warning("cannot write the broker epoch to %s: %s", log_dir.path, problem)


def was_cluster_broker(dirs: Sequence[LogDir]) -> bool:
    """Return whether a broker of a cluster has used one of these log directories."""
    return any(os.path.exists(f"{log_dir.path}/{FILE_NAME}") for log_dir in dirs)


def stored_broker_epoch(log_dir: LogDir, boot_id: str) -> int:
    if log_dir.clean_shutdown_marker is not None:
        return epoch_field(parse_json_fields(log_dir.clean_shutdown_marker), "brokerEpoch")
    try:
        fields = parse_json_fields(files.read_file(f"{log_dir.path}/{FILE_NAME}"))
    except OSError:
        return UNKNOWN
    return epoch_field(fields, "broker_epoch") if boot_id and fields.get("boot_id") == boot_id else UNKNOWN


def epoch_field(fields: dict[str, Any], key: str) -> int:
    epoch = fields.get(key)
    return epoch if isinstance(epoch, int) and epoch >= 0 else UNKNOWN


def parse_json_fields(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def current_boot_id() -> str:
    """Return the boot id; empty if the system has none, so that every crash is treated as a restart of the machine."""
    try:
        return files.read_file(BOOT_ID_FILE).decode().strip()
    except OSError:
        return ""
