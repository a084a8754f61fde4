"""Damaged schemas: each is read or refused in one line, and what was read stays the same."""

from __future__ import annotations

import json
import random

import pytest

from ottla.registry.formats import InvalidSchemaError, ParsedSchema, parse
from ottla.registry.formats.compatibility import check

SEEDS = {
    "AVRO": """
        {"type": "record", "name": "n.R", "aliases": ["Q"], "fields": [
            {"name": "a", "type": ["null", "n.R"], "default": null},
            {"name": "b", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}},
            {"name": "c", "type": {"type": "map", "values": {"type": "fixed", "name": "F", "size": 4}}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}, "default": "x"}]}
    """,
    "JSON": """
        {"$id": "http://example.com/a", "type": "object", "properties": {
            "a": {"$ref": "#/definitions/b"},
            "b": {"type": ["string", "null"], "pattern": "^(a+)+$", "maxLength": 3},
            "c": {"items": [{"enum": [1, 2.5]}], "additionalItems": false}},
        "required": ["a"], "patternProperties": {"^x": {"minimum": 1}}, "additionalProperties": {"oneOf": [{}, true]},
        "dependencies": {"a": ["b"]}, "definitions": {"b": {"not": {"const": 1}, "allOf": [{"$ref": "#"}]}}}
    """,
    "PROTOBUF": """
        syntax = "proto3"; package a.b; import "google/protobuf/any.proto"; option (x).y = { z: [1, "w"] };
        message M { reserved 5, 7 to 9; string s = 1 [json_name = "t"]; map<string, N> m = 2;
            oneof o { N n = 3; bytes b = 4; } enum E { A = 0; B = 1 [deprecated = true]; }
            message N { E e = 1; repeated .a.b.M r = 2; } google.protobuf.Any q = 6; }
        service S { rpc C (M) returns (stream M.N) { option deprecated = true; } }
    """,
}
BITS = (
    *(
        '"',
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "null",
        "true",
        "-1",
        "1e9",
        "0x",
        "\\",
        "\\u0000",
        "#",
        "/",
        ";",
        "=",
        "(",
        ")",
    ),
    *("<", ">", "'", "\n", "//", "/*", "*/", "é", "\ud800", ".", "..", "{}", "[]", "type", "$ref", "items", "default"),
    *("message ", "enum ", "oneof ", "option ", "reserved ", "to max", "map<", "optional ", "string", "required"),
)


def damaged(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text) + 1)
        text = text[:start] + chance.choice(BITS) + text[start + chance.choice((0, 0, 1, 1, 3, 10)) :]
    return text


def replaced(value: object, chance: random.Random) -> object:
    """Values in places where they do not belong."""
    if chance.random() < 0.1:
        return chance.choice((None, True, 0, -1, 1.5, "x", "int", [], {}, {"type": "object"}, {"$ref": "#"}, ["null"]))
    if isinstance(value, dict):
        return {key: replaced(each, chance) for key, each in value.items()}
    return [replaced(each, chance) for each in value] if isinstance(value, list) else value


def is_told_well(kind: str, text: str, earlier: list[ParsedSchema]) -> bool:
    try:
        schema = parse(kind, text, {})
    except InvalidSchemaError as refused:
        assert "\n" not in str(refused), str(refused)  # noqa: PT017
        return False
    schema.text.encode()
    assert parse(kind, schema.text, {}).text == schema.text
    assert parse(kind, schema.normalized(), {}).normalized() == schema.normalized()
    assert not check("FULL", schema, [schema])
    for other in earlier[-3:]:
        check("FULL", schema, [other])
    earlier.append(schema)
    return True


@pytest.mark.parametrize("kind", SEEDS)
def test_damaged_schemas_are_read_or_refused(kind: str) -> None:
    chance = random.Random(kind)
    earlier = [parse(kind, SEEDS[kind], {})]
    texts = [damaged(SEEDS[kind], chance) for _ in range(1_500)]
    if kind != "PROTOBUF":
        texts += [json.dumps(replaced(json.loads(SEEDS[kind]), chance)) for _ in range(1_500)]
    taken = sum(is_told_well(kind, text, earlier) for text in texts)
    assert 5 < taken < len(texts) - 5
