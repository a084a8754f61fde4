"""Figures from Spark's reports, recorded with PySpark 4.2: a window over the rate source, and both connectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount, number, read_snapshot
from ottla.pipelines.running.progress import Tracker, added_steps, is_batch, lag_figures, partition_lags
from ottla.pipelines.running.query_state import QueryState

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "recorded_progress.jsonl").read_text().splitlines()]


def recorded(name: str) -> list[dict[str, object]]:
    return [report for report in RECORDED if report["name"] == name]


def tracked(name: str) -> Snapshot:
    tracker = Tracker(name)
    for report in recorded(name):
        tracker.add(report)
    return tracker.snapshot


def test_rows_and_batches_are_summed_over_the_run() -> None:
    now = tracked("kafka_plain")
    assert (now.batches, now.batch, now.rows, now.batch_rows) == (3, 5, 897, 299)
    assert (now.rows_in_per_s, now.rows_done_per_s, now.batch_ms) == (298.7, 1168.0, 256)


def test_the_lag_counts_records_after_the_batch() -> None:
    assert tracked("kafka_plain").lag == (996 - 796) + (1004 - 802)
    assert tracked("ottla_plain").lag == (996 - 298) + (1004 - 300)


def test_the_lag_of_partitions_equals_that_of_sparks_own_source() -> None:
    reports = [report for report in RECORDED if report["sources"][0].get("metrics")]
    assert len(reports) == 3
    for report in reports:
        said = report["sources"][0]["metrics"]
        now = Tracker("q").add(report)
        assert now is not None
        assert (now.lag_min, now.lag_max) == (
            int(said["minOffsetsBehindLatest"]),
            int(said["maxOffsetsBehindLatest"]),
        )
        assert now.lag_avg == float(said["avgOffsetsBehindLatest"])
    ours = tracked("ottla_plain")
    assert (ours.lag_min, ours.lag_max, ours.lag_avg) == (698, 704, 701.0)


def test_the_watermark_has_an_age_and_1970_is_no_watermark() -> None:
    reports = recorded("rate_window")
    tracker = Tracker("rate_window")
    tracker.add(reports[0])
    assert (tracker.snapshot.watermark_ms, tracker.snapshot.watermark_age_ms) == (None, None)
    tracker.add(reports[-1])
    assert tracker.snapshot.watermark_age_ms == 3411  # 16:13:46.011 - 16:13:42.600


def test_state_is_the_sum_of_all_operators() -> None:
    report = recorded("rate_window")[-1]
    operators = report["stateOperators"]
    assert isinstance(operators, list)
    doubled = {**report, "stateOperators": operators * 2}
    tracker = Tracker("q")
    tracker.add(doubled)
    assert (tracker.snapshot.state_rows, tracker.snapshot.state_bytes) == (4, 2 * 18808)


def test_the_rate_source_has_no_lag_that_means_anything() -> None:
    assert tracked("rate_window").lag is None


def test_the_first_batch_has_no_rate_in() -> None:
    tracker = Tracker("q")
    tracker.add(recorded("kafka_plain")[0])
    assert tracker.snapshot.rows_in_per_s is None


def test_a_report_of_nothing_to_do_is_no_batch() -> None:
    idle = {**RECORDED[-1], "durationMs": {"latestOffset": 3, "triggerExecution": 3}}
    tracker = Tracker("q")
    assert not is_batch(idle)
    assert tracker.add(idle) is None
    assert tracker.snapshot.batches == 0


@pytest.mark.parametrize("value", ["NaN", "Infinity", float("nan"), float("-inf"), None, True, "", "x", {}])
def test_a_value_that_is_not_finite_is_unknown(value: object) -> None:
    assert number(value) is None


def test_a_report_may_lack_everything() -> None:
    tracker = Tracker("q")
    tracker.add({"durationMs": {"addBatch": 1}})
    assert tracker.snapshot == Snapshot("q", batch=0, batches=1)
    assert json.loads(json.dumps(tracker.snapshot.as_json()))["lag"] is None


@pytest.mark.parametrize(
    ("source", "behind"),
    [
        ({"latestOffset": '{"a": {"0": 7}}', "endOffset": '{"a": {"0": 5}}'}, 2),  # as text
        ({"latestOffset": {"a": {"0": "7", "1": 4}}, "endOffset": {"a": {"0": 5}}}, 6),  # a new partition
        ({"latestOffset": {"a": {"0": 3}}, "endOffset": {"a": {"0": 5}}}, 0),  # fetched before the batch was planned
        ({"latestOffset": None, "endOffset": {"a": {"0": 5}}}, None),
        ({"latestOffset": "torn{", "endOffset": 7}, None),
    ],
)
def test_offsets_come_in_many_forms(source: dict[str, object], behind: int | None) -> None:
    assert lag_figures(partition_lags({"sources": [source]}))["lag"] == behind


def test_a_query_without_a_batch_for_long_is_idle() -> None:
    now = Snapshot("q", at_ms=1_000, batch_ms=500, batches=1)
    assert not now.is_idle(11_000)
    assert now.is_idle(11_501)


def test_a_snapshot_survives_json() -> None:
    tracker = Tracker("q")
    tracker.add(RECORDED[0])
    counts = [StepCount("s", 1, "filter", 10, 7, 2, 0, 1, 7)]
    now = tracker.settle(QueryState("q", [], counts, False, "why", unsent=3, records={"s": 10}))
    assert read_snapshot(json.loads(json.dumps(now.as_json()))) == now


@pytest.mark.parametrize("value", [None, [], {"queries": 1}, {"query": "q", "steps": [{}, 3], "future": 1}])
def test_a_snapshot_of_another_version_is_read_as_far_as_possible(value: object) -> None:
    assert isinstance(read_snapshot(value), Snapshot)


def test_a_sink_that_has_refused_rows_before_a_restart_is_not_forgotten() -> None:
    parse = StepCount("main", 1, "parse", 5, 5, 0, 0, 0, 5)
    sink = StepCount("main", 2, "to topic out", 5, 3, 0, 0, 2, 3)
    assert added_steps([parse, sink], [parse]) == (parse.plus(parse), sink)
    assert added_steps([parse], [parse, sink]) == (parse.plus(parse), sink)
    assert added_steps([parse, sink], []) == (parse, sink)
