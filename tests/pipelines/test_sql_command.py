"""`ottla sql` with real Spark and a real broker, inside the test's own process: all but the start of its own Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.pipelines.running import produce, read_all

from ottla.cli.main import main
from ottla.cli.pipelines import run as pipeline_run
from ottla.cli.sql import pipelines, running


class Done(NamedTuple):
    code: int
    rows: list[dict[str, Any]]
    errors: list[str]


class Prompt:
    """Runs statements; `{orders}` and the like stand for topics of this test alone."""

    def __init__(self, bootstrap: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.capsys = capsys
        self.mark = uuid.uuid4().hex[:6]

    def topic(self, name: str) -> str:
        return f"{name}_{self.mark}"

    def write(self, name: str, values: Iterable[object], partitions: int = 2, keys: Iterable[str | None] = ()) -> None:
        topic = self.topic(name)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, -1)])[topic].result()
        records = [each if isinstance(each, bytes) or each is None else json.dumps(each).encode() for each in values]
        produce(self.bootstrap, topic, zip(list(keys) or [None] * len(records), records, strict=True))

    def run(self, text: str, *words: str) -> Done:
        self.capsys.readouterr()
        text = text.replace("$", f"_{self.mark}")
        state = str(self.folder / "state")
        code = main(["sql", "--bootstrap-server", self.bootstrap, "--json", "--state", state, "-e", text, *words])
        out, errors = self.capsys.readouterr()
        assert "Traceback" not in errors, errors
        return Done(code, [json.loads(line) for line in out.splitlines()], errors.splitlines())

    def rows(self, text: str, *words: str) -> list[dict[str, Any]]:
        done = self.run(text, *words)
        assert (done.code, done.errors) == (0, [])
        return done.rows

    def refused(self, text: str, code: int = 2) -> str:
        done = self.run(text)
        assert done.code == code, done
        assert len(done.errors) == 1, done
        return done.errors[0]


@pytest.fixture
def prompt(
    spark: object, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Prompt:
    assert spark is not None
    monkeypatch.setattr(running, "stop_spark", lambda _spark: None)
    monkeypatch.setattr(pipeline_run, "_stop_spark", lambda _spark: None)
    monkeypatch.chdir(tmp_path)
    return Prompt(bootstrap, tmp_path, capsys)


ORDERS = [
    {"id": 1, "customer": 7, "amount": 5, "at": "2026-01-31T12:00:00Z", "place": {"zip": 12}},
    {"id": 2, "customer": 7, "amount": 2.5, "at": "2026-01-31T12:04:00Z"},
    {"id": 3, "customer": 8, "amount": 10, "at": "2026-01-31T12:11:00Z"},
]


def test_a_topic_is_a_table_whose_columns_its_records_tell(prompt: Prompt) -> None:
    prompt.write("orders", ORDERS)
    rows = prompt.rows(
        """SELECT count(*), sum(orders$.amount) FROM orders$;
           SELECT customer, max(at) AS last FROM ORDERS$ GROUP BY customer ORDER BY customer;
           SELECT max(place.zip) FROM orders$;
           SELECT id, rowpartition + rowoffset >= 0 AS is_there FROM orders$ WHERE amount > 9 LIMIT 5;
           DESCRIBE orders$"""
    )
    assert list(rows.pop(3).values()) == [12]  # its name has a dot in it
    assert rows[:4] == [
        {"count(1)": 3, "sum(amount)": 17.5},
        {"customer": 7, "last": "2026-01-31T12:04:00Z"},
        {"customer": 8, "last": "2026-01-31T12:11:00Z"},
        {"id": 3, "is_there": True},
    ]
    assert rows[4] == {"column": "id", "type": "bigint", "role": ""}


def test_records_that_cannot_be_read_are_never_passed_over_in_silence(prompt: Prompt) -> None:
    prompt.write("orders", [*ORDERS, b"oops", None, {"id": "four"}], partitions=1)
    declared = "CREATE TABLE o (id BIGINT, amount DOUBLE) WITH (topic = 'orders$'{});SELECT count(*) AS n FROM o"
    done = prompt.run(declared.format(""))
    assert (done.code, done.rows) == (1, [{"n": 3}])
    place = f"{prompt.topic('orders')}-0"
    assert done.errors == [
        f'2 records could not be read and are in no row, the first: {place} at offset 3: not JSON: "oops"',
        "1 tombstone (no value) is in no row",
    ]
    assert prompt.run(declared.format(", unreadable = 'skip'")).code == 0
    inferred = prompt.run("SELECT max(id) AS id FROM orders$")
    assert inferred.code == 1
    assert f"{prompt.topic('orders')}: id: 3 bigint, 1 string; read as string" in inferred.errors


def test_windows_of_sparks_guide_over_event_time(prompt: Prompt) -> None:
    times = ["12:00", "12:01", "12:07", "12:12"]
    words = ["cat dog", "dog", "owl cat", "dog"]
    prompt.write("lines", [{"at": f"2026-01-31T{at}:00Z", "text": text} for at, text in zip(times, words, strict=True)])
    table = "CREATE TABLE l WITH (topic = 'lines$', event_time = 'at', watermark = '10 minutes');"
    tumbling, sliding = (
        prompt.rows(
            table
            + f"""SELECT date_format(w.start, 'HH:mm') AS start, date_format(w.end, 'HH:mm') AS end, count(*) AS n
                FROM (SELECT {window} AS w FROM l LATERAL VIEW explode(split(text, ' ')) AS word WHERE word = 'dog')
                GROUP BY w ORDER BY start"""
        )
        for window in ("window(at, '10 minutes')", "window(at, '10 minutes', '5 minutes')")
    )
    assert [tuple(row.values()) for row in tumbling] == [("12:00", "12:10", 2), ("12:10", "12:20", 1)]
    assert [tuple(row.values()) for row in sliding] == [
        ("11:55", "12:05", 2), ("12:00", "12:10", 2), ("12:05", "12:15", 1), ("12:10", "12:20", 1),
    ]  # fmt: skip
    sessions = prompt.rows(
        table
        + """SELECT date_format(session_window.start, 'HH:mm') AS start, count(*) AS n FROM l
            GROUP BY session_window(at, '4 minutes') ORDER BY start"""
    )
    assert [tuple(row.values()) for row in sessions] == [("12:00", 2), ("12:07", 1), ("12:12", 1)]
    of_flink = prompt.rows(
        table
        + """SELECT date_format(window_start, 'HH:mm') AS start, count(*) AS n
            FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end
            ORDER BY start;
            SELECT date_format(TUMBLE_END(at, INTERVAL '10' MINUTE), 'HH:mm') AS start, count(*) AS n FROM l
            GROUP BY TUMBLE(at, INTERVAL '10' MINUTE) ORDER BY start"""
    )
    assert [tuple(row.values()) for row in of_flink] == [("12:00", 3), ("12:10", 1), ("12:10", 3), ("12:20", 1)]


def test_windows_of_flinks_page_are_columns_of_rows_and_of_groups(prompt: Prompt) -> None:
    times = ("08:05", "08:07", "08:09", "08:11", "08:13", "08:17")
    bids = [
        {"at": f"2020-04-15T{time}:00Z", "price": price, "item": item}
        for time, price, item in zip(times, (4, 2, 5, 3, 1, 6), "CADBEF", strict=True)
    ]
    prompt.write("bid", [*bids, b"oops"], partitions=1)
    hop = "TABLE(HOP(TABLE bid$, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES))"
    done = prompt.run(f"SELECT * FROM {hop} ORDER BY at, window_start")
    assert [(row["item"], row["window_start"][11:16]) for row in done.rows[:4]] == [
        ("C", "08:00"), ("C", "08:05"), ("A", "08:00"), ("A", "08:05"),
    ]  # fmt: skip
    assert len(done.rows) == 12
    assert done.errors[-1].startswith("1 record could not be read")  # though what sorts reads it twice
    done = prompt.run(f"SELECT sum(price) AS s FROM {hop} GROUP BY window_start, window_end ORDER BY window_start")
    assert [row["s"] for row in done.rows] == [11, 15, 10, 6]


def test_a_key_that_only_the_record_has(prompt: Prompt) -> None:
    prompt.write("users", [{"city": "Oslo"}, {"city": "Rome"}], keys=["7", "8"])
    declared = "CREATE TABLE u (id BIGINT PRIMARY KEY, city VARCHAR) WITH (kafka_topic = 'users$'); "
    assert prompt.rows(f"{declared} SELECT * FROM u ORDER BY id") == [
        {"id": 7, "city": "Oslo"}, {"id": 8, "city": "Rome"},
    ]  # fmt: skip


def test_what_comes_is_told_until_there_is_enough(prompt: Prompt) -> None:
    prompt.write("orders", ORDERS, partitions=1)
    found = prompt.rows("SELECT id, amount FROM orders$ EMIT CHANGES LIMIT 2", "--from", "earliest")
    assert found == [{"id": 1, "amount": 5.0}, {"id": 2, "amount": 2.5}]
    changes = (
        "SET 'auto.offset.reset' = 'earliest'; SELECT customer, count(*) AS n FROM orders$ {} EMIT CHANGES LIMIT 2"
    )
    groups = prompt.rows(changes.format("GROUP BY customer"))
    assert sorted(tuple(row.values()) for row in groups) == [(7, 2), (8, 1)]


def test_joins_of_a_stream_and_a_table_of_newest_rows(prompt: Prompt) -> None:
    prompt.write("orders", ORDERS)
    people: list[object] = [{"id": 7, "name": "old"}, {"id": 7, "name": "Ann"}, {"id": 8, "name": "gone"}, None]
    prompt.write("people", people, 1, keys=["7", "7", "8", "8"])
    table = (
        "CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR) WITH (kafka_topic='people$', value_format='JSON');"
    )
    assert prompt.rows(table + "SELECT * FROM people") == [{"id": 7, "name": "Ann"}]
    join = "SELECT o.id, name FROM orders$ o LEFT JOIN people p ON o.customer = p.id"
    expected = [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Ann"}, {"id": 3, "name": None}]
    assert prompt.rows(f"{table}{join} ORDER BY o.id") == expected
    found = prompt.rows(f"{table}{join} EMIT CHANGES LIMIT 3", "--from", "earliest")
    assert sorted(found, key=lambda row: row["id"]) == expected
    prompt.write("broken", [*people, b"oops"], 1, keys=["7", "7", "8", "8", "9"])
    broken = prompt.run(table.replace("people$", "broken$") + "SELECT * FROM people")
    assert (broken.code, broken.rows) == (1, [{"id": 7, "name": "Ann"}])
    assert broken.errors[0].startswith("1 record could not be read and is in no row, the first: ")
    assert "omit EMIT CHANGES" in prompt.refused(f"{table} SELECT * FROM people EMIT CHANGES")


def test_joins_of_two_streams(prompt: Prompt) -> None:
    prompt.write("orders", ORDERS)
    payments = [{"order": 2, "paid": "2026-01-31T12:05:00Z"}, {"order": 3, "paid": "2026-01-31T15:00:00Z"}]
    prompt.write("payments", payments)
    join = """SELECT o.id, p.paid FROM orders$ o JOIN payments$ p
              ON o.id = p.order AND p.paid BETWEEN o.at AND o.at + INTERVAL 1 HOUR"""
    paid = [{"id": 2, "paid": "2026-01-31T12:05:00Z"}]
    assert prompt.rows(join) == paid
    assert prompt.rows(f"{join} EMIT CHANGES LIMIT 1", "--from", "earliest") == paid


WRONG = [
    ("SELECT id\n, nope FROM orders$", "line 2, column 3: there is no column 'nope'; there are: "),
    ("SELECT id,, at FROM orders$", "line 1, column 11: the statement cannot be read at ','"),
    (
        "SHOW TOPICS; SELECT 1 FROM fish",
        "line 1, column 28: the statement reads fish, which is neither a table nor a topic",
    ),
    ("SELECT * FROM csv.`/etc/passwd`", "line 1, column 15: the statement reads csv.`/etc/passwd`, but only"),
    (
        "SELECT java_method('a', 'b') FROM orders$",
        "line 1, column 8: the statement calls java_method(), which runs",
    ),
    ("SELECT * FROM empty$", "whose topic is empty, so its columns are unknown"),
    ("CREATE TABLE x (a INT) WITH (topic = 'fish')", "the topic 'fish', which does not exist"),
    ("SELECT a.id, b.id FROM orders$ a JOIN orders$ b ON a.id = b.id", "two columns are called 'id'"),
    ("SELECT array(struct(id AS x, at AS x)) AS a FROM orders$", "column 'a' has a struct with two fields 'x'"),
    ("SELECT to_timestamp_ltz(id, 3) AS t FROM orders$", "has an argument that the function does not take"),
    ("SELECT offset, id FROM orders$", "column 8: there is no column 'offset'"),
    ("SELECT cast(key AS string) AS k FROM orders$", "; that of the record is rowkey"),
    ("SELECT id FROM orders$ WHERE nope = 1", "line 1, column 36: there is no column 'nope'"),
    (
        "SELECT id FROM orders$ WHERE sum(id) > 1",
        'The WHERE condition "(sum(id) > 1)" contains invalid expressions',
    ),
    (
        "SELECT 1 / 0 AS x FROM orders$",
        "line 1, column 8: Division by zero; NULLIF(divisor, 0) or try_divide give NULL instead",
    ),
    ("SELECT id FROM orders$ ORDER BY id EMIT CHANGES", "line 1, column 1: Sorting is not supported"),
]


def test_what_is_wrong_is_one_sentence_with_its_place(prompt: Prompt) -> None:
    prompt.write("orders", ORDERS, 1)
    prompt.write("empty", [], 1)
    for text, words in WRONG:
        assert words in prompt.refused(text)


def test_the_first_that_ends_a_script_says_how_it_ends(prompt: Prompt) -> None:
    """Earlier losses do not end it."""
    prompt.write("orders", [*ORDERS, b"oops"], 1)
    table = "CREATE TABLE o (id BIGINT, amount DOUBLE) WITH (topic = 'orders$'); "
    lost = "SELECT count(*) AS n FROM o; "
    stopped = "SELECT id / (id - id) AS n FROM o; "
    wrong = "SELECT nope FROM o"
    assert [prompt.run(table + text).code for text in (lost, lost + wrong, stopped + wrong, wrong)] == [1, 2, 1, 2]


def test_without_a_broker(prompt: Prompt) -> None:
    prompt.bootstrap = "127.0.0.1:1"
    assert "127.0.0.1:1" in prompt.refused("SELECT * FROM orders", code=1)


def test_a_query_becomes_a_pipeline_file_that_runs(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own process would start another Spark: here the file is run in this one."""
    started: list[str] = []
    monkeypatch.setattr(pipelines, "start_pipeline", lambda file, name, _state: started.append(name) or f"{file} runs")
    prompt.write("orders", ORDERS)
    name = prompt.topic("big")
    statement = (
        f"CREATE PIPELINE {name} AS SELECT id, amount * 2 AS twice FROM orders$ WHERE amount > 4 INTO TOPIC `out$`"
    )
    done = prompt.run(statement)
    assert (done.code, done.errors, started) == (0, [f"{name}.yaml runs"], [name])
    assert main(["pipeline", "run", f"{name}.yaml", "--once", "--json", "--state", str(prompt.folder / "state")]) == 0
    written = read_all(prompt.bootstrap, prompt.topic("out"))
    assert sorted((each.json["id"], each.json["twice"]) for each in written) == [(1, 10.0), (3, 20.0)]
    assert "exists: write CREATE OR REPLACE PIPELINE" in prompt.refused(statement)
    assert "there is no column 'nope'" in prompt.refused(
        "CREATE PIPELINE p AS SELECT nope FROM orders$ INTO TOPIC `out$`"
    )


def test_a_pipeline_tells_changes_as_spark_can(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "start_pipeline", lambda file, _name, _state: f"{file} runs")
    prompt.write("orders", ORDERS, partitions=1)
    for number, (query, values) in enumerate(
        [("count(*) AS n FROM orders$", [3]), ("DISTINCT customer AS n FROM orders$", [7, 8])]
    ):
        name = prompt.topic(f"p{number}")
        assert prompt.run(f"CREATE PIPELINE {name} AS SELECT {query} INTO TOPIC `out{number}$`").code == 0
        assert main(["pipeline", "run", f"{name}.yaml", "--once", "--state", str(prompt.folder / "state")]) == 0
        written = read_all(prompt.bootstrap, prompt.topic(f"out{number}"))
        assert sorted(each.json["n"] for each in written) == values
    sorted_ = prompt.refused("CREATE PIPELINE p AS SELECT id FROM orders$ ORDER BY id INTO TOPIC `out$`")
    assert sorted_.endswith("in Complete output mode: leave ORDER BY out")
    assert "Division by zero" in prompt.refused("CREATE PIPELINE p AS SELECT 1 / 0 AS x FROM orders$ INTO TOPIC `out$`")
    assert not (prompt.folder / "p.yaml").exists()


def test_a_limit_of_changes_tells_what_was_lost_on_the_way(prompt: Prompt) -> None:
    prompt.write("orders", [b"oops", ORDERS[0], None, ORDERS[1]], partitions=1)
    table = "CREATE TABLE o (id BIGINT, amount DOUBLE) WITH (topic = 'orders$');"
    done = prompt.run(f"{table} SELECT id FROM o EMIT CHANGES LIMIT 1", "--from", "earliest")
    assert (done.code, done.rows) == (1, [{"id": 1}])
    assert done.errors == [
        "1 record could not be read and is in no row",
        "1 tombstone (no value) is in no row",
    ]


def test_a_star_leaves_out_what_the_record_says_where_it_is_named_beside_it(prompt: Prompt) -> None:
    prompt.write("orders", ORDERS[:1], partitions=1)
    prompt.write("paid", [{"order": 1}], partitions=1)
    table = "CREATE TABLE o (id BIGINT, amount DOUBLE) WITH (topic = 'orders$');"
    table += "CREATE TABLE p (`order` BIGINT) WITH (topic = 'paid$');"
    assert list(prompt.rows(f"{table} SELECT ROWTIME, * FROM o")[0]) == ["ROWTIME", "id", "amount"]
    assert list(prompt.rows(f"{table} SELECT o.*, o.rowoffset FROM o")[0]) == ["id", "amount", "rowoffset"]
    row = prompt.rows(f"{table} SELECT ROWTIME, ROWOFFSET, * FROM o EMIT CHANGES LIMIT 1", "--from", "earliest")[0]
    assert list(row) == ["ROWTIME", "ROWOFFSET", "id", "amount"]
    joined = "SELECT o.rowoffset, o.*, p.rowkey, p.* FROM o JOIN p ON o.id = p.`order`"
    assert list(prompt.rows(f"{table} {joined}")[0]) == ["rowoffset", "id", "amount", "rowkey", "order"]
    inner = "SELECT rowkey, * FROM (SELECT *, id + 1 AS next FROM o)"
    assert list(prompt.rows(f"{table} {inner}")[0]) == ["rowkey", "id", "amount", "next"]
