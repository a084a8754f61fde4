"""`pattern` and `stateful` in runs with a real broker and a real Spark: restarts, dead letters, accounts."""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import living, table, through, utc
from tests.pipelines.running import pipeline_of, produce, read_all, run_batch, run_once
from tests.pipelines.streams import END, at, run, streaming

from ottla.cli.main import main
from ottla.pipelines.running.builder import Builder
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = """\
from datetime import timedelta

class Sessions:
    def on_row(self, row, state):
        if row["page"] == "bad":
            state["pages"] = ["lost"]
            raise ValueError(f"no page {row['n']}")
        state["pages"] = [*(state["pages"] or []), row["page"]]
        state.set_timer(state.time + timedelta(seconds=30))
        if len(state["pages"]) == 1:
            return {"what": "begin", "pages": state["pages"]}

    def on_timer(self, time, state):
        return {"what": "timer", "pages": state["pages"]}
"""
TEXT = """\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  rows:
    from: {topic: "{name}", max_per_batch: 4}
    steps:
      - parse: {format: json, schema: {n: int, user: string, page: string, second: int}}
      - derive: {at: timestamp_seconds(1767225600 + second)}
      - watermark: {time: at, delay: 5 seconds}
  sessions:
    from: rows
    steps:
      - stateful: {code: "sessions:Sessions", by: [user], state: {pages: array<string>}, schema: {what: string, pages: array<string>}, forget_after: 1 hour}
      - rule: {few: "size(pages) < 4"}
      - derive: {moment: unix_seconds(at) - 1767225600}
      - drop: [at]
    to:
      - {sqlite: out.db, table: sessions}
      - {sqlite: out.db, table: newest, mode: upsert, key: user}
  pairs:
    from: rows
    steps:
      - pattern: {by: [user], first: "page = 'a'", then: "page = 'b'", within: 20 seconds, emit: both}
      - select: [user, outcome, first_n, then_n]
    to: {sqlite: pairs.db, table: pairs}
"""  # noqa: E501
ROWS: list[dict[str, Any]] = [
    {"n": n, "user": user, "page": page, "second": second}
    for n, (second, user, page) in enumerate(
        [
            (1, "ann", "a"), (2, "bob", "a"), (0, "bob", "x"), (3, "ann", "bad"), (4, "ann", "b"), (5, None, "a"),
            (9, "bob", "b"), (7, "bob", "bad"), (30, "ann", "a"), (28, "ann", "y"), (29, "ann", "z"), (60, "bob", "a"),
            (200, "end", "x"), (201, "end", "x"),
        ]
    )
]  # fmt: skip
# All timers of ann, and the last one of bob, find more pages than the rule wants. A stream does not reach the end.
SESSIONS = [("ann", "begin", 1), ("bob", "begin", 0), ("bob", "timer", 30), ("bob", "timer", 32), ("bob", "timer", 39)]
AT_THE_END = [("end", "begin", 200), ("end", "timer", 230), ("end", "timer", 231)]
PAIRS = [
    ("ann", "matched", 0, 4),
    ("ann", "timed_out", 8, None),
    ("bob", "matched", 1, 6),
    ("bob", "timed_out", 11, None),
]


def rows_of(file: Path, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(file) as database:
        return sorted(database.execute(statement).fetchall(), key=repr)


@pytest.mark.parametrize("runs", [run_once, run_batch])
def test_what_dies_in_code_of_the_user_is_a_letter_and_restarts_change_nothing(
    spark: SparkSession, bootstrap: str, tmp_path: Path, runs: Any
) -> None:
    name = f"keyed-{uuid.uuid4().hex[:8]}"
    (tmp_path / "sessions.py").write_text(CODE)
    pipeline = pipeline_of(TEXT.replace("{name}", name).replace("{bootstrap}", bootstrap), tmp_path)
    parts = [ROWS[:6], ROWS[6:]] if runs is run_once else [ROWS]
    counts = []
    for part in parts:
        produce(bootstrap, name, part, partition=0)
        counts += runs(spark, pipeline, tmp_path / "state")
    found = rows_of(tmp_path / "out.db", "SELECT user, what, moment FROM sessions")
    ends = AT_THE_END if runs is run_batch else []
    assert found == sorted([*SESSIONS, *ends], key=repr)
    newest = rows_of(tmp_path / "out.db", "SELECT user, what, moment FROM newest")
    assert newest == [("ann", "begin", 1), ("bob", "timer", 39), *ends[2:]]
    assert rows_of(tmp_path / "pairs.db", "SELECT * FROM pairs") == sorted(PAIRS, key=repr)
    headers = [(each.json["n"], each.headers) for each in read_all(bootstrap, f"{name}-dead-letters")]
    letters = sorted((n, each["ottla.step"], each["ottla.reason"], each["ottla.offset"]) for n, each in headers)
    assert letters == [(n, "sessions 1 stateful", f"sessions.py:7: ValueError: no page {n}", str(n)) for n in (3, 7)]
    figures: dict[str, list[int]] = {}
    for count in counts:
        assert count.came == count.kept + count.filtered + count.late + count.dead
        assert count.late == 0
        each = figures.setdefault(count.step, [0, 0, 0])
        each[:] = [a + b for a, b in zip(each, (count.came, count.filtered, count.dead), strict=True)]
    assert (figures["stateful"], figures["rule"][2], figures["pattern"]) == ([14, 1, 2], 6, [14, 8, 0])


MINUTES = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}", max_per_batch: 7}
steps:
  - parse: {format: json, schema: {n: int, user: string, page: string, second: int}}
  - derive: {at: timestamp_seconds(1767225600 + second)}
  - watermark: {time: at, delay: 5 seconds}
  - stateful: {code: "sessions:Sessions", by: [user], state: {pages: array<string>}, schema: {what: string, pages: array<string>}}
  - rule: {few: "size(pages) < 4"}
  - window: {size: 1 minute, by: [user, what], count: rows}
to: {sqlite: out.db, table: minutes, columns: [user, what, rows]}
"""  # noqa: E501


@pytest.mark.parametrize("runs", [run_once, run_batch])
def test_what_dies_in_code_of_the_user_before_a_window_is_a_letter_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path, runs: Any
) -> None:
    name = f"minutes-{uuid.uuid4().hex[:8]}"
    (tmp_path / "sessions.py").write_text(CODE)
    pipeline = pipeline_of(MINUTES.replace("{name}", name).replace("{bootstrap}", bootstrap), tmp_path)
    produce(bootstrap, name, ROWS, partition=0)
    counts = runs(spark, pipeline, tmp_path / "state")
    assert [count.dead for count in counts] == [0, 0, 0, 2, 6, 0]
    if runs is run_once:  # simulates a crash before the commit of a batch whose rows died in their window
        checkpoint = tmp_path / "state" / name / "main" / "checkpoint"
        last = max(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
        (checkpoint / "commits" / str(last)).unlink()
        (checkpoint / "commits" / f".{last}.crc").unlink()
        runs(spark, pipeline, tmp_path / "state")
    ends = [("end", "begin", 1), ("end", "timer", 2)] if runs is run_batch else []
    found = rows_of(tmp_path / "out.db", "SELECT user, what, rows FROM minutes")
    assert found == [("ann", "begin", 1), ("bob", "begin", 1), ("bob", "timer", 3), *ends]
    letters = [
        (each.headers["ottla.offset"], each.headers["ottla.step"])
        for each in read_all(bootstrap, f"{name}-dead-letters")
    ]
    assert sorted(letters) == [("3", "main 4 stateful"), ("7", "main 4 stateful")]


def test_a_checkpoint_of_a_version_that_counted_elsewhere_goes_on(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting and the place of dead letters are no part of the state: another version may differ."""
    name = f"older-{uuid.uuid4().hex[:8]}"
    (tmp_path / "sessions.py").write_text(CODE)
    pipeline = pipeline_of(MINUTES.replace("{name}", name).replace("{bootstrap}", bootstrap), tmp_path)
    produce(bootstrap, name, ROWS[:6], partition=0)
    with monkeypatch.context() as older:
        older.setattr(Frame, "filter_counted", lambda frame, known: replace(frame, rows=frame.rows.filter(known)))
        older.setattr(Builder, "lay_aside", lambda _self, rows, _passages: rows)
        run_once(spark, pipeline, tmp_path / "state")
    produce(bootstrap, name, ROWS[6:], partition=0)
    run_once(spark, pipeline, tmp_path / "state")
    found = rows_of(tmp_path / "out.db", "SELECT user, what, rows FROM minutes")
    assert found == [("ann", "begin", 1), ("bob", "begin", 1), ("bob", "timer", 3)]


CASES = """\
cases:
  sessions and pairs:
    given:
      - p: [{n: 0, user: ann, page: a, second: 1}, {n: 1, user: ann, page: bad, second: 2}]
      - p: [{n: 2, user: ann, page: b, second: 3}]
    watermark: end
    expect:
      sessions: {rows: [{what: begin, moment: 1}, {what: timer, moment: 31}, {what: timer, moment: 33}], ordered: true}
      pairs: [{user: ann, outcome: matched, first_n: 0, then_n: 2}]
    ignore: [user, pages]
    dead_letters: [{reason: "sessions.py:7: ValueError: no page 1", step: sessions 1 stateful}]
"""


def test_cases_beside_the_pipeline(spark: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark is not None  # it is used, and left to the other tests
    (tmp_path / "sessions.py").write_text(CODE)
    (tmp_path / "p.yaml").write_text(TEXT.replace("{name}", "p").replace("{bootstrap}", "127.0.0.1:1"))
    (tmp_path / "p.test.yaml").write_text(CASES.replace("{user: ann, outcome", "{outcome"))
    assert main(["pipeline", "test", str(tmp_path / "p.yaml")]) == 0, capsys.readouterr()


def test_the_time_of_the_records_becomes_a_column(spark: SparkSession, tmp_path: Path) -> None:
    schema = "user string, page string, timestamp timestamp, offset bigint, topic string, partition int"
    rows = [("ann", "a", at(1), 0, "t", 0), ("ann", "b", at(1), 1, "t", 0), ("ann", "a", at(2), 2, "t", 0)]
    steps: list[dict[str, object]] = [
        {"select": ["user", "page"]},
        {"watermark": {"delay": "1 second"}},
        {
            "pattern": {
                "by": ["user"],
                "first": "page = 'a'",
                "then": "page = 'b'",
                "within": "5 seconds",
                "emit": "both",
            }
        },
        {"window": {"size": "1 minute", "by": ["outcome"], "count": "n"}},
    ]
    batch = through(table(spark, rows, schema), *steps[:3])
    assert [(row["outcome"], row["timestamp"]) for row in living(batch)] == [
        ("matched", utc(2026, 1, 1, 0, 0, 1)),
        ("timed_out", utc(2026, 1, 1, 0, 0, 7)),
    ]
    ends = [("end", "x", END, 3, "t", 0)]
    stream = through(streaming(spark, tmp_path / "in", schema, [[rows[1]], [rows[0], rows[2]], ends]), *steps)
    ran = run(stream, tmp_path)
    assert sorted((row["outcome"], row["n"]) for row in ran.rows) == [("matched", 1), ("timed_out", 1)]


def test_code_that_does_not_fit_is_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "class Nothing: pass\n"
        "class Short:\n    def on_row(self, row): pass\n"
        "class Timer:\n    def on_row(self, row, state): pass\n    def on_timer(self, time): pass\n"
        "class Needs:\n    def __init__(self, more): pass\n    def on_row(self, row, state): pass\n"
        "async def later(row, state): pass\n"
    )
    for code, text in {
        "wrong:Nothing": "Nothing has no on_row",
        "wrong:Short": r"on_row does not take \(self, row, state\)",
        "wrong:Timer": r"on_timer does not take \(self, time, state\)",
        "wrong:Needs": r"Needs\(\) cannot be created: ",
        "wrong:later": "the function is asynchronous",
        "wrong:Missing": "wrong has no function 'Missing'",
    }.items():
        frame = table(spark, [("ann", at(1))], "user string, at timestamp", tmp_path)
        step = {"stateful": {"code": code, "by": ["user"], "state": {"n": "int"}, "schema": {"m": "int"}}}
        with pytest.raises(StepError, match=text):
            through(frame, {"watermark": {"time": "at", "delay": "1 second"}}, step)
