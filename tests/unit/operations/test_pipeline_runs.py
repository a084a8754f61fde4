"""Runs of pipelines as somebody outside sees and ends them; what runs write is in unit/pipelines/running."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from ottla.operations.errors import OperationError
from ottla.operations.pipeline_runs import stopping
from ottla.operations.pipeline_runs.requests import take
from ottla.operations.pipeline_runs.statuses import Status, list_runs, read_status, run_folder
from ottla.operations.pipeline_runs.stopping import ask_to_stop, kill

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
        ask_to_stop(HERE._replace(host="elsewhere"), tmp_path)


def test_of_several_in_one_process_only_the_one_is_asked(tmp_path: Path) -> None:
    keep(tmp_path, HERE)
    ask_to_stop(HERE._replace(is_shared=True), tmp_path)
    request = take(run_folder(tmp_path, HERE.name))
    assert request is not None
    assert request.what == "stop"
    with pytest.raises(OperationError, match="runs other pipelines, too"):
        kill(HERE._replace(is_shared=True))


def test_a_run_alone_in_its_process_gets_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(stopping.os, "kill", lambda *what: sent.append(what))
    ask_to_stop(HERE, tmp_path)
    kill(HERE)
    assert sent == [(HERE.pid, signal.SIGTERM), (HERE.pid, signal.SIGKILL)]


def test_a_run_of_somebody_else_is_told_and_a_dead_one_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(problem: type[OSError]) -> None:
        def raise_it(*_what: int) -> None:
            raise problem

        monkeypatch.setattr(stopping.os, "kill", raise_it)

    refuse(ProcessLookupError)
    ask_to_stop(HERE, tmp_path)
    refuse(PermissionError)
    with pytest.raises(OperationError, match="is run by another user"):
        ask_to_stop(HERE, tmp_path)
