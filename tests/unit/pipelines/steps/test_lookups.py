"""Lookups without Spark: cache, retry budget, addresses, queries, values. Time is simulated."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ottla.pipelines.steps.arrow_values import to_declared_types
from ottla.pipelines.steps.lookups.databases import (
    Database,
    database_in,
    for_psycopg,
    parameters,
    query_problem,
    url_problem,
)
from ottla.pipelines.steps.lookups.lookup_client import (
    FAILED_KEYS_MAX,
    Answer,
    Cache,
    Key,
    LookupClient,
    LookupFailedError,
    LookupSettings,
    RetryBudget,
    Row,
    UnavailableError,
    ask_with_retries,
)
from ottla.pipelines.steps.lookups.web_service import address_problem, parse_response, request_target


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def seconds(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Script:
    """A connection with scripted answers; shared by all threads."""

    shown, keys = "script", ["id"]

    def __init__(self, *says: Row | Exception | None) -> None:
        self.says = list(says)
        self.asked: list[Key] = []

    def connect(self) -> Script:
        return self

    def lookup(self, key: Key) -> Row | None:
        self.asked.append(key)
        said = self.says.pop(0) if self.says else {"n": len(self.asked)}
        if isinstance(said, Exception):
            raise said
        return said

    def close(self) -> None: ...


def test_the_cache_evicts_by_age_and_least_recent_use() -> None:
    cache: Cache[str] = Cache(2, 10)
    cache.put("a", "1", 0)
    cache.put("b", "2", 1)
    assert (cache.get("a", 9.9), cache.get("b", 9.9)) == ("1", "2")
    assert cache.get("a", 10) is None
    cache.put("a", "3", 10)
    assert cache.get("b", 10.5) == "2"
    cache.put("c", "4", 10.6)
    assert (cache.get("a", 10.7), cache.get("b", 10.7), cache.get("c", 10.7)) == (None, "2", "4")
    for nothing in (Cache[str](0, 10), Cache[str](10, 0)):
        nothing.put("a", "1", 0)
        assert len(nothing) == 0


def client(place: Script, clock: Clock, **options: Any) -> LookupClient:
    return LookupClient(LookupSettings(place, **{"concurrency": 1, **options}), clock.seconds, clock.sleep)


def test_each_distinct_key_is_looked_up_once_and_cached() -> None:
    place, clock = Script(), Clock()
    asking = client(place, clock, cache_seconds=60)
    assert asking.answers([("a",), ("b",), ("a",), (None,)]) == {("a",): Answer({"n": 1}), ("b",): Answer({"n": 2})}
    clock.now = 59
    assert asking.answers([("b",), ("c",)]) == {("b",): Answer({"n": 2}), ("c",): Answer({"n": 3})}
    clock.now = 60
    assert asking.answers([("b",)]) == {("b",): Answer({"n": 4})}
    assert place.asked == [("a",), ("b",), ("c",), ("b",)]
    asking.close()


def test_unknown_keys_are_cached_and_failures_are_not() -> None:
    place, clock = Script(None, LookupFailedError("no JSON")), Clock()
    asking = client(place, clock)
    assert asking.answers([("a",), ("b",)]) == {("a",): Answer(None), ("b",): Answer(None, "no JSON")}
    assert asking.answers([("a",), ("b",)]) == {("a",): Answer(None), ("b",): Answer({"n": 3})}
    asking.close()


def test_transient_lookup_errors_are_retried_after_growing_pauses() -> None:
    clock = Clock()
    place = Script(UnavailableError("busy"), UnavailableError("busy"), UnavailableError("busy", 4.0), {"n": 1})
    assert ask_with_retries(place, ("a",), RetryBudget(10), clock.sleep) == Answer({"n": 1})
    assert clock.slept == [0.1, 0.2, 4.0]


def test_all_keys_of_a_batch_share_the_time_for_pauses() -> None:
    clock, patience = Clock(), RetryBudget(0.5)
    place = Script(*[UnavailableError("gone")] * 100)
    answer = ask_with_retries(place, ("a",), patience, clock.sleep)
    assert answer == Answer(None, "no answer after 4 attempts: gone")
    assert sum(clock.slept) == pytest.approx(0.5)
    assert ask_with_retries(place, ("b",), patience, clock.sleep) == Answer(None, "no answer after 1 attempt: gone")
    for number in range(FAILED_KEYS_MAX):
        answer = ask_with_retries(place, (number,), patience, clock.sleep)
    assert answer == Answer(None, f"skipped: {FAILED_KEYS_MAX} other keys in a row had no answer")
    assert len(place.asked) == 4 + FAILED_KEYS_MAX - 1
    assert sum(clock.slept) == pytest.approx(0.5)


def test_a_server_that_answers_sometimes_is_still_used() -> None:
    clock, patience = Clock(), RetryBudget(0)
    place = Script(
        *[each for _ in range(30) for each in (UnavailableError("busy"), UnavailableError("busy"), {"n": 1})]
    )
    answers = [ask_with_retries(place, (number,), patience, clock.sleep) for number in range(90)]
    assert len(place.asked) == 90
    assert sum(answer.row is not None for answer in answers) == 30


@pytest.mark.parametrize(
    ("url", "key", "target"),
    [
        ("http://host/users/{id}", (7,), "/users/7"),
        ("https://host:8443/{a}/x/{b}?c={a}&d=1", ("ä b", True), "/%C3%A4%20b/x/true?c=%C3%A4%20b&d=1"),
        ("http://host/{id}", ("../admin?x=1#y/z",), "/..%2Fadmin%3Fx%3D1%23y%2Fz"),
        ("http://host/users/u-{id}", ("..",), "/users/u-.."),
        ("http://host?id={id}", ("",), "/?id="),
        ("http://host/on/{day}", (date(2026, 1, 2),), "/on/2026-01-02"),
    ],
)
def test_values_cannot_leave_their_part_of_the_address(url: str, key: Key, target: str) -> None:
    assert address_problem(url) is None
    assert request_target(url, key) == target


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_values_that_would_lead_elsewhere_are_no_part_of_an_address(value: str) -> None:
    with pytest.raises(LookupFailedError, match="cannot be part of an address"):
        request_target("http://host/users/{id}", (value,))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://{host}/users", "the host name must not come from a row"),
        ("http://host{x}/users/{id}", "the host name must not come from a row"),
        ("http://{id}", "the host name must not come from a row"),
        ("ftp://host/{id}", "is not the address of a web server"),
        ("http://ann:word@host/{id}", "do not belong in the URL"),
        ("http://host/users", "names no key column"),
        ("http://host/{}", "{} names no column"),
        ("http://host/{id}#x", "a fragment (#) is not sent"),
        ("http://host/ü/{id}", "must be percent-encoded"),
    ],
)
def test_addresses_that_are_refused(url: str, problem: str) -> None:
    assert problem in (address_problem(url) or "")


FIELDS = (("city", "address.city"), ("n", "n"))


def test_an_answer_of_the_largest_size_is_taken() -> None:
    largest = b'{"n": 1, "more": "' + b"x" * (1_000_000 - 20) + b'"}'
    assert len(largest) == 1_000_000
    assert parse_response(200, largest, {}, FIELDS) == {"city": None, "n": 1}


def test_the_responses_of_a_server() -> None:
    body = json.dumps({"n": 1, "address": {"city": "Oslo"}, "more": 2}).encode()
    assert parse_response(200, body, {}, FIELDS) == {"city": "Oslo", "n": 1}
    assert parse_response(200, b'{"address": 5, "address.city": "x"}', {}, FIELDS) == {"city": "x", "n": None}
    assert [parse_response(status, b"", {}, FIELDS) for status in (204, 404, 410)] == [None] * 3
    for status in (408, 429, 500, 503):
        with pytest.raises(UnavailableError, match=f"^{status} slowly$") as away:
            parse_response(status, b" slowly\n", {"retry-after": "3"}, FIELDS)
        assert away.value.after_seconds == 3
    for status, text, words in [
        (302, b"", "302, moved: use the URL http://other/"),
        (403, b"who?", "403 who?"),
        (200, b"<html>", "the answer is not JSON: '<html>'"),
        (200, b"[1]", "the answer is not a JSON object"),
        (200, b'"' + b"x" * 1_000_000 + b'"', "more than 1,000,000 bytes"),
    ]:
        with pytest.raises(LookupFailedError) as failed:
            parse_response(status, text, {"location": "http://other/"}, FIELDS)
        assert words in str(failed.value)


def test_parameters_of_a_query_and_lookalikes() -> None:
    query = "SELECT a::text, ':no', \"b:no\" FROM t -- :no\nWHERE id = :id AND x LIKE '%' || :name || :id"
    assert parameters(query) == ["id", "name"]
    assert for_psycopg(query) == (
        "SELECT a::text, ':no', \"b:no\" FROM t -- :no\nWHERE id = %(id)s AND x LIKE '%%' || %(name)s || %(id)s"
    )
    assert for_psycopg("SELECT 5 % 2 WHERE a = :a") == "SELECT 5 %% 2 WHERE a = %(a)s"
    assert query_problem("WITH x AS (SELECT 1) SELECT * FROM x WHERE a = :a;") is None
    assert query_problem("/* why */ select 1 where ';' = :a") is None
    assert query_problem("DELETE FROM t WHERE id = :id") == "is not a SELECT"
    assert query_problem("SELECT 1 WHERE a = :a; DROP TABLE t") == "is more than one statement"
    assert "names no key column" in str(query_problem("SELECT 1"))


def test_sqlite_is_only_read(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE products (id TEXT, name TEXT, more INT)")
        database.executemany("INSERT INTO products VALUES (?, ?, 1)", [("a", "Tea"), ("b", "Milk"), ("b", "Milk")])

    def place(query: str, columns: tuple[str, ...] = ("name",)) -> Any:
        return Database("sqlite", str(file), query, columns).connect()

    products = place("SELECT * FROM products WHERE id = :id")
    assert products.lookup(("a",)) == {"name": "Tea"}
    assert products.lookup(("'; DROP TABLE products; --",)) is None
    for asking, words in [
        (products, "the query returns several rows for one key"),
        (place("SELECT more FROM products WHERE id = :id"), "the query returns no column 'name', only more"),
        (place("SELECT colour FROM products WHERE id = :id"), "no such column: colour"),
        (place("WITH x AS (SELECT 1) DELETE FROM products WHERE id = :id"), "attempt to write a readonly database"),
    ]:
        with pytest.raises(LookupFailedError, match=words):
            asking.lookup(("b",) if asking is products else ("a",))
        asking.close()
    file.unlink()
    with pytest.raises(UnavailableError, match="the file does not exist"):
        products.lookup(("a",))


WANTED = pa.struct(
    [
        ("text", pa.string()), ("whole", pa.int32()), ("number", pa.float64()), ("yes", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32()), ("price", pa.decimal128(10, 2)),
        ("list", pa.list_(pa.int32())),
    ]
)  # fmt: skip


def test_duckdb_reads_its_own_file_and_no_other(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE products AS SELECT 1 AS id, 'sock' AS name")
    (tmp_path / "secret.txt").write_text("secret")
    url = database_in(str(tmp_path), "duckdb:///shop.db")
    products = Database("sqlalchemy", url, "SELECT name FROM products WHERE id = :id", ("name",)).connect()
    assert products.lookup((1,)) == {"name": "sock"}
    products.close()
    for source in (f"read_text('{tmp_path / 'secret.txt'}')", f"read_csv('{tmp_path / 'secret.txt'}')"):
        other = Database("sqlalchemy", url, f"SELECT * FROM {source} WHERE 1 = :id", ("content",)).connect()
        with pytest.raises(LookupFailedError, match="file system operations are disabled"):
            other.lookup((1,))
        other.close()
    assert url_problem("duckdb:///shop.db") is None
    assert "not allowed for DuckDB" in str(url_problem("duckdb:///shop.db?enable_external_access=true"))


def test_values_become_the_columns_that_are_declared() -> None:
    given = {
        "text": {"a": [1]}, "whole": 5, "number": 5, "yes": 1, "at": "2026-01-02T03:04:05+01:00", "day": "2026-01-02",
        "price": 1.1, "list": [1, 2], "more": object(),
    }  # fmt: skip
    made = to_declared_types(given, WANTED)
    assert made == {
        "text": '{"a": [1]}', "whole": 5, "number": 5.0, "yes": True,
        "at": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC), "day": date(2026, 1, 2), "price": Decimal("1.10"),
        "list": [1, 2],
    }  # fmt: skip
    assert to_declared_types({}, WANTED) == dict.fromkeys(made)
    assert to_declared_types({"text": b"abc", "whole": 2.0}, WANTED) == dict.fromkeys(made) | {
        "text": "abc",
        "whole": 2,
    }
    for price in (1.005, "1.005", Decimal("1.005")):  # as everywhere else in a pipeline
        assert to_declared_types({"price": price}, WANTED)["price"] == Decimal("1.01")
    assert to_declared_types({"at": "2026-01-02 03:04:05"}, WANTED)["at"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("whole", "5"),
        ("whole", 2**40),
        ("whole", True),
        ("whole", 1.9),
        ("whole", Decimal("1.5")),
        ("text", b"\xff"),
        ("yes", "no"),
        ("at", "soon"),
        ("at", 5),
        ("day", 5),
        ("price", "much"),
    ],
)
def test_values_that_do_not_fit_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        to_declared_types({name: value}, WANTED)
