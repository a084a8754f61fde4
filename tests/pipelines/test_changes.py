"""A pipeline that was changed between two runs: permitted changes continue, others are reported before anything
runs."""

from __future__ import annotations

import sqlite3

from confluent_kafka.admin import AdminClient, NewTopic
from tests.pipelines.commands import Command, command  # noqa: F401 (a fixture)
from tests.pipelines.running import produce

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: ["{name}-in"]}
steps:
  - parse: {format: json, schema: {user: long, at: timestamp}}
  - filter: {where: "user >= 0"}
  - watermark: {time: at, delay: 1 second}
  - sql: |
      SELECT user, window(at, '1 minute').start AS start, count(*) AS views
      FROM stream GROUP BY user, window(at, '1 minute')
  - filter: {where: "views > 0"}
to:
  - {sqlite: rows.db, table: rows}
  - {json: folder}
"""
REPEATED = """\
  - {topic: "{name}-out", delivery: at-least-once}
"""


def fill(command: Command, topic: str, minute: int) -> None:  # noqa: F811
    rows = [{"user": user, "at": f"2026-01-01T10:{minute:02d}:00Z"} for user in range(3) for _ in range(2)]
    produce(command.bootstrap, topic, rows)


def counted(command: Command) -> dict[str, int]:  # noqa: F811
    """By minute."""
    with sqlite3.connect(command.folder / "rows.db") as database:
        return dict(database.execute("SELECT substr(start, 15, 2), sum(views) FROM rows GROUP BY 1"))


def test_a_changed_pipeline_goes_on_or_is_told_what_must_stay(command: Command) -> None:  # noqa: F811
    first = command.make_topic()
    command.write(FILE)
    fill(command, first, 0)
    assert command.run().code == 0

    refusals = [
        ("'1 minute'", "'5 minutes'", "made with sql"),
        ("count(*) AS views", "sum(user) AS views", "made with sql"),
        ("{time: at,", "{time: seen,", "step 3, watermark"),
        ("  - sql:", "  - deduplicate: {by: [user]}\n  - sql:", "now there is deduplicate"),
    ]
    for old, new, words in refusals:
        assert old in FILE
        command.write(FILE.replace(old, new))
        assert words in command.refused(code=2)
    assert counted(command) == {}

    command.write(FILE.replace("  - {sqlite: rows.db, table: rows}\n", ""))  # folder is the first sink now
    assert f"folder {command.folder}/folder" in command.refused()
    command.write(FILE + "  - {sqlite: rows.db, table: more}\n")
    assert "table more" in command.refused()

    second = f"{command.name}-more"
    admin = AdminClient({"bootstrap.servers": command.bootstrap})
    admin.create_topics([NewTopic(second, 1, -1)])[second].result()
    fill(command, second, 0)
    fill(command, first, 5)
    changed = FILE.replace("user >= 0", "user >= 1").replace("views > 0", "views > 1")
    command.write(changed.replace('["{name}-in"]', '["{name}-in", "{name}-more"]') + REPEATED)
    done = command.run()
    assert done.code == 0, done.errors
    assert f"main: topic {second} is new: it is read from its beginning" in done.warnings
    assert f"main: topic {command.name}-out is new: it gets rows from now on" in done.warnings
    assert counted(command)["00"] == 6 + 4  # of the first run, and of the new topic behind the changed filter

    command.write(FILE.replace("user: long", "user: string"))
    line = command.refused(code=2)
    assert f"topic {second} is no longer read" in line
    command.write(FILE.replace("user: long", "user: string").replace('["{name}-in"]', '["{name}-in", "{name}-more"]'))
    fill(command, first, 9)
    done = command.run()
    assert done.code == 1
    assert "a step with state gets other columns or types" in done.errors[0]
