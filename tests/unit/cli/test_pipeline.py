"""`ottla pipeline` without Spark: checks of the file, runs on disk, help, the chart."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ottla.cli.commands import pipeline as command
from ottla.cli.commands.completion import candidates, split_line
from ottla.cli.main import main
from ottla.cli.pipelines.help import _sections, summary, type_words
from ottla.cli.pipelines.screen import JsonDisplay, PlainDisplay, Trend, query_cells, rich_picture
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.operations.pipeline_runs.statuses import process_start
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.running.loading import load_pipeline
from ottla.pipelines.running.status import RunFolder, new_status

STEP = StepCount("main", 1, "parse", 1000, 990, 0, 0, 10, 990)
NOW = Snapshot("main", at_ms=1, batch=3, batches=4, rows=1000, batch_rows=250, rows_in_per_s=80.0, lag=7, steps=(STEP,))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A folder with a run that has ended."""
    folder = RunFolder(tmp_path, new_status("views", "views.yaml", "local[2]"))
    folder.open()
    folder.add(NOW)
    folder.change("stopped", "all was done", [NOW])
    folder.close()
    return tmp_path


def check(tmp_path: Path, text: str) -> int:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    return main(["pipeline", "check", str(file), "--offline"])


def test_a_valid_pipeline_is_reported_with_the_checked_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, "name: p\nfrom: {topic: t}\nto: console\n") == 0
    assert (
        "p is valid. Checked: the file, declared columns. Not checked: topics, what only Spark knows (--spark)."
        in capsys.readouterr().out
    )
    query = "steps:\n  - sql: SELECT value FROM stream\n  - filter: a > 1\n"
    assert check(tmp_path, f"name: p\nfrom: {{topic: t}}\n{query}to: console\n") == 0
    assert "Not checked: topics, columns after step 1, sql, what only Spark knows (--spark)." in capsys.readouterr().out


def test_an_invalid_pipeline_ends_with_2_and_a_line_for_each_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, "name: p\nfrm: {topic: t}\nsteps:\n  - filtr: x\nto: console\n") == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert f"{tmp_path}/p.yaml:2: frm: unknown field 'frm'" in output.err
    assert "Traceback" not in output.err


@pytest.mark.parametrize("change", ["x", "every=["])
def test_a_wrong_change_ends_with_2(tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "check", "p.yaml", "--set", change]) == 2
    assert "--set" in capsys.readouterr().err


def test_without_spark_one_line_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    assert main(["pipeline", "run", "p.yaml"]) == 1
    assert capsys.readouterr().err == "ottla pipeline: pipelines need Spark: pip install 'ottla[pipelines]'\n"
    assert main(["pipeline", "list", "--state", str(state)]) == 0


def test_help_and_lists_of_runs_need_no_spark(state: Path) -> None:
    code = (
        "import sys\nfrom ottla.cli.main import main\n"
        f"main(['pipeline', 'status', 'views', '--state', {str(state)!r}])\nsys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_runs_are_listed_as_table_and_as_json(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list", "--state", str(state)]) == 0
    assert capsys.readouterr().out.startswith("views\tstopped\t\t")
    assert main(["pipeline", "list", "--json", "--state", str(state)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["queries"][0]["rows"] == 1000


def test_the_status_shows_figures_and_steps(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "views", "--state", str(state)]) == 0
    output = capsys.readouterr().out
    assert "views: stopped for 0 s, all was done" in output
    assert "main    1 parse  1,000   990         0     0    10" in output


def test_a_killed_run_is_reported_with_code_1(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = state / "views" / "_run" / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": "running", "process_start": 1}))
    assert main(["pipeline", "status", "views", "--state", str(state)]) == 1
    assert "views: killed" in capsys.readouterr().out
    assert main(["pipeline", "stop", "views", "--state", str(state)]) == 0
    assert "does not run: killed" in capsys.readouterr().out


def test_an_unknown_name_gets_a_suggestion(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "view", "--state", str(state)]) == 1
    assert "did you mean views?" in capsys.readouterr().err


def test_a_report_is_a_picture(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "report", "views", "-o", str(tmp_path / "v.png"), "--state", str(state)]) == 0
    assert (tmp_path / "v.png").stat().st_size > 10_000
    assert main(["pipeline", "report", "views", "-o", str(tmp_path / "v.txt"), "--state", str(state)]) == 2
    assert "must end in one of .png" in capsys.readouterr().err


def test_stop_asks_the_process_and_waits_for_its_end(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    path = state / "views" / "_run" / "status.json"
    given = json.loads(path.read_text())
    started = process_start(child.pid)
    path.write_text(json.dumps({**given, "state": "running", "pid": child.pid, "process_start": started}))
    assert main(["pipeline", "stop", "views", "--state", str(state), "--timeout", "20"]) == 0
    assert child.wait(10) == -15
    assert "views is killed: 1,000 rows" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["first.yaml", "first.py"])
def test_the_example_is_valid(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / name
    assert main(["pipeline", "init", str(file)]) == 0
    assert load_pipeline(file).pipeline.name == "first"
    assert main(["pipeline", "init", str(file)]) == 2
    assert "exists: --force replaces it" in capsys.readouterr().err


def test_steps_are_explained_by_their_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "steps"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in ("filter", "parse", "topic", "sqlite", "from"))
    assert main(["pipeline", "steps", "topic"]) == 0
    assert "exactly-once|at-least-once" in capsys.readouterr().out
    assert main(["pipeline", "steps", "filtr"]) == 2
    assert "did you mean filter?" in capsys.readouterr().err


def test_every_step_and_field_is_documented() -> None:
    for specs in _sections().values():
        for name, spec in specs.items():
            assert summary(spec), name
            assert all(field.metadata.get("doc") for field in dataclasses.fields(spec)), name


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (list[str] | None, "list of text"),
        (dict[str, object], "name: value"),
        (Duration, "time"),
        (str | bool, "text or true|false"),
    ],
)
def test_types_are_shown_in_words(wanted: object, words: str) -> None:
    assert type_words(wanted) == words


def test_names_of_pipelines_are_completed(state: Path) -> None:
    assert candidates(split_line(f"ottla pipeline status --state {state} v")) == ["views"]
    assert candidates(split_line("ottla pipeline st")) == ["status", "steps", "stop"]


def test_the_chart_shows_failed_rows() -> None:
    trend = Trend()
    trend.add(NOW)
    console = Console(record=True, width=140, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(rich_picture("views on local[2]", [NOW], {"main": trend}))
    drawn = console.export_text()
    assert "█" in drawn
    assert "1 parse" in drawn
    assert "990" in drawn


def picture(width: int, *snapshots: Snapshot) -> str:
    console = Console(record=True, width=width, file=open(os.devnull, "w"))  # noqa: SIM115
    trend = Trend()
    trend.add(NOW)
    console.print(rich_picture("views on local[2]", snapshots, {each.query: trend for each in snapshots}))
    return console.export_text()


LARGE = Snapshot(
    "purchases-by-country", at_ms=1 << 42, batch=123_456, batches=5, rows=1_234_567_890, batch_rows=9,
    rows_in_per_s=12_345.6, rows_done_per_s=98_765.4, batch_ms=12_340, lag=7_654_321, watermark_ms=1,
    state_rows=2_345_678, state_bytes=3_456_789_000,
    steps=(StepCount("purchases", 2, "deduplicate", 1_234_567_890, 987_654_321, 246_913_569, 11_111, 22_222, 5_555),),
)  # fmt: skip


def test_no_number_is_cut_in_80_columns() -> None:
    """Sparklines are dropped first, then the long forms, then the ends of names."""
    wide = picture(200, LARGE)
    assert "█" in wide
    for number in ("1,234,567,890", "7,654,321", "2,345,678 rows 3.5 GB", "12.34 s", "987,654,321"):
        assert number in wide
    narrow = picture(80, LARGE)
    assert "█" not in narrow
    for number in ("123456", "12.3k", "98.8k", "7.7M", "2.3M 3.5 GB", "12.34 s", "1.2G", "988M", "11.1k", "22.2k"):
        assert number in narrow, narrow
    assert max(map(len, narrow.splitlines())) <= 80
    both = picture(80, LARGE, LARGE._replace(query="purchases-by-customer"))
    for number in ("1.2G", "988M", "247M", "11.1k", "22.2k", "5.6k"):
        assert number in both, both
    assert both.count("ntry ") == both.count("omer ") == 2
    assert "█" in picture(100, NOW)
    assert "1,000   990" in picture(80, NOW)


def test_the_wait_reason_of_a_query_is_shown() -> None:
    drawn = picture(80, NOW._replace(doing="broker away for 12 s", unsent=3))
    assert "main: broker away for 12 s, 3 dead letters to send" in drawn
    assert "main:" not in picture(80, NOW)


def test_a_query_without_batches_for_long_is_idle() -> None:
    assert ("idle", "dim") in query_cells(NOW, None, 1_000_000)
    assert ("80", "bold") in query_cells(NOW, None, 500)


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    display = JsonDisplay("views")
    display.step("starting")
    display.batch(NOW)
    display.end([NOW])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["step", "batch", "end"]
    assert events[1]["steps"][0]["dead"] == 10


def test_a_pipe_gets_lines_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay("views")
    display.batch(NOW)
    display.end([NOW])
    output = capsys.readouterr().out
    assert output.startswith("main: batch 3  250 rows")
    assert output.endswith("views: 1,000 rows in 4 batches, 10 dead\n")


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("{foreach_batch: 'nowhere:write'}", "there is no nowhere.py in"),
        ("{foreach_batch: 'json:nothing'}", "json has no function 'nothing'"),
        ("{foreach_batch: 'os:getcwd'}", "function getcwd does not take two arguments"),
        ("{http: 'ftp://h/x'}", "'ftp://h/x' is not the address of a web server"),
        ("{http: 'http://h/x', headers: {Authorization: 'Bearer ${NO_SUCH}'}}", "the variable NO_SUCH is not set"),
        ("{http: 'http://h/x', batch_rows: 0}", "batch_rows: must be at least 1"),
        ("{parquet: 's3://bucket/x'}", "s3://bucket/x: Spark reaches S3 as s3a://bucket/x"),
        ("{iceberg: x}", "iceberg: Iceberg is not published for Spark 4.2 yet; write to delta or parquet"),
        ("{sqlalchemy: 'fantasy://h/d', table: t}", "SQLAlchemy has no dialect fantasy: install SQLAlchemy"),
        (
            "{sqlalchemy: 'postgresql+psycopg://me:${NO_SUCH}@h/d', table: t}",
            "the variable NO_SUCH is not set",
        ),
        ("{redis: 'http://h', table: t}", "is not a Redis URL: redis://:${PASSWORD}@host:6379/0, rediss://… for TLS"),
        ("{redis: 'redis://h', table: t, type: hash}", "type: hash does not go with mode append; write stream or list"),
        ("{redis: 'redis://h', table: t, expire: 1 hour}", "expire: means nothing for mode append"),
        ("{redis: 'redis://h', table: t, mode: upsert}", "key: upsert and key require each other"),
        ("{redis: 'redis://h', table: t, type: set}", "type: 'set' is not one of hash, string, stream, list"),
        ("{redis: 'redis://h'}", "'table' is missing; name of the stream or list"),
        ("{sqlalchemy: 'sqlite:////nowhere/a.db', table: t}", "/nowhere/a.db is outside of the pipeline's folder"),
        (
            "{parquet: /nowhere/else}",
            "/nowhere/else is outside of the pipeline's folder: allow it with --root /nowhere",
        ),
    ],
)
def test_an_unwritable_output_is_reported_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sink: str, words: str
) -> None:
    assert check(tmp_path, f"name: p\nfrom: {{topic: t}}\nto:\n  - console\n  - {sink}\n") == 2
    assert f"{tmp_path}/p.yaml:5: " in (errors := capsys.readouterr().err)
    assert words in errors


def test_sinks_with_possible_duplicates_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "writing.py").write_text("def write(rows, batch_id): pass\n")
    sinks = ["{foreach_batch: 'writing:write'}", "{http: 'http://h/x'}", "{topic: u}"]
    sinks.append("{topic: u, delivery: at-least-once}")
    assert check(tmp_path, "name: p\nfrom: {topic: t}\nto:\n" + "".join(f"  - {sink}\n" for sink in sinks)) == 0
    first, *repeated = capsys.readouterr().out.splitlines()
    assert "p is valid" in first
    words = "at least once: rows of a batch that is repeated after a crash appear again"
    assert repeated == [f"{tmp_path}/p.yaml:{line}: to, {line - 3}: {words}" for line in (4, 5, 7)]
