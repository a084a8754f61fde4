"""Streams of changes, with a real Spark: deletions by tombstones and change records."""

from __future__ import annotations

import json
import random
import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import SCHEMA, Around, fates, living, through
from tests.pipelines.running import pipeline_of, produce, read_all, run_batch, run_once
from tests.pipelines.streams import END, at, run, streaming

from ottla.pipelines.steps.frame import source_frame
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOMBSTONES = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}", max_per_batch: 3}
steps:
  - parse: {format: json, schema: {city: string}, keep: [key, value], tombstone: keep}
  - cast: {key: string}
to:
  - {sqlite: users.db, table: users, mode: upsert, key: key, columns: [key, city], delete_when: value IS NULL}
  - {sqlite: users.db, table: changes, columns: [key, city]}
"""


DEBEZIUM = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}", max_per_batch: 4}
steps:
  - parse: {format: debezium, schema: {id: int, city: string, since: date}, timestamp_format: epoch days}
to: {sqlite: users.db, table: users, mode: upsert, key: id, columns: [id, city, since], delete_when: op = 'd'}
"""


def change(op: str, before: Any, after: Any, is_wrapped: bool = False) -> str:
    record = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "users"}}
    return json.dumps({"schema": {"type": "struct"}, "payload": record} if is_wrapped else record)


def user(number: int, city: str, since: int | None = 20454) -> dict[str, Any]:
    return {"id": number, "city": city, "since": since}


def rows_of(file: Path, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(file) as database:
        return sorted(database.execute(statement).fetchall(), key=repr)


def started(text: str, bootstrap: str) -> tuple[str, str]:
    """The text of the pipeline, and its name."""
    name = f"changes-{uuid.uuid4().hex[:8]}"
    return text.replace("{name}", name).replace("{bootstrap}", bootstrap), name


@pytest.mark.parametrize("run", [run_once, run_batch])
def test_a_record_without_value_removes_the_row_of_its_key(
    spark: SparkSession, bootstrap: str, tmp_path: Path, run: Any
) -> None:
    text, name = started(TOMBSTONES, bootstrap)
    changes: list[tuple[str, Any]] = [
        ("ann", {"city": "Oslo"}), ("bob", {"city": "Rome"}), ("ann", None), ("cid", {"city": "Bern"}), ("bob", None),
        ("bob", {"city": "Bonn"}), ("dan", None), ("eve", {}),
    ]  # fmt: skip
    produce(bootstrap, name, changes, partition=0)
    run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    assert rows_of(tmp_path / "users.db", "SELECT * FROM users") == [("bob", "Bonn"), ("cid", "Bern"), ("eve", None)]
    assert len(rows_of(tmp_path / "users.db", "SELECT * FROM changes")) == len(changes)


@pytest.mark.parametrize("run", [run_once, run_batch])
def test_changes_of_debezium_make_the_table_again(
    spark: SparkSession, bootstrap: str, tmp_path: Path, run: Any
) -> None:
    text, name = started(DEBEZIUM, bootstrap)
    changes: list[tuple[str, Any]] = [
        ('{"id":1}', change("r", None, user(1, "Oslo"))),
        ('{"schema":{},"payload":{"id":2}}', change("c", None, user(2, "Rome"), True)),
        ('{"id":3}', change("c", None, user(3, "Bern"))),
        ('{"id":4}', change("c", None, user(4, "Graz"))),
        ('{"id":1}', change("u", user(1, "Oslo"), user(1, "Bonn", None))),
        ('{"schema":{},"payload":{"id":2}}', change("d", user(2, "Rome"), None, True)),
        ('{"schema":{},"payload":{"id":2}}', None),
        ('{"id":3}', None),  # compaction has removed the deletion itself
        ('{"id":5}', change("c", None, user(5, "Lyon"))),
        ('{"id":5}', change("d", user(5, "", None), None)),
        ('{"id":5}', None),
        ('{"id":5}', change("c", None, user(5, "Nice"))),
        ("", change("t", None, None)),
    ]  # fmt: skip
    produce(bootstrap, name, changes, partition=0)
    (parse,) = run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    found = rows_of(tmp_path / "users.db", "SELECT * FROM users")
    assert found == [(1, "Bonn", None), (4, "Graz", "2026-01-01"), (5, "Nice", "2026-01-01")]
    assert (parse.came, parse.dead) == (len(changes), 1)


def test_what_is_no_change_of_a_row_dies(spark: SparkSession) -> None:
    cases: list[tuple[str | None, str | None, str | None]] = [
        ("1", change("u", None, {"id": 1, "city": "x"}), None),
        ("1", change("u", None, {"id": "one"}, True), 'field `payload.after.id`: "one" is no int'),
        ("1", change("t", None, None), 'op "t" changes no single row'),
        ("1", change("d", None, {"id": 1}), 'op "d" without before'),
        ("1", change("c", {"id": 1}, None, True), 'op "c" without after'),
        ("1", '{"id": 1}', "no `op`: not a change record of Debezium"),
        ("1", "x", 'not JSON: "x"'),
        ("1", change("u", None, {"id": 1, "city": "__debezium_unavailable_value"}), "field `city`: Debezium left"),
        ("1", change("u", None, {"id": 1, "at": "soon"}), 'field `at`: "soon" is no timestamp'),
        ("seven", None, "not JSON"),
        (None, None, "no value (tombstone), and no key"),
    ]
    rows = [
        (key and key.encode(), value and value.encode(), "t", 0, offset, None, 0, None)
        for offset, (key, value, _) in enumerate(cases)
    ]
    frame = source_frame(spark.createDataFrame(rows, SCHEMA), Around(spark))
    schema = {"id": "int", "city": "string", "at": "timestamp"}
    parsed = through(frame, {"parse": {"format": "debezium", "schema": schema}})
    found = [reason for _, reason in fates(parsed)]
    assert [(reason or "").startswith(begin or "") for reason, (_, _, begin) in zip(found, cases, strict=True)] == [
        True for _ in cases
    ], found
    assert living(parsed) == [{"id": 1, "city": "x", "at": None, "op": "u", "ts_ms": 1}]


LATE = """\
name: {name}
bootstrap.servers: {bootstrap}
late_rows: "{name}-late"
streams:
  events:
    from: {topic: "{name}", max_per_batch: 5}
    steps:
      - parse: {format: json, schema: {n: int, second: int}}
      - derive: {at: timestamp_seconds(1767225600 + second)}
      - watermark: {time: at, delay: 10 seconds}
  windows:
    from: events
    steps: [{window: {size: 10 seconds, count: rows}}]
    to: {sqlite: windows.db, table: windows}
  pairs:
    from: events
    steps: [{join: {with_stream: events, on: [n], within: 5 seconds}}]
    to: {sqlite: pairs.db, table: pairs}
"""
SECONDS = [1, 2, 3, 4, 35, 5, 36, 19, 20, 37, 80, 9, 12, 30, 81, 9, 16, 19, 20, 82, 60, 61, 70, 69, 87]


def late_numbers(size: int) -> list[int]:
    """Of rows that count for so many seconds, up to a multiple of that; 0: up to their own time."""
    late: list[int] = []
    newest, watermark = 0, 0  # Spark compares with the watermark of the previous batch
    for first in range(0, len(SECONDS), 5):
        batch = range(first, first + 5)
        ends = {n: SECONDS[n] // size * size + size if size else SECONDS[n] for n in batch}
        late += [n for n in batch if ends[n] <= watermark]
        watermark, newest = newest - 10, max(newest, *(SECONDS[n] for n in batch))
    return late


@pytest.mark.faults
def test_rows_that_are_late_go_to_a_topic_once(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    text, name = started(LATE, bootstrap)
    produce(bootstrap, name, [{"n": n, "second": second} for n, second in enumerate(SECONDS)], partition=0)
    pipeline = pipeline_of(text, tmp_path)
    counts = {count.step: count.late for count in run_once(spark, pipeline, tmp_path / "state")}
    expected = {"windows 1 window": late_numbers(10), "pairs 1 join": late_numbers(0)}
    assert len(expected["pairs 1 join"]) > len(expected["windows 1 window"]) > 5
    told = letters_by_step(bootstrap, name)
    assert told == expected
    both = {"window": len(late_numbers(10)), "join": 2 * len(late_numbers(0))}
    assert {step: late for step, late in counts.items() if late} == both
    for each in ("windows", "pairs"):  # simulates a kill before the dead letters were stored
        (note,) = (tmp_path / "state" / name / each).glob("query-*/late-swept")
        note.write_text("1")
    produce(bootstrap, name, [{"n": 99, "second": 1}], partition=0)
    run_once(spark, pipeline, tmp_path / "state")
    assert letters_by_step(bootstrap, name) == {step: [*numbers, 99] for step, numbers in expected.items()}


def letters_by_step(bootstrap: str, name: str) -> dict[str, list[int]]:
    letters = read_all(bootstrap, f"{name}-late")
    assert all(each.headers["ottla.reason"].startswith("late: the watermark was 2026-01-01T00:0") for each in letters)
    steps = {each.headers["ottla.step"] for each in letters}
    return {step: sorted(each.json["n"] for each in letters if each.headers["ottla.step"] == step) for step in steps}


RATES = "currency string, since timestamp, rate bigint, topic string, partition int, offset bigint"
ORDERS = "currency string, at timestamp, amount bigint"


def changing(spark: SparkSession, folder: Path, is_streaming: bool, kind: str) -> Any:
    """Orders with the rate of their time; both come out of order, but not late."""
    rates = [(c, at(n * 7 + k), n * 10 + k) for n in range(12) for k, c in enumerate(["eur", "usd"])]
    rates += [(None, at(3), 999), ("eur", at(21), 5)]  # the second of two versions of one moment
    rates += [("eur", at(28), 6), ("eur", at(28), 4)]
    versions = [(*each, "rates", 0, offset) for offset, each in enumerate(rates)]
    orders = [(c, at(n), n) for n in range(90) for c in ["eur", "usd", "yen"][n % 3 : n % 3 + 1]]
    orders += [(None, at(5), 1000), ("usd", at(0), 1001)]
    chance = random.Random(3)
    chance.shuffle(orders)
    ends = [("eur", END, -1, "rates", 0, 100), ("usd", END, -1, "rates", 0, 101)]
    around = Around(spark, is_streaming=is_streaming)
    if is_streaming:
        table = streaming(spark, folder / "rates", RATES, [versions[10:], [*versions[:10], *ends]], around)
        frame = streaming(
            spark, folder / "orders", ORDERS, [orders[:50], [*orders[50:], *(end[:3] for end in ends)]], around
        )
    else:
        table = source_frame(spark.createDataFrame([*versions[10:], *versions[:10]], RATES), around)
        frame = source_frame(spark.createDataFrame(orders, ORDERS), around)
    around.streams["rates"] = through(table, {"watermark": {"time": "since", "delay": "2 minutes"}})
    step = {"join": {"as_of": "rates", "on": ["currency"], "kind": kind}}
    expected = {(c, amount, valid(rates, c, moment)) for c, moment, amount in orders}
    joined = through(frame, {"watermark": {"time": "at", "delay": "2 minutes"}}, step)
    return joined, {row for row in expected if row[2] is not None or kind == "left"}


def valid(rates: list[Any], currency: str | None, moment: Any) -> int | None:
    found = [(since, n, rate) for n, (each, since, rate) in enumerate(rates) if each == currency and since <= moment]
    return max(found)[2] if found and currency else None


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_a_row_meets_what_was_valid_at_its_time_in_batch_and_stream(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    batch, expected = changing(spark, tmp_path, False, kind)
    names = ("currency", "amount", "rate")
    found = [tuple(row[name] for name in names) for row in living(batch.drop_marked())]
    assert (set(found), len(found)) == (expected, len(expected))
    assert batch.columns == ["currency", "amount", "at", "since", "rate", "topic", "partition", "offset"]
    stream, _ = changing(spark, tmp_path, True, kind)
    ran = run(stream, tmp_path)
    told = [tuple(row[name] for name in names) for row in ran.rows if row["amount"] != -1]
    assert (set(told), len(told)) == (expected, len(expected))
    assert ran.late() == {}


def test_late_rows_whose_records_are_not_known_are_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    watermark = {"watermark": {"time": "at", "delay": "10 seconds"}}
    window = {"window": {"size": "10 seconds", "count": "rows"}}
    for number, step in enumerate((window, {"order": {}}, {"deduplicate": {"by": ["amount"]}})):
        around = Around(spark, is_streaming=True, sends_late=True)
        frame = streaming(spark, tmp_path / str(number), ORDERS, [[("eur", at(0), 1)]], around)
        with pytest.raises(StepError, match="its late rows cannot be sent"):
            through(frame, watermark, step)
    around = Around(spark, is_streaming=True, sends_late=True)
    frame = streaming(spark, tmp_path / "known", f"{ORDERS}, offset bigint", [[("eur", at(0), 1, 0)]], around)
    assert through(frame, watermark, window, window).columns == ["window_start", "window_end", "rows"]
