"""Decides which log to clean next, up to which offset, and how segments are grouped. Pure.

Kafka's rules (LogCleanerManager): a log is clean up to its offset in `cleaner-offset-checkpoint`; the rest is dirty.
The active segment, everything at or past the last stable offset, and segments with records younger than
min.compaction.lag.ms are not cleaned. A log is due when its dirty share exceeds min.cleanable.dirty.ratio, or when a
dirty segment starts with a record older than max.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.base.topic_settings import NEVER_MS, TopicSettings
from ottla.storage.cleaning.job import SegmentInfo

RELATIVE_OFFSET_MAX = 2**31 - 1
NO_CHECKPOINT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableLog:
    """One log, as input for the decision. Timestamps are functions, called only if a setting needs them."""

    log_start_offset: int
    end_offset: int
    last_stable_offset: int
    segments: list[SegmentInfo]  # the last one is active
    cleaned_offset: int  # from the checkpoint, -1 if there is none
    settings: TopicSettings
    max_timestamp: Callable[[int], int]  # of the segment at this index
    first_timestamp: Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """The cleanable part of a log."""

    first_dirty_offset: int
    first_uncleanable_offset: int  # the start of a segment
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    is_checkpoint_wrong: bool

    @property
    def ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def needs_cleaning(self, settings: TopicSettings) -> bool:
        return (self.is_overdue and self.dirty_bytes > 0) or self.ratio > settings.min_cleanable_dirty_ratio


def plan_cleaning(log: CleanableLog, now_ms: int) -> LogToClean:
    is_wrong = log.cleaned_offset != NO_CHECKPOINT and not log.log_start_offset <= log.cleaned_offset <= log.end_offset
    first_dirty = log.log_start_offset if is_wrong or log.cleaned_offset == NO_CHECKPOINT else log.cleaned_offset
    dirty_place = segment_index_of(log.segments, first_dirty)
    active = len(log.segments) - 1
    limit = min(log.last_stable_offset, log.segments[active].base_offset)
    if log.settings.min_compaction_lag_ms > 0:
        limit = min(limit, first_uncompactable_offset(log, dirty_place, now_ms))
    # A segment is cleaned as a whole or not at all.
    end_place = segment_index_of(log.segments, max(limit, first_dirty))
    first_uncleanable = log.segments[end_place].base_offset
    clean_end = dirty_place if log.segments[dirty_place].base_offset == first_dirty else dirty_place + 1
    return LogToClean(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(segment.size for segment in log.segments[:clean_end]),
        dirty_bytes=sum(segment.size for segment in log.segments[dirty_place:end_place]),
        is_overdue=is_overdue(log, dirty_place, now_ms),
        is_checkpoint_wrong=is_wrong,
    )


def first_uncompactable_offset(log: CleanableLog, dirty_place: int, now_ms: int) -> int:
    """Return the start of the first dirty segment with a record younger than min.compaction.lag.ms."""
    for place in range(dirty_place, len(log.segments) - 1):
        if log.max_timestamp(place) > now_ms - log.settings.min_compaction_lag_ms:
            return log.segments[place].base_offset
    return NEVER_MS


def is_overdue(log: CleanableLog, dirty_place: int, now_ms: int) -> bool:
    """Return whether a dirty segment is older than max.compaction.lag.ms."""
    clean_until_ms = now_ms - log.settings.max_compaction_lag_ms
    if clean_until_ms <= 0:
        return False
    return any(0 < log.first_timestamp(place) < clean_until_ms for place in range(dirty_place, len(log.segments) - 1))


def segment_index_of(segments: list[SegmentInfo], offset: int) -> int:
    """Return the index of the last segment that starts at or before the offset."""
    place = 0
    while place + 1 < len(segments) and segments[place + 1].base_offset <= offset:
        place += 1
    return place


def group_segments(
    segments: list[SegmentInfo], segment_bytes: int, segment_index_bytes: int, first_uncleanable_offset: int
) -> list[list[SegmentInfo]]:
    """Group adjacent segments that fit into one segment, so that the number of small segments does not grow."""
    groups: list[list[SegmentInfo]] = []
    for place, segment in enumerate(segments):
        next_base = segments[place + 1].base_offset if place + 1 < len(segments) else first_uncleanable_offset
        group = groups[-1] if groups else []
        fits = (
            bool(group)
            and sum(member.size for member in group) + segment.size <= segment_bytes
            and sum(member.index_bytes for member in group) + segment.index_bytes <= segment_index_bytes
            and sum(member.time_index_bytes for member in group) + segment.time_index_bytes <= segment_index_bytes
            and (segment.size == 0 or next_base - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if fits:
            group.append(segment)
        else:
            groups.append([segment])
    return groups
