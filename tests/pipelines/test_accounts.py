"""The figures of a whole run are correct, and a run with only dead rows fails."""

from __future__ import annotations

import json

from tests.pipelines.commands import Command, command  # noqa: F401 (a fixture)
from tests.pipelines.running import produce, read_all

from ottla.operations.pipeline_runs.progress_text import end_line, step_table
from ottla.operations.pipeline_runs.snapshots import read_snapshot

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  clicks:
    from: {topic: {name}-in}
    steps:
      - parse: {format: json, schema: {user: string, ms: int}}
  quick:
    from: clicks
    steps:
      - sql: "SELECT c.user, c.ms FROM stream c WHERE c.ms < 50"
    to: {sqlite: rows.db, table: quick}
  users:
    from: clicks
    steps:
      - sql: "SELECT user, count(*) AS clicks FROM stream WHERE ms >= 50 GROUP BY user"
    to: {sqlite: rows.db, table: users, mode: upsert, key: [user]}
    output: update
"""
ONE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: {name}-in}
steps:
  - parse: {format: json, schema: {user: string, ms: int}}
to: {sqlite: rows.db, table: rows}
"""


def test_a_shared_stream_counts_once_and_a_where_in_sql_filters(command: Command) -> None:  # noqa: F811
    command.write(FILE)
    topic = command.make_topic()
    rows = [{"user": f"u{n % 4}", "ms": n} if n % 5 else "broken" for n in range(100)]
    produce(command.bootstrap, topic, [row if isinstance(row, str) else json.dumps(row) for row in rows])
    done = command.run()
    assert done.code == 0, done.errors
    snapshots = [read_snapshot(query) for query in done.events[-1]["queries"]]
    assert [dict(each.records) for each in snapshots] == [{"clicks": 100}, {"clicks": 100}]
    assert end_line(snapshots).startswith("100 rows in ")
    assert end_line(snapshots).endswith(", 20 dead")
    counts = {each.query: each.steps[-1] for each in snapshots}
    quick, users = counts["quick"], counts["users"]
    assert (quick.came, quick.kept, quick.filtered, quick.made) == (80, 40, 40, 40)
    assert (users.came, users.kept, users.filtered, users.made) == (80, 40, 40, 4)
    assert [line.split()[:2] for line in step_table(snapshots)[1:]] == [
        ["quick", "clicks"],
        ["quick", "quick"],
        ["users", "clicks"],
        ["users", "users"],
    ]
    topic_of_letters = f"topic {command.name}-dead-letters has the reasons"
    assert f"quick: 20 of 100 rows are dead (20 %); {topic_of_letters}" in done.warnings
    assert len(read_all(command.bootstrap, f"{command.name}-dead-letters")) == 20


def test_a_run_in_which_too_many_die_has_failed(command: Command) -> None:  # noqa: F811
    """Their letters are sent, and the next run goes on after them."""
    command.write(ONE)
    topic = command.make_topic()
    produce(command.bootstrap, topic, ["broken", "broken"])
    assert f"main: all 2 rows are dead; topic {command.name}-dead-letters has the reasons" in command.refused()
    assert len(read_all(command.bootstrap, f"{command.name}-dead-letters")) == 2
    produce(command.bootstrap, topic, [json.dumps({"user": "a", "ms": 1})] * 9 + ["broken"])
    words = "1 of 10 rows are dead (10 %), more than max_dead: 5 % allows"
    assert words in command.refused("--set", "max_dead=5 %")
    produce(command.bootstrap, topic, ["broken"])
    assert command.run("--set", "max_dead=100 %").code == 0


EXPLODED = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: {name}-in}
steps:
  - parse: {format: json, schema: {n: int, tags: "array<string>"}}
  - explode: {column: tags, into: tag}
  - filter: "tag <> 'no'"
to: {sqlite: rows.db, table: rows}
"""


def test_a_record_that_gives_no_row_is_not_kept(command: Command) -> None:  # noqa: F811
    command.write(EXPLODED)
    topic = command.make_topic()
    tags = [["a", "b"], [], None, ["no"], ["a"]]
    produce(command.bootstrap, topic, [{"n": n, "tags": each} for n, each in enumerate(tags)])
    done = command.run()
    assert done.code == 0, done.errors
    explode, kept = done.steps["main explode"], done.steps["main filter"]
    assert (explode["came"], explode["kept"], explode["filtered"], explode["made"]) == (5, 3, 2, 4)
    assert (kept["came"], kept["kept"], kept["filtered"]) == (4, 3, 1)
