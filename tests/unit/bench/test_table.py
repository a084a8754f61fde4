"""Medians, ratios, shares and goals of the benchmark's table."""

from typing import Any

from bench.goals import at_least, at_least_kafka, at_most, at_most_kafka, rows
from bench.results import Results
from bench.table import Line, format_value, lines


def results_of(*rounds: dict[str, Any]) -> Results:
    return Results({"rounds": list(rounds)})


def sync(requests_per_s: float) -> dict[str, Any]:
    return {"sync": {"raw": {"requests_per_s": requests_per_s, "cpu_us_per_request": 1e6 / requests_per_s}}}


def line_of(results: Results, label: str) -> Line:
    return next(line for line in lines(results) if line.row.label == label)


def test_a_ratio_is_the_ratio_of_the_medians_of_the_rounds() -> None:
    rounds = [{"kafka": sync(kafka), "ottla": sync(ottla)} for kafka, ottla in ((100, 150), (200, 500), (300, 900))]
    line = line_of(results_of(*rounds), "one in flight, raw 100 B")
    assert (line.kafka, line.ottla, line.ratio, line.is_met) == (200, 500, 2.5, True)
    assert (line.ottla_low, line.ottla_high) == (150, 900)
    assert line.ottla_cpu == 2000


def test_a_system_that_was_not_measured_leaves_the_goal_open() -> None:
    line = line_of(results_of({"ottla": sync(500)}), "one in flight, raw 100 B")
    assert (line.kafka, line.ratio, line.is_met, line.verdict) == (None, None, None, "")


def test_rows_that_nobody_measured_are_left_out() -> None:
    assert lines(results_of({"ottla": {}})) == []


def test_a_share_of_the_machine_is_taken_round_by_round() -> None:
    fast = {"physical": {"machine": {"sendfile_1": {"mb_per_s": 4000.0}}}}
    slow = {"physical": {"machine": {"sendfile_1": {"mb_per_s": 2000.0}}}}
    rounds = [part | {"ottla": {"raw": {"fetch_1m_1": {"mb_per_s": 2000.0}}}} for part in (fast, slow, slow)]
    line = line_of(results_of(*rounds), "fetch 1 MiB as a share of sendfile, 1 connection")
    assert (line.ottla, line.ottla_low, line.ratio, line.is_met) == (1.0, 0.5, None, True)


def test_growth_is_a_share_of_the_same_system_s_own_figure() -> None:
    cost = {
        name: {"cpu_us_per_request": us}
        for name, us in (("produce_partitions_10", 40.0), ("produce_partitions_10000", 60.0))
    }
    line = line_of(results_of({"ottla": {"partitions": cost}}), "CPU per produce, 10,000 partitions against 10")
    assert (line.ottla, line.is_met) == (1.5, False)


def test_a_goal_says_by_which_part_of_its_bound_it_is_missed() -> None:
    assert at_least_kafka(2).missed_by(None, 1.5) == 0.25
    assert at_most(0.5).missed_by(0.75, None) == 0.5
    assert at_most(0.5).missed_by(0.5, None) is None


def test_goals_bound_from_one_side() -> None:
    assert at_least(0.9).is_met(0.9, None) is True
    assert at_most_kafka(1.2).is_met(None, 1.3) is False
    assert at_least_kafka(1).is_met(5.0, None) is None
    assert (at_least_kafka(1.5).text, at_most(10).text) == ("≥ 1.5 \N{MULTIPLICATION SIGN} Kafka", "≤ 10")


def test_no_two_rows_have_the_same_label() -> None:
    labels = [row.label for row in rows()]
    assert len(labels) == len(set(labels))


def test_numbers_keep_three_digits_that_matter() -> None:
    assert format_value(1234.5, "MB/s") == "1,234 MB/s"
    assert format_value(0.1234, "ms") == "0.123 ms"
    assert format_value(12.34, "") == "12.3"
