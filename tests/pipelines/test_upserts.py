"""The row that an upsert keeps of several with the same key, with a real Spark."""

from __future__ import annotations

import json
import random
import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from tests.pipelines.frames import Around, records, through
from tests.pipelines.running import pipeline_of, produce, run_batch, run_once
from tests.pipelines.streams import START, streaming

from ottla.cli.main import main
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.model.row_order import TIME_MICROS, row_order_after
from ottla.pipelines.sinks.database import newest_rows
from ottla.pipelines.sinks.sql_tables import Table
from ottla.pipelines.steps.step_table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Step = dict[str, object]

ORDERS, CHANGES, CUSTOMERS = 150, 2_000, 40
JOINED = """\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  customers:
    from: {topic: "{name}-customers"}
    steps: [{parse: {format: json, schema: {customer: int, city: string}}}]
  orders:
    from: {topic: "{name}-orders", max_per_batch: 800}
    steps:
      - parse: {format: json, schema: {order: int, customer: int, n: int}}
      - join: {newest_of: customers, on: [customer]}
    to:
      - {sqlite: orders.db, table: orders, mode: upsert, key: [order], columns: [order, n, city]}
      - {sqlite: orders.db, table: changes}
"""


@pytest.mark.parametrize("run", [run_once, run_batch])
def test_an_upsert_behind_a_shuffle_keeps_the_last_row_of_the_topic(
    spark: SparkSession, bootstrap: str, tmp_path: Path, run: Any
) -> None:
    name = f"upserts-{uuid.uuid4().hex[:8]}"
    chance = random.Random(5)
    changes = [
        {"order": chance.randrange(ORDERS), "customer": chance.randrange(CUSTOMERS), "n": n} for n in range(CHANGES)
    ]
    produce(bootstrap, f"{name}-customers", [{"customer": each, "city": f"city {each}"} for each in range(CUSTOMERS)])
    produce(bootstrap, f"{name}-orders", changes)
    text = JOINED.replace("{name}", name).replace("{bootstrap}", bootstrap)
    run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    last = {each["order"]: (each["n"], f"city {each['customer']}") for each in changes}
    with sqlite3.connect(tmp_path / "orders.db") as database:
        found = {order: (n, city) for order, n, city in database.execute("SELECT * FROM orders")}
        names = [row[1] for row in database.execute("PRAGMA table_info(changes)")]
        (count,) = database.execute("SELECT count(*) FROM changes").fetchone()
    assert {order: row for order, row in found.items() if row != last[order]} == {}
    assert found.keys() == last.keys()
    assert (names, count) == (["order", "customer", "n", "city"], CHANGES)


RECORDS = [
    json.dumps({"id": n % 3, "n": n, "at": f"2026-01-01T00:00:{59 - n:02}Z", "lists": [[n, -n], [n, 100 + n]]})
    for n in range(30)
]
SCHEMA = {"id": "int", "n": "int", "at": "timestamp", "lists": "array<array<int>>"}
PARSE: Step = {"parse": {"format": "json", "schema": SCHEMA}}
TIMED: list[Step] = [PARSE, {"watermark": {"time": "at", "delay": "1 minute"}}]
LAST, FIRST = (
    {0: 27, 1: 28, 2: 29},
    {0: 0, 1: 1, 2: 2},
)  # by offset; by time, which runs backwards
CASES: dict[str, tuple[list[Step], dict[int, int]]] = {
    "columns": (
        [PARSE, {"derive": {"m": "n + 1"}}, {"select": ["id", "m"]}, {"rename": {"m": "n"}},
         {"derive": {"n": "n - 1"}}],
        LAST,
    ),
    "filter": ([PARSE, {"filter": {"where": "n < 20"}}, {"rule": {"few": "n < 15"}}], {0: 12, 1: 13, 2: 14}),
    "join": ([PARSE, {"join": {"table": "names.csv", "on": ["id"]}}], LAST),
    "deduplicate": ([*TIMED, {"deduplicate": {"by": ["n"]}}], LAST),
    "explode": (
        [PARSE, {"explode": {"column": "lists"}}, {"explode": {"column": "lists", "into": "m"}}, {"drop": ["n"]},
         {"rename": {"m": "n"}}],
        {0: 127, 1: 128, 2: 129},
    ),
    "order": ([*TIMED, {"order": {}}, {"join": {"table": "names.csv", "on": ["id"]}}], FIRST),
    "anomalies": ([*TIMED, {"anomalies": {"value": "n", "by": ["id"]}}], FIRST),
}  # fmt: skip


def test_the_place_of_a_row_goes_through_every_step_that_keeps_it(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("id,name\n" + "".join(f"{n % 3},{n}\n" for n in range(9)))
    for name, (steps, expected) in CASES.items():
        document = {"name": "x", "from": {"topic": "x"}, "steps": steps, "to": "console"}
        streams = read_pipeline(document, STEPS).streams
        order = row_order_after(streams, streams["main"]).columns
        frame = through(records(spark, RECORDS, tmp_path), *steps).drop_marked()
        anywhere = frame.rows.select("id", "n", *order).repartition(4, F.xxhash64("n"))
        table = Table("t", "upsert", ("id",), order=order)
        found = newest_rows(anywhere, table, table.columns(anywhere.schema)).collect()
        assert {row.id: row.n for row in found} == expected, name
        assert len(found) == len(expected)


def test_a_streams_rows_are_in_the_order_of_their_time_behind_order(spark: SparkSession, tmp_path: Path) -> None:
    around = Around(spark, str(tmp_path), is_streaming=True)
    for step in ({"order": {}}, {"anomalies": {"value": "n"}}):
        (name,) = step
        frame = streaming(spark, tmp_path / name, "n bigint, at timestamp", [[(1, START)]], around)
        timed = through(frame, {"watermark": {"time": "at", "delay": "1 second"}}, step)  # type: ignore[arg-type]
        assert TIME_MICROS in timed.rows.columns
        assert TIME_MICROS not in timed.columns


def test_an_upsert_without_order_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = JOINED.replace("{name}", "x").replace("{bootstrap}", "127.0.0.1:1").replace("newest_of: customers", "{}")
    file = tmp_path / "p.yaml"
    file.write_text(text.replace("{}", "with_stream: customers, within: 1 hour"))
    for command in (["check", str(file), "--offline"], ["run", str(file), "--once"]):
        assert main(["pipeline", *command]) == 2
        _, errors = capsys.readouterr()
        (line,) = errors.splitlines()
        assert line.startswith(f"{file}:13: orders, to, 1: which of several rows with the same order is the newest is")
        assert line.endswith(
            "known after step 2, join, of stream orders; name the column that determines it (newest_by: COLUMN)"
        )
