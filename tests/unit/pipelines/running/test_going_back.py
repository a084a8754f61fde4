"""Savepoints without Spark: taken from files, restored, refused if a sink may be ahead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.running.going_back import Allowed, cut_back, surplus
from ottla.pipelines.running.savepoint import (
    SavepointError,
    default_target,
    list_savepoints,
    open_savepoint,
    put_in_place,
    take_savepoint,
)
from ottla.pipelines.steps.step_table import STEPS

FILE = """\
name: views
dead_letters: false
from: {topic: site}
to: {http: "http://127.0.0.1:1/rows"}
"""
ID = "0a1b2c3d-0000-4000-8000-000000000000"
FOLDER = FILE.replace('{http: "http://127.0.0.1:1/rows"}', "{json: rows}")


def pipeline(folder: Path, text: str = FILE) -> Pipeline:
    return read_pipeline(parse_document(text, "views.yaml").values, STEPS, str(folder))


def make_run(state: Path, batches: int) -> None:
    """The files of a query with this many batches."""
    files = {
        "checkpoint/metadata": json.dumps({"id": ID}),
        f"query-{ID}/owner": "views.main",
        f"query-{ID}/starting": "{}",
        f"query-{ID}/state-steps": "[]",
        f"query-{ID}/swept": "[-1, -1]",
    }
    for number in range(batches):
        ends = json.dumps({"site": {"0": number + 1}})
        files[f"checkpoint/offsets/{number}"] = f'v1\n{{"batchWatermarkMs":0}}\n{ends}'
        files[f"checkpoint/commits/{number}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    for name, text in files.items():
        path = state / "views" / "main" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def add_batch(folder: Path, number: int) -> None:
    batch = folder / "rows" / f"ottla_batch={number}"
    batch.mkdir(parents=True)
    (batch / "_ottla").write_text(json.dumps({"query": f"views.main.{ID}.0", "identity": ID}))


def test_a_savepoint_is_put_back_as_it_was(tmp_path: Path) -> None:
    state, found = tmp_path / "state", pipeline(tmp_path)
    with pytest.raises(SavepointError, match="has done no batch"):
        take_savepoint(str(state), found, tmp_path / "saved")
    make_run(state, 2)
    made = take_savepoint(str(state), found, default_target(str(state), "views"))
    elsewhere = take_savepoint(str(state), found, tmp_path / "elsewhere")
    assert [each.folder for each in list_savepoints(str(state), "views")] == [made.folder, elsewhere.folder]
    make_run(state, 5)
    put_in_place(open_savepoint(made.folder, found), str(state), found)
    assert sorted(path.name for path in (state / "views" / "main" / "checkpoint" / "commits").iterdir()) == ["0", "1"]
    assert len(list(state.glob("views/_old/*/main/checkpoint/commits/4"))) == 1
    assert not list(tmp_path.rglob("*unfinished*"))
    assert not (state / "views" / "_restoring").exists()


def test_files_beyond_the_folder_are_not_for_a_savepoint(tmp_path: Path) -> None:
    state, found = tmp_path / "state", pipeline(tmp_path)
    make_run(state, 1)
    saved = take_savepoint(str(state), found, tmp_path / "saved").folder
    manifest = json.loads((saved / "savepoint.json").read_text())
    manifest["files"]["../../etc/passwd"] = [0, ""]
    (saved / "savepoint.json").write_text(json.dumps(manifest))
    with pytest.raises(SavepointError, match="is damaged"):
        open_savepoint(saved, found)


def test_at_least_once_sinks_repeat_only_on_request(tmp_path: Path) -> None:
    state, found = tmp_path / "state", pipeline(tmp_path)
    make_run(state, 2)
    saved = take_savepoint(str(state), found, tmp_path / "saved")
    assert surplus(saved, str(state), found, Allowed()) == []  # no batch since then
    make_run(state, 3)
    with pytest.raises(SavepointError, match="--repeat allows that"):
        surplus(saved, str(state), found, Allowed(truncates=True))
    assert surplus(saved, str(state), found, Allowed(repeats=True)) == []
    with pytest.raises(SavepointError, match="--repeat allows that"):
        surplus(saved, str(tmp_path / "lost"), found, Allowed())  # unknown


def test_folders_lose_what_is_beyond_the_savepoint_and_no_more(tmp_path: Path) -> None:
    state, found = tmp_path / "state", pipeline(tmp_path, FOLDER)
    make_run(state, 2)
    for number in range(2):
        add_batch(tmp_path, number)
    saved = take_savepoint(str(state), found, tmp_path / "saved")
    assert saved.streams["main"].sinks[0].batch_id == 1
    make_run(state, 12)
    for number in range(2, 12):
        add_batch(tmp_path, number)
    with pytest.raises(SavepointError, match="has batches up to 11, and the savepoint ends with 1"):
        surplus(saved, str(state), found, Allowed(repeats=True))
    cut_back(surplus(saved, str(state), found, Allowed(truncates=True)))
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["ottla_batch=0", "ottla_batch=1"]
