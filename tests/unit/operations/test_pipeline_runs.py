"""Pipeline runs seen and stopped from other processes; unit/pipelines/running tests what runs write."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from ottla.operations.errors import OperationError
from ottla.operations.pipeline_runs import requests
from ottla.operations.pipeline_runs.progress_text import (
    age,
    batch_line,
    cost_line,
    end_line,
    growth_line,
    size,
    step_table,
)
from ottla.operations.pipeline_runs.requests import kill_run, request_stop, take_request
from ottla.operations.pipeline_runs.run_report import POINTS_MAX, draw, write_report
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount, downsample
from ottla.operations.pipeline_runs.statuses import Cost, Status, list_runs, read_status, run_folder

HERE = Status("page-views", os.getpid(), 0, socket.gethostname(), "running")


def keep(state_folder: Path, status: Status) -> None:
    folder = run_folder(state_folder, status.name)
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps(status.as_json()))


def test_runs_are_found_by_name_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    keep(tmp_path, HERE)
    keep(tmp_path, HERE._replace(name="a-first"))
    (run_folder(tmp_path, "torn")).mkdir(parents=True)
    (run_folder(tmp_path, "torn") / "status.json").write_text('{"name": ')
    assert [run.name for run in list_runs(tmp_path)] == ["a-first", "page-views"]
    assert read_status(tmp_path, "../page-views") is None


def test_a_run_on_another_machine_is_stopped_there(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="runs on elsewhere: stop it there"):
        request_stop(HERE._replace(host="elsewhere"), tmp_path)


def test_of_several_in_one_process_only_the_one_is_asked(tmp_path: Path) -> None:
    keep(tmp_path, HERE)
    request_stop(HERE._replace(is_shared=True), tmp_path)
    request = take_request(run_folder(tmp_path, HERE.name))
    assert request is not None
    assert request.what == "stop"
    with pytest.raises(OperationError, match="runs other pipelines, too"):
        kill_run(HERE._replace(is_shared=True))


def test_a_run_alone_in_its_process_gets_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(requests.os, "kill", lambda *what: sent.append(what))
    request_stop(HERE, tmp_path)
    kill_run(HERE)
    assert sent == [(HERE.pid, signal.SIGTERM), (HERE.pid, signal.SIGKILL)]


def test_a_run_of_another_user_is_reported_and_a_dead_one_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(problem: type[OSError]) -> None:
        def raise_it(*_what: int) -> None:
            raise problem

        monkeypatch.setattr(requests.os, "kill", raise_it)

    refuse(ProcessLookupError)
    request_stop(HERE, tmp_path)
    refuse(PermissionError)
    with pytest.raises(OperationError, match="is run by another user"):
        request_stop(HERE, tmp_path)


STEP = StepCount("main", 1, "filter", 10, 7, 2, 0, 1, 7)
QUERY = Snapshot("main", rows=10, batches=3, steps=(STEP,))
RUN = Status("views", 1, 1, "here", "stopped", started_ms=1, queries=(QUERY,))
POINTS = [Snapshot("main", at_ms=at * 1000, lag=at, batch_ms=100, watermark_age_ms=at).as_point() for at in range(1, 4)]


@pytest.mark.parametrize(
    ("name", "begins"), [("r.png", b"\x89PNG"), ("r.svg", b"<?xml"), ("r.html", b"<!doctype html>")]
)
def test_the_file_name_selects_the_format(tmp_path: Path, name: str, begins: bytes) -> None:
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
    kept = downsample(points, POINTS_MAX)
    assert len(kept) <= POINTS_MAX + 1
    assert kept[-1] == points[-1]


FULL = Snapshot(
    "views", batch=4, batches=5, rows=12_000, batch_rows=1234, rows_in_per_s=100.4, rows_done_per_s=2000.0,
    batch_ms=617, lag=45, watermark_ms=1, watermark_age_ms=12_300, state_rows=7, state_bytes=18_808,
    steps=(
        StepCount("views", 1, "filter", 1234, 1000, 200, 0, 34, 1000),
        StepCount("views", 2, "window", 1000, 990, 0, 10, 0, 7),
    ),
)  # fmt: skip


def test_a_batch_is_one_line() -> None:
    assert batch_line(FULL) == (
        "views: batch 4  1,234 rows in 0.62 s  100/s in, 2,000/s done  lag 45  "
        "watermark 12.3 s ago  state 7 rows 18.8 kB"
    )


def test_what_is_unknown_is_not_mentioned() -> None:
    assert batch_line(Snapshot("q", batch=0, batch_rows=2)) == "q: batch 0  2 rows in ?  ? done"


def test_the_table_of_steps_adds_up_line_by_line() -> None:
    heading, first, second = step_table([FULL])
    assert heading.split() == ["stream", "step", "in", "kept", "filtered", "late", "dead", "rows", "made"]
    assert first.split() == ["views", "1", "filter", "1,234", "1,000", "200", "0", "34"]
    assert second.split() == ["views", "2", "window", "1,000", "990", "0", "10", "0", "7"]


def test_the_end_names_what_was_lost() -> None:
    assert end_line([FULL]) == "12,000 rows in 5 batches, 34 dead, 10 late"
    assert end_line([]) == "0 rows in 0 batches"


def test_what_queries_share_is_counted_once_and_each_step_names_its_query() -> None:
    """The total is 12,000 records, however many queries read them."""
    parse = StepCount("events", 1, "parse", 12_000, 11_900, 0, 0, 100, 11_900)
    quick = Snapshot("quick", batches=5, rows=12_000, records={"events": 12_000}, steps=(parse,))
    joined = Snapshot("joined", batches=4, rows=12_050, records={"events": 12_000, "users": 50}, steps=(parse,))
    assert end_line([quick, joined]) == "12,050 rows in 9 batches, 100 dead"
    heading, first, second = step_table([quick, joined])
    assert heading.split()[:3] == ["query", "stream", "step"]
    assert first.split()[:5] == ["quick", "events", "1", "parse", "12,000"]
    assert second.split()[:5] == ["joined", "events", "1", "parse", "12,000"]


def test_unsent_letters_are_reported() -> None:
    waiting = FULL._replace(unsent=34)
    assert batch_line(waiting).endswith("18.8 kB  34 dead letters to send")
    assert end_line([waiting]).endswith("34 dead, 10 late, 34 dead letters are not sent")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(1500, "1.5 s"), (600_000, "10 min"), (7_300_000, "2 h"), (86_400_000 * 400, "400 d"), (-5_000, "-5.0 s")],
)
def test_ages_have_one_part(ms: int, text: str) -> None:
    assert age(ms) == text


def test_sizes_are_short() -> None:
    assert [size(n) for n in (0, 999, 18_808, 5e9)] == ["0 B", "999 B", "18.8 kB", "5.0 GB"]


def test_what_it_costs_and_how_the_state_grows() -> None:
    assert cost_line(Cost(65.6, 162_300_000, 761_900_000, 0)) == (
        "65.6 s of CPU; memory: Python 162.3 MB, Java 761.9 MB, Python workers 0 B"
    )
    now = Snapshot("main", state_rows_per_hour=-959.2, state_bytes_per_hour=1_200_000.0)
    assert growth_line(now) == "state -959 rows, +1.2 MB an hour"
    assert growth_line(Snapshot("main")) == ""
