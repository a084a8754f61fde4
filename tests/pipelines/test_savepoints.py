"""Savepoints: a pipeline continues from one, or is refused: no rows are duplicated."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.commands import Command, command  # noqa: F401 (a fixture)
from tests.pipelines.running import produce

from ottla.cli.main import main

STATE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in", max_per_batch: 100}
steps:
  - parse: {format: json, schema: {n: long, at: timestamp}}
  - deduplicate: {by: [n], within: 1 hour, time: at}
to:
  - {sqlite: rows.db, table: rows}
"""
PLAIN = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in"}
steps:
  - parse: {format: json, schema: {n: long}}
to: {sqlite: rows.db, table: rows, keep_offsets: true}
"""
FOLDER = STATE.replace("{sqlite: rows.db, table: rows}", "{json: rows}")
TWICE = [n % 150 for n in range(200)]  # of those after 150 the state must know that they were there


def fill(command: Command, numbers: list[int]) -> None:  # noqa: F811
    produce(command.bootstrap, f"{command.name}-in", [{"n": n, "at": "2026-01-01T10:00:00Z"} for n in numbers])


def in_table(command: Command) -> list[int]:  # noqa: F811
    with sqlite3.connect(command.folder / "rows.db") as database:
        return sorted(n for (n,) in database.execute("SELECT n FROM rows"))


def in_folder(command: Command) -> list[int]:  # noqa: F811
    files = (command.folder / "rows").glob("*/part-*.json")
    return sorted(json.loads(line)["n"] for file in files for line in file.read_text().splitlines())


def savepoint(command: Command, *words: str) -> int:  # noqa: F811
    return main(["pipeline", "savepoint", command.name, "--state", str(command.folder / "state"), *words])


def saved_after(command: Command, text: str, numbers: list[int]) -> Path:  # noqa: F811
    """A savepoint of the pipeline, which has done these."""
    command.write(text)
    command.make_topic()
    fill(command, numbers)
    assert command.run().code == 0
    folder = command.folder / "saved"
    assert savepoint(command, "--to", str(folder)) == 0
    return folder


def change(folder: Path, **fields: Any) -> None:
    manifest = json.loads((folder / "savepoint.json").read_text())
    (folder / "savepoint.json").write_text(json.dumps({**manifest, **fields}))


def refused(command: Command, folder: Path, *words: str, code: int = 2) -> str:  # noqa: F811
    return command.refused("--from-savepoint", str(folder), *words, code=code)


def test_a_stopped_pipeline_goes_on_from_its_savepoint_with_its_state(
    command: Command,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved = saved_after(command, STATE, TWICE[:150])
    shutil.copy(command.folder / "rows.db", command.folder / "rows.then")
    assert savepoint(command, "--to", str(saved)) == 1  # it is there already
    assert "exists already" in capsys.readouterr().err
    assert main(["pipeline", "savepoints", "--state", str(command.folder / "state"), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["folder"] for each in listed] == [str(saved)]
    assert listed[0]["streams"]["main"]["sinks"][0]["batch_id"] == listed[0]["streams"]["main"]["committed"]

    fill(command, TWICE[150:])
    assert command.run().code == 0
    assert in_table(command) == list(range(150))

    line = refused(command, saved, code=1)  # the table has got batches since
    assert "rows.db has batches up to" in line
    assert "they would be there twice" in line
    assert refused(command, saved, "--truncate-sinks", code=1).startswith(
        "ottla pipeline: table rows of"
    )  # rows know no batch
    assert in_table(command) == list(range(150))

    shutil.copy(command.folder / "rows.then", command.folder / "rows.db")  # a backup of that moment
    done = command.run("--from-savepoint", str(saved))
    assert done.code == 0
    assert "resumes from" in done.errors[0]
    assert done.events[-1]["queries"][0]["rows"] == 50  # what came since the savepoint, and no more
    assert in_table(command) == list(range(150))  # the state knew them


def test_folders_are_cut_back_only_if_asked(command: Command) -> None:  # noqa: F811
    saved = saved_after(command, FOLDER, TWICE[:150])
    fill(command, list(range(150, 180)))
    assert command.run().code == 0
    assert in_folder(command) == list(range(180))
    assert "--truncate-sinks removes them" in refused(command, saved, code=1)
    assert in_folder(command) == list(range(180))
    assert command.run("--from-savepoint", str(saved), "--truncate-sinks").code == 0
    assert in_folder(command) == list(range(180))

    shutil.rmtree(command.folder / "state" / command.name / "main")  # a lost disk: the savepoint is what is left
    shutil.rmtree(command.folder / "rows")
    assert "has no batch of this query" in refused(command, saved, code=1)


def test_a_file_that_cannot_go_on_from_it_changes_nothing(command: Command) -> None:  # noqa: F811
    saved = saved_after(command, FOLDER, TWICE[:100])
    fill(command, TWICE[100:])
    assert command.run().code == 0

    command.write(FOLDER.replace("within: 1 hour", "within: 2 hours"))
    assert "the checkpoint was made with deduplicate" in refused(command, saved, "--truncate-sinks")
    command.write(FOLDER.replace('"{name}-in"', '"{name}-other"'))
    assert "is no longer read" in refused(command, saved, "--truncate-sinks")

    assert in_folder(command) == list(range(150))
    command.write(FOLDER)
    done = command.run()
    assert (done.code, done.events[-1]["queries"][0]["rows"]) == (0, 0)  # the checkpoint is where it was


def test_offsets_beside_the_rows_tell_a_query_that_has_as_many_batches(command: Command) -> None:  # noqa: F811
    """Rows that keep their offsets are known by the stream's name: those of the query after it count as its own."""
    saved = saved_after(command, PLAIN, list(range(100)))
    shutil.rmtree(command.folder / "state" / command.name / "main")
    fill(command, list(range(100, 150)))
    assert command.run().code == 0  # it goes on where the rows end, with batch 0 again

    line = refused(command, saved, code=1)
    assert 'has rows up to {"' in line
    assert "are of another query" in line
    assert command.run().code == 0  # nothing has changed
    assert in_table(command) == list(range(150))

    shutil.rmtree(command.folder / "state" / command.name / "main")
    shutil.copytree(saved / "main", command.folder / "state" / command.name / "main")
    assert "are of another query" in command.refused()
    assert in_table(command) == list(range(150))


def test_what_is_no_whole_savepoint_of_this_pipeline_is_refused_in_a_sentence(command: Command) -> None:  # noqa: F811
    saved = saved_after(command, STATE, TWICE[:150])

    def copy() -> Path:
        shutil.rmtree(command.folder / "copy", ignore_errors=True)
        return Path(shutil.copytree(saved, command.folder / "copy"))

    assert "is not a savepoint" in refused(command, command.folder / "nowhere")
    changed = copy()
    change(changed, savepoint=2)
    assert "is a savepoint of version 2" in refused(command, changed)
    change(changed, savepoint=1, pipeline="another")
    assert f"is a savepoint of another, not of {command.name}" in refused(command, changed)
    change(changed, pipeline=command.name, spark="9.1.0")
    assert "was made with Spark 9.1.0" in refused(command, changed)
    (copy() / "savepoint.json").write_text('{"savepoint": 1')
    assert "cannot be read" in refused(command, command.folder / "copy")

    half = copy()
    gone = sorted(half.rglob("state/**/*.changelog"))[0]
    gone.unlink()
    assert f"{gone} is missing" in refused(command, half)
    damaged = sorted(copy().rglob("offsets/1"))[0]
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    assert f"{damaged} has changed" in refused(command, command.folder / "copy")
    assert command.run().code == 0  # nothing has changed
    assert in_table(command) == list(range(150))
