"""`ottla pipeline reset`: prints its actions, and executes all of them or none."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.pipelines.running.status import RunFolder, new_status
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.sql_tables import Table, TableColumn
from ottla.pipelines.sinks.sqlite import SqliteSession

ID = "0b1e7a52-58b5-4a4c-8d02-93cfcf0f5d67"
FILE = """\
name: views
from: {topic: site}
to:
  - {sqlite: a.db, table: rows, create: true}
  - {sqlite: a.db, table: kept, keep_offsets: true}
  - {parquet: files}
  - console
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a pipeline that has run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(FILE)
    for name in ("checkpoint/metadata", f"query-{ID}/owner"):
        (tmp_path / "state" / "views" / "main" / name).parent.mkdir(parents=True)
        (tmp_path / "state" / "views" / "main" / name).write_text("x")
    record("rows", f"views.main.{ID}.0", 5)
    record("kept", "views.main.1", 7)
    for number, query in enumerate((f"views.main.{ID}.2", "others.main.0")):
        batch = tmp_path / "files" / f"ottla_batch={number}"
        batch.mkdir(parents=True)
        (batch / "_ottla").write_text(json.dumps({"query": query, "identity": "i"}))
    return tmp_path


def record(table: str, query: str, rows: int) -> None:
    columns = [TableColumn("n", "integer")]
    with SqliteSession("a.db") as session:
        session.prepare(Table(table), columns)
        session.database.executemany(f"INSERT INTO {table} VALUES (?)", [(n,) for n in range(rows)])
        session.store_batch(query, table, LastBatch(3, "i"))
        session.store_offsets(query, {"site": {0: rows}})
        session.commit()


def counts() -> list[int]:
    with sqlite3.connect("a.db") as database:
        tables = ("rows", "kept", "ottla_batches", "ottla_offsets")
        return [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables]


def reset(*words: str) -> int:
    return main(["pipeline", "reset", "p.yaml", "--state", "state", *words])


def test_checkpoint_and_notes_are_moved_together_and_sinks_keep_their_rows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reset() == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"main: put checkpoint, notes and staged rows aside: {folder}/state/views/_old/")
    assert last.startswith("views is reset: the next run starts again. Sinks keep their rows")
    assert not (folder / "state" / "views" / "main").exists()
    assert len(list(folder.glob(f"state/views/_old/*/main/query-{ID}/owner"))) == 1
    assert counts() == [5, 7, 2, 2]
    assert reset() == 0
    assert "has no checkpoint of views" in capsys.readouterr().out


def test_rows_and_sink_state_are_deleted_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reset("--sinks", "--dry-run") == 0
    planned = capsys.readouterr().out.splitlines()
    assert planned[1:] == [
        f"table rows of {folder}/a.db: delete 5 rows and their ledger entries",
        f"table kept of {folder}/a.db: delete 7 rows and their ledger entries",
        f"folder {folder}/files: delete 1 folders, one per batch",
        "console: stores no batches; written data stays",
        "Nothing was done (--dry-run).",
    ]
    assert (folder / "state" / "views" / "main").exists()
    assert counts() == [5, 7, 2, 2]
    assert reset("--sinks") == 0
    assert counts() == [0, 0, 0, 0]
    assert [path.name for path in (folder / "files").iterdir()] == ["ottla_batch=1"]  # of other pipelines
    assert not (folder / "state" / "views" / "main").exists()


@pytest.mark.parametrize(
    ("is_other", "words"), [(True, "other queries write to it as well"), (False, "was not created by the pipeline")]
)
def test_rows_of_other_writers_prevent_the_whole_reset(
    folder: Path, capsys: pytest.CaptureFixture[str], is_other: bool, words: str
) -> None:
    if is_other:
        record("rows", "others.main.0", 1)
    else:
        (folder / "p.yaml").write_text(FILE.replace("create: true", "create: false"))
    before = counts()
    assert reset("--sinks") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert "empty it manually, or keep it, and write everything again with run --fresh" in line
    assert counts() == before
    assert (folder / "state" / "views" / "main").exists()
    with sqlite3.connect("a.db") as database:
        database.execute("DELETE FROM rows")
    assert reset("--sinks") == 0
    assert counts()[2] == int(is_other)


def test_a_pipeline_that_runs_is_not_reset(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = RunFolder(folder / "state", new_status("views", "p.yaml", ""))
    running.lock()
    assert reset() == 1
    assert "views is already run by" in capsys.readouterr().err
    assert main(["pipeline", "run", "p.yaml", "--state", "state", "--fresh"]) == 1
    assert "views is already run by" in capsys.readouterr().err
    running.close()
    assert (folder / "state" / "views" / "main").exists()


def test_an_unknown_name_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "reset", "veiws", "--state", str(folder / "state")]) == 1
    assert "there is no run of 'veiws'" in capsys.readouterr().err
