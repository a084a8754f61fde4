"""Which of several rows with the same key an upsert keeps, with a real Spark."""

from __future__ import annotations

import random
import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.running import pipeline_of, produce, run_batch, run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
