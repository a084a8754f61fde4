"""What the broker asks of the process that cleans logs, and what it hears from it: lines of JSON over a pipe.

broker -> cleaner:  one CleanJob a line
cleaner -> broker:  {"progress": bytes read} now and then, {"group": CleanedGroup} for every piece that is done,
                    and at the end {"done": CleanReport} or {"failed": CleanFailure}
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

CORRUPT = "corrupt"  # the log, or what a policy made of it, is not what it should be: no use to try again
POLICY = "policy"  # a custom policy cannot be loaded, or failed
GONE = "gone"  # files went away meanwhile: the log was shortened or deleted
DISK = "disk"  # the disk is full or does not work
STARVED = "starved"  # the machine is too busy for a process without priority

FINAL_FAILURES = frozenset({CORRUPT, POLICY})


class SegmentFacts(NamedTuple):
    """One segment as the cleaner's decisions see it."""

    base_offset: int
    size: int
    index_bytes: int = 0
    time_index_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """One round over one log: all that the process needs to know."""

    topic: str
    partition: int
    directory: str
    segments: list[SegmentFacts]  # all that end at or before first_uncleanable_offset
    first_dirty_offset: int
    first_uncleanable_offset: int
    log_start_offset: int
    end_offset: int
    now_ms: int
    is_compacted: bool = True
    policies: list[str] = field(default_factory=list)  # custom ones
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    last_records: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, last offset or -1, epoch
    transaction_indexes: list[int] = field(default_factory=list)  # base offsets of the segments that have one
    map_bytes: int = 64 << 20
    load_factor: float = 0.9
    buffer_bytes: int = 256 << 10
    bytes_per_second: float = float("inf")
    is_patient: bool = False  # work only when nobody else wants the processor; there is no way back for the process

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """A cleaned segment, synced, under the name `.cleaned`; or segments of which nothing had to go."""

    base_offsets: list[int]  # of the segments that it replaces
    size: int
    has_transactions: bool = False
    is_unchanged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanReport:
    """A round that is done."""

    end_offset: int  # everything below is clean now
    keys: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    seconds: float
    memory_bytes: int  # the largest that the process has been


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanFailure:
    """Why a round ended without a result."""

    kind: str
    message: str


def decode_job(line: bytes) -> CleanJob:
    fields: dict[str, Any] = json.loads(line)
    fields["segments"] = [SegmentFacts(*facts) for facts in fields["segments"]]
    fields["last_records"] = [tuple(last) for last in fields["last_records"]]
    return CleanJob(**fields)


def encode_reply(reply: int | CleanedGroup | CleanReport | CleanFailure) -> bytes:
    if isinstance(reply, int):
        return json.dumps({"progress": reply}).encode() + b"\n"
    name = {CleanedGroup: "group", CleanReport: "done", CleanFailure: "failed"}[type(reply)]
    return json.dumps({name: asdict(reply)}).encode() + b"\n"


def decode_reply(line: bytes) -> int | CleanedGroup | CleanReport | CleanFailure:
    """ValueError if the line is none."""
    [(name, value)] = json.loads(line).items()
    if name == "progress":
        return int(value)
    kinds = {"group": CleanedGroup, "done": CleanReport, "failed": CleanFailure}
    if name not in kinds:
        raise ValueError(f"unknown reply {name!r}")
    reply: CleanedGroup | CleanReport | CleanFailure = kinds[name](**value)
    return reply
