"""Messages between the broker and the cleaner process: lines of JSON over a pipe.

broker -> cleaner:  one CleanJob per line
cleaner -> broker:  {"progress": bytes read} from time to time, {"group": CleanedGroup} for each finished group,
                    and at the end {"done": CleanReport} or {"failed": CleanFailure}
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

CORRUPT = "corrupt"  # the log, or the result of a policy, is invalid: a retry would fail
POLICY_FAILED = "policy"  # a custom policy cannot be loaded, or failed
FILES_MISSING = "gone"  # files are missing: the log was truncated or deleted
DISK = "disk"  # the disk is full or fails
STARVED = "starved"  # the process got too little CPU time

FINAL_FAILURES = frozenset({CORRUPT, POLICY_FAILED})


class SegmentInfo(NamedTuple):
    """One segment, as input for cleaning decisions."""

    base_offset: int
    size: int
    index_bytes: int = 0
    time_index_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """One cleaning of one log, with everything that the process needs."""

    topic: str
    partition: int
    directory: str
    segments: list[SegmentInfo]  # all segments that end at or before first_uncleanable_offset
    first_dirty_offset: int
    first_uncleanable_offset: int
    log_start_offset: int
    end_offset: int
    now_ms: int
    is_compacted: bool = True
    policies: list[str] = field(default_factory=list)  # custom policies
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    last_records: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, last offset or -1, epoch
    # Base offsets of the segments with a transaction index.
    transaction_indexes: list[int] = field(default_factory=list)
    map_bytes: int = 64 << 20
    load_factor: float = 0.9
    buffer_bytes: int = 256 << 10
    bytes_per_second: float = float("inf")
    uses_sched_idle: bool = (
        False  # use SCHED_IDLE: the process runs only on an idle CPU, and cannot leave that class again
    )

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """A cleaned and synced segment with the name `.cleaned`; or segments without any change."""

    base_offsets: list[int]  # of the replaced segments
    size: int
    has_transactions: bool = False
    is_unchanged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanReport:
    """The result of a finished cleaning."""

    end_offset: int  # everything below is clean
    keys: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    seconds: float
    memory_bytes: int  # the maximum resident size of the process


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanFailure:
    """The reason why a cleaning ended without a result."""

    kind: str
    message: str


def decode_job(line: bytes) -> CleanJob:
    fields: dict[str, Any] = json.loads(line)
    fields["segments"] = [SegmentInfo(*facts) for facts in fields["segments"]]
    fields["last_records"] = [tuple(last) for last in fields["last_records"]]
    return CleanJob(**fields)


def encode_reply(reply: int | CleanedGroup | CleanReport | CleanFailure) -> bytes:
    if isinstance(reply, int):
        return json.dumps({"progress": reply}).encode() + b"\n"
    name = {CleanedGroup: "group", CleanReport: "done", CleanFailure: "failed"}[type(reply)]
    return json.dumps({name: asdict(reply)}).encode() + b"\n"


def decode_reply(line: bytes) -> int | CleanedGroup | CleanReport | CleanFailure:
    """Decode a reply. Raises ValueError for an invalid line."""
    [(name, value)] = json.loads(line).items()
    if name == "progress":
        return int(value)
    kinds = {"group": CleanedGroup, "done": CleanReport, "failed": CleanFailure}
    if name not in kinds:
        raise ValueError(f"unknown reply {name!r}")
    reply: CleanedGroup | CleanReport | CleanFailure = kinds[name](**value)
    return reply
