"""Which segments are too old, too many, or below the start of the log; and taking them out of it.

Kafka's rules: whole segments go, oldest first, and never one with offsets at or past the high watermark. The active
segment goes too when its time is over; the log then goes on in a new, empty one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.storage.segment import Segment
from ottla.storage.segment_times import retention_timestamp

if TYPE_CHECKING:
    from ottla.storage.log_files import LogFiles

logger = logging.getLogger("ottla.storage.retention")

IsDeletable = Callable[[Segment, int], bool]
"""Asked with a segment and the offset where the next one starts."""


def delete_old_segments(log: LogFiles, now_ms: int, high_watermark: int) -> int:
    """Delete what the settings of the topic do not keep; how many segments that were."""
    deleted = delete_hidden_segments(log, now_ms, high_watermark)
    if "delete" in log.topic_settings.cleanup_policy:
        deleted += delete_by_size(log, now_ms, high_watermark)
        deleted += delete_by_time(log, now_ms, high_watermark)
    return deleted


def delete_hidden_segments(log: LogFiles, now_ms: int, high_watermark: int) -> int:
    """Delete what lies below the log start offset; the active segment stays, as with Kafka."""

    def is_hidden(segment: Segment, next_base: int) -> bool:
        return next_base <= log.log_start_offset and segment is not log.active

    return delete_while(log, now_ms, high_watermark, "below the log start offset", is_hidden)


def delete_by_size(log: LogFiles, now_ms: int, high_watermark: int) -> int:
    if log.topic_settings.retention_bytes < 0:
        return 0
    surplus_bytes = log.size_bytes - log.topic_settings.retention_bytes

    def is_surplus(segment: Segment, _: int) -> bool:
        nonlocal surplus_bytes
        if segment.size > surplus_bytes:
            return False
        surplus_bytes -= segment.size
        return True

    return delete_while(log, now_ms, high_watermark, "over retention.bytes", is_surplus)


def delete_by_time(log: LogFiles, now_ms: int, high_watermark: int) -> int:
    retention_ms = log.topic_settings.retention_ms
    if retention_ms < 0:
        return 0

    def is_expired(segment: Segment, _: int) -> bool:
        return now_ms - retention_timestamp(segment) > retention_ms

    return delete_while(log, now_ms, high_watermark, "over retention.ms", is_expired)


def delete_while(log: LogFiles, now_ms: int, high_watermark: int, why: str, is_deletable: IsDeletable) -> int:
    """Delete segments from the oldest on, as long as they may go."""
    count = 0
    for place, segment in enumerate(log.segments):
        is_last = place + 1 == len(log.segments)
        if is_last and segment.size == 0:
            break
        next_base = log.end_offset if is_last else log.segments[place + 1].base_offset
        if next_base > high_watermark or not is_deletable(segment, next_base):
            break
        count += 1
    if count == 0:
        return 0
    if count == len(log.segments):
        log.roll(now_ms)
    gone = log.segments[:count]
    log.raise_log_start_offset(log.segments[count].base_offset, writes_epochs=False)  # whoever renames the files does
    log.drop_segments(count, now_ms)
    logger.info("Deleted %d segments of %s up to offset %d: %s", count, log.partition, log.log_start_offset, why)
    return len(gone)
