"""What is told about steps before anything starts."""

from __future__ import annotations

import pytest

from ottla.pipelines.model.fields import Problems, read_spec
from ottla.pipelines.steps.parsing.times import problem_of
from ottla.pipelines.steps.python_code import CodeError, find_function, name_problem
from ottla.pipelines.steps.table import STEPS


def told(step: str, fields: object) -> list[str]:
    problems: Problems = []
    read_spec(STEPS[step], fields, (), problems)
    return [problem.text() for problem in problems]


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
    ],
)
def test_steps_as_people_write_them_are_understood(step: str, fields: object) -> None:
    assert told(step, fields) == []


@pytest.mark.parametrize(
    ("step", "fields", "said"),
    [
        ("join", {"as_of": "rates", "on": ["id"], "within": "1 hour"}, "a table has no time"),
        ("join", {"as_of": "rates", "on": ["id"], "kind": "semi"}, "semi gives nothing of what was valid"),
        ("join", {"as_of": "rates", "table": "a.csv", "on": ["id"]}, "one of with_stream, table, newest_of and as_of"),
        ("parse", {"format": "json"}, "json needs a schema"),
        ("parse", {"format": "jsn", "schema": "a int"}, "is not one of json, debezium, csv"),
        ("parse", {"format": "debezium"}, "debezium needs a schema"),
        ("parse", {"format": "debezium", "schema": "id int, Op int"}, "field 'Op': op and ts_ms are what the change"),
        ("parse", {"format": "debezium", "schema": "a int", "required": ["a"]}, "required: means nothing for debezium"),
        ("parse", {"format": "debezium", "schema": "a int", "strict": True}, "means nothing for debezium"),
        ("parse", {"format": "json", "schema": {"a": "intt"}}, "'intt' is no type"),
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
        ("filter", {"matches": {"a": "("}}, "no regular expression"),
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
        ("cast", {"a": "intt"}, "is no type"),
        ("mask", {"a": "hash"}, "needs one salt"),
        ("mask", {"columns": {"a": "hash"}, "salt": "short"}, "at least 8"),
        ("mask", {"a": "scramble"}, "no way to hide"),
        ("sample", 2, "not between 0 and 1"),
        ("sql", "SELECT * FROM parquet.`/x`", "may only read stream"),
        ("sql", "SELECT 1", "does not read the stream"),
        ("sql", {"query": "SELECT * FROM stream", "tables": {"stream": "x.csv"}}, "must stand for one thing"),
        ("python", "no function", "not written module:function"),
        ("python", "../evil:f", "not written module:function"),
        ("python", {"function": "a:b", "schema": "a int"}, "means nothing"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(step: str, fields: object, said: str) -> None:
    texts = told(step, fields)
    assert any(said in text for text in texts), texts


def test_a_row_function_is_counted_like_a_step_that_marks() -> None:
    assert STEPS["python"](function=len, each="row").KIND == "marks"  # type: ignore[call-arg]
    assert STEPS["python"](function=len).KIND == "opaque"  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "text", ["iso", "epoch", "epoch ms", "Epoch Seconds", "httpdate", "yyyy-MM-dd'T'HH:mm:ss.SSSX"]
)
def test_ways_to_write_timestamps(text: str) -> None:
    assert problem_of(text) is None


@pytest.mark.parametrize("text", ["", "yyyy-MM-ddTHH", "YYYY-ww", "yyyy 'open", "123"])
def test_what_is_no_way_to_write_timestamps(text: str) -> None:
    assert problem_of(text)


def test_functions_are_found_in_packages_and_named_when_missing() -> None:
    assert find_function("json:dumps", ".").__name__ == "dumps"
    assert name_problem("a.b:c") is None
    for text in ("json:nope", "nope_not_there:f", "json.dumps"):
        with pytest.raises(CodeError):
            find_function(text, ".")
