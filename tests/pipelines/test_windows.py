"""Watermarks, windows, totals and deduplication in real Spark, compared with plain Python; and late rows, counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import living, table, through
from tests.pipelines.streams import END, START, Rows, at, run, streaming

from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "user string, at timestamp, ms double"
WATERMARK = {"watermark": {"time": "at", "delay": "10 seconds"}}
BATCHES: list[Rows] = [
    [(f"u{second % 3}", at(second), float(second)) for second in range(60)],
    [(f"u{second % 3}", at(second), float(second)) for second in range(60, 120)],
    # watermark of the batch before: 0:49; the first eleven are late in windows of 10 seconds
    [("u1", at(second), 1.0) for second in (0, 1, 2, 3, 4, 30, 31, 39)]
    + [("u2", at(5), 1.0)] * 3
    + [("u1", at(41), 1.0)],
    [("u0", at(1000), 0.0)],
    [("u0", END, 0.0)],
]
IN = sum(map(len, BATCHES))


def test_rows_that_are_too_late_for_their_window_are_counted_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    frame = through(
        streaming(spark, tmp_path / "in", SCHEMA, BATCHES),
        WATERMARK,
        {"window": {"size": "10 seconds", "by": ["user"], "count": "n"}},
        {"window": {"size": "1 minute", "sum": {"n": "n"}, "count": "groups"}},
    )
    ran = run(frame, tmp_path)
    assert ran.late() == {"window": 11}
    minutes = {row["window_start"].minute: row["n"] for row in ran.rows if row["window_start"].day == 1}
    assert minutes == {0: 61, 1: 60, 16: 1}, "the second window counts what the first one counted"
    assert sum(minutes.values()) == IN - 11 - 1, "in = kept + late; the last row is still held"


def test_rows_that_are_too_late_for_their_session_are_counted_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    frame = through(
        streaming(spark, tmp_path / "in", SCHEMA, BATCHES),
        WATERMARK,
        {"window": {"session": "5 seconds", "by": ["user"], "count": "n"}},
    )
    ran = run(frame, tmp_path)
    late = sum(1 for _, moment, _ in BATCHES[2] if moment + timedelta(seconds=5) <= at(49))
    assert ran.late() == {"window": late} == {"window": 12}
    assert sum(row["n"] for row in ran.rows) == IN - late - 1


def test_a_row_that_counts_in_one_of_its_sliding_windows_is_not_late(spark: SparkSession, tmp_path: Path) -> None:
    frame = through(
        streaming(spark, tmp_path / "in", SCHEMA, BATCHES),
        WATERMARK,
        {"window": {"size": "20 seconds", "slide": "10 seconds", "count": "n"}},
    )
    ran = run(frame, tmp_path)
    late = sum(1 for _, moment, _ in BATCHES[2] if (moment - START).seconds // 10 * 10 + 20 <= 49)
    assert ran.late() == {"window": late} == {"window": 8}


def test_duplicates_are_filtered_and_late_rows_told_apart_from_them(spark: SparkSession, tmp_path: Path) -> None:
    batches = [
        [("a", at(0), 1.0), ("b", at(1), 2.0), ("a", at(2), 3.0), (None, at(2), 4.0), (None, at(2), 4.5)],
        [("b", at(8), 5.0), ("c", at(60), 6.0), (None, at(3), 4.7)],
        [("d", at(100), 7.0)],
        [("a", at(10), 8.0), ("d", at(99), 9.0)],  # 10 is not after the watermark of the batch before, 50
    ]
    frame = through(
        streaming(spark, tmp_path / "in", "id string, at timestamp, value double", batches),
        {"deduplicate": {"by": ["id"], "within": "10 seconds", "time": "at"}},
    )
    ran = run(frame, tmp_path)
    values = sorted(row["value"] for row in ran.rows)
    assert values == [1.0, 2.0, 4.0, 4.5, 4.7, 6.0, 7.0], "rows without id are no repetitions of each other"
    assert ran.late() == {"deduplicate": 1}
    operator = [report["stateOperators"][0] for report in ran.progress]
    assert sum(int(each["customMetrics"]["numDroppedDuplicateRows"]) for each in operator) == 3


def test_rows_without_id_are_all_kept_in_a_batch(spark: SparkSession) -> None:
    rows = [("a", at(0), 1.0), ("a", at(1), 2.0), (None, at(0), 3.0), (None, at(0), 4.0)]
    step = {"deduplicate": {"by": ["id"], "within": "10 seconds", "time": "at"}}
    kept = living(through(table(spark, rows, "id string, at timestamp, value double"), step))
    assert sorted(row["value"] for row in kept) == [1.0, 3.0, 4.0]


def test_totals_go_on_for_ever(spark: SparkSession, tmp_path: Path) -> None:
    frame = through(
        streaming(spark, tmp_path / "in", SCHEMA, BATCHES),
        {"window": {"total": True, "by": ["user"], "count": "n", "max": {"most": "ms"}}},
    )
    totals = {row["user"]: (row["n"], row["most"]) for row in run(frame, tmp_path, "update").rows}
    rows = [row for batch in BATCHES for row in batch]
    assert totals == {
        user: (count, max(ms for name, _, ms in rows if name == user))
        for user, count in Counter(name for name, _, _ in rows).items()
    }


def test_a_total_of_all_rows_is_told_when_it_changes(spark: SparkSession, tmp_path: Path) -> None:
    other, counted = [("u0", at(0), 0.0)], [("u1", at(1), 2.0)]
    frame = through(
        streaming(spark, tmp_path / "in", SCHEMA, [other, counted, other, [*counted, *other]]),
        {"filter": {"where": "ms > 0"}},
        {"window": {"total": True, "count": "n", "sum": {"ms": "ms"}}},
    )
    assert run(frame, tmp_path, "update").rows == [{"n": 1, "ms": 2.0}, {"n": 2, "ms": 4.0}]


ODD = [
    ("a", at(0), 1.0),
    ("a", at(1), math.nan),
    ("a", at(2), math.inf),
    ("a", at(3), -math.inf),
    ("a", at(4), None),
    ("a", at(5), 3.0),
    ("b", at(6), math.nan),
    (None, at(7), 2.0),
    (None, START - timedelta(days=30_000), 5.0),  # long before 1970
]


def _window(rows: Iterable[tuple[Any, ...]], spark: SparkSession, **fields: object) -> list[dict[str, Any]]:
    frame = through(table(spark, rows, SCHEMA), WATERMARK, {"window": {"size": "1 minute", "by": ["user"], **fields}})
    return sorted(living(frame), key=lambda row: (row["window_start"], row["user"] or ""))


def test_what_is_no_number_spoils_no_window(spark: SparkSession) -> None:
    forms = {name: {f"the_{name}": "ms"} for name in ("sum", "avg", "min", "max", "first", "last")}
    old, no_user, a, b = _window(ODD, spark, **forms, percentile={"p50": "ms"}, count="n", deviation={"spread": "ms"})
    assert (old["user"], old["n"], old["the_sum"]) == (None, 1, 5.0)
    assert (no_user["user"], no_user["n"], no_user["the_sum"]) == (None, 1, 2.0)
    assert (a["n"], a["the_sum"], a["the_avg"], a["the_min"], a["the_max"], a["p50"]) == (6, 4.0, 2.0, 1.0, 3.0, 1.0)
    assert (a["the_first"], a["the_last"]) == (1.0, 3.0)
    assert a["spread"] == pytest.approx(math.sqrt(2))
    assert (b["n"], b["the_sum"], b["the_avg"], b["the_max"]) == (1, None, None, None)


def test_a_sum_that_fits_no_number_is_null_and_sql_is_free(spark: SparkSession) -> None:
    rows = [("a", at(0), 2**62), ("a", at(1), 2**62)]
    frame = through(
        table(spark, rows, "user string, at timestamp, bytes bigint"),
        WATERMARK,
        {"window": {"size": "1 minute", "sum": {"bytes": "bytes"}, "aggregates": {"halves": "sum(bytes / 2)"}}},
    )
    assert [(row["bytes"], row["halves"]) for row in living(frame)] == [(None, 2.0**62)]


def test_rows_without_time_die_and_those_of_the_far_future_too(spark: SparkSession) -> None:
    rows = [(at(0), at(0)), (None, at(0)), (at(7200), at(0)), (at(1800), at(0))]
    frame = table(spark, rows, "at timestamp, timestamp timestamp")
    frame = through(frame, {"watermark": {"time": "at", "delay": "1 minute", "ahead": "1 hour"}})
    assert len(living(frame)) == 2


def test_rows_from_before_1970_die_instead_of_being_late(spark: SparkSession, tmp_path: Path) -> None:
    old = [("u1", datetime(1969, 12, 31, 23, tzinfo=UTC), 1.0), ("u1", datetime(1970, 1, 1, tzinfo=UTC), 1.0)]
    frame = through(streaming(spark, tmp_path / "in", SCHEMA, [old, [("u1", at(0), 1.0)]]), WATERMARK)
    ran = run(through(frame, {"window": {"size": "1 minute", "count": "n"}}), tmp_path)
    assert ran.late() == {}
    assert frame.applied_steps[0].observation
    assert ran.observed(frame.applied_steps[0].observation, "dead_1") == len(old)


def test_windows_may_start_at_other_times_than_the_full_hour(spark: SparkSession) -> None:
    frame = through(
        table(spark, [("a", at(0), 1.0)], SCHEMA), WATERMARK, {"window": {"size": "1 day", "offset": "6 hours"}}
    )
    assert [row["window_start"].hour for row in living(frame)] == [6]


def test_a_window_without_watermark_is_refused(spark: SparkSession) -> None:
    with pytest.raises(StepError, match="needs the time of the rows"):
        through(table(spark, [("a", at(0), 1.0)], SCHEMA), {"window": {"size": "1 minute"}})


def test_text_is_no_time(spark: SparkSession) -> None:
    with pytest.raises(StepError, match="user is string"):
        through(table(spark, [("a", at(0), 1.0)], SCHEMA), {"watermark": {"time": "user", "delay": "1 minute"}})
