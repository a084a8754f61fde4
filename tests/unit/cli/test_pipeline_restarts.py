"""Restarts of a pipeline that cannot start, in virtual time, without Spark."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import pytest

from ottla.cli.pipelines.life import Life
from ottla.cli.pipelines.screen import PlainDisplay
from ottla.cli.terminal import ToolError
from ottla.operations.pipeline_runs.requests import read_answer, write_request
from ottla.operations.pipeline_runs.statuses import read_status
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.running.checkpoint import CheckpointError
from ottla.pipelines.running.loading import load_pipeline
from ottla.pipelines.running.restarting import Policy, Restarts
from ottla.pipelines.running.runner import RunOptions
from ottla.pipelines.running.status import RunFolder, new_status

FILE = "name: views\nfrom: {topic: site}\nto: console\n"


class NoSpark:
    """Fails each start with the given errors."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        self.asked = 0

    def session(self) -> NoReturn:
        self.asked += 1
        raise self.problem

    def drop_dead(self) -> None: ...


class Try:
    """A pipeline and its virtual time."""

    def __init__(self, folder: Path, policy: Policy, problem: Exception, **options: bool) -> None:
        (folder / "views.yaml").write_text(FILE)
        self.now_s = 1000.0
        self.state = folder / "state"
        self.spark = NoSpark(problem)
        self.files = RunFolder(self.state, new_status("views", "", ""))
        self.files.open()
        self.life = Life(
            load_pipeline(folder / "views.yaml", {}, None),
            self.files,
            PlainDisplay("views"),
            self.spark,
            RunOptions(str(self.state), **options),
            Restarts(policy),
            lambda: self.now_s,
        )

    def round(self, is_stop_asked: bool = False) -> None:
        """Poll as the loop of the command does."""
        if self.life.is_due and not is_stop_asked:
            self.life.begin()
        else:
            self.life.poll(is_stop_asked)


def test_always_restarts_with_backoff_and_reports_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tried = Try(tmp_path, "always", ToolError("no broker"))
    starts: list[float] = []
    for _ in range(80):
        before = tried.spark.asked
        tried.round()
        starts += [tried.now_s] * (tried.spark.asked - before)
        tried.now_s += 0.5
    assert [after - before for before, after in pairwise(starts)] == [1.0, 2.0, 4.0, 8.0, 16.0]
    status = read_status(tried.state, "views")
    assert status is not None
    assert (status.state, status.restarts, status.last_failure) == ("restarting", 6, "no broker")
    assert "views: no broker; started again in 4 s" in capsys.readouterr().err

    number = write_request(
        tried.files.folder, "savepoint", str(tmp_path / "saved")
    )  # nothing runs, so the answer is immediate
    tried.round()
    answer = read_answer(tried.files.folder, number)
    assert answer is not None
    assert "has done no batch" in answer.problem
    tried.round(is_stop_asked=True)  # a stop does not wait for the pause
    assert tried.life.ending is not None
    assert (tried.life.ending.state, tried.life.ending.code) == ("stopped", 0)


def test_on_failure_does_not_hide_what_fails_at_the_first_start(tmp_path: Path) -> None:
    tried = Try(tmp_path, "on-failure", ToolError("no broker"))
    tried.round()
    assert tried.life.ending is not None
    assert (tried.life.ending.state, tried.life.ending.code, tried.life.ending.reason) == ("failed", 1, "no broker")


@pytest.mark.parametrize(
    ("problem", "code"),
    [(PipelineError([Problem(("to",), "no such column")]), 2), (CheckpointError("of another run"), 1)],
)
def test_permanent_failures_are_not_retried(tmp_path: Path, problem: Exception, code: int) -> None:
    tried = Try(tmp_path, "always", problem)
    tried.round()
    assert tried.life.ending is not None
    assert (tried.life.ending.state, tried.life.ending.code, tried.spark.asked) == ("failed", code, 1)


def test_a_run_over_the_whole_history_is_not_retried(tmp_path: Path) -> None:
    """It has no checkpoint, so a sink would receive its rows twice."""
    tried = Try(tmp_path, "always", ToolError("no broker"), is_batch=True)
    tried.round()
    assert tried.life.ending is not None


def test_a_file_can_request_a_stop(tmp_path: Path) -> None:
    tried = Try(tmp_path, "always", ToolError("no broker"))
    tried.round()
    write_request(tried.files.folder, "stop")
    tried.round()
    assert tried.life.ending is not None
    assert tried.life.ending.reason == "stop requested"
