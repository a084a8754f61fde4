"""The files of a run: complete files, one runner at a time, and the status of dead runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ottla.operations.pipeline_runs.snapshots import Snapshot
from ottla.operations.pipeline_runs.statuses import (
    PipelineTopics,
    Status,
    list_runs,
    process_start,
    read_pipeline_topics,
    read_points,
    read_status,
)
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.running import status as files
from ottla.pipelines.running.status import AlreadyRunningError, RunFolder, new_status, places_of


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path, new_status("views", "views.yaml", "local[2]"))
    made.open()
    return made


def test_a_live_run_is_seen_with_its_figures(tmp_path: Path, folder: RunFolder) -> None:
    folder.change("running", queries=[Snapshot("main", rows=5)])
    seen = read_status(tmp_path, "views")
    assert seen is not None
    assert (seen.state, seen.pid, seen.queries[0].rows) == ("running", os.getpid(), 5)
    assert list_runs(tmp_path) == [seen]


def test_a_second_run_is_refused_with_the_process_that_has_it(tmp_path: Path, folder: RunFolder) -> None:
    with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()} on .*: stop it first"):
        RunFolder(tmp_path, new_status("views", "", "")).open()
    folder.close()
    RunFolder(tmp_path, new_status("views", "", "")).open()


def test_two_runs_with_states_of_their_own_do_not_share_a_checkpoint(tmp_path: Path) -> None:
    checkpoints = str(tmp_path / "checkpoints")
    first = RunFolder(tmp_path / "one", new_status("views", "", ""), checkpoints)
    first.lock()
    second = RunFolder(tmp_path / "two", new_status("views", "", ""), checkpoints)
    with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()} on .*: stop it first"):
        second.lock()
    RunFolder(tmp_path / "two", new_status("views", "", "")).lock()  # its own folder was released
    RunFolder(tmp_path / "two", new_status("clicks", "", ""), f"file:{checkpoints}").lock()
    first.close()
    RunFolder(tmp_path / "three", new_status("views", "", ""), checkpoints).lock()


def test_a_checkpoint_in_the_state_folder_is_locked_once(tmp_path: Path) -> None:
    RunFolder(tmp_path, new_status("views", "", ""), f"{tmp_path}/x/..").lock()


@pytest.mark.parametrize("state", ["starting", "running", "stopping"])
def test_a_run_that_ended_without_a_status_was_killed(tmp_path: Path, folder: RunFolder, state: files.State) -> None:
    folder.status = folder.status._replace(process_start=1)  # the process id is reused by another process
    folder.change(state)
    seen = read_status(tmp_path, "views")
    assert seen is not None
    assert seen.state == "killed"


def test_an_end_has_its_reason(tmp_path: Path, folder: RunFolder) -> None:
    folder.change("failed", "no such column")
    folder.close()
    seen = read_status(tmp_path, "views")
    assert seen is not None
    assert (seen.state, seen.reason, seen.is_live) == ("failed", "no such column", False)


def test_a_run_of_another_machine_is_believed(tmp_path: Path, folder: RunFolder) -> None:
    folder.status = folder.status._replace(host="elsewhere", process_start=1)
    folder.change("running")
    seen = read_status(tmp_path, "views")
    assert seen is not None
    assert (seen.state, seen.is_here) == ("running", False)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', '{"name": 5}', "\x00"])
def test_a_damaged_file_is_no_run(tmp_path: Path, folder: RunFolder, text: str) -> None:
    (folder.folder / "status.json").write_text(text)
    assert read_status(tmp_path, "views") is None
    assert list_runs(tmp_path) == []


@pytest.mark.parametrize("name", ["../views", "", "/etc", ".."])
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, folder: RunFolder, name: str) -> None:
    assert read_status(tmp_path / "views", name) is None


def test_the_course_of_a_run_is_kept_within_bounds(
    tmp_path: Path, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PROGRESS_BYTES_MAX", 2_000)
    for batch in range(100):
        folder.add(Snapshot("main", at_ms=batch, batch=batch))
    points = read_points(tmp_path, "views")
    assert points[-1]["batch"] == 99
    assert [point["batch"] for point in points] == list(range(points[0]["batch"], 100))
    assert sum(path.stat().st_size for path in folder.folder.glob("progress*")) < 5_000


def test_torn_lines_are_left_out(tmp_path: Path, folder: RunFolder) -> None:
    folder.add(Snapshot("main", at_ms=1))
    with (folder.folder / "progress.jsonl").open("a") as file:
        file.write('5\n{"torn": ')
    assert len(read_points(tmp_path, "views")) == 1


def test_a_new_run_begins_a_new_course(tmp_path: Path, folder: RunFolder) -> None:
    folder.add(Snapshot("main", at_ms=1))
    folder.close()
    RunFolder(tmp_path, new_status("views", "", "")).open()
    assert read_points(tmp_path, "views") == []


def test_a_process_that_is_not_there_has_no_start() -> None:
    assert process_start(os.getpid())
    assert process_start(2**22 + 1) is None


def test_a_status_of_a_later_version_is_read(tmp_path: Path, folder: RunFolder) -> None:
    path = folder.folder / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))
    assert isinstance(read_status(tmp_path, "views"), Status)


def test_a_run_lists_its_sources_and_targets(tmp_path: Path, folder: RunFolder) -> None:
    streams = {
        "orders": {"from": {"topic": ["orders", "more"]}},
        "far": {"from": {"pattern": "log-.*"}, "to": {"topic": "copy", "bootstrap_servers": "far:9092"}},
        "totals": {"from": "orders", "to": [{"topic": "totals"}, {"sqlite": "x.db", "table": "t"}]},
        "same": {"from": "orders", "to": {"topic": "totals"}},
    }
    described = {"name": "shop", "bootstrap_servers": "near:9092", "late_rows": "late", "streams": streams}
    places = places_of(read_pipeline(described, {}))
    assert places == PipelineTopics(
        "near:9092",
        ("orders", "more"),
        ("log-.*",),
        ("totals",),
        ("copy (far:9092)",),
        tuple(f"ottla-pipeline-shop.{name}" for name in ("far", "totals", "same")),
        "shop-dead-letters",
        "late",
    )
    folder.status = folder.status._replace(places=places)
    folder.change("running")
    seen = read_status(tmp_path, "views")
    assert seen is not None
    assert seen.places == places


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (None, None),
        ("near:9092", None),
        ({}, PipelineTopics()),
        ({"reads": "orders", "groups": ["a", 7], "bootstrap": 5, "newer": 1}, PipelineTopics(groups=("a",))),
    ],
)
def test_places_of_another_version_or_damaged_ones_are_no_reason_to_fail(
    written: object, read: PipelineTopics | None
) -> None:
    assert read_pipeline_topics(written) == read
