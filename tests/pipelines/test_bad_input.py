"""Invalid records and files: they are reported, counted and stored as dead letters, and valid ones are processed."""

from __future__ import annotations

import json
import sqlite3

import pytest
from confluent_kafka import Producer
from tests.pipelines.commands import Command, command  # noqa: F401 (a fixture)
from tests.pipelines.running import read_all

from ottla.pipelines.steps.frame import HIDDEN_COLUMNS

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in"}
steps:
  - parse: {format: json, schema: {id: long, price: double, tags: "array<string>"}}
  - filter: {where: "id >= 0"}
to:
  - {topic: "{name}-out", key: id}
  - {sqlite: rows.db, table: rows}
"""
TOTALS = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in"}
steps:
  - parse: {format: json, schema: {id: long, price: double}}
  - window: {total: true, by: [id], count: n, sum: {total: price}, max: {most: price}}
output: update
to: {sqlite: rows.db, table: totals, mode: upsert, key: [id]}
"""
TWICE = """\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  all:
    from: {topic: "{name}-in"}
    steps: [{parse: {format: json, schema: {id: long}}}]
  low: {from: all, steps: [{filter: id < 2}]}
  both:
    from: all
    steps: [{filter: id > 2}, {union: {with_stream: low}}]
    to: {topic: "{name}-out"}
"""
MANY = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in"}
steps:
  - parse: {format: json, schema: {id: long}}
{rules}
to: {topic: "{name}-out"}
"""
TEN_MEGABYTES = 10_000_000
NEGATIVE_MS = -86_400_000

RECORDS: list[tuple[bytes | None, bytes | None, str]] = [
    (None, b'{"id": 1, "price": 1.5, "tags": ["a"]}', "good"),
    (b"key", b'{"id": 2, "price": 3}', "good"),
    (b"", b'{"id": 3, "price": null, "tags": [], "more": {"x": 1}}', "good"),  # another schema: more, and less
    (b"\xff\xfe", b'{"id": 4}', "good"),
    (b"key", b'{"id": -1, "price": 0}', "filtered"),
    (b"key", None, "dead"),
    (None, None, "dead"),
    (None, b"", "dead"),
    (None, b"hello", "dead"),
    (None, b'{"id": 5', "dead"),
    (None, b'{"id": "five"}', "dead"),
    (None, b'{"id": 1e400}', "dead"),
    (None, b'{"id": 99999999999999999999}', "dead"),
    (None, b'{"id": 6, "tags": "none"}', "dead"),
    (None, b"[1, 2]", "dead"),
    (None, b"\x00\x01\xff\xfe", "dead"),
]


def send(bootstrap: str, topic: str, records: list[tuple[bytes | None, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 2 * TEN_MEGABYTES})
    for number, (key, value) in enumerate(records):
        producer.produce(topic, value, key, timestamp=NEGATIVE_MS if number == 1 else 0)
    assert producer.flush(30) == 0


def test_every_bad_record_is_a_letter_and_every_good_one_goes_on(command: Command) -> None:  # noqa: F811
    command.write(FILE)
    topic = command.make_topic()
    send(command.bootstrap, topic, [(key, value) for key, value, _ in RECORDS])
    done = command.run()
    assert done.code == 0, done.errors
    parse, kept = done.steps["main parse"], done.steps["main filter"]
    dead = [number for number, (_, _, fate) in enumerate(RECORDS) if fate == "dead"]
    assert (parse["came"], parse["dead"], parse["kept"]) == (len(RECORDS), len(dead), len(RECORDS) - len(dead))
    assert (kept["came"], kept["filtered"], kept["kept"]) == (parse["kept"], 1, parse["kept"] - 1)

    found = read_all(command.bootstrap, f"{command.name}-out")
    assert sorted(message.json["id"] for message in found) == [1, 2, 3, 4]
    letters = read_all(command.bootstrap, f"{command.name}-dead-letters")
    assert sorted(int(letter.headers["ottla.offset"]) for letter in letters) == dead
    for letter in letters:
        key, value, _ = RECORDS[int(letter.headers["ottla.offset"])]
        assert (letter.key, letter.value) == (key, value)
        assert letter.headers["ottla.reason"]


def test_a_record_that_dies_in_a_stream_that_is_used_twice_is_one_letter(command: Command) -> None:  # noqa: F811
    command.write(TWICE)
    topic = command.make_topic()
    send(command.bootstrap, topic, [(None, value) for value in (b'{"id": 1}', b"broken", b'{"id": 3}')])
    assert command.run().code == 0
    assert sorted(message.json["id"] for message in read_all(command.bootstrap, f"{command.name}-out")) == [1, 3]
    assert [letter.value for letter in read_all(command.bootstrap, f"{command.name}-dead-letters")] == [b"broken"]


def test_letters_of_many_steps_that_mark_are_sent_at_once(command: Command) -> None:  # noqa: F811
    """Spark expanded the expression of the last mark, doubling with each step: planning took minutes."""
    count = 12
    command.write(MANY.replace("{rules}", "\n".join(f"  - rule: {{not {n}: id <> {n}}}" for n in range(count))))
    topic = command.make_topic()
    send(command.bootstrap, topic, [(None, b'{"id": %d}' % n) for n in range(count + 1)])
    assert command.run().code == 0
    assert [message.json["id"] for message in read_all(command.bootstrap, f"{command.name}-out")] == [count]
    letters = read_all(command.bootstrap, f"{command.name}-dead-letters")
    told = {letter.json["id"]: letter.headers["ottla.step"] for letter in letters}
    assert told == {n: f"main {n + 2} rule" for n in range(count)}


def test_a_very_large_record_goes_through_or_dies_alone(command: Command) -> None:  # noqa: F811
    """A topic that takes 1 MB gets what fits; the other becomes a letter without its value, or with what fits."""
    command.write(FILE)
    topic = command.make_topic()
    raise_limit(command.bootstrap, topic)
    large = json.dumps({"id": 2, "tags": ["x" * TEN_MEGABYTES]}).encode()
    send(command.bootstrap, topic, [(None, b'{"id": 1}'), (None, large), (None, b'{"id": 3}')])
    done = command.run()
    assert done.code == 0, done.errors
    assert done.steps["main parse"]["kept"] == 3
    found = [message.json["id"] for message in read_all(command.bootstrap, f"{command.name}-out")]
    assert sorted(found) == [1, 3]
    letters = read_all(command.bootstrap, f"{command.name}-dead-letters")
    assert len(letters) == 1
    with sqlite3.connect(command.folder / "rows.db") as database:
        rows = database.execute("SELECT id, length(tags) FROM rows ORDER BY id").fetchall()
    assert rows == [(1, None), (2, TEN_MEGABYTES + 4), (3, None)]


CHOSEN = """\
name: {name}
bootstrap.servers: {bootstrap}
dead_letters: LETTERS
from: {topic: "{name}-in"}
steps:
  - parse: {format: json, schema: {id: long, place: KIND}}
to: {topic: "{name}-out", partition: place, partitions: 2}
"""


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_row_goes_to_the_partition_that_it_names_or_to_none(command: Command, delivery: str) -> None:  # noqa: F811
    text = CHOSEN.replace("partitions: 2", f"partitions: 2, delivery: {delivery}")
    command.write(text.replace("LETTERS", '"{name}-dead"').replace("KIND", "long"))
    topic = command.make_topic()
    places = [0, 1, None, -1, 2, 3_000_000_000, 1]
    values = [json.dumps({"id": number, "place": place}).encode() for number, place in enumerate(places)]
    send(command.bootstrap, topic, [(None, value) for value in values])
    done = command.run()
    assert done.code == 0, done.errors
    found = {message.json["id"]: message.partition for message in read_all(command.bootstrap, f"{command.name}-out")}
    counts = done.steps[f"main to topic {command.name}-out"]
    assert [counts[fate] for fate in ("number", "came", "kept", "dead")] == [2, 7, 4, 3]
    words = f"main: 3 of 7 rows are dead (42.9 %); topic {command.name}-dead has the reasons"
    assert done.warnings == [words]
    assert sorted(found) == [0, 1, 2, 6]
    assert (found[0], found[1], found[6]) == (0, 1, 1)
    letters = read_all(command.bootstrap, f"{command.name}-dead")
    assert sorted(letter.headers["ottla.reason"] for letter in letters) == [
        f"partition {place} does not exist in topic {command.name}-out, which has 2" for place in (-1, 2, 3_000_000_000)
    ]

    send(command.bootstrap, topic, [(None, values[4]), (None, values[0])])
    assert "main: 1 of 2 rows are dead (50 %), more than max_dead: 40 %" in command.refused("--set", "max_dead=40 %")
    command.write(text.replace("LETTERS", "false").replace("KIND", "long"))
    send(command.bootstrap, topic, [(None, b'{"id": 8, "place": 3000000000}')])
    line = command.refused()
    assert f"partition 3000000000 does not exist in topic {command.name}-out, which has 2: correct it" in line
    assert len(read_all(command.bootstrap, f"{command.name}-out")) == 5


def test_a_partition_that_is_no_number_is_told(command: Command) -> None:  # noqa: F811
    command.write(CHOSEN.replace("LETTERS", "false").replace("KIND", "string"))
    topic = command.make_topic()
    send(command.bootstrap, topic, [(None, b'{"id": 1, "place": "1"}')])
    assert command.run().code == 0
    assert [message.partition for message in read_all(command.bootstrap, f"{command.name}-out")] == [1]
    send(command.bootstrap, topic, [(None, b'{"id": 2, "place": "left"}')])
    assert "column place: 'left' is not a partition number" in command.refused()


def raise_limit(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # noqa: PLC0415

    entry = ConfigEntry("max.message.bytes", str(2 * TEN_MEGABYTES), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()


def test_numbers_that_are_none_do_not_stop_aggregates(command: Command) -> None:  # noqa: F811
    command.write(TOTALS)
    topic = command.make_topic()
    values = ['{"id": 1, "price": 2.5}', '{"id": 1, "price": NaN}', '{"id": 2, "price": Infinity}']
    values += ['{"id": 2, "price": -Infinity}', '{"id": 3, "price": 1e308}', '{"id": 3, "price": 1e308}']
    send(command.bootstrap, topic, [(None, value.encode()) for value in values])
    done = command.run()
    assert done.code == 0, done.errors
    parse = done.steps["main parse"]
    assert parse["came"] == len(values) == parse["kept"] + parse["dead"]
    with sqlite3.connect(command.folder / "rows.db") as database:
        rows = dict(database.execute("SELECT id, n FROM totals").fetchall())
    assert sum(rows.values()) == parse["kept"]
    assert rows[3] == 2


def test_an_empty_topic_makes_no_batch(command: Command) -> None:  # noqa: F811
    command.write(FILE)
    command.make_topic()
    done = command.run()
    assert (done.code, done.warnings) == (0, [])
    assert read_all(command.bootstrap, f"{command.name}-out") == []


INJECTIONS = [
    "id >= 0; DROP TABLE rows",
    "id IN (SELECT id FROM text.`/etc/passwd`)",
    "reflect('java.lang.Runtime', 'getRuntime') IS NOT NULL",
    "java_method('java.lang.System', 'exit', 3) IS NULL",
    "id >= 0 UNION SELECT * FROM csv.`/etc/passwd`",
    "id >= 0 /* ",
    "id >= 0 -- ' OR 1=1",
    "id >= 0\n; SET spark.sql.ansi.enabled=true",
]


FILTER = '- filter: {where: "id >= 0"}'
PLACES = [(FILTER, "- rule: {rules: {mine: TEXT}}"), (FILTER, "- derive: {mine: TEXT}")]
PLACES += [("table: rows}", "table: rows, where: TEXT}")]


# What is refused is decided without Spark (tests/unit/pipelines/expressions/test_safety.py); each place must ask.
@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        *((text, FILTER, "- filter: {where: TEXT}") for text in INJECTIONS),
        *((text, old, new) for text in INJECTIONS[:3] for old, new in PLACES),
    ],
)
def test_sql_that_does_more_than_it_should_is_refused(command: Command, text: str, old: str, new: str) -> None:  # noqa: F811
    command.write(FILE.replace(old, new.replace("TEXT", json.dumps(text))))
    command.make_topic()
    is_comment = "--" in text  # what is left is a condition
    done = command.run()
    assert done.code == (0 if is_comment and done.code == 0 else 2), done
    if done.code:
        assert len(done.errors) == 1, done.errors
        assert done.errors[0].startswith(f"{command.folder}/p.yaml:")
    assert not (command.folder / "spark-warehouse").exists()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM stream; DROP TABLE rows",
        "SELECT reflect('java.lang.System', 'exit', 3) FROM stream",
        "INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT * FROM stream",
        "ADD JAR '/tmp/x.jar'",
        "SELECT TRANSFORM(id) USING 'sh' AS (x) FROM stream",
    ],
)
def test_a_query_that_does_more_than_it_should_is_refused(command: Command, text: str) -> None:  # noqa: F811
    command.write(FILE.replace('- filter: {where: "id >= 0"}', f"- sql: {json.dumps(text)}"))
    command.make_topic()
    assert "p.yaml:6: step 2, sql" in command.refused(code=2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('spark: {spark.driver.extraJavaOptions: "-javaagent:/tmp/x.jar"}', "can run any code"),
        ("spark: {spark.jars: /tmp/x.jar}", "it loads code"),
        ("spark: {spark.pyspark.python: /tmp/x}", "it names a program to run"),
        ("spark: {spark.sql.extensions: a.B}", "it names classes"),
        ("spark: {spark.executorEnv.PYTHONPATH: /tmp}", "environment variables"),
    ],
)
def test_settings_that_run_code_are_refused(command: Command, more: str, words: str) -> None:  # noqa: F811
    command.write(f"{FILE}{more}\n")
    command.make_topic()
    line = command.refused(code=2)
    assert words in line
    assert "p.yaml:10: spark" in line


@pytest.mark.parametrize("sink", ["{parquet: /tmp/elsewhere}", "{sqlite: ../rows.db, table: rows}", "{json: link/x}"])
def test_nothing_is_written_outside_of_the_folder(command: Command, sink: str) -> None:  # noqa: F811
    (command.folder / "link").symlink_to("/tmp")
    command.write(FILE.replace("{sqlite: rows.db, table: rows}", sink))
    topic = command.make_topic()
    send(command.bootstrap, topic, [(None, b'{"id": 1}')])
    line = command.refused(code=2)
    assert "is outside of the pipeline's folder: allow it with --root" in line
    assert read_all(command.bootstrap, f"{command.name}-out") == []
    assert not (command.folder.parent / "rows.db").exists()


def test_names_of_hidden_columns_belong_to_us(command: Command) -> None:  # noqa: F811
    """A record cannot change its own fate."""
    command.write(FILE.replace('tags: "array<string>"', "_fate: int, _offset: long"))
    topic = command.make_topic()
    send(command.bootstrap, topic, [(None, b'{"id": 1, "_fate": -1, "_offset": 77}')])
    done = command.run()
    assert done.code in (0, 2)
    assert {"_fate", "_offset"} <= set(HIDDEN_COLUMNS)
    if done.code == 0:
        assert done.steps["main filter"]["kept"] == 1
