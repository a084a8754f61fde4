"""The mapping of late rows to steps, from Spark's report of a batch, without Spark."""

from __future__ import annotations

from typing import Any

from ottla.pipelines.steps.frame import AppliedStep
from ottla.pipelines.steps.lateness import ENDS, ENDS_MAX, in_plan_order, late_rows, watermark_ms


def _passage(step: str, mark: int, operators: int = 1, ends: str = "") -> AppliedStep:
    return AppliedStep("main", mark, step, mark, "merges", operators=operators, window_end_observation=ends)


def _progress(*dropped: int, **observed: Any) -> dict[str, Any]:
    return {"stateOperators": [{"numRowsDroppedByWatermark": each} for each in dropped], "observedMetrics": observed}


def _bins(*pairs: tuple[float, float]) -> dict[str, Any]:
    return {ENDS: [{"x": end, "y": count} for end, count in pairs]}


def test_spark_counts_rows_for_all_but_windows() -> None:
    passages = [_passage("watermark", 1, 0), _passage("deduplicate", 2), _passage("order", 3)]
    (late,) = late_rows(passages, _progress(0, 5), 1000)
    assert (late.passage.step, late.rows) == ("deduplicate", 5)


def test_rows_of_a_window_are_counted_by_the_end_of_their_window() -> None:
    passages = [_passage("window", 1, ends="w")]
    progress = _progress(2, w=_bins((1000, 7), (2000, 3), (2001, 9)))
    (late,) = late_rows(passages, progress, 2000)
    assert (late.rows, late.is_exact) == (10, True)


def test_nothing_was_late_when_spark_dropped_nothing() -> None:
    assert late_rows([_passage("window", 1, ends="w")], _progress(0, w=_bins((1000, 7))), 2000) == []


def test_more_ends_than_the_observation_holds_are_no_exact_count() -> None:
    progress = _progress(1, w=_bins(*((float(at), 1.0) for at in range(ENDS_MAX))))
    assert not late_rows([_passage("window", 1, ends="w")], progress, 10)[0].is_exact


def test_both_sides_of_a_join_are_distinguished() -> None:
    left = [_passage("watermark", 1, 0), _passage("left deduplicate", 2)]
    right = [_passage("watermark", 1, 0), _passage("right window", 2, ends="w"), _passage("right deduplicate", 3)]
    passages = [*left, *right, _passage("join", 3), _passage("top", 7, 2)]
    names = [each.step for each in in_plan_order(passages) if each.operators]
    assert names == ["top", "join", "left deduplicate", "right deduplicate", "right window"]
    found = late_rows(passages, _progress(0, 0, 1, 2, 3, 4, w=_bins((5, 40))), 9)
    assert {late.passage.step: late.rows for late in found} == {
        "join": 1, "left deduplicate": 2, "right deduplicate": 3, "right window": 40,
    }  # fmt: skip


def test_operators_that_no_step_has_announced_are_those_of_the_step_with_sql() -> None:
    sql = AppliedStep("main", 2, "sql", 2, "merges", has_state=True)
    passages = [_passage("deduplicate", 1), sql]
    assert [(late.passage.step, late.rows) for late in late_rows(passages, _progress(3, 5), 9)] == [
        ("sql", 3), ("deduplicate", 5),
    ]  # fmt: skip
    assert len(late_rows([*passages, AppliedStep("main", 3, "python", 3, "opaque")], _progress(3, 5), 9)) == 2
    codes = [AppliedStep("main", at, "python", at, "opaque") for at in (2, 3)]
    assert late_rows([passages[0], *codes], _progress(3, 5), 9) == []


def test_the_watermark_of_a_report() -> None:
    assert watermark_ms({"eventTime": {"watermark": "1970-01-01T00:01:00.250Z"}}) == 60_250
    assert watermark_ms({"eventTime": {"watermark": "1969-12-31T23:59:59.000Z"}}) == -1000
    assert watermark_ms({"eventTime": {}}) == 0
