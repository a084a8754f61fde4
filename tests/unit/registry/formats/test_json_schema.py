"""JSON Schema: texts, references, rejected schemas, and verbose messages."""

from __future__ import annotations

import json

import pytest

from ottla.registry.formats import InvalidSchemaError, parse
from ottla.registry.formats.compatibility import check

NEWEST = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("given", "stored", "normal"),
    [
        ("true", "true", "true"),
        ("{ }", "{}", "{}"),
        (
            '{"type": "object", "b": {"d": 1, "c": [3, 2]}, "a": null}',
            '{"type":"object","b":{"d":1,"c":[3,2]},"a":null}',
            '{"a":null,"b":{"c":[3,2],"d":1},"type":"object"}',
        ),
        (
            '{"x": [1.50, 1e5, 1E-10, 100, -0.0]}',
            '{"x":[1.50,1E+5,1E-10,100,-0.0]}',
            '{"x":[1.50,1E+5,1E-10,100,-0.0]}',
        ),
        ('{"title": "\\u00e9\\u4e2d/\\u0001"}', '{"title":"é中/\\u0001"}', '{"title":"é中/\\u0001"}'),
    ],
)
def test_the_text_keeps_order_and_digits_and_the_normal_form_sorts_keys(given: str, stored: str, normal: str) -> None:
    schema = parse("JSON", given, {})
    assert (schema.text, schema.normalized()) == (stored, normal)


REFUSED = [
    ("3", "an object or a boolean"),
    ("[]", "an object or a boolean"),
    ('"string"', "an object or a boolean"),
    ("null", "an object or a boolean"),
    ("{", "Not JSON"),
    ('{"type": "foo"}', "unknown type"),
    ('{"type": ["string", 3]}', "unknown type"),
    ('{"type": {}}', "unknown type"),
    ('{"properties": []}', "properties is an object"),
    ('{"properties": {"a": 3}}', "A schema is an object or a boolean"),
    ('{"required": "a"}', "required is an array of names"),
    ('{"required": [1]}', "required is an array of names"),
    ('{"items": 3}', "A schema is an object or a boolean"),
    ('{"allOf": {}}', "allOf is an array"),
    ('{"enum": "a"}', "enum is an array"),
    ('{"minLength": "3"}', "minLength is a whole number"),
    ('{"minLength": -1}', "minLength is a whole number"),
    ('{"minLength": 1e400}', "minLength is a whole number"),
    ('{"minimum": "3"}', "minimum is a number"),
    ('{"exclusiveMinimum": true}', "exclusiveMinimum is a number"),
    ('{"multipleOf": 0}', "multipleOf should not be 0"),
    ('{"uniqueItems": 1}', "uniqueItems is true or false"),
    ('{"pattern": 3}', "A pattern is a text"),
    ('{"pattern": "("}', "Not a pattern"),
    ('{"patternProperties": {"[": {}}}', "Not a pattern"),
    ('{"not": 3}', "A schema is an object or a boolean"),
    ('{"$ref": 3}', "\\$ref is a text"),
    ('{"$ref": "#/definitions/missing"}', "Unresolved reference: #/definitions/missing"),
    ('{"$ref": "#missing"}', "Unresolved reference: #missing"),
    ('{"$ref": "other.json"}', "Unresolved reference: other.json"),
    ('{"$ref": "http://example.com/other.json"}', "Unresolved reference"),
    ('{"$ref": "file:///etc/passwd"}', "Unresolved reference"),
    ('{"$ref": "http://[broken"}', "Unresolved reference"),
    ('{"$id": "http://[broken", "properties": {"a": {"$ref": "b"}}}', "Not an address"),
    ('{"properties": {"a": {"items": {"$ref": "#/nowhere"}}}}', "Unresolved reference"),
    ('{"dependencies": {"a": 3}}', "A schema is an object or a boolean"),
    ('{"additionalProperties": null}', "A schema is an object or a boolean"),
    ('{"maxItems": 1.0}', "maxItems is a whole number"),
    ('{"title": 3}', "title is a text"),
    ('{"properties": {"a": {"$id": 3}}}', r"\$id is a text"),
    ('{"$schema": 3}', r"\$schema is a text"),
    ('{"$schema": "http://json-schema.org/draft-04/schema#", "items": true}', "A schema is an object or a boolean"),
    ('{"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": 3}', "true or false"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchemaError, match=problem):
        parse("JSON", text, {})


def test_a_pattern_that_our_engine_does_not_know_is_kept() -> None:
    for pattern in ("(?=a)b", "(a)\\1", "\\p{IsAlphabetic}+", "((a{1000}){1000}){1000}"):
        assert pattern.replace("\\", "\\\\") in parse("JSON", json.dumps({"pattern": pattern}), {}).text


NAMES = '{"definitions": {"first": {"$id": "#first", "type": "string"}}, "type": "object"}'


@pytest.mark.parametrize(
    "reference",
    ["names.json#/definitions/first", "./names.json#/definitions/first", "names.json#first", "names.json"],
)
def test_references_are_found_by_the_names_that_they_were_given(reference: str) -> None:
    text = json.dumps({"properties": {"a": {"$ref": reference}}})
    schema = parse("JSON", text, {"names.json": NAMES})
    other = parse("JSON", text, {"names.json": NAMES.replace("string", "integer").replace("object", "array")})
    assert check("BACKWARD", other, [schema])
    assert not check("FULL_TRANSITIVE", schema, [schema])


def test_references_are_found_beside_the_id_of_the_schema() -> None:
    text = '{"$id": "http://example.com/schemas/person.json", "$ref": "names.json"}'
    parse("JSON", text.replace('"$ref"', '"items": {}, "x"'), {})
    beside = '{"$id": "http://example.com/schemas/person.json", "properties": {"a": {"$ref": "names.json"}}}'
    parse("JSON", beside, {"names.json": NAMES})
    parse("JSON", beside.replace("names.json", "/schemas/names.json"), {"names.json": NAMES})


def test_references_of_references_are_found() -> None:
    references = {"a.json": '{"type": "string"}', "b.json": '{"properties": {"a": {"$ref": "a.json"}}}'}
    parse("JSON", '{"items": {"$ref": "b.json"}}', references)
    with pytest.raises(InvalidSchemaError, match=r"Unresolved reference: a\.json"):
        parse("JSON", '{"items": {"$ref": "b.json"}}', {"b.json": references["b.json"]})


def test_a_stored_schema_may_refer_to_what_another_registry_has_fetched() -> None:
    text = '{"properties": {"a": {"$ref": "http://example.com/a.json"}}}'
    stored = parse("JSON", text, {}, is_new=False)
    assert not check("FULL", parse("JSON", text.replace("a.json", "b.json"), {}, is_new=False), [stored])
    assert check("BACKWARD", parse("JSON", '{"properties": {"a": {"type": "string"}}}', {}), [stored])


def test_circles_of_references_end() -> None:
    around = parse("JSON", '{"$ref": "a.json"}', {"a.json": '{"$ref": "b.json"}', "b.json": '{"$ref": "a.json"}'})
    assert not check("FULL", around, [around, parse("JSON", "{}", {})])
    parse("JSON", '{"$ref": "#"}', {})


def test_the_drafts_themselves_may_be_referred_to() -> None:
    parse("JSON", '{"items": {"$ref": "http://json-schema.org/draft-07/schema#"}}', {})
    parse("JSON", json.dumps({"$schema": NEWEST, "items": {"$ref": NEWEST}}), {})


def test_newer_drafts_have_siblings_of_a_reference() -> None:
    texts = [
        json.dumps(
            {"$schema": draft, "$ref": "#/definitions/a", "minimum": 3, "definitions": {"a": {"type": "number"}}}
        )
        for draft in ("http://json-schema.org/draft-07/schema#", NEWEST)
    ]
    plain = parse("JSON", '{"type": "number"}', {})
    assert [not check("FULL", parse("JSON", text, {}), [plain]) for text in texts] == [True, False]


def test_the_words_of_verbose_answers() -> None:
    old = parse("JSON", '{"type": "object", "properties": {"a": {"type": "number"}}}', {})
    new = parse(
        "JSON", '{"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "null"}}}', {}
    )
    assert check("BACKWARD", new, [old], [1]) == [
        (
            '{errorType:"MINIMUM_ADDED", description:"The keyword at path \'#/properties/a/minimum\' in the new schema '
            'is not present in the old schema"}'
        ),
        (
            '{errorType:"TYPE_NARROWED", description:"A type at path \'#/properties/a\' is different between the new '
            'schema and the old schema"}'
        ),
        (
            '{errorType:"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", description:"The new schema has an open content model '
            "and has a property or item at path '#/properties/b' which is missing in the old schema\"}"
        ),
        "{oldSchemaVersion: 1}",
        '{oldSchema: \'{"type":"object","properties":{"a":{"type":"number"}}}\'}',
    ]
    closed = parse("JSON", '{"type": "object", "properties": {"a": true}, "additionalProperties": false}', {})
    none = parse("JSON", '{"type": "object", "additionalProperties": false}', {})
    assert check("FORWARD", closed, [none])[0] == (
        '{errorType:"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", description:"The old schema has a closed content '
        "model and is missing a property or item present at path '#/properties/a' in the new schema\"}"
    )


def test_a_long_old_schema_is_cut() -> None:
    old = parse("JSON", json.dumps({"type": "string", "title": "x" * 20_000}), {})
    shown = check("BACKWARD", parse("JSON", '{"type": "number"}', {}), [old])[-1]
    assert shown.startswith("{oldSchema: <truncated to 10240 characters> '")
    assert len(shown) < 10_400
