"""The limit for dead rows, and the warning before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.dead_limit import DeadLimit
from ottla.pipelines.running.following import Following
from ottla.pipelines.running.query_state import QueryState
from ottla.pipelines.steps.step_table import STEPS

FILE = "name: views\nfrom: {topic: site}\nto: console\nmax_dead: "


def run_of(rows: int, dead: int) -> list[Snapshot]:
    step = StepCount("main", 1, "parse", rows, rows - dead, 0, 0, dead, rows - dead)
    return [Snapshot("main", rows=rows, batches=1, records={"main": rows}, steps=(step,))]


def pipeline(max_dead: str) -> Pipeline:
    return read_pipeline(parse_document(FILE + max_dead, "views.yaml").values, STEPS, ".")


def test_without_a_word_a_run_fails_only_when_all_are_dead() -> None:
    limit = DeadLimit(None, "views-dead-letters")
    assert limit.problem(run_of(10, 9), is_over=True) is None
    assert limit.problem(run_of(10, 10), is_over=False) is None
    assert limit.problem(run_of(0, 0), is_over=True) is None
    assert limit.problem(run_of(10, 10), is_over=True) == (
        "main: all 10 rows are dead; topic views-dead-letters has the reasons"
    )


def test_a_limit_is_judged_at_the_end_and_on_the_way_when_there_are_enough_rows() -> None:
    limit = DeadLimit(0.05)
    assert limit.problem(run_of(20, 1), is_over=True) is None
    assert limit.problem(run_of(20, 2), is_over=False) is None
    words = "2 of 20 rows are dead (10 %), more than max_dead: 5 % allows"
    assert limit.problem(run_of(20, 2), is_over=True) == f"main: {words}"
    assert limit.problem(run_of(1000, 51), is_over=False) is not None
    assert DeadLimit(0.0).problem(run_of(1000, 1), is_over=True) is not None
    assert DeadLimit(1.0).problem(run_of(10, 10), is_over=True) is None


def test_more_dead_than_rows_are_all_of_them() -> None:
    """One record became many rows, which all died."""
    assert DeadLimit(None).problem(run_of(3, 30), is_over=True) == "main: all 3 rows are dead"


def test_an_unusual_share_is_a_warning_once(tmp_path: Path) -> None:
    reports = [run_of(1000, 90), run_of(2000, 400), run_of(3000, 700), run_of(3000, 700)]

    class Script:
        def poll(self) -> list[QueryState]:
            (now,) = reports.pop(0)
            return [QueryState("main", [], list(now.steps), bool(reports), records=dict(now.records))]

    following = Following(Script(), ["main"], limit=DeadLimit(None, "letters"))
    while following.is_active:
        following.poll()
    assert following.warnings == ["main: 400 of 2,000 rows are dead (20 %); topic letters has the reasons"]
    assert following.failures == []


def test_too_many_dead_end_a_run_that_has_no_end() -> None:
    (now,) = run_of(1000, 100)

    class Script:
        def poll(self) -> list[QueryState]:
            return [QueryState("main", [], list(now.steps), True, records=dict(now.records))]

    following = Following(Script(), ["main"], limit=DeadLimit(0.05))
    following.poll()
    assert following.failures == ["main: 100 of 1,000 rows are dead (10 %), more than max_dead: 5 % allows"]


@pytest.mark.parametrize(("text", "share"), [("5 %", 0.05), ("0.5%", 0.005), ("0 %", 0.0), ("100 %", 1.0)])
def test_a_share_is_written_with_its_sign(text: str, share: float) -> None:
    assert pipeline(text).fields.max_dead == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "0.05", "-1 %", "101 %", "many", "true", "nan %"])
def test_anything_else_is_no_share(text: str) -> None:
    with pytest.raises(PipelineError, match="is not a share such as '5 %'"):
        pipeline(text)
