"""Problems of steps that are reported before anything starts."""

from __future__ import annotations

import pytest

from ottla.pipelines.model.specs import Problems, read_spec
from ottla.pipelines.steps.parsing.time_formats import format_problem
from ottla.pipelines.steps.step_table import STEPS
from ottla.pipelines.steps.user_functions import CodeError, find_function, name_problem


def told(step: str, fields: object) -> list[str]:
    problems: Problems = []
    read_spec(STEPS[step], fields, (), problems)
    return [problem.text() for problem in problems]


PATTERN = {"by": ["user"], "first": "a = 1", "then": "a = 2", "within": "10 minutes"}
STATEFUL = {"code": "visits:Visit", "by": ["user"], "state": {"n": "int"}, "schema": "pages int"}
LOOKUP = {"http": "https://users/{user}", "schema": {"city": "string"}}


@pytest.mark.parametrize(
    ("step", "fields"),
    [
        ("parse", {"format": "json", "schema": {"id": "long"}}),
        ("parse", {"format": "csv", "schema": "id int, name string", "delimiter": ";"}),
        ("parse", {"format": "debezium", "schema": {"id": "long", "at": "date"}, "timestamp_format": "epoch days"}),
        ("parse", {"format": "grok", "pattern": "%{COMBINEDAPACHELOG}", "timestamp_format": "httpdate"}),
        ("parse", {"format": "regex", "pattern": "(?<a>x)"}),
        ("parse", {"format": "avro", "schema": "a.avsc", "encoding": "confluent", "schemas": "folder"}),
        ("parse", {"format": "protobuf", "schema": "a.proto", "message": "A", "strict": True}),
        ("parse", {"format": "text"}),
        ("filter", "a > 1"),
        ("filter", {"matches": {"a": "^x"}}),
        ("rule", {"positive": "a > 0", "short": "length(b) < 5"}),
        ("rename", {"a": "b"}),
        ("select", ["a", "b.c"]),
        ("select", {"a": "upper(b)"}),
        ("drop", "a"),
        ("cast", {"a": "int", "b": "decimal(10,2)"}),
        ("cast", {"columns": {"a": "int"}, "on_error": "null"}),
        ("derive", {"a": "now()"}),
        ("mask", {"columns": {"a": "hash"}, "salt": "long enough"}),
        ("mask", {"a": "last 4", "b": "redact"}),
        ("flatten", None),
        ("explode", "items"),
        ("sample", 0.5),
        ("sql", "SELECT * FROM stream"),
        ("union", "other"),
        ("python", "my.module:function"),
        ("python", {"function": len, "each": "row"}),
        ("pattern", {"by": "user", "first": "a = 1", "then": "a = 2", "within": "10 minutes"}),
        ("pattern", {"by": ["user"], "first": "a = 1", "then": ["a = 2", "a = 3"], "within": "1 h", "emit": "both"}),
        ("stateful", {"code": "visits:Visit", "by": ["user"], "state": {"n": "int"}, "schema": "pages int"}),
        ("enrich", {"http": "https://users/{user}", "schema": {"city": "string"}, "on_failure": None}),
        ("enrich", {"sqlite": "a.db", "query": "SELECT b FROM t WHERE a = :a", "schema": {"b": "int"}}),
    ],
)
def test_steps_as_people_write_them_are_understood(step: str, fields: object) -> None:
    assert told(step, fields) == []


@pytest.mark.parametrize(
    ("step", "fields", "said"),
    [
        ("join", {"as_of": "rates", "on": ["id"], "within": "1 hour"}, "a table has no time"),
        ("join", {"as_of": "rates", "on": ["id"], "kind": "semi"}, "semi returns no columns of the other stream"),
        ("join", {"as_of": "rates", "table": "a.csv", "on": ["id"]}, "one of with_stream, table, newest_of and as_of"),
        ("parse", {"format": "json"}, "json needs a schema"),
        ("parse", {"format": "jsn", "schema": "a int"}, "is not one of json, debezium, csv"),
        ("parse", {"format": "debezium"}, "debezium needs a schema"),
        ("parse", {"format": "debezium", "schema": "id int, Op int"}, "field 'Op': op and ts_ms are what the change"),
        ("parse", {"format": "debezium", "schema": "a int", "required": ["a"]}, "required: means nothing for debezium"),
        ("parse", {"format": "debezium", "schema": "a int", "strict": True}, "means nothing for debezium"),
        ("parse", {"format": "json", "schema": {"a": "intt"}}, "'intt' is not a type"),
        ("parse", {"format": "json", "schema": {"a": "int"}, "required": ["b"]}, "'b' is not in the schema"),
        ("parse", {"format": "json", "schema": "a int", "delimiter": ";"}, "means nothing for json"),
        ("parse", {"format": "json", "schema": "a int", "encoding": "single-object"}, "not written single-object"),
        ("parse", {"format": "json", "schema": "a int", "timestamp_format": "yyyy-bb"}, "letter 'b'"),
        ("parse", {"format": "regex"}, "needs a pattern"),
        ("parse", {"format": "regex", "pattern": "(x)"}, "groups without a name"),
        ("parse", {"format": "regex", "pattern": "(?=x)"}, "look-around"),
        ("parse", {"format": "grok", "pattern": "%{NOPE:x}"}, "no pattern 'NOPE'"),
        ("parse", {"format": "protobuf", "schema": "a.proto"}, "name of the message"),
        ("parse", {"format": "text", "charset": "ebcdic"}, "'ebcdic' is not known"),
        ("filter", {}, "keeps everything"),
        ("filter", {"where": "a = (SELECT 1)"}, "subqueries are not allowed"),
        ("filter", {"matches": {"a": "("}}, "not a regular expression"),
        (
            "filter",
            {"classifier": {"model": "m", "features": ["a"], "keep": ["x"], "threshold": 3}},
            "not between 0 and 1",
        ),
        ("rule", {"late": "at < now()"}, "replay"),
        ("derive", {"a": "reflect('x', 'y')"}, "runs code"),
        ("derive", {"_a": "1"}, "cannot be the name"),
        ("select", {"a": "b; c"}, "semicolon"),
        ("rename", {"a": "x", "b": "X"}, "same name"),
        ("cast", {"a": "intt"}, "is not a type"),
        ("mask", {"a": "hash"}, "needs one salt"),
        ("mask", {"columns": {"a": "hash"}, "salt": "short"}, "at least 8"),
        ("mask", {"a": "scramble"}, "not a way to mask"),
        ("sample", 2, "not between 0 and 1"),
        ("sql", "SELECT * FROM parquet.`/x`", "may only read stream"),
        ("sql", "SELECT 1", "does not read the stream"),
        ("sql", {"query": "SELECT * FROM stream", "tables": {"stream": "x.csv"}}, "names must be unique"),
        ("python", "no function", "not written module:function"),
        ("python", "../evil:f", "not written module:function"),
        ("python", {"function": "a:b", "schema": "a int"}, "means nothing"),
        ("pattern", {**PATTERN, "by": []}, "by: names no column"),
        ("pattern", {**PATTERN, "then": []}, "then: names from 1 to 19 conditions"),
        ("pattern", {**PATTERN, "then": ["a = 1", "at < now()"]}, "then: 'at < now()'"),
        ("pattern", {**PATTERN, "without": "a = (SELECT 1)"}, "subqueries are not allowed"),
        ("pattern", {**PATTERN, "prefixes": ["x_"]}, "there are 2 rows and 1 prefixes"),
        ("pattern", {**PATTERN, "prefixes": ["x_", "x_"]}, "two prefixes are equal"),
        ("pattern", {**PATTERN, "emit": "all"}, "is not one of matched, timed_out, both"),
        ("pattern", {**PATTERN, "within": "0 s"}, "must be at least a millisecond"),
        ("pattern", {**PATTERN, "open_max": 0}, "must be from 1 to 100000"),
        ("stateful", {**STATEFUL, "code": "visits"}, "not written module:function"),
        ("stateful", {**STATEFUL, "state": {}}, "state: names no column"),
        ("stateful", {**STATEFUL, "by": []}, "by: names no column"),
        ("stateful", {**STATEFUL, "forget_after": "0 s"}, "must be at least a millisecond"),
        ("enrich", {"schema": {"b": "int"}}, "set one of http, sqlite, postgres and sqlalchemy"),
        ("enrich", {**LOOKUP, "sqlite": "a.db"}, "set one of http, sqlite, postgres and sqlalchemy"),
        ("enrich", {**LOOKUP, "http": "http://{b}/x"}, "the host name must not come from a row"),
        ("enrich", {**LOOKUP, "http": "http://h/x"}, "names no key column"),
        ("enrich", {**LOOKUP, "headers": {"a b": "c"}}, "is not a valid header name"),
        ("enrich", {**LOOKUP, "fields": {"x": "y"}}, "'x' is not in schema"),
        ("enrich", {**LOOKUP, "query": "SELECT 1"}, "means nothing for http"),
        ("enrich", {**LOOKUP, "concurrency": 65}, "must be from 1 to 64"),
        ("enrich", {**LOOKUP, "cache_size": -1}, "must be from 0 to 1,000,000"),
        ("enrich", {**LOOKUP, "on_failure": "die"}, "is not one of stop, dead, null"),
        ("enrich", {"sqlite": "a.db", "schema": {"b": "int"}}, "query: is missing"),
        ("enrich", {"sqlite": "a.db", "query": "DELETE FROM t WHERE a = :a", "schema": "b int"}, "is not a SELECT"),
        ("enrich", {"sqlite": "a.db", "query": "SELECT :a", "schema": "b int", "headers": {"a": "b"}}, "http alone"),
    ],
)
def test_problems_are_reported_before_anything_starts(step: str, fields: object, said: str) -> None:
    texts = told(step, fields)
    assert any(said in text for text in texts), texts


def test_a_row_function_is_counted_like_a_step_that_marks() -> None:
    assert STEPS["python"](function=len, each="row").KIND == "marks"  # type: ignore[call-arg]
    assert STEPS["python"](function=len).KIND == "opaque"  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "text",
    [
        "iso",
        "epoch",
        "epoch ms",
        "Epoch Seconds",
        "httpdate",
        "yyyy-MM-dd'T'HH:mm:ss.SSSX",
        "MM/dd/yyyy hh:mm a",
        "yyyyMMdd",
        "uuuu-DDD",
        "yyyy-MM",
    ],
)
def test_ways_to_write_timestamps(text: str) -> None:
    assert format_problem(text) is None


@pytest.mark.parametrize("text", ["", "yyyy-MM-ddTHH", "YYYY-ww", "yyyy 'open", "123"])
def test_invalid_timestamp_formats(text: str) -> None:
    assert format_problem(text)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("yyyy-mm-dd", "no month"),
        ("yyyy-MM-dd hh:mm:ss", "no AM or PM"),
        ("yyyy-MM-dd HH:mm:SS", "no seconds"),
        ("yyyy-MM-dd mm:ss", "no hour"),
        ("yyyy-MM-dd HH:ss", "no minutes"),
        ("MMM d HH:mm:ss", "no year"),
        ("HH:mm", "no year"),
    ],
)
def test_a_pattern_that_leaves_a_part_to_chance_is_refused(text: str, missing: str) -> None:
    assert missing in (format_problem(text) or "")


def test_functions_are_found_in_packages_and_named_when_missing() -> None:
    assert find_function("json:dumps", ".").__name__ == "dumps"
    assert name_problem("a.b:c") is None
    for text in ("json:nope", "nope_not_there:f", "json.dumps"):
        with pytest.raises(CodeError):
            find_function(text, ".")
