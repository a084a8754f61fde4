"""Parsing and comparing any schema takes a bounded number of steps.

Steps are counted function calls, not time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from ottla.registry.formats import InvalidSchemaError, parse
from ottla.registry.formats.compatibility import check

CALLS_MAX = 1_000_000  # of the largest schemas: a second or two


@contextmanager
def bounded(calls_max: int = CALLS_MAX) -> Iterator[None]:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1
            if calls > calls_max:
                sys.setprofile(None)
                raise AssertionError(f"more than {calls_max} calls")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


def record(count: int, kind: str = "int") -> str:
    return json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": kind} for i in range(count)]}
    )


def messages(count: int, field: str) -> str:
    return 'syntax = "proto3"; ' + "".join(
        f"message M{i} {{ M{(i + 1) % count} x = 1; {field} }}" for i in range(count)
    )


def chain_of_records(count: int) -> str:
    """Each contains the next one, but all stand side by side."""
    inner = [
        {"type": "record", "name": f"R{i}", "fields": [{"name": "n", "type": ["null", f"R{(i + 1) % count}"]}]}
        for i in range(1, count)
    ]
    fields = [{"name": f"f{i}", "type": each} for i, each in enumerate(inner)]
    return json.dumps({"type": "record", "name": "R0", "fields": [{"name": "first", "type": "R1"}, *fields]})


def chain_of_definitions(count: int, limit: int) -> str:
    definitions = {
        f"d{i}": {"type": "object", "maxProperties": limit, "properties": {"x": {"$ref": f"#/definitions/d{i + 1}"}}}
        for i in range(count)
    }
    return json.dumps({"$ref": "#/definitions/d0", "definitions": {**definitions, f"d{count}": {}}})


REFUSED = {
    "empty": "",
    "blank": " \n\t",
    "five megabytes": '{"type": "string", "doc": "' + "x" * 5_000_000 + '"}',
    "brackets that never close": "[" * 10_000,
    "nested 10,000 deep": '{"type": "array", "items": ' * 10_000 + '"int"' + "}" * 10_000,
    "braces nested 10,000 deep": 'syntax = "proto3"; ' + "message A {" * 10_000 + "}" * 10_000,
    "an option nested 10,000 deep": 'syntax = "proto3"; option (x) = ' + "{a:" * 10_000,
    "a zero byte": "\x00",
    "a number of 5,000 digits": '{"type": "number", "minimum": ' + "9" * 5_000 + "}",
    "a number beyond all": '{"type": "number", "minimum": 1e99999999999999999999}',
    "comments that never close": 'syntax = "proto3"; ' + "/*" * 400_000,
    "quotes that never close": 'syntax = "proto3"; option a = "' + "\\a" * 400_000,
    "lines and then nonsense": 'syntax = "proto3"; ' + "\n" * 900_000 + "x",
    "backslashes": '"' + "\\" * 900_000,
    "quotes behind backslashes": '"' + '\\"' * 400_000,
    "beginnings of comments": "/* " * 300_000,
}


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
@pytest.mark.parametrize("what", REFUSED)
def test_refused_at_once(what: str, kind: str) -> None:
    with bounded(500_000), pytest.raises(InvalidSchemaError) as refused:
        parse(kind, REFUSED[what], {})
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", record(25_500).replace(" ", "")),
        ("AVRO", chain_of_records(500)),
        ("AVRO", json.dumps({"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(60_000)]})),
        ("PROTOBUF", 'syntax = "proto3"; message A {' + "string a=1;" * 15_000 + "}"),
    ],
    ids=["fields", "types that lead to types", "symbols", "the same field"],
)
def test_too_many_parts_are_refused(kind: str, text: str) -> None:
    with bounded(), pytest.raises(InvalidSchemaError):
        parse(kind, text, {})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", record(1_000)),
        ("AVRO", chain_of_records(50)),
        ("JSON", chain_of_definitions(500, 1)),
        ("JSON", json.dumps({"pattern": "(a+)+$", "patternProperties": {"(x|x)*y": True}})),
        ("JSON", json.dumps({"pattern": "(" * 4_000 + ")" * 4_000})),
        ("PROTOBUF", messages(400, "int32 y = 2;")),
    ],
    ids=[
        "fields",
        "types that lead to types",
        "references",
        "exponential patterns",
        "brackets in a pattern",
        "messages",
    ],
)
def test_large_ones_are_taken(kind: str, text: str) -> None:
    with bounded():
        assert parse(kind, text, {}).text


UNION = json.dumps([json.loads(record(1).replace('"R"', f'"R{i}"')) for i in range(60)])
CHOICES = json.dumps(
    {
        "anyOf": [
            {"type": "object", "properties": {f"p{i}": {"type": "string"}}, "additionalProperties": False}
            for i in range(60)
        ]
    }
)
RECURSIVE = json.dumps(
    {"anyOf": [{"properties": {"self": {"$ref": "#"}, f"p{i}": {"type": "string"}}} for i in range(40)]}
)
PATTERNS = json.dumps({"type": "object", "patternProperties": {f"(a+)+{i}$": {} for i in range(200)}})
NAMES = json.dumps({"type": "object", "properties": {"a" * 300 + str(i): {} for i in range(200)}})
IMPORTING = 'syntax = "proto3"; import "m.proto"; message A { M0 m = 1; }'


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("AVRO", UNION, UNION.replace('"int"', '"string"')),
        ("AVRO", record(1_000), record(1_000, "string")),
        ("JSON", CHOICES, CHOICES.replace('"string"', '"integer"')),
        ("JSON", RECURSIVE, RECURSIVE.replace('"string"', '"integer"')),
        ("JSON", PATTERNS, NAMES),
        ("JSON", chain_of_definitions(500, 1), chain_of_definitions(500, 2)),
        ("PROTOBUF", messages(400, ""), messages(400, "int32 y = 2;")),
    ],
    ids=["unions", "records", "choices", "choices that contain themselves", "patterns and names", "chains", "messages"],
)
def test_comparing_ends(kind: str, old: str, new: str) -> None:
    schemas = [parse(kind, text, {}) for text in (old, new)]
    with bounded():
        try:
            check("FULL", schemas[1], [schemas[0]])
        except InvalidSchemaError as refused:
            assert "compared" in str(refused)  # noqa: PT017


@pytest.mark.parametrize(
    ("module", "kind", "old", "new"),
    [
        ("avro.compatibility", "AVRO", UNION, UNION.replace('"int"', '"string"')),
        ("json_schema.compatibility", "JSON", CHOICES, CHOICES.replace('"string"', '"integer"')),
        ("json_schema.compatibility", "JSON", PATTERNS, NAMES),
        ("protobuf.compatibility", "PROTOBUF", messages(400, ""), messages(400, "int32 y = 2;")),
    ],
    ids=["unions", "choices", "patterns and names", "messages"],
)
def test_a_comparison_that_takes_too_long_is_stopped(
    monkeypatch: pytest.MonkeyPatch, module: str, kind: str, old: str, new: str
) -> None:
    monkeypatch.setattr(f"ottla.registry.formats.{module}.STEPS_MAX", 1_000)
    schemas = [parse(kind, text, {}) for text in (old, new)]
    with bounded(50_000), pytest.raises(InvalidSchemaError, match="too large to be compared"):
        check("FULL", schemas[1], [schemas[0]])


def test_imports_that_lead_to_imports_end() -> None:
    schemas = [parse("PROTOBUF", IMPORTING, {"m.proto": messages(400, field)}) for field in ("", "int32 y = 2;")]
    with bounded(), pytest.raises(InvalidSchemaError, match="nested too deep to be compared"):
        check("FULL", schemas[1], [schemas[0]])


def test_an_exponential_pattern_that_is_run_takes_no_time() -> None:
    old = parse("JSON", '{"patternProperties": {"(a+)+$": {"type": "string"}}, "additionalProperties": false}', {})
    new = json.dumps(
        {"properties": {"a" * 5_000 + "b": {"type": "string"}}, "patternProperties": {"(a+)+$": {"type": "string"}}}
    )
    with bounded(10_000):
        assert check("FULL", parse("JSON", new, {}), [old])


def test_a_default_that_fits_many_branches_of_branches_is_tried_once_with_each() -> None:
    names = [f"R{i}" for i in range(8)]
    union = [{"type": "record", "name": name, "fields": [{"name": "f", "type": ["null", *names]}]} for name in names]
    default: Any = 5
    for _ in range(50):
        default = {"f": default}
    text = json.dumps({"type": "record", "name": "Top", "fields": [{"name": "a", "type": union, "default": default}]})
    with bounded(50_000), pytest.raises(InvalidSchemaError, match="Invalid default for field a"):
        parse("AVRO", text, {})


def test_keys_that_come_again_and_again_are_one_list() -> None:
    text = 'syntax = "proto3"; option (x) = {' + "a:1 " * 20_000 + "}; message A {}"
    with bounded():
        assert parse("PROTOBUF", text, {}).text.count("\n    1") == 20_000


def test_too_many_references_are_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="more than 1000 references"):
        parse("AVRO", '"int"', {str(i): '"int"' for i in range(1_001)})


def test_lone_surrogates_do_not_reach_the_text() -> None:
    for kind, text in (
        ("AVRO", '{"type": "string", "x": "\\ud800"}'),
        ("JSON", '{"title": "\\udfff"}'),
        ("PROTOBUF", 'syntax = "proto3"; import "\\377.proto"; option a = "\\ud800\\200"; message A {}'),
    ):
        parse(kind, text, {}).text.encode()
        parse(kind, text, {}).normalized().encode()
