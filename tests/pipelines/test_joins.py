"""Joins of two streams, and of a stream with tables of all kinds, compared with plain Python."""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import SCHEMA as RECORDS
from tests.pipelines.frames import Around, living, problems_of, table, through
from tests.pipelines.streams import END, START, Rows, at, run, streaming

from ottla.pipelines.steps.frame import source_frame
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "order string, at timestamp, total double"
PAYMENTS = "order string, paid timestamp, total double"
ORDER_BATCHES: list[Rows] = [
    [("a", at(0), 1.0), ("b", at(5), 2.0), (None, at(6), 9.0), ("c", at(100), 3.0)],
    [("d", at(110), 4.0), ("end", END, 0.0)],
]
PAYMENT_BATCHES: list[Rows] = [
    [("b", at(1), 2.5), ("a", at(30), 1.5), (None, at(6), 8.0), ("c", at(90), 3.5)],
    [("d", at(141), 4.5), ("x", at(120), 7.0), ("end", END, 0.0)],
]
WITHIN = timedelta(seconds=30)


def _flat(batches: list[Rows]) -> list[Any]:
    return [row for rows in batches for row in rows]


def _expected(kind: str, is_after: bool) -> set[tuple[Any, ...]]:
    pairs = [
        (order, payment)
        for order in _flat(ORDER_BATCHES)
        for payment in _flat(PAYMENT_BATCHES)
        if order[0] is not None and order[0] == payment[0]
        and (timedelta(0) if is_after else -WITHIN) <= payment[1] - order[1] <= WITHIN
    ]  # fmt: skip
    rows = {(order[0], order[2], payment[2]) for order, payment in pairs}
    if kind in ("left", "full"):
        matched = [order for order, _ in pairs]
        rows |= {(order[0], order[2], None) for order in _flat(ORDER_BATCHES) if order not in matched}
    if kind in ("right", "full"):
        matched = [payment for _, payment in pairs]
        rows |= {(payment[0], None, payment[2]) for payment in _flat(PAYMENT_BATCHES) if payment not in matched}
    if kind == "semi":
        rows = {(order, total) for order, total, _ in rows}
    return {row for row in rows if row[0] != "end"}


def _two(spark: SparkSession, folder: Path, is_streaming: bool, **join: object) -> Any:
    around = Around(spark, is_streaming=is_streaming)
    if is_streaming:
        payments = streaming(spark, folder / "payments", PAYMENTS, PAYMENT_BATCHES, around)
        orders = streaming(spark, folder / "orders", ORDERS, ORDER_BATCHES, around)
    else:
        payments = source_frame(spark.createDataFrame(_flat(PAYMENT_BATCHES), PAYMENTS), around)
        orders = source_frame(spark.createDataFrame(_flat(ORDER_BATCHES), ORDERS), around)
    around.streams["payments"] = through(payments, {"watermark": {"time": "paid", "delay": "10 seconds"}})
    watermark = {"watermark": {"time": "at", "delay": "20 seconds"}}
    return through(orders, watermark, {"join": {"with_stream": "payments", "on": ["order"], **join}})


def _told(rows: list[dict[str, Any]], kind: str) -> set[tuple[Any, ...]]:
    names = ("order", "total") if kind == "semi" else ("order", "total", "payments_total")
    return {tuple(row[name] for name in names) for row in rows if row["order"] != "end"}


@pytest.mark.parametrize("kind", ["inner", "left", "right", "full", "semi"])
def test_two_batches_join_as_plain_python_does(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    for bound in ("within", "after") if kind in ("inner", "left") else ("within",):
        rows = living(_two(spark, tmp_path, False, **{bound: "30 seconds", "kind": kind}))
        assert _told(rows, kind) == _expected(kind, bound == "after")


@pytest.mark.parametrize("kind", ["inner", "full"])
def test_two_streams_join_as_batches_do(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    frame = _two(spark, tmp_path, True, within="30 seconds", kind=kind)
    ran = run(frame, tmp_path)
    assert _told(ran.rows, kind) == _expected(kind, False)
    assert ran.late() == {}


def test_a_window_may_follow_a_join_of_streams(spark: SparkSession, tmp_path: Path) -> None:
    frame = _two(spark, tmp_path, True, within="30 seconds", kind="left")
    ran = run(
        through(frame, {"window": {"size": "1 minute", "count": "n", "sum": {"paid": "payments_total"}}}), tmp_path
    )
    found = {row["window_start"]: (row["n"], row["paid"]) for row in ran.rows}
    start = START.replace(tzinfo=None)
    assert found == {start: (3, 4.0), start + timedelta(minutes=1): (2, 3.5)}


def test_tables_of_all_kinds_join_alike(spark: SparkSession, tmp_path: Path) -> None:
    prices = [("tea", 3), ("coffee", 4)]
    (tmp_path / "prices.csv").write_text("product,price\n" + "".join(f"{name},{price}\n" for name, price in prices))
    (tmp_path / "prices.json").write_text("".join(json.dumps({"product": n, "price": p}) + "\n" for n, p in prices))
    spark.createDataFrame(prices, "product string, price bigint").write.parquet(str(tmp_path / "prices.parquet"))
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute('CREATE TABLE "list of prices" (product TEXT, price INTEGER)')
        shop.executemany('INSERT INTO "list of prices" VALUES (?, ?)', prices)
    shop.close()
    tables: list[dict[str, object]] = [
        {"table": "prices.csv"},
        {"table": "prices.json"},
        {"table": "prices.parquet"},
        {"sqlite": "shop.db", "table": "list of prices"},
        {"sqlite": "shop.db", "table": 'SELECT product, price FROM "list of prices" WHERE price > 0'},
    ]
    for source in tables:
        sold = table(spark, [("tea", 2), ("wine", 1), (None, 7)], "product string, price int", tmp_path)
        frame = through(sold, {"join": {**source, "on": ["product"], "kind": "left"}})
        found = {(row["product"], row["price"], row["table_price"]) for row in living(frame)}
        assert found == {("tea", 2, 3), ("wine", 1, None), (None, 7, None)}, source


def test_a_compacted_topic_is_a_table_of_its_newest_records(spark: SparkSession) -> None:
    def record(offset: int, key: str, value: object, partition: int = 0, time: int = 0) -> tuple[Any, ...]:
        text = None if value is None else json.dumps(value).encode()
        return key.encode(), text, "customers", partition, offset, at(time or offset), 0, None

    log = [
        # partitions were added, and keys lie in others since then; the clock of a producer went backwards
        record(9, "3", {"customer": "3", "city": "Nice"}, time=9),
        record(0, "3", {"customer": "3", "city": "Bonn"}, partition=1, time=12),
        record(1, "3", {"customer": "3", "city": "Lyon"}, partition=1, time=11),
        record(8, "4", {"customer": "4", "city": "Graz"}, time=8),
        record(2, "4", None, partition=1, time=13),
        record(0, "1", {"customer": "1", "city": "Rome"}),
        record(1, "2", {"customer": "2", "city": "Oslo"}),
        record(2, "1", {"customer": "1", "city": "Bern"}),
        record(3, "2", None),
    ]
    customers = through(
        table(spark, log, RECORDS), {"parse": {"format": "json", "schema": {"customer": "string", "city": "string"}}}
    )
    sales = table(spark, [("1", 10), ("2", 20), ("3", 30), ("4", 40)], "buyer string, total int")
    sales.context.streams["customers"] = customers  # type: ignore[attr-defined]
    frame = through(sales, {"join": {"newest_of": "customers", "on": {"buyer": "customer"}, "kind": "left"}})
    assert sorted((row["buyer"], row["city"]) for row in living(frame)) == [
        ("1", "Bern"),
        ("2", None),
        ("3", "Lyon"),
        ("4", None),
    ]


def test_a_stream_joins_a_table_and_keeps_its_time(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("order,name\na,Ann\n")
    around = Around(spark, str(tmp_path), is_streaming=True)
    frame = through(
        streaming(spark, tmp_path / "in", ORDERS, ORDER_BATCHES, around),
        {"watermark": {"time": "at", "delay": "20 seconds"}},
        {"join": {"table": "names.csv", "on": ["order"]}},
        {"window": {"size": "1 minute", "by": ["name"], "count": "n"}},
    )
    (row,) = run(frame, tmp_path).rows
    assert (row["name"], row["n"], row["window_start"]) == ("Ann", 1, START.replace(tzinfo=None))


def test_what_does_not_fit_is_told(spark: SparkSession, tmp_path: Path) -> None:
    orders = table(spark, [("a", at(0), 1.0)], ORDERS, tmp_path)
    for fields, text in (
        ({"table": "gone.csv", "on": ["order"]}, "cannot read gone.csv"),
        ({"table": "gone.txt", "on": ["order"]}, "unknown file type"),
        ({"sqlite": "gone.db", "table": "x", "on": ["order"]}, "no database"),
        ({"newest_of": "gone", "on": ["order"]}, "no stream 'gone'"),
    ):
        with pytest.raises(StepError, match=text):
            through(orders, {"join": fields})
    (tmp_path / "names.csv").write_text("id,name\na,Ann\n")
    with pytest.raises(StepError, match="other side has no column 'order'"):
        through(orders, {"join": {"table": "names.csv", "on": ["order"]}})


def test_what_makes_no_sense_is_found_before_anything_runs() -> None:
    assert "set one of with_stream" in problems_of("join", {"on": ["a"]})[0]
    assert "time bound" in problems_of("join", {"with_stream": "x", "on": ["a"]})[0]
    assert "no time" in problems_of("join", {"table": "x.csv", "on": ["a"], "within": "1 hour"})[0]
    assert "never ends" in problems_of("join", {"table": "x.csv", "on": ["a"], "kind": "full"})[0]
