"""What `ottla sql` answers is right, and told where it is not whole: cases that were once answered otherwise."""

from __future__ import annotations

import time

import pytest

from pipelines.test_sql_command import ORDERS, Prompt, prompt  # noqa: F401 (a fixture)

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
    """Once with none of them, by the time a table was joined and rows were sorted; once for each part of the other."""
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
        assert "Exception" not in shop.refused(f"{TABLES} {text}")
