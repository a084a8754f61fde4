"""Hot spots, associations, anomalies, outliers and order: beyond what test_batch_is_stream compares."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import living, problems_of, table, through
from tests.pipelines.streams import END, START, at, run, streaming

from ottla.pipelines.steps.associations import MiningLimits, mine_rules
from ottla.pipelines.steps.forest import train_forest
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "sensor string, at timestamp, value double"
WATERMARK = {"watermark": {"time": "at", "delay": "10 seconds"}}


def _judged(spark: SparkSession, rows: list[tuple[Any, ...]], **fields: object) -> list[dict[str, Any]]:
    frame = through(
        table(spark, rows, SCHEMA), WATERMARK, {"anomalies": {"value": "value", "by": ["sensor"], **fields}}
    )
    return sorted(living(frame), key=lambda row: (row["sensor"] or "", row["at"]))


def test_what_is_no_number_gets_no_verdict(spark: SparkSession) -> None:
    odd = [math.nan, math.inf, None]
    rows = [("a", at(second), odd[second % 3] if second > 20 else second % 4 + 0.0) for second in range(24)]
    verdicts = [row["verdict"] for row in _judged(spark, [*rows, (None, at(0), 1.0)], warm_up=5)]
    assert verdicts == ["warming up"] * 6 + ["normal"] * 16 + ["no value"] * 3


def test_a_season_is_compared_with_itself(spark: SparkSession) -> None:
    """Nights are cold: a warm night is strange, a warm noon is not."""
    rng = random.Random(3)
    rows = [
        ("a", START + timedelta(days=day, hours=hour), (20.0 if hour == 12 else 5.0) + rng.random())
        for day in range(30)
        for hour in (0, 12)
    ]
    rows += [("a", START + timedelta(days=30), 20.5), ("a", START + timedelta(days=30, hours=12), 20.5)]
    night, noon = _judged(spark, rows, season="hour of day", warm_up=10)[-2:]
    assert (night["verdict"], noon["verdict"]) == ("anomaly", "normal")
    assert night["expected"] == pytest.approx(5.5, abs=0.5)


def test_a_key_that_was_silent_for_long_starts_anew(spark: SparkSession) -> None:
    rows = [("a", at(second), second % 3 + 0.0) for second in range(10)] + [("a", at(100), 900.0)]
    assert _judged(spark, rows, warm_up=5)[-1]["verdict"] == "anomaly"
    assert _judged(spark, rows, warm_up=5, forget="1 minute")[-1]["verdict"] == "warming up"


def test_a_key_that_starts_anew_knows_no_season_of_before(spark: SparkSession, tmp_path: Path) -> None:
    """Its next rows, and not other keys, move the watermark past the silence."""
    days = (*range(6), *range(20, 26))
    rows = [("a", START + timedelta(days=day, hours=hour), float(day % 3)) for day in days for hour in (0, 12)]
    fields = {"season": "hour of day", "warm_up": 3, "forget": "5 days"}
    batches = [rows[:12], [*rows[12:], ("end", END, 0.0)]]
    step = {"anomalies": {"value": "value", "by": ["sensor"], **fields}}

    ran = run(through(streaming(spark, tmp_path / "in", SCHEMA, batches), WATERMARK, step), tmp_path)

    assert sorted(ran.rows, key=lambda row: row["at"]) == _judged(spark, rows, **fields)
    assert [row["verdict"] for row in ran.rows] == (["warming up"] * 6 + ["normal"] * 6) * 2


def test_the_state_of_silent_keys_is_removed_and_late_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    batches = [
        [("a", at(second), second % 3 + 0.0) for second in range(10)] + [("b", at(60), 1.0)],
        [("a", at(5), 1.0), ("b", at(70), 1.0)],
        [("a", at(6), 1.0), ("c", END, 1.0)],  # 6 is not after 50, the watermark of the batch before
    ]
    step = {"anomalies": {"value": "value", "by": ["sensor"], "warm_up": 5, "forget": "30 seconds"}}
    ran = run(through(streaming(spark, tmp_path / "in", SCHEMA, batches), WATERMARK, step), tmp_path)
    assert len(ran.rows) == 15 - 1 - 1, "one is late, one is held"
    assert ran.late() == {"anomalies": 1}
    assert ran.progress[-1]["stateOperators"][0]["numRowsTotal"] <= 3, "the held row of c, its count and its timer"


def test_rows_leave_in_the_order_of_their_time_for_each_key(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(4)
    rows = [(f"s{number % 2}", at(number + rng.random() * 8), float(number)) for number in range(60)]
    batches = [rows[:30], [*rows[30:], ("end", END, 0.0)]]
    frame = through(streaming(spark, tmp_path / "in", SCHEMA, batches), WATERMARK, {"order": {"by": ["sensor"]}})
    ran = run(frame, tmp_path)
    for sensor in ("s0", "s1"):
        told = [row["value"] for row in ran.rows if row["sensor"] == sensor]
        assert told == [value for name, _, value in sorted(rows, key=lambda row: row[1]) if name == sensor]


def test_hot_spots_have_ranks_in_each_group_and_may_weigh(spark: SparkSession) -> None:
    rows = [
        ("x", at(0), 5.0),
        ("x", at(1), math.nan),
        ("y", at(2), 9.0),
        ("y", at(3), -1.0),
        ("z", at(4), 8.0),
        (None, at(5), 8.0),
    ]
    frame = through(
        table(spark, rows, SCHEMA),
        WATERMARK,
        {"top": {"of": ["sensor"], "k": 3, "size": "1 minute", "weight": "value", "as_": "sum"}},
    )
    found = [(row["rank"], row["sensor"], row["sum"]) for row in living(frame)]
    assert found == [(1, None, 8.0), (2, "y", 8.0), (3, "z", 8.0)]


def test_hot_spots_by_sketch_are_those_by_count_while_the_keys_are_few(spark: SparkSession) -> None:
    rng = random.Random(6)
    rows = [(f"k{int(rng.paretovariate(1)) % 50}", at(rng.random() * 60), 0.0) for _ in range(3000)]
    found = []
    for is_approximate in (False, True):
        step = {"top": {"of": ["sensor"], "k": 3, "size": "1 minute", "approximate": is_approximate}}
        found.append(
            [(r["rank"], r["sensor"], r["count"]) for r in living(through(table(spark, rows, SCHEMA), WATERMARK, step))]
        )
    assert found[0] == found[1]


def test_associations_are_those_of_mllib(spark: SparkSession) -> None:
    from pyspark.ml.fpm import FPGrowth  # noqa: PLC0415 (slow import)

    rng = random.Random(8)
    baskets = [sorted({rng.choice("aaabbcdef") for _ in range(4)}) for _ in range(200)]
    model = FPGrowth(itemsCol="items", minSupport=0.1, minConfidence=0.4).fit(
        spark.createDataFrame([(each,) for each in baskets], "items array<string>")
    )
    theirs = {
        (tuple(sorted(row.antecedent)), row.consequent[0]): (round(row.confidence, 9), round(row.lift, 9))
        for row in model.associationRules.collect()
    }
    ours = mine_rules(baskets, MiningLimits(support=0.1, confidence=0.4, items_in_set_max=8))
    assert {(tuple(rule.when), rule.then): (round(rule.confidence, 9), round(rule.lift, 9)) for rule in ours} == theirs


def test_a_forest_trained_with_history_finds_what_it_has_not_seen(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(9)
    history = [(rng.gauss(20, 1), rng.gauss(1000, 5)) for _ in range(3000)] + [(math.nan, 1000.0), (None, 1000.0)]
    train_forest(spark.createDataFrame(history, "t double, p double"), ["t", "p"]).save(tmp_path / "model.npz")
    asked = [(20.0, 1000.0), (45.0, 900.0), (math.inf, 1000.0), (20.0, None)]
    frame = through(table(spark, asked, "t double, p double", tmp_path), {"outliers": {"model": "model.npz"}})
    assert [row["verdict"] for row in living(frame)] == ["normal", "anomaly", "no value", "no value"]
    with pytest.raises(StepError, match="cannot read"):
        through(table(spark, asked, "t double, p double", tmp_path), {"outliers": {"model": "gone.npz"}})


def test_what_makes_no_sense_is_found_before_anything_runs() -> None:
    assert "from 1 to" in problems_of("top", {"of": ["a"], "size": "1 minute", "k": 0})[0]
    assert "twice" in problems_of("top", {"of": ["count"], "size": "1 minute"})[0]
    assert "above 0" in problems_of("associations", {"basket": "a", "item": "b", "size": "1 minute", "support": 0.0})[0]
    assert "from 2 to history" in problems_of("anomalies", {"value": "a", "warm_up": 200})[0]
    assert "exactly one window type" in problems_of("window", {"by": ["a"]})[0]
    assert "twice" in problems_of("window", {"size": "1 minute", "by": ["count"]})[0]
    assert "names no percentile" in problems_of("window", {"size": "1 minute", "percentile": {"x": "a"}})[0]
    assert "runs code" in problems_of("window", {"size": "1 minute", "aggregates": {"x": "reflect('a', 'b')"}})[0]
