"""`enrich` with a real web server, SQLite and PostgreSQL, in runs with a real broker and a real Spark."""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.recipes import running_postgresql
from tests.pipelines.frames import living, table, through
from tests.pipelines.running import pipeline_of, produce, read_all, run_batch, run_once

from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.builder import Builder
from ottla.pipelines.running.dead_letters import CarriedLetters
from ottla.pipelines.running.delivery import Delivery, Route
from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.steps.frame import FATE, REASON, SOURCE_RECORD, AppliedStep
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Server(ThreadingHTTPServer):
    """Knows users; those in `refused` are answered with that status."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.users: dict[str, Any] = {f"u{n}": {"city": f"city {n}", "address": {"zip": n}} for n in range(10)}
        self.refused: dict[str, int] = {}
        self.asked: Counter[str] = Counter()
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        user = self.path.removeprefix("/users/")
        self.server.asked[user] += 1
        self.server.tokens.add(self.headers["Authorization"])
        status = self.server.refused.get(user, 200 if user in self.server.users else 404)
        body = json.dumps(self.server.users.get(user)).encode() if status == 200 else b"no"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", f"{self.server.url}/users/u1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


TEXT = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}", max_per_batch: 40}
steps:
  - parse: {format: json, schema: {n: int, user: string}}
  - enrich:
      http: "{url}/users/{user}"
      headers: {Authorization: Bearer word}
      schema: {city: string, zip: int}
      fields: {zip: address.zip}
      on_failure: dead
      retry: 300 ms
      cache_for: 1 hour
  - rule: {far: "zip IS NULL OR zip < 9"}
  - filter: {where: "city IS NOT NULL"}
to:
  - {sqlite: out.db, table: cities}
  - {sqlite: out.db, table: newest, mode: upsert, key: user}
"""


LATE = """\
name: {name}
bootstrap.servers: {bootstrap}
late_rows: "{name}-late"
from: {topic: "{name}", max_per_batch: 3}
steps:
  - parse: {format: json, schema: {n: int, user: string, second: int}}
  - enrich: {http: "{url}/users/{user}", schema: {zip: int}, fields: {zip: address.zip}, cache_size: 0}
  - derive: {at: timestamp_seconds(1767225600 + second + zip)}
  - watermark: {time: at, delay: 10 seconds}
  - window: {size: 10 seconds, count: rows}
to: {sqlite: out.db, table: windows}
"""


def rows_of(file: Path, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(file) as database:
        return sorted(database.execute(statement).fetchall(), key=repr)


def letters_of(bootstrap: str, name: str) -> dict[int, str]:
    letters = read_all(bootstrap, f"{name}-dead-letters")
    found = {each.json["n"]: f"{each.headers['ottla.step']}: {each.headers['ottla.reason']}" for each in letters}
    assert len(found) == len(letters)
    return found


@pytest.mark.parametrize("run", [run_once, run_batch])
def test_a_web_service_is_asked_once_for_each_key_and_what_dies_is_a_letter(
    spark: SparkSession, bootstrap: str, server: Server, tmp_path: Path, run: Any
) -> None:
    name = f"enrich-{uuid.uuid4().hex[:8]}"
    users = [*(f"u{n}" for n in range(10)), "unknown", None, "broken", "moved", "busy", "a/../u1"]
    server.refused = {"broken": 400, "moved": 302, "busy": 503}
    records = [{"n": n, "user": users[n % len(users)]} for n in range(96)]
    produce(bootstrap, name, records, partition=0)
    text = TEXT.replace("{name}", name).replace("{bootstrap}", bootstrap).replace("{url}", server.url)
    counts = run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    known = [each for each in records if each["user"] in users[:9]]
    assert rows_of(tmp_path / "out.db", "SELECT n, user, city, zip FROM cities") == sorted(
        [(each["n"], each["user"], f"city {each['user'][1:]}", int(each["user"][1:])) for each in known], key=repr
    )
    last = {each["user"]: each["n"] for each in known}
    assert dict(rows_of(tmp_path / "out.db", "SELECT user, n FROM newest")) == last
    found = letters_of(bootstrap, name)
    reasons = {
        "broken": "main 2 enrich: 400 no",
        "moved": f"main 2 enrich: 302, moved: use the URL {server.url}/users/u1",
        "u9": "main 3 rule: breaks the rule 'far'",
    }
    for each in records:
        if each["user"] in reasons:
            assert found.pop(each["n"]).startswith(reasons[each["user"]].partition(" rule: ")[0])
    assert {text.partition(":")[0] for text in found.values()} == {"main 2 enrich"}
    assert {each["user"] for each in records if each["n"] in found} == {"busy"}
    steps = {count.step: count for count in counts}
    assert all(each.came == each.kept + each.filtered + each.late + each.dead for each in counts)
    assert (steps["enrich"].came, steps["enrich"].dead) == (96, 18)
    assert (steps["rule"].dead, steps["filter"].filtered) == (6, 18)
    assert server.tokens == {"Bearer word"}
    workers = spark.sparkContext.defaultParallelism + 2
    assert all(server.asked[user] <= workers for user in users[:10])
    assert server.asked["a%2F..%2Fu1"] >= 1


MERGING = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}", max_per_batch: 40}
steps:
  - parse: {format: json, schema: {n: int, user: string}}
  - enrich:
      sqlite: users.db
      query: SELECT city FROM users WHERE name = :user
      schema: {city: string}
      on_missing: dead
  - rule: {near: "city <> 'far'"}
  - window: {total: true, by: [city], count: rows}
  - rule: {few: "rows < 100"}
to: {sqlite: out.db, table: cities, mode: upsert, key: city}
"""


@pytest.mark.parametrize("run", [run_once, run_batch])
def test_what_dies_before_rows_are_merged_is_a_letter_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path, run: Any
) -> None:
    name = f"enrich-{uuid.uuid4().hex[:8]}"
    with sqlite3.connect(tmp_path / "users.db") as users:
        users.execute("CREATE TABLE users (name, city)")
        users.executemany("INSERT INTO users VALUES (?, ?)", [("u0", "here"), ("u1", "far")])
    produce(bootstrap, name, [{"n": n, "user": f"u{n % 3}"} for n in range(60)], partition=0)
    text = MERGING.replace("{name}", name).replace("{bootstrap}", bootstrap)
    counts = run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    expected = dict.fromkeys(range(1, 60, 3), "main 3 rule: rule broken: near")
    expected |= dict.fromkeys(range(2, 60, 3), "main 2 enrich: nothing is known about its user")
    assert rows_of(tmp_path / "out.db", "SELECT city, rows FROM cities") == [("here", 20)]
    assert letters_of(bootstrap, name) == expected
    assert [count.dead for count in counts] == [0, 20, 20, 0, 0]
    if run is run_once:  # simulates a crash before the last batch was committed
        commits = tmp_path / "state" / name / "main" / "checkpoint" / "commits"
        (commits / "1").unlink()
        (commits / ".1.crc").unlink()
        run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
        assert letters_of(bootstrap, name) == expected
        assert rows_of(tmp_path / "out.db", "SELECT city, rows FROM cities") == [("here", 20)]


ASK = """
      - enrich:
          sqlite: users.db
          query: SELECT city FROM users WHERE name = :user
          schema: {city: string}
          on_missing: dead"""
UNION = """\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  more:
    from: {topic: "{name}-more"}
    steps:
      - parse: {format: json, schema: {n: int, user: string}}{more}
  main:
    from: {topic: "{name}"}
    steps:
      - parse: {format: json, schema: {n: int, user: string}}{before}
      - union: {with_stream: more}{behind}
      - rule: {near: "user <> 'far'"}
    to: {sqlite: out.db, table: users}
"""


@pytest.mark.parametrize("run", [run_once, run_batch])
@pytest.mark.parametrize(("asking", "steps"), [("behind", [3, 3]), ("before", [2, None]), ("more", [None, 2])])
def test_what_dies_on_either_side_of_a_union_is_a_letter(
    spark: SparkSession, bootstrap: str, tmp_path: Path, run: Any, asking: str, steps: list[int | None]
) -> None:
    """A database is asked behind the union, or on one side of it: then the records of the other side never came by."""
    name = f"union-{uuid.uuid4().hex[:8]}"
    with sqlite3.connect(tmp_path / "users.db") as users:
        users.execute("CREATE TABLE users (name, city)")
        users.executemany("INSERT INTO users VALUES (?, ?)", [("near", "here"), ("far", "there")])
    names = ["near", "far", "unknown"]
    for topic, first in ((name, 0), (f"{name}-more", 10)):
        produce(bootstrap, topic, [{"n": first + n, "user": names[n]} for n in range(3)], partition=0)
    text = UNION.replace("{name}", name).replace("{bootstrap}", bootstrap)
    for place in ("more", "before", "behind"):
        text = text.replace(f"{{{place}}}", ASK if place == asking else "")
    run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    rule = {"behind": 4, "before": 4, "more": 3}[asking]
    expected = dict.fromkeys((1, 11), f"main {rule} rule: rule broken: near")
    for number, stream, step in zip((2, 12), ("main", "main" if asking == "behind" else "more"), steps, strict=True):
        if step is not None:
            expected[number] = f"{stream} {step} enrich: nothing is known about its user"
    assert letters_of(bootstrap, name) == expected
    written = {n for (n,) in rows_of(tmp_path / "out.db", "SELECT n FROM users")}
    assert written == {0, 1, 2, 10, 11, 12} - set(expected)


def test_a_record_whose_rows_die_has_one_letter(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    name = f"exploded-{uuid.uuid4().hex[:8]}"
    with sqlite3.connect(tmp_path / "users.db") as users:
        users.execute("CREATE TABLE users (name, city)")
        users.execute("INSERT INTO users VALUES ('u1', 'here')")
    produce(bootstrap, name, [{"n": 1, "users": ["u1", "u2", "u3"]}, {"n": 2, "users": ["u4", "u4"]}], partition=0)
    text = f"""
name: {name}
bootstrap.servers: {bootstrap}
from: {{topic: "{name}"}}
steps:
      - parse: {{format: json, schema: {{n: int, users: array<string>}}}}
      - explode: {{column: users, into: user}}{ASK}
to: {{sqlite: out.db, table: users}}
"""
    counts = run_once(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    assert [count.dead for count in counts] == [0, 0, 4]
    assert letters_of(bootstrap, name) == dict.fromkeys((1, 2), "main 3 enrich: nothing is known about its user")
    assert rows_of(tmp_path / "out.db", "SELECT n, user FROM users") == [(1, "u1")]


def test_a_service_that_is_away_ends_the_run_and_the_next_one_goes_on_there(
    spark: SparkSession, bootstrap: str, server: Server, tmp_path: Path
) -> None:
    name = f"away-{uuid.uuid4().hex[:8]}"
    text = TEXT.replace("{name}", name).replace("{bootstrap}", bootstrap).replace("{url}", server.url)
    text = text.replace("on_failure: dead", "on_failure: stop").replace("cache_for: 1 hour", "cache_for: 0 s")
    pipeline = pipeline_of(text, tmp_path)
    produce(bootstrap, name, [{"n": n, "user": f"u{n % 5}"} for n in range(60)], partition=0)
    server.refused = {"u3": 503}
    with pytest.raises(AssertionError, match=f"main, step 2, enrich: {server.url}/users/{{user}}: no answer after"):
        run_once(spark, pipeline, tmp_path / "state")
    server.refused = {}
    run_once(spark, pipeline, tmp_path / "state")
    assert [n for (n,) in rows_of(tmp_path / "out.db", "SELECT n FROM cities")] == sorted(range(60), key=str)


@dataclass
class Flaky:
    """A connection that fails on request."""

    rows: list[list[int]] = field(default_factory=list)
    is_failing: bool = False

    def write(self, rows: DataFrame, _batch: Batch) -> None:
        if self.is_failing:
            raise SinkError("not now")
        self.rows.append(sorted(row.n for row in rows.collect()))


def test_a_batch_that_is_repeated_writes_what_was_answered_first(spark: SparkSession, tmp_path: Path) -> None:
    first, second, letters = Flaky(), Flaky(is_failing=True), Flaky()
    routes = tuple(Route(sink, None, None, (), (), False) for sink in (first, second))
    step = AppliedStep("main", 2, "enrich", 2, "asks")
    delivery = Delivery("q", str(tmp_path), routes, "id", CarriedLetters(Kept(letters), "p", (step,)), pins=True)
    record = (
        "named_struct('_topic', 't', '_partition', 0, '_offset', n, '_timestamp', 1L, '_key', CAST(NULL AS BINARY), "
    )
    record += (
        "'_value', encode(string(n), 'UTF-8'), '_headers', CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>))"
    )

    def answered(dead: int) -> DataFrame:
        fate = f"IF(n = {dead}, -2, 0) AS {FATE}"
        return (
            spark.range(3)
            .selectExpr("id AS n")
            .selectExpr("n", f"{record} AS {SOURCE_RECORD}", fate, f"'x' AS {REASON}")
        )

    with pytest.raises(SinkError, match="not now"):
        delivery(answered(dead=1), 0)
    second.is_failing = False
    delivery(answered(dead=2), 0)  # the same batch; the server gives another answer now
    assert (first.rows, second.rows) == ([[0, 2], [0, 2]], [[0, 2]])
    assert letters.rows == [[1], [1]]
    delivery(answered(dead=0), 1)
    assert second.rows[1:] == [[1, 2]]
    assert [each.name for each in (tmp_path / "pinned").iterdir()] == ["1"]


@dataclass
class Kept:
    """The numbers in the values of letters."""

    letters: Flaky

    def write(self, rows: DataFrame, batch: Batch) -> None:
        self.letters.write(rows.selectExpr("int(string(value)) AS n"), batch)


SCHEMA = {"name": "string", "price": "decimal(10,2)", "since": "timestamp"}
CREATE = "CREATE TABLE products (id INTEGER, name TEXT, price NUMERIC(10, 2), since TIMESTAMP)"


def asked_for(spark: SparkSession, folder: Path, **place: object) -> list[tuple[Any, ...]]:
    rows = [(1, 1), (2, 2), (3, None), (4, 1), (5, 9)]
    query = "SELECT name, price, since FROM products WHERE id = :product"
    step = {"enrich": {"query": query, "schema": SCHEMA, "on_missing": None, **place}}
    found = living(through(table(spark, rows, "n int, product int", folder), step).drop_marked())
    return sorted((row["n"], row["name"], str(row["price"]), str(row["since"])) for row in found)


EXPECTED = [
    (1, "Tea", "1.10", "2026-01-01 10:00:00"),
    (2, "Milk", "None", "None"),
    (3, None, "None", "None"),
    (4, "Tea", "1.10", "2026-01-01 10:00:00"),
    (5, None, "None", "None"),
]


def test_rows_are_looked_up_in_databases(spark: SparkSession, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute(CREATE)
        database.execute("INSERT INTO products VALUES (1, 'Tea', 1.1, '2026-01-01 10:00:00'), (2, 'Milk', NULL, NULL)")
    assert asked_for(spark, tmp_path, sqlite="shop.db") == EXPECTED
    assert asked_for(spark, tmp_path, sqlalchemy=f"sqlite:///{tmp_path}/shop.db") == EXPECTED
    with pytest.raises(StepError, match="there is no database"):
        asked_for(spark, tmp_path, sqlite="none.db")


def test_rows_are_looked_up_in_postgresql(spark: SparkSession, tmp_path: Path) -> None:
    import psycopg  # noqa: PLC0415

    with running_postgresql() as address:
        with psycopg.connect(address) as database:
            database.execute(CREATE)
            database.execute(
                "INSERT INTO products VALUES (1, 'Tea', 1.1, '2026-01-01 10:00:00'), (2, 'Milk', NULL, NULL)"
            )
        assert asked_for(spark, tmp_path, postgres=address) == EXPECTED
        assert asked_for(spark, tmp_path, postgres=address, cache_size=0, concurrency=1) == EXPECTED


def test_columns_that_cannot_be_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = table(spark, [(1, [1])], "n int, many array<int>", tmp_path)
    for fields, text in [
        ({"http": "http://h/{user}", "schema": {"city": "string"}}, "there is no column 'user'"),
        ({"http": "http://h/{n}", "schema": {"N": "string"}}, "there is a column 'n' already"),
        ({"http": "http://h/{many}", "schema": {"city": "string"}}, "'many' is array<int>, and cannot be a key"),
    ]:
        with pytest.raises(StepError, match=text):
            through(rows, {"enrich": fields})


def test_what_comes_too_late_behind_a_question_is_sent_once_whatever_it_is_answered_later(
    spark: SparkSession, bootstrap: str, server: Server, tmp_path: Path
) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    text = LATE.replace("{name}", name).replace("{bootstrap}", bootstrap).replace("{url}", server.url)
    pipeline = pipeline_of(text, tmp_path)
    server.users = {"u": {"address": {"zip": 0}}}

    def add(*seconds: int) -> None:
        produce(bootstrap, name, [{"n": second, "user": "u", "second": second} for second in seconds], partition=0)

    add(1, 2, 35, 36, 4, 37)
    assert sum(count.late for count in run_once(spark, pipeline, tmp_path / "state")) == 0
    add(5, 38, 30, 39, 3, 21)
    assert sum(count.late for count in run_once(spark, pipeline, tmp_path / "state")) == 2
    (note,) = (tmp_path / "state" / name / "main").glob("query-*/late-swept")
    note.write_text("1")  # simulates unprocessed late rows: all would be in time by today's answers
    server.users = {"u": {"address": {"zip": 100}}}
    assert run_once(spark, pipeline, tmp_path / "state")
    letters = read_all(bootstrap, f"{name}-late")
    assert [(each.json["n"], each.headers["ottla.step"]) for each in letters] == [
        (5, "main 5 window"),
        (3, "main 5 window"),
    ]


def test_late_rows_behind_a_question_need_files_beside_the_checkpoint(
    spark: SparkSession, bootstrap: str, server: Server, tmp_path: Path
) -> None:
    text = LATE.replace("{name}", "late").replace("{bootstrap}", bootstrap).replace("{url}", server.url)
    builder = Builder(spark, pipeline_of(text, tmp_path), checkpoint="s3a://somewhere/checkpoint")
    with pytest.raises(PipelineError, match="late rows cannot be sent"):
        builder.frame("main")
