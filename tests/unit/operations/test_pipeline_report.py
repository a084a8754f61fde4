"""The picture of a run can be drawn, whatever the run was like."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.operations.pipeline_runs.report import POINTS_MAX, draw, write_report
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount, thinned
from ottla.operations.pipeline_runs.statuses import Status

STEP = StepCount("main", 1, "filter", 10, 7, 2, 0, 1, 7)
QUERY = Snapshot("main", rows=10, batches=3, steps=(STEP,))
RUN = Status("views", 1, 1, "here", "stopped", started_ms=1, queries=(QUERY,))
POINTS = [Snapshot("main", at_ms=at * 1000, lag=at, batch_ms=100, watermark_age_ms=at).as_point() for at in range(1, 4)]


@pytest.mark.parametrize(
    ("name", "begins"), [("r.png", b"\x89PNG"), ("r.svg", b"<?xml"), ("r.html", b"<!doctype html>")]
)
def test_the_name_says_which_kind_of_file(tmp_path: Path, name: str, begins: bytes) -> None:
    write_report(RUN, POINTS, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_names_are_no_markup(tmp_path: Path) -> None:
    write_report(RUN._replace(name="<script>"), POINTS, tmp_path / "r.html")
    assert "<script>" not in (tmp_path / "r.html").read_text()


def test_each_figure_has_its_plot() -> None:
    titles = [axes.get_title(loc="left") for axes in draw(RUN, POINTS).axes]
    assert titles[:2] == ["rows per second", "records behind"]
    assert titles[-1] == "what became of the rows at each step"


def test_steps_of_a_shared_stream_have_a_bar_for_each_query() -> None:
    axes = draw(RUN._replace(queries=(QUERY, QUERY._replace(query="other"))), POINTS).axes[-1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["main, main: 1 filter", "other, main: 1 filter"]


def test_a_run_without_steps_and_with_one_batch_can_be_drawn(tmp_path: Path) -> None:
    write_report(RUN._replace(queries=()), POINTS[:1], tmp_path / "r.png")


def test_a_long_run_is_thinned_and_keeps_its_end() -> None:
    points = [{"n": number} for number in range(POINTS_MAX * 3 + 1)]
    kept = thinned(points, POINTS_MAX)
    assert len(kept) <= POINTS_MAX + 1
    assert kept[-1] == points[-1]
