"""`ottla demo`: its folder, the order of its parts, and its output."""

from __future__ import annotations

import argparse
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from ottla.cli.commands import demo
from ottla.cli.commands.demo import (
    NO_SPARK,
    RESTARTS_MAX,
    Demo,
    DemoFolder,
    DemoState,
    LineScreen,
    account_line,
    extra_requirements,
    install_command,
    render_screen,
    text_line,
)
from ottla.cli.processes.supervisor import Child
from ottla.cli.terminal import EXIT_USAGE
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.pipelines.demo.findings import PANELS, read_findings

STEPS = (
    StepCount("events", 1, "parse", 100, 97, 0, 0, 3, 97),
    StepCount("events", 2, "watermark", 97, 97, 0, 0, 0, 97),
    StepCount("events", 3, "deduplicate", 97, 94, 2, 1, 0, 94),
)
READY = "ottla broker 1 ready on 127.0.0.1:19999"


class RecordingScreen(LineScreen):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def make_demo(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **options: object
) -> tuple[Demo, RecordingScreen, list[Child]]:
    place = DemoFolder(folder / "demo")
    folder.mkdir(exist_ok=True)
    place.prepare(is_fresh=False)
    given = argparse.Namespace(
        **(
            {"data": str(folder), "rate": 100, "install": False, "no_console": True, "console_port": None}
            | {"no_registry": True, "registry_port": None}
            | options
        )
    )
    screen, started = RecordingScreen(), []
    made = Demo(given, place, screen, {})
    monkeypatch.setattr(made.supervisor, "start", started.append)
    return made, screen, started


def test_the_pipeline_is_written_once_and_a_changed_one_is_kept(tmp_path: Path) -> None:
    place = DemoFolder(tmp_path / "demo")
    place.prepare(is_fresh=False)
    assert place.note == ""
    original = place.pipeline.read_text()
    assert original.startswith("#")
    place.pipeline.write_text("name: mine")
    place.state.mkdir()
    place.prepare(is_fresh=False)
    assert place.pipeline.read_text() == "name: mine"
    assert "--fresh replaces it" in place.note
    place.prepare(is_fresh=True)
    assert place.pipeline.read_text() == original
    assert not place.state.exists()


def test_a_second_start_reports_that_it_resumes(tmp_path: Path) -> None:
    place = DemoFolder(tmp_path / "demo")
    place.prepare(is_fresh=False)
    place.state.mkdir()
    again = DemoFolder(tmp_path / "demo")
    again.prepare(is_fresh=False)
    assert again.note.startswith("resuming the last run")


def test_the_generator_comes_after_the_broker_and_the_pipeline_after_the_first_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "is_spark_installed", lambda: True)
    made, _, started = make_demo(tmp_path, monkeypatch)
    broker = made.supervisor.children[0]
    assert not made.on_line(broker, "something else")
    assert made.on_line(broker, READY)
    assert [child.name for child in started] == ["generator"]
    assert "127.0.0.1:19999" in started[0].command
    made.on_line(started[0], "100 records to site-activity, 100 a second")
    made.on_line(started[0], "200 records to site-activity, 100 a second")
    assert [child.name for child in started] == ["generator", "pipeline"]
    assert made.on_line(broker, READY)  # restarted
    assert len(started) == 2


def test_without_spark_the_broker_keeps_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "is_spark_installed", lambda: False)
    made, screen, started = make_demo(tmp_path, monkeypatch)
    made.on_line(made.supervisor.children[0], READY)
    assert not started
    assert screen.lines[-2:] == [NO_SPARK, "The broker continues at 127.0.0.1:19999. Ctrl-C stops it."]


def test_an_installation_that_fails_leaves_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "is_spark_installed", lambda: False)
    monkeypatch.setattr(demo, "install_command", lambda: ["pip"])
    made, screen, started = make_demo(tmp_path, monkeypatch, install=True)
    made.on_line(made.supervisor.children[0], READY)
    assert [child.name for child in started] == ["installation"]
    made.on_line(started[0], "ERROR: No matching distribution found for pyspark")
    assert started[0].on_exit is not None
    started[0].on_exit(1)
    assert "No matching distribution" in screen.lines[-2]
    assert len(started) == 1


def test_spark_is_installed_and_then_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "is_spark_installed", lambda: False)
    monkeypatch.setattr(demo, "install_command", lambda: ["pip"])
    made, _, started = make_demo(tmp_path, monkeypatch, install=True)
    made.on_line(made.supervisor.children[0], READY)
    assert started[0].on_exit is not None
    started[0].on_exit(0)
    assert [child.name for child in started] == ["installation", "generator"]


def test_a_pipeline_that_fails_leaves_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "is_spark_installed", lambda: True)
    made, screen, started = make_demo(tmp_path, monkeypatch)
    made.on_line(made.supervisor.children[0], READY)
    made.on_line(started[0], "1 records")
    for attempt in range(1, RESTARTS_MAX + 2):
        assert len(started) == attempt + 1
        made.on_line(started[attempt], "ottla pipeline: Spark is gone")
        on_end = started[attempt].on_exit
        assert on_end is not None
        on_end(1)
    assert screen.lines[-2] == "The pipeline ended: ottla pipeline: Spark is gone (ottla demo --fresh starts again)"
    assert made.scene.has_pipeline_ended


def test_an_invalid_pipeline_is_not_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "is_spark_installed", lambda: True)
    made, _, started = make_demo(tmp_path, monkeypatch)
    made.on_line(made.supervisor.children[0], READY)
    made.on_line(started[0], "1 records")
    made.on_line(started[1], "site-activity.yaml:7: there is no step 'count'")
    on_end = started[1].on_exit
    assert on_end is not None
    on_end(EXIT_USAGE)
    assert len(started) == 2
    assert made.scene.has_pipeline_ended


def test_only_the_requirements_of_the_extra_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = 'pyspark<4.3,>=4.2; extra == "pipelines"'
    listed = ["crc32c>=2.7", wanted, 'ottla[cli]; extra == "pipelines"', 'pytest; extra == "test"']
    monkeypatch.setattr(demo, "requires", lambda _: listed)
    assert extra_requirements() == ["pyspark<4.3,>=4.2"]
    assert install_command()[-1] == "pyspark<4.3,>=4.2"


def test_every_record_is_accounted_for() -> None:
    assert account_line(STEPS) == "100 records = 94 kept + 2 duplicates + 1 late + 3 dead"
    assert account_line(()) == ""


def test_lines_of_the_pipeline_become_figures(tmp_path: Path) -> None:
    scene = DemoState(tmp_path / "p.yaml", tmp_path / "t.db")
    scene.read_pipeline_line(json.dumps({"event": "step", "text": "starting Spark"}))
    assert text_line(scene).startswith("starting Spark (")
    scene.read_pipeline_line(
        json.dumps({"event": "batch", **Snapshot("clean", batches=1, rows=100, steps=STEPS).as_json()})
    )
    assert scene.status == "running"
    assert text_line(scene) == account_line(STEPS)
    scene.read_pipeline_line("no JSON at all")
    assert scene.status == "no JSON at all"


def test_the_picture_shows_what_was_found(tmp_path: Path) -> None:
    tables = tmp_path / "t.db"
    with closing(sqlite3.connect(tables)) as database:
        database.execute("CREATE TABLE hot_pages (window_end TEXT, rank INTEGER, page TEXT, views INTEGER)")
        database.execute("INSERT INTO hot_pages VALUES ('2026-01-05T08:00:00Z', 1, '/\x1b[31m', 7)")
        database.commit()
    scene = DemoState(tmp_path / "p.yaml", tables, address="127.0.0.1:9092")
    scene.read_pipeline_line(
        json.dumps({"event": "batch", **Snapshot("clean", batches=1, rows=100, steps=STEPS).as_json()})
    )
    scene.refresh_findings()
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render_screen(scene))
    shown = console.export_text()
    assert "/\\x1b[31m" in shown
    assert "nothing yet" in shown
    assert "94 kept" in shown


def test_tables_that_are_not_there_yet_are_empty(tmp_path: Path) -> None:
    assert read_findings(tmp_path / "none.db").panels == PANELS
    (tmp_path / "empty.db").touch()
    assert [panel.rows for panel in read_findings(tmp_path / "empty.db").panels] == [()] * len(PANELS)
