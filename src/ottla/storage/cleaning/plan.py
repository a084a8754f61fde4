"""Which log to clean next, from where to where, in which pieces. Pure: facts in, decisions out.

Kafka's rules (LogCleanerManager): what was cleaned before is clean up to the offset in `cleaner-offset-checkpoint`; the
rest is dirty. The active segment, everything at or past the last stable offset, and segments with records younger than
min.compaction.lag.ms are left alone. A log is due when the dirty part of what can be cleaned is more than
min.cleanable.dirty.ratio, or when a dirty segment begins with a record older than max.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.base.topic_settings import NEVER_MS, TopicSettings
from ottla.storage.cleaning.job import SegmentFacts

RELATIVE_OFFSET_MAX = 2**31 - 1
NO_CHECKPOINT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """One log, as far as the decision goes. Timestamps are asked for only where a setting makes them matter."""

    log_start_offset: int
    end_offset: int
    last_stable_offset: int
    segments: list[SegmentFacts]  # the last one is the active one
    cleaned_offset: int  # as the checkpoint says, -1 if it says nothing
    settings: TopicSettings
    max_timestamp: Callable[[int], int]  # of the segment at this place
    first_timestamp: Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """What could be cleaned of a log."""

    first_dirty_offset: int
    first_uncleanable_offset: int  # where a segment begins
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    is_checkpoint_wrong: bool

    @property
    def ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, settings: TopicSettings) -> bool:
        return (self.is_overdue and self.dirty_bytes > 0) or self.ratio > settings.min_cleanable_dirty_ratio


def decide_cleanable(log: LogFacts, now_ms: int) -> Cleanable:
    is_wrong = log.cleaned_offset != NO_CHECKPOINT and not log.log_start_offset <= log.cleaned_offset <= log.end_offset
    first_dirty = log.log_start_offset if is_wrong or log.cleaned_offset == NO_CHECKPOINT else log.cleaned_offset
    dirty_place = place_of(log.segments, first_dirty)
    active = len(log.segments) - 1
    limit = min(log.last_stable_offset, log.segments[active].base_offset)
    if log.settings.min_compaction_lag_ms > 0:
        limit = min(limit, first_young_offset(log, dirty_place, now_ms))
    # A segment is cleaned as a whole or not at all.
    end_place = place_of(log.segments, max(limit, first_dirty))
    first_uncleanable = log.segments[end_place].base_offset
    clean_end = dirty_place if log.segments[dirty_place].base_offset == first_dirty else dirty_place + 1
    return Cleanable(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(segment.size for segment in log.segments[:clean_end]),
        dirty_bytes=sum(segment.size for segment in log.segments[dirty_place:end_place]),
        is_overdue=is_overdue(log, dirty_place, now_ms),
        is_checkpoint_wrong=is_wrong,
    )


def first_young_offset(log: LogFacts, dirty_place: int, now_ms: int) -> int:
    """Where the first dirty segment starts that has a record younger than min.compaction.lag.ms."""
    for place in range(dirty_place, len(log.segments) - 1):
        if log.max_timestamp(place) > now_ms - log.settings.min_compaction_lag_ms:
            return log.segments[place].base_offset
    return NEVER_MS


def is_overdue(log: LogFacts, dirty_place: int, now_ms: int) -> bool:
    """Whether a dirty segment waits for longer than max.compaction.lag.ms."""
    clean_until_ms = now_ms - log.settings.max_compaction_lag_ms
    if clean_until_ms <= 0:
        return False
    return any(0 < log.first_timestamp(place) < clean_until_ms for place in range(dirty_place, len(log.segments) - 1))


def place_of(segments: list[SegmentFacts], offset: int) -> int:
    """Index of the last segment that starts at or before the offset."""
    place = 0
    while place + 1 < len(segments) and segments[place + 1].base_offset <= offset:
        place += 1
    return place


def group_segments(
    segments: list[SegmentFacts], segment_bytes: int, segment_index_bytes: int, first_uncleanable_offset: int
) -> list[list[SegmentFacts]]:
    """Neighbours that fit together into one segment are written as one, so that segments do not get ever smaller."""
    groups: list[list[SegmentFacts]] = []
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
