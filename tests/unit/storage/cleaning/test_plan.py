"""When a log is cleaned, from where to where: Kafka's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.topic_settings import TopicSettings
from ottla.storage.cleaning.job import SegmentInfo
from ottla.storage.cleaning.plan import CleanableLog, LogToClean, group_segments, plan_cleaning

NOW_MS = 1_000_000
SETTINGS = TopicSettings(cleanup_policy=frozenset({"compact"}))
SEGMENTS = [SegmentInfo(0, 100), SegmentInfo(10, 200), SegmentInfo(20, 300), SegmentInfo(30, 400)]


def log_with(
    settings: TopicSettings = SETTINGS, timestamps: tuple[int, ...] = (1, 2, 3, 4), **changes: object
) -> CleanableLog:
    log = CleanableLog(
        log_start_offset=0,
        end_offset=40,
        last_stable_offset=40,
        segments=SEGMENTS,
        cleaned_offset=-1,
        settings=settings,
        max_timestamp=lambda place: timestamps[place],
        first_timestamp=lambda place: timestamps[place],
    )
    return replace(log, **changes)  # type: ignore[arg-type]


def test_a_log_that_was_never_cleaned_is_dirty_up_to_the_active_segment() -> None:
    assert plan_cleaning(log_with(), NOW_MS) == LogToClean(
        first_dirty_offset=0,
        first_uncleanable_offset=30,
        clean_bytes=0,
        dirty_bytes=600,
        is_overdue=False,
        is_checkpoint_wrong=False,
    )


def test_what_was_cleaned_before_is_clean() -> None:
    cleanable = plan_cleaning(log_with(cleaned_offset=10), NOW_MS)

    assert (cleanable.first_dirty_offset, cleanable.clean_bytes, cleanable.dirty_bytes) == (10, 100, 500)
    assert cleanable.ratio == 500 / 600


def test_a_checkpoint_inside_of_a_segment_counts_that_segment_on_both_sides_as_kafka_does() -> None:
    cleanable = plan_cleaning(log_with(cleaned_offset=15), NOW_MS)

    assert (cleanable.first_dirty_offset, cleanable.clean_bytes, cleanable.dirty_bytes) == (15, 300, 500)


@pytest.mark.parametrize(("stable", "end"), [(25, 20), (20, 20), (10, 10), (5, 0), (40, 30)])
def test_segments_with_records_at_or_past_the_last_stable_offset_are_left_alone(stable: int, end: int) -> None:
    assert plan_cleaning(log_with(last_stable_offset=stable), NOW_MS).first_uncleanable_offset == end


@pytest.mark.parametrize(("cleaned", "start"), [(3, 5), (41, 5), (5, 5), (40, 40)])
def test_a_checkpoint_outside_of_the_log_is_ignored(cleaned: int, start: int) -> None:
    cleanable = plan_cleaning(log_with(cleaned_offset=cleaned, log_start_offset=5), NOW_MS)

    assert cleanable.first_dirty_offset == start
    assert cleanable.is_checkpoint_wrong is (cleaned in (3, 41))


def test_records_younger_than_the_minimum_lag_hold_their_segment_and_all_later_ones_back() -> None:
    settings = replace(SETTINGS, min_compaction_lag_ms=1000)
    young = NOW_MS - 999

    cleanable = plan_cleaning(log_with(settings, (1, young, 1, 1)), NOW_MS)
    assert cleanable.first_uncleanable_offset == 10
    cleanable = plan_cleaning(log_with(settings, (1, NOW_MS - 1000, 1, 1)), NOW_MS)
    assert cleanable.first_uncleanable_offset == 30
    cleanable = plan_cleaning(log_with(settings, (young, 1, 1, 1), cleaned_offset=10), NOW_MS)
    assert cleanable.first_uncleanable_offset == 30, "what is clean already does not wait again"


def test_a_dirty_segment_older_than_the_maximum_lag_makes_the_log_due_whatever_its_ratio() -> None:
    settings = replace(SETTINGS, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
    old = NOW_MS - 1001

    assert plan_cleaning(log_with(settings, (old, NOW_MS, NOW_MS, 1)), NOW_MS).needs_cleaning(settings)
    assert not plan_cleaning(log_with(settings, (old + 1, NOW_MS, NOW_MS, 1)), NOW_MS).needs_cleaning(settings)
    clean = plan_cleaning(log_with(settings, (old, NOW_MS, NOW_MS, 1), cleaned_offset=10), NOW_MS)
    assert not clean.needs_cleaning(settings), "clean segments do not count"
    active = plan_cleaning(log_with(settings, (NOW_MS, NOW_MS, NOW_MS, old)), NOW_MS)
    assert not active.needs_cleaning(settings), "the active segment does not count"
    nothing = plan_cleaning(log_with(settings, (0, -1, NOW_MS, 1)), NOW_MS)
    assert not nothing.needs_cleaning(settings), "records without a time do not count"


def test_a_log_is_due_when_more_than_the_ratio_is_dirty() -> None:
    cleanable = plan_cleaning(log_with(cleaned_offset=20), NOW_MS)

    assert cleanable.ratio == 0.5
    assert not cleanable.needs_cleaning(replace(SETTINGS, min_cleanable_dirty_ratio=0.5))
    assert cleanable.needs_cleaning(replace(SETTINGS, min_cleanable_dirty_ratio=0.49))


def test_a_log_with_nothing_but_its_active_segment_is_not_due() -> None:
    log = log_with(segments=[SegmentInfo(0, 100)])

    assert not plan_cleaning(log, NOW_MS).needs_cleaning(replace(SETTINGS, min_cleanable_dirty_ratio=0.0))


def test_neighbours_are_grouped_as_long_as_they_fit_together() -> None:
    groups = group_segments(SEGMENTS, 300, 1000, 40)
    assert [[segment.base_offset for segment in group] for group in groups] == [[0, 10], [20], [30]]
    assert len(group_segments(SEGMENTS, 1000, 1000, 40)) == 1
    assert group_segments([], 1, 1, 0) == []


def test_indexes_must_fit_together_too() -> None:
    segments = [SegmentInfo(0, 1, 60, 10), SegmentInfo(10, 1, 60, 10), SegmentInfo(20, 1, 10, 95)]

    assert [len(group) for group in group_segments(segments, 1000, 100, 30)] == [1, 1, 1]
    assert [len(group) for group in group_segments(segments, 1000, 130, 30)] == [3]


def test_a_group_spans_no_more_offsets_than_an_index_can_tell() -> None:
    far = 2**31
    segments = [SegmentInfo(0, 1), SegmentInfo(10, 1), SegmentInfo(far, 1)]

    assert [len(group) for group in group_segments(segments, 1000, 1000, far + 1)] == [2, 1]
    assert [len(group) for group in group_segments([*segments[:2], SegmentInfo(20, 1)], 1000, 1000, far + 1)] == [2, 1]
    assert [len(group) for group in group_segments([*segments[:2], SegmentInfo(20, 0)], 1000, 1000, far + 1)] == [3]
