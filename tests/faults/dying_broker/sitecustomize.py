"""Loaded by a broker's Python before anything else (this folder is in its PYTHONPATH): lets it die at a named write.

The file OTTLA_TEST_DEATH, while it is there, holds a line `STEP NUMBER WHEN`: the process kills itself at the NUMBERth
write of that kind to a log since then, `before` it, `after` it, or after `half` of its bytes.
"""

import os
import signal
from typing import Any

from ottla.protocol.batches import HEADER_BYTES, read_batch_header, read_records
from ottla.storage import files
from ottla.transactions.transaction_log import decode_value

DEATH = os.environ["OTTLA_TEST_DEATH"]
OFFSETS, TRANSACTIONS = "__consumer_offsets-", "__transaction_state-"
OFFSET_KEY_MAX = 1  # keys of this version and older belong to committed offsets

write = files.write_at
seen: dict[str, int] = {}


def step_of(path: str, data: bytes) -> str:
    """Which step of a transaction these bytes are; empty for anything else."""
    if not path.endswith(files.LOG_SUFFIX) or len(data) < HEADER_BYTES:
        return ""
    header = read_batch_header(data)
    if TRANSACTIONS in path:
        value = next(iter(read_records(data))).value
        if value is None:
            return "EXPIRED"
        state = decode_value("", value).state.name
        return state if state != "ONGOING" else "ADD_OFFSETS" if OFFSETS[:-1].encode() in value else "ADD_PARTITIONS"
    if header.is_control:
        return "MARKER"
    if OFFSETS in path:
        if header.is_transactional:
            return "OFFSETS"
        key = next(iter(read_records(data))).key or b""
        return "COMMIT" if int.from_bytes(key[:2]) <= OFFSET_KEY_MAX else "GROUP"
    return "DATA" if header.is_transactional else ""


def deadly_write(descriptor: int, data: Any, position: int) -> int:
    try:
        with open(DEATH) as order:
            step, number, when = order.readline().split()
    except FileNotFoundError:
        seen.clear()
        return write(descriptor, data, position)
    if step_of(os.readlink(f"/proc/self/fd/{descriptor}"), bytes(data)) != step:
        return write(descriptor, data, position)
    seen[step] = seen.get(step, 0) + 1
    if seen[step] < int(number):
        return write(descriptor, data, position)
    if when != "before":
        write(descriptor, data if when == "after" else bytes(data)[: len(data) // 2], position)
    os.unlink(DEATH)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


files.write_at = deadly_write
