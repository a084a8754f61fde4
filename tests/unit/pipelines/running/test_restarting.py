"""Pauses between restarts, state growth, cost, requests: pure, or with files only."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ottla.operations.pipeline_runs import requests
from ottla.operations.pipeline_runs.requests import Answer, Request
from ottla.operations.pipeline_runs.snapshots import StepCount
from ottla.operations.pipeline_runs.statuses import Cost, read_cost
from ottla.pipelines.running.cost import CostMeter
from ottla.pipelines.running.growth import HOUR_MS, Growth
from ottla.pipelines.running.progress import Tracker
from ottla.pipelines.running.query_state import QueryState
from ottla.pipelines.running.restarting import GOOD_WORK_S, PAUSE_MAX_S, Restarts

REPORTS = [json.loads(line) for line in (Path(__file__).parent / "recorded_progress.jsonl").read_text().splitlines()]
KAFKA = [report for report in REPORTS if report["name"] == "kafka_plain"]


def test_pauses_grow_to_a_bound_and_begin_anew_after_good_work() -> None:
    restarts = Restarts("always")
    pauses = [restarts.next_pause_s(worked_s=5.0) for _ in range(12)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == pauses[-1] == PAUSE_MAX_S
    assert restarts.next_pause_s(GOOD_WORK_S) == 1.0
    assert restarts.next_pause_s(0.0) == 2.0
    assert restarts.count == 14


def test_which_failures_are_restarted() -> None:
    wanted = {policy: (Restarts(policy).are_wanted(False), Restarts(policy).are_wanted(True)) for policy in POLICIES}
    assert wanted == {"never": (False, False), "on-failure": (False, True), "always": (True, True)}


POLICIES = ("never", "on-failure", "always")


def test_growth_is_that_of_the_last_hour() -> None:
    growth = Growth()
    assert growth.add(0, 0, 0) is None
    assert growth.add(240_000, 10, 1000) is None
    assert growth.add(300_000, 10, 1000) == (120.0, 12_000.0)
    for minute in range(6, 300):  # constant for hours
        found = growth.add(minute * 60_000, 10, 1000)
    assert found == (0.0, 0.0)
    assert growth.add(299 * 60_000 + HOUR_MS, 0, 0) is not None


def test_the_cost_of_this_process_is_known_and_survives_its_file() -> None:
    meter = CostMeter(os.getpid())
    first = meter.look()
    assert first is not None
    assert first.driver_bytes > 1_000_000
    sum(range(1_000_000))
    again = meter.look()
    assert again is not None
    assert again.cpu_seconds >= first.cpu_seconds > 0
    assert read_cost(json.loads(json.dumps(again._asdict()))) == again
    assert read_cost({"cpu_seconds": 2, "colour": "red"}) == Cost(2)
    assert read_cost("nothing") is None
    assert CostMeter(2**22 + 1).look() is None  # no such process


def test_a_request_is_taken_once_and_answered_by_its_number(tmp_path: Path) -> None:
    assert requests.take_request(tmp_path) is None
    number = requests.write_request(tmp_path, "savepoint", "/somewhere")
    assert requests.take_request(tmp_path) == Request("savepoint", "/somewhere", number)
    assert requests.take_request(tmp_path) is None
    assert requests.read_answer(tmp_path, number) is None
    requests.write_answer(tmp_path, Answer("another"))
    assert requests.read_answer(tmp_path, number) is None
    requests.write_answer(tmp_path, Answer(number, "done"))
    assert requests.read_answer(tmp_path, number) == Answer(number, "done")
    (tmp_path / "request.json").write_text('{"what": ')
    assert requests.take_request(tmp_path) is None
    requests.clear_requests(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_is_started_again_counts_on() -> None:
    step = StepCount("main", 1, "filter", 10, 7, 2, 0, 1, 7)
    state = QueryState("main", [], [step], True, "broken", records={"main": 10})
    first = Tracker("main")
    first.add(KAFKA[0])
    before = first.settle(state)
    second = Tracker("main", before)
    assert (second.snapshot.error, second.snapshot.is_active) == (None, True)
    second.add(KAFKA[0])
    after = second.settle(QueryState("main", [], [step], True, records={"main": 10}))
    assert (after.rows, after.batches) == (2 * before.rows, 2)
    assert after.steps == (StepCount("main", 1, "filter", 20, 14, 4, 0, 2, 14),)
    assert after.records == {"main": 20}
