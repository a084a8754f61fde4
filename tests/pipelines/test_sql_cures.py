"""Hints of refusals work: each statement is refused first, and then its hint is tried."""

from __future__ import annotations

import pytest
from tests.pipelines.test_sql_command import Prompt, prompt  # noqa: F401 (a fixture)

EVENTS = [
    {
        "user": "ann",
        "n": 1,
        "text": '{"name": "x"}',
        "day": "2026-01-31 12:00",
        "tags": ["a", "b"],
        "at": "2026-01-31T12:00:00Z",
    },
    {"user": "ann", "n": 2, "text": "{}", "day": "2026-01-31 12:01", "tags": [], "at": "2026-01-31T12:00:20Z"},
    {"user": "ann", "n": None, "text": "{}", "day": "2026-01-31 12:01", "tags": [], "at": "2026-01-31T12:00:30Z"},
    {"user": "bob", "n": 2, "text": "{}", "day": "2026-01-31 12:02", "tags": ["a"], "at": "2026-01-31T12:05:00Z"},
]
UNTIMED = (
    "CREATE TABLE e (user STRING, n BIGINT, text STRING, day STRING, tags ARRAY<STRING>, at TIMESTAMP)"
    " WITH (topic = 'events$');"
)
TIMED = UNTIMED.replace(");", ", event_time = 'at', watermark = '1 second');")
NAME = "get_json_object(text, '\\u0024.name')"  # a dollar sign is the tests' own
DISTANCE = (
    "2 * 6371 * asin(sqrt(pow(sin(radians(0 - n) / 2), 2) + cos(radians(n)) * cos(radians(0)) * "
    "pow(sin(radians(0 - 0) / 2), 2)))"
)

FUNCTIONS = [
    ("json_value(text, 'x')", NAME, ["x", None, None, None]),
    ("json_exists(text, 'x')", f"{NAME} IS NOT NULL", [True, False, False, False]),
    ("timestamptostring(at, 'HH')", "date_format(at, 'yyyy-MM-dd HH:mm') = day", [True, False, False, False]),
    ("stringtotimestamp(day, 'x')", "to_timestamp(day, 'yyyy-MM-dd HH:mm') > at", [False, True, True, False]),
    ("stringtodate(day, 'x')", "to_date(left(day, 10), 'yyyy-MM-dd') = to_date(at)", [True] * 4),
    ("proctime()", "now() > rowtime", [True] * 4),
    ("array_length(tags)", "array_size(tags)", [2, 0, 0, 1]),
    ("geo_distance(n, 0, 0, 0)", f"round({DISTANCE}, 2)", [111.19, 222.39, None, 222.39]),  # a degree is 111.19 km
]
GROUPS = [
    ("latest_by_offset(n)", "max_by(n, rowoffset) FILTER (WHERE n IS NOT NULL)", 2),
    ("earliest_by_offset(n)", "min_by(n, rowoffset) FILTER (WHERE n IS NOT NULL)", 1),
    ("count_distinct(n)", "size(collect_set(n))", 2),
    ("topk(n, 3)", "slice(sort_array(collect_list(n), false), 1, 3)", [2, 1]),
]
WINDOWS = [
    ("WINDOW TUMBLING (SIZE 60 SECONDS)", "window", "'60 seconds'", 3),
    ("WINDOW HOPPING (SIZE 60 SECONDS, ADVANCE BY 30 SECONDS)", "window", "'60 seconds', '30 seconds'", 3),
    ("WINDOW SESSION (40 SECONDS)", "session_window", "'40 seconds'", 3),
]


@pytest.fixture
def events(prompt: Prompt) -> Prompt:  # noqa: F811
    prompt.write("events", EVENTS, partitions=1)
    return prompt


def changes(prompt: Prompt, text: str, count: int) -> list[dict[str, object]]:  # noqa: F811
    """Over new records, and over existing ones: the same rows."""
    kept = prompt.rows(text)
    found = prompt.rows(f"{text} EMIT CHANGES LIMIT {count}", "--from", "earliest")
    assert sorted(map(str, found)) == sorted(map(str, kept))[:count] or all(row in kept for row in found)
    return found


def test_functions_of_others(events: Prompt) -> None:
    for theirs, ours, _ in FUNCTIONS:
        line = events.refused(f"{UNTIMED} SELECT {theirs} AS x FROM e")
        assert ours.removeprefix("round(").partition("(")[0] in line
    ours = ", ".join(f"{ours} AS c{number}" for number, (_, ours, _) in enumerate(FUNCTIONS))
    for row, wanted in zip(
        changes(events, f"{UNTIMED} SELECT {ours} FROM e", 4),
        zip(*(each[2] for each in FUNCTIONS), strict=True),
        strict=True,
    ):
        assert tuple(row.values()) == wanted


def test_aggregates_of_others(events: Prompt) -> None:
    """All records have one time: only their offsets tell which is the last."""
    for theirs, ours, _ in GROUPS:
        line = events.refused(f"{UNTIMED} SELECT user, {theirs} AS x FROM e GROUP BY user")
        assert ours.replace("(n", "(column").replace(" n ", " column ") in line
    ours = ", ".join(f"{ours} AS c{number}" for number, (_, ours, _) in enumerate(GROUPS))
    rows = changes(events, f"{UNTIMED} SELECT user, {ours} FROM e GROUP BY user", 2)
    assert {"user": "ann", "c0": 2, "c1": 1, "c2": 2, "c3": [2, 1]} in rows
    kept = events.rows(f"{UNTIMED} SELECT user, count(DISTINCT n) AS n FROM e GROUP BY user")
    assert {row["user"]: row["n"] for row in kept} == {"ann": 2, "bob": 1}


@pytest.mark.parametrize(("theirs", "name", "lengths", "count"), WINDOWS)
def test_windows_of_ksqldb(events: Prompt, theirs: str, name: str, lengths: str, count: int) -> None:
    line = events.refused(f"{UNTIMED} SELECT user, count(*) FROM e {theirs} GROUP BY user")
    assert f"GROUP BY …, {name}(rowtime, {lengths}), with {name}.start" in line
    ours = f"SELECT user, {name}.start AS s, count(*) AS n FROM e GROUP BY user, {name}(at, {lengths})"
    assert {"user": "ann", "s": "2026-01-31T12:00:00Z", "n": count} in changes(events, f"{TIMED} {ours}", 1)


CHANGES = [
    ("SELECT count(DISTINCT n) FROM e", "write size(collect_set(column)), or leave EMIT CHANGES out"),
    ("SELECT user, count(*) FROM e GROUP BY user, session_window(at, '1 minute')", "declare event_time in the table"),
    ("SELECT e.n FROM e LEFT JOIN e AS f ON e.n = f.n", "declare event_time in both tables"),
    ("SELECT n FROM e WHERE n IN (SELECT n FROM e)", "join the tables instead, or leave EMIT CHANGES out"),
    ("SELECT n FROM e ORDER BY n", "leave ORDER BY or EMIT CHANGES out"),
    (
        "SELECT n, row_number() OVER (PARTITION BY user ORDER BY n) AS r FROM e",
        "leave EMIT CHANGES out, or use the step top",
    ),
    ("SELECT n FROM e EXCEPT SELECT n FROM e", "leave EMIT CHANGES out"),
    ("SELECT n FROM e INTERSECT SELECT n FROM e", "leave EMIT CHANGES out"),
]


def test_what_spark_cannot_do_over_what_comes_has_a_cure(events: Prompt) -> None:
    for text, cure in CHANGES:
        assert cure in events.refused(f"{UNTIMED} {text} EMIT CHANGES"), text
        assert events.rows(f"{UNTIMED} {text}") is not None  # as it says


VALUES = [
    ("n / (n - n)", "n / NULLIF(n - n, 0) IS NULL AND try_divide(n, n - n) IS NULL"),
    ("n % (n - n)", "n % NULLIF(n - n, 0) IS NULL AND try_mod(n, n - n) IS NULL"),
    ("n + 9223372036854775807", "try_add(n, 9223372036854775807) IS NULL"),
    ("(n + 1) * 9223372036854775807", "cast(n + 1 AS DECIMAL(38, 0)) * 9223372036854775807 > 0"),
    ("cast(n * 1e30 AS DECIMAL(10, 2))", "try_cast(n * 1e30 AS DECIMAL(10, 2)) IS NULL"),
    ("make_date(2026, 12 + n, 1)", "try_to_date(concat_ws('-', 2026, 12 + n, 1), 'y-M-d') IS NULL"),
    ("make_timestamp(2026, 12 + n, 1, 0, 0, 0)", "try_make_timestamp(2026, 12 + n, 1, 0, 0, 0) IS NULL"),
    ("map_from_arrays(array(n, n), array(1, 2))", "size(map_from_arrays(array_distinct(array(n, n)), array(1))) = 1"),
    ("n = (SELECT n FROM e)", "n IN (SELECT n FROM e)"),
    ("date_format(at, 'YYYY')", "date_format(at, 'yyyy') = '2026' AND EXTRACT(WEEK FROM at) = 5"),
    ("array_sort(array(n, n), (a, b) -> null + 1)", "array_sort(array(n), (a, b) -> coalesce(null + 1, 0)) = array(n)"),
    ("date_add(at, cast(n AS INT) * 10000000)", "cast(date_add(at, cast(n AS INT) * 10000000) AS STRING) LIKE '+%'"),
    ("text RLIKE '('", "NOT text RLIKE '[(]'"),
    ("cast(at AS BOOLEAN)", "unix_timestamp(at) > 0", 2),
    ("hash(map(n, 1))", "hash(array_sort(map_entries(map(n, 1)))) IS NOT NULL", 2),
    ("window(at, '10 parsecs')", "window(at, '1 hour 30 minutes') IS NOT NULL", 2),
]


def test_no_failure_advises_a_setting(events: Prompt) -> None:
    for theirs, _, *code in VALUES:
        line = events.refused(f"{UNTIMED} SELECT {theirs} AS x FROM e WHERE n < 2", *(code or [1]))
        assert "spark.sql" not in line, line
        assert "; " in line, line  # cause; cure
    ours = ", ".join(f"{ours} AS c{number}" for number, (_, ours, *_) in enumerate(VALUES))
    (row,) = events.rows(f"{UNTIMED} SELECT {ours} FROM e WHERE n < 2")
    assert [name for name, value in row.items() if value is not True] == []


def test_joins_of_others(events: Prompt) -> None:
    events.write(
        "paid", [{"id": 1, "at": "2026-01-31T12:00:10Z"}, {"id": 9, "at": "2026-02-01T12:00:00Z"}], partitions=1
    )
    events.write("users", [{"city": "Espoo"}], partitions=1, keys=["ann"])
    tables = "CREATE TABLE p (id BIGINT, at TIMESTAMP) WITH (topic = 'paid$');" + UNTIMED
    assert "has WITHIN: write ON … AND b.time BETWEEN" in events.refused(
        f"{tables} SELECT e.user FROM e JOIN p WITHIN 1 HOUR ON e.n = p.id"
    )
    bound = "ON e.n = p.id AND p.at BETWEEN e.at - INTERVAL 1 HOUR AND e.at + INTERVAL 1 HOUR"
    assert changes(events, f"{tables} SELECT e.user, p.id FROM e JOIN p {bound}", 1) == [{"user": "ann", "id": 1}]
    people = "CREATE TABLE u (user STRING PRIMARY KEY, city STRING) WITH (topic = 'users$');"
    assert "leave it out to join a table with a PRIMARY KEY" in events.refused(
        f"{UNTIMED} {people} SELECT e.n FROM e JOIN u FOR SYSTEM_TIME AS OF e.at ON e.user = u.user"
    )
    joined = f"{UNTIMED} {people} SELECT e.n, u.city FROM e LEFT JOIN u ON e.user = u.user"
    assert {"n": 1, "city": "Espoo"} in changes(events, joined, 4)


def test_a_protobuf_table(events: Prompt) -> None:
    (events.folder / "m.proto").write_text('syntax = "proto3"; package shop; message Sale { int64 id = 1; }')
    events.write("sales", [b"\x08\x07"], partitions=1)
    line = events.refused("CREATE TABLE s (id BIGINT) WITH (topic = 'sales$', format = 'protobuf_nosr')")
    assert "write format = 'protobuf', schema = 'file.proto', message = 'package.Message'" in line
    ours = "CREATE TABLE s WITH (topic = 'sales$', format = 'protobuf', schema = 'm.proto', message = 'shop.Sale');"
    assert events.rows(f"{ours} SELECT id FROM s") == [{"id": 7}]
