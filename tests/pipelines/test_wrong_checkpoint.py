"""A deleted checkpoint, the usual way to reset a Spark job: nothing is silently lost or repeated."""

from __future__ import annotations

import shutil
import sqlite3

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.pipelines.commands import Command, command  # noqa: F401 (a fixture)
from tests.pipelines.running import produce, read_all

from ottla.cli.main import main
from ottla.pipelines.running.dead_letters import DeadLetters

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in", max_per_batch: 30}
steps:
  - parse: {format: json, schema: {n: long}}
to:
  - {sqlite: rows.db, table: rows}
  - {topic: "{name}-out"}
"""
LASTING = FILE.replace("table: rows}", "table: rows, keep_offsets: true}").replace('  - {topic: "{name}-out"}\n', "")


def fill(command: Command, first: int, after: int) -> None:  # noqa: F811
    produce(command.bootstrap, f"{command.name}-in", [{"n": n} for n in range(first, after)])


def in_topic(command: Command) -> list[int]:  # noqa: F811
    return sorted(message.json["n"] for message in read_all(command.bootstrap, f"{command.name}-out"))


def in_table(command: Command) -> list[int]:  # noqa: F811
    with sqlite3.connect(command.folder / "rows.db") as database:
        return sorted(n for (n,) in database.execute("SELECT n FROM rows"))


def reset(command: Command, *words: str) -> int:  # noqa: F811
    return main(["pipeline", "reset", command.name, "--state", str(command.folder / "state"), *words])


def server(command: Command) -> list[str]:  # noqa: F811
    return ["--bootstrap-server", command.bootstrap]


def test_a_deleted_checkpoint_ends_the_run_before_anything_is_written(command: Command) -> None:  # noqa: F811
    command.write(FILE)
    command.make_topic()
    fill(command, 0, 60)
    assert command.run().code == 0
    everything = list(range(60))

    shutil.rmtree(command.checkpoint())
    line = command.refused()
    assert f"{command.checkpoint()} is gone" in line
    assert "ottla pipeline reset" in line
    (command.folder / "rows.db").unlink()
    assert "is gone" in command.refused()
    assert not (command.folder / "rows.db").exists()

    shutil.rmtree(command.checkpoint().parent)  # now only the markers know
    line = command.refused()
    assert f"topic {command.name}-out has rows of an earlier query" in line
    assert in_topic(command) == everything
    assert not (command.folder / "rows.db").exists()

    assert command.run("--fresh").code == 0  # on purpose: once more
    assert in_table(command) == everything
    assert in_topic(command) == sorted(everything * 2)

    command.capsys.readouterr()
    assert reset(command, "--sinks", "--dry-run") == 1  # what others may read is not ours to delete
    assert "up to 1" in (said := command.capsys.readouterr().err), said  # 120 records, and a marker a transaction
    assert "transaction markers" in said
    assert reset(command, "--sinks") == 1
    assert in_table(command) == everything
    assert main(["records", "delete", f"{command.name}-out", "--before", "end", *server(command)]) == 0
    assert reset(command, "--sinks") == 0
    assert in_table(command) == []
    assert command.run().code == 0
    assert in_table(command) == in_topic(command) == everything


TWO = """\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  rows:
    from: {topic: "{name}-in"}
    steps:
      - parse: {format: json, schema: {n: long}}
  totals:
    from: rows
    steps:
      - window: {total: true, count: rows}
    output: update
    to: {sqlite: rows.db, table: totals, mode: append}
  copies:
    from: rows
    to: {sqlite: rows.db, table: rows}
"""


def test_state_that_is_gone_ends_the_run_before_another_query_writes(command: Command) -> None:  # noqa: F811
    command.write(TWO)
    command.make_topic()
    fill(command, 0, 3)
    assert command.run().code == 0
    state = command.folder / "state" / command.name / "totals" / "checkpoint" / "state"
    state.rename(state.with_name("elsewhere"))
    fill(command, 3, 5)
    assert f"{state} is gone; restore the folder, or start again with --fresh" in command.refused()
    assert in_table(command) == [0, 1, 2]
    state.with_name("elsewhere").rename(state)
    assert command.run().code == 0
    assert in_table(command) == [0, 1, 2, 3, 4]


def test_rows_with_their_offsets_go_on_without_the_checkpoint_and_reset_begins_anew(
    command: Command,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    command.write(LASTING)
    command.make_topic()
    fill(command, 0, 60)
    assert command.run().code == 0
    shutil.rmtree(command.checkpoint())
    fill(command, 60, 80)
    assert command.run().code == 0
    assert in_table(command) == list(range(80))

    shutil.rmtree(command.checkpoint())  # partitions that have come since then are read from their beginning
    topic = f"{command.name}-in"
    admin = AdminClient({"bootstrap.servers": command.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    produce(command.bootstrap, topic, [{"n": 80}], partition=1)
    assert command.run().code == 0
    assert in_table(command) == list(range(81))

    shutil.rmtree(command.checkpoint())
    (command.folder / "rows.db").unlink()
    assert command.run().code == 0
    assert in_table(command) == list(range(81))

    capsys.readouterr()
    assert reset(command, "--sinks", "--dry-run") == 0
    assert f"table rows of {command.folder}/rows.db: delete 81 rows" in capsys.readouterr().out
    assert len(in_table(command)) == 81
    assert reset(command, "--sinks") == 0
    assert in_table(command) == []
    assert command.run().code == 0
    assert in_table(command) == list(range(81))


def test_a_table_or_a_topic_that_is_gone_is_not_begun_anew_in_the_middle(command: Command) -> None:  # noqa: F811
    """The stored batches still exist: the ledger in the database, the markers beside the topic."""
    command.write(FILE)
    command.make_topic()
    fill(command, 0, 30)
    assert command.run().code == 0
    with sqlite3.connect(command.folder / "rows.db") as database:
        before = database.execute("SELECT n FROM rows").fetchall()
        database.execute("DROP TABLE rows")
    fill(command, 30, 40)
    for _ in range(2):  # also when it is tried again
        assert f"table rows of {command.folder}/rows.db has no batch of this query" in command.refused()
    assert in_topic(command) == list(range(30))
    with sqlite3.connect(command.folder / "rows.db") as database:
        database.execute("CREATE TABLE rows (n INTEGER)")
        database.executemany("INSERT INTO rows VALUES (?)", before)
    assert command.run().code == 0
    assert in_table(command) == in_topic(command) == list(range(40))

    assert main(["topics", "delete", f"{command.name}-out", "--yes", *server(command)]) == 0
    for _ in range(2):
        assert f"topic {command.name}-out is missing" in command.refused()
    assert main(["topics", "create", f"{command.name}-out", *server(command)]) == 0
    assert f"topic {command.name}-out was deleted and recreated" in command.refused()
    assert in_table(command) == list(range(40))


def test_rows_with_their_offsets_begin_anew_where_the_table_is_gone(command: Command) -> None:  # noqa: F811
    command.write(LASTING)
    command.make_topic()
    fill(command, 0, 30)
    assert command.run().code == 0
    shutil.rmtree(command.checkpoint())
    with sqlite3.connect(command.folder / "rows.db") as database:
        database.execute("DROP TABLE rows")
    assert command.run().code == 0
    assert in_table(command) == list(range(30))
    fill(command, 30, 33)
    assert command.run().code == 0
    assert in_table(command) == list(range(33))


def test_a_record_that_died_is_not_forgotten_when_steps_change(
    command: Command,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed before the letter was sent; with the new steps the record would be none, and its batch is done."""
    command.write(FILE)
    command.make_topic()
    produce(command.bootstrap, f"{command.name}-in", [{"n": 1}, '{"n": "two"}'])
    with monkeypatch.context() as patching:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        patching.setattr(DeadLetters, "_sweep", die)
        with pytest.raises((KeyboardInterrupt, AssertionError, IndexError)):
            assert command.run().code == 0
    command.write(FILE.replace("n: long", "n: string"))
    line = command.refused(code=2)
    assert "dead letters or late rows of the last batches are not sent yet, and steps have changed since" in line
    command.write(FILE)
    assert command.run().code == 0
    assert len(read_all(command.bootstrap, f"{command.name}-dead-letters")) == 1
    command.write(FILE.replace("schema: {n: long}", "schema: {n: long}, required: [n]"))
    assert command.run().code == 0


def test_a_letter_is_not_sent_again_because_a_note_is_older(command: Command) -> None:  # noqa: F811
    command.write(FILE)
    command.make_topic()
    for record in ("broken", {"n": 1}):
        produce(command.bootstrap, f"{command.name}-in", [record, {"n": 0}])
        assert command.run().code == 0
    (note,) = command.checkpoint().parent.glob("query-*/swept")
    note.write_text("[-1, -1]")
    assert command.run().code == 0
    assert len(read_all(command.bootstrap, f"{command.name}-dead-letters")) == 1


COMPLETE = """\
name: {name}
bootstrap.servers: {bootstrap}
late_rows: "{name}-late"
streams:
  main:
    from: {topic: "{name}-in", max_per_batch: 1}
    steps:
      - parse: {format: json, schema: {at: timestamp}}
      - watermark: {time: at, delay: 5 seconds}
      - window: {size: 10 seconds, count: views}
    output: complete
    to: {sqlite: rows.db, table: rows, mode: replace}
"""


def test_nothing_is_late_where_all_groups_are_told_at_every_batch(command: Command) -> None:  # noqa: F811
    """Killed before it has noted that nothing was late: the next run looks, and must find nothing."""
    command.write(COMPLETE)
    command.make_topic()
    times = ("00:10:00", "00:20:00", "00:00:01", "00:30:00")
    produce(command.bootstrap, f"{command.name}-in", [{"at": f"2026-01-01T{each}Z"} for each in times])
    assert command.run().code == 0
    (note,) = command.checkpoint().parent.glob("query-*/late-swept")
    note.write_text("-1")
    assert command.run().code == 0
    with sqlite3.connect(command.folder / "rows.db") as database:
        assert database.execute("SELECT sum(views) FROM rows").fetchone() == (4,)
    assert read_all(command.bootstrap, f"{command.name}-late") == []
