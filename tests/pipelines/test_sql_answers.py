"""The answers of `ottla sql` are correct, and incomplete ones are marked: cases of earlier errors."""

from __future__ import annotations

import threading
import time

import pytest
from tests.pipelines.running import produce
from tests.pipelines.test_sql_command import ORDERS, Prompt, prompt  # noqa: F401 (a fixture)

TABLES = (
    "CREATE TABLE o (id BIGINT, customer BIGINT, at TIMESTAMP) WITH (topic = 'orders$');"
    "CREATE TABLE p (id BIGINT PRIMARY KEY, name STRING) WITH (topic = 'people$');"
)


@pytest.fixture
def shop(prompt: Prompt) -> Prompt:  # noqa: F811
    prompt.write("orders", [*ORDERS, b"oops"], partitions=1)
    prompt.write("people", [{"id": 7, "name": "Ann"}, b"oops", None], partitions=1, keys=["7", "9", "6"])
    prompt.write("places", [{"id": 7}, {"id": 8}], partitions=2)
    return prompt


def test_losses_are_told_whatever_spark_makes_of_the_query(shop: Prompt) -> None:
    """Once none was reported, because a table was joined and rows were sorted; once one per part of the other table."""
    joined = shop.run(f"{TABLES} SELECT o.id, name FROM o LEFT JOIN p ON o.customer = p.id ORDER BY o.id")
    assert [row["name"] for row in joined.rows] == ["Ann", "Ann", None]
    first = f'{shop.topic("orders")}-0 at offset 3: not JSON: "oops"'
    assert joined.errors == [f"2 records could not be read and are in no row, the first: {first}"]
    table = shop.run(f"{TABLES} SELECT l.id, p.name FROM places$ AS l LEFT JOIN p ON l.id = p.id ORDER BY l.id")
    assert (table.code, [row["name"] for row in table.rows]) == (1, ["Ann", None])
    assert "1 record could not be read" in table.errors[0]
    pairs = shop.run(f"{TABLES} SELECT o.id, l.id AS place FROM o CROSS JOIN places$ AS l")
    assert (len(pairs.rows), pairs.errors[0][:9]) == (6, "1 record ")


@pytest.mark.parametrize("limit", ["", "LIMIT 5"])
def test_losses_are_told_where_nothing_is_left_to_group(shop: Prompt, limit: str) -> None:
    done = shop.run(f"{TABLES} SELECT customer, count(*) AS n FROM o WHERE id > 99 GROUP BY customer {limit}")
    assert (done.code, done.rows) == (1, [])
    assert "1 record could not be read" in done.errors[0]


def test_times_without_zone_are_as_they_were_written(shop: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    query = "SELECT at, timestamp_ntz'2026-01-01 12:00:00' AS n, array(named_struct('t', to_timestamp_ntz(at))) AS a"
    try:
        kept = shop.run(f"{TABLES} {query} FROM o LIMIT 1")
        come = shop.run(f"{TABLES} {query} FROM o EMIT CHANGES LIMIT 1", "--from", "earliest")
    finally:
        monkeypatch.undo()
        time.tzset()
    expected = {"at": ORDERS[0]["at"], "n": "2026-01-01T12:00:00Z", "a": [{"t": ORDERS[0]["at"]}]}
    assert (kept.rows, come.rows) == ([expected], [expected])


def test_a_value_that_stops_a_query_is_named(shop: Prompt) -> None:
    for text in ("SELECT cast(name AS INT) AS n FROM p", "SELECT id / (id - id) AS n FROM o"):
        assert "Exception" not in shop.refused(f"{TABLES} {text}", code=1)


def test_a_key_that_is_no_number_is_no_null(shop: Prompt) -> None:
    shop.write("users", [{"n": 1}, {"n": 2}, {"id": 3, "n": 3}], partitions=1, keys=["7", "x", "y"])
    for kind in ("TABLE k (ID BIGINT NOT NULL, n INT, PRIMARY KEY (id))", "STREAM k (ID BIGINT KEY, n INT)"):
        done = shop.run(f"CREATE {kind.replace('ID', '`id`')} WITH (topic = 'users$'); SELECT * FROM k")
        assert sorted(row["id"] for row in done.rows) == [3, 7]
        assert done.errors[0].endswith("at offset 1: rule broken: the key of the record is no bigint")


def test_of_records_without_key_the_latest_counts_whatever_its_partition(shop: Prompt) -> None:
    shop.write("prices", [], partitions=2)
    for partition, price in ((0, 1), (0, 2), (1, 3)):  # the newest has the smallest offset
        produce(shop.bootstrap, shop.topic("prices"), [{"item": 1, "price": price}], partition)
        time.sleep(0.01)
    table = "CREATE TABLE p (item BIGINT PRIMARY KEY, price INT) WITH (topic = 'prices$');"
    assert shop.rows(f"{table} SELECT * FROM p") == [{"item": 1, "price": 3}]


def test_columns_that_no_record_has_are_told(shop: Prompt) -> None:
    refused = shop.refused("CREATE TABLE o (ID BIGINT, AMOUNT DOUBLE) WITH (kafka_topic = 'orders$')")
    assert "has the column ID, which its records call id: write it so" in refused
    done = shop.run("CREATE TABLE o (id BIGINT, total DOUBLE) WITH (topic = 'orders$'); SELECT total FROM o LIMIT 1")
    assert (done.rows, done.errors[0]) == ([{"total": None}], "o: total: in none of 3 samples, NULL there")


def test_what_comes_is_told_from_now_on(shop: Prompt) -> None:
    """The default start: with nothing, and then with new records."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(1):
            produce(shop.bootstrap, shop.topic("places"), [{"id": 9}])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert shop.rows("SELECT id FROM places$ EMIT CHANGES LIMIT 2") == [{"id": 9}, {"id": 9}]
    finally:
        ended.set()
        writer.join()


def test_a_limit_of_more_rows_than_are_collected_at_once(shop: Prompt) -> None:
    shop.write("many", [{"id": number} for number in range(12_000)], partitions=2)
    rows = shop.rows("SELECT id FROM many$ LIMIT 10500")
    assert len({row["id"] for row in rows}) == len(rows) == 10_500
    assert len(shop.rows("SELECT id FROM many$ WHERE id >= 0 LIMIT 20000")) == 12_000
