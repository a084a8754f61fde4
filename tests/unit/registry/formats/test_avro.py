"""Avro: texts in Java's format, checks of names and defaults, and verbose messages."""

from __future__ import annotations

import json

import pytest

from ottla.registry.formats import InvalidSchemaError, parse
from ottla.registry.formats.compatibility import check

ADDRESS = (
    '{"type": "record", "name": "Address", "namespace": "org.example", "fields": [{"name": "city", "type": "string"}]}'
)


def avro(text: str, **references: str) -> str:
    return parse("AVRO", text, references).text


def record(*fields: str) -> str:
    return '{"type": "record", "name": "R", "fields": [' + ", ".join(fields) + "]}"


def field(kind: str, rest: str = "") -> str:
    return '{"name": "a", "type": ' + kind + (", " + rest if rest else "") + "}"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ('"string"', '"string"'),
        ('{"type": "string"}', '"string"'),
        ('{"type": "int", "logicalType": "date"}', '{"type":"int","logicalType":"date"}'),
        ('["null", {"type": "int"}]', '["null","int"]'),
        (' /* who */ "int" // why', '"int"'),
        ('{"fields": [], "name": "R", "type": "record"}', '{"type":"record","name":"R","fields":[]}'),
        (
            '{"type": "record", "name": "a.b.R", "fields": []}',
            '{"type":"record","name":"R","namespace":"a.b","fields":[]}',
        ),
        (
            '{"type": "record", "name": "a.R", "namespace": "b", "fields": []}',
            '{"type":"record","name":"R","namespace":"a","fields":[]}',
        ),
        (
            '{"type": "record", "name": "R", "doc": "d", "zz": 1, "aliases": ["Q"], "aa": 2, "fields": []}',
            '{"type":"record","name":"R","doc":"d","fields":[],"zz":1,"aa":2,"aliases":["Q"]}',
        ),
        (
            '{"type": "record", "name": "R", "namespace": "n", "aliases": ["n.Q", "m.Q"], "fields": []}',
            '{"type":"record","name":"R","namespace":"n","fields":[],"aliases":["Q","m.Q"]}',
        ),
        ('{"type": "error", "name": "R", "fields": []}', '{"type":"error","name":"R","fields":[]}'),
        (
            record(field('"int"', '"order": "ASCENDING", "doc": "d", "default": 1')),
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","doc":"d","default":1}]}',
        ),
        (
            record(field('"int"', '"x": 1, "aliases": ["b"], "order": "ignore"')),
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"ignore","aliases":["b"],"x":1}]}',
        ),
        (
            record(field('{"type": "enum", "default": "A", "symbols": ["A"], "name": "E"}')),
            '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":["A"],"default":"A"}}]}',
        ),
        ('{"type": "fixed", "size": 2, "name": "F", "doc": "d"}', '{"type":"fixed","name":"F","doc":"d","size":2}'),
        ('{"type": "array", "items": {"type": "int"}, "x": 1}', '{"type":"array","items":"int","x":1}'),
        ('{"type": "map", "values": ["null", "int"]}', '{"type":"map","values":["null","int"]}'),
        (
            record(field('["null", "R"]', '"default": null')),
            '{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"],"default":null}]}',
        ),
        (
            '{"type": "record", "name": "n.record", "fields": [{"name": "a", "type": ["null", "n.record"]}]}',
            '{"type":"record","name":"record","namespace":"n","fields":[{"name":"a","type":["null","n.record"]}]}',
        ),
        (
            (
                '{"type": "record", "name": "n.R", "fields": [{"name": "a", "type": {"type": "fixed", '
                '"name": "m.F", "size": 1}}, {"name": "b", "type": "m.F"}]}'
            ),
            (
                '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":'
                '{"type":"fixed","name":"F","namespace":"m","size":1}},{"name":"b","type":"m.F"}]}'
            ),
        ),
        (
            '{"type": "int", "y": "\\u001f\\\\u001f", "x": [2.50, 1e10, 1e-7, -0.0, null, "\\u00e9\\u0001"]}',
            '{"type":"int","y":"\\u001F\\\\u001f","x":[2.5,1.0E10,1.0E-7,-0.0,null,"é\\u0001"]}',
        ),
        (
            record(field('"double"', '"default": "NaN"')),
            '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":"NaN"}]}',
        ),
        (
            record(field('"float"', '"default": "1.5"')),
            '{"type":"record","name":"R","fields":[{"name":"a","type":"float","default":1.5}]}',
        ),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": 3}', '{"type":"enum","name":"E","symbols":["A"]}'),
    ],
)
def test_the_text_is_what_java_prints(given: str, stored: str) -> None:
    assert avro(given) == stored
    assert avro(stored) == stored


def test_a_type_may_be_used_before_its_definition_and_is_printed_at_its_first_use() -> None:
    text = record(
        '{"name": "a", "type": "E"}', '{"name": "b", "type": {"type": "enum", "name": "E", "symbols": ["X"]}}'
    )
    assert avro(text) == (
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":["X"]}},'
        '{"name":"b","type":"E"}]}'
    )


def test_a_reference_is_printed_by_its_name() -> None:
    text = record('{"name": "home", "type": "org.example.Address"}')
    stored = '{"type":"record","name":"R","fields":[{"name":"home","type":"org.example.Address"}]}'
    assert avro(text, address=ADDRESS) == stored
    with pytest.raises(InvalidSchemaError, match=r"Undefined schema: org\.example\.Address"):
        avro(text)


def test_types_nested_in_a_reference_are_printed_again() -> None:
    outer = (
        '{"type": "record", "name": "O", "fields": [{"name": "f", "type": {"type": "fixed", "name": "F", "size": 1}}]}'
    )
    text = record('{"name": "o", "type": "O"}', '{"name": "f", "type": "F"}')
    assert avro(text, outer=outer) == (
        '{"type":"record","name":"R","fields":[{"name":"o","type":"O"},'
        '{"name":"f","type":{"type":"fixed","name":"F","size":1}}]}'
    )


def test_a_broken_reference_is_named() -> None:
    with pytest.raises(InvalidSchemaError, match="Reference address: Not JSON"):
        avro('"int"', address="{")


def test_references_change_the_verdict() -> None:
    text = record('{"name": "home", "type": "org.example.Address"}')
    old = parse("AVRO", text, {"a": ADDRESS})
    new = parse("AVRO", text, {"a": ADDRESS.replace('"string"', '"int"')})
    assert new.text == old.text
    assert check("BACKWARD", new, [old])


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (
            '{"type": "record", "name": "R", "zz": {"d": 1, "c": 2}, "aa": 2, "aliases": ["b", "a"], "fields": []}',
            '{"type":"record","name":"R","fields":[],"aa":2,"zz":{"c":2,"d":1},"aliases":["a","b"]}',
        ),
        (
            '{"type": "bytes", "scale": 2, "precision": 4, "zz": 1, "aa": 1, "logicalType": "decimal"}',
            '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2,"aa":1,"zz":1}',
        ),
        ('{"type": "bytes", "aa": 1, "logicalType": "date"}', '{"type":"bytes","aa":1,"logicalType":"date"}'),
        ('{"type": "int", "aa": 1, "logicalType": "date"}', '{"type":"int","logicalType":"date","aa":1}'),
        (
            record(field('"double"', '"default": 1, "aliases": ["c", "b"], "y": 1, "x": 2')),
            '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1.0,"aliases":["b","c"],"x":2,"y":1}]}',
        ),
        (
            record(field('{"type": "map", "values": "double"}', '"default": {"b": 1, "a": 2}')),
            (
                '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"map","values":"double"},'
                '"default":{"a":2.0,"b":1.0}}]}'
            ),
        ),
        # Confluent's loses this default, because only the second branch accepts it.
        (
            record(field('["null", "int"]', '"default": 1')),
            '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":1}]}',
        ),
    ],
)
def test_the_normal_form_sorts_what_has_no_order(given: str, normal: str) -> None:
    assert parse("AVRO", given, {}).normalized() == normal
    assert parse("AVRO", normal, {}).normalized() == normal


REFUSED = [
    ("string", "Not JSON"),
    ("3", "No type: 3"),
    ("{}", "No type"),
    ('{"type": {"type": "string"}}', "No type"),
    ('{"type": "foo"}', "Undefined schema: foo"),
    ('{"type": "record", "fields": []}', "No name in schema"),
    ('{"type": "record", "name": "R"}', "Record has no fields"),
    ('{"type": "record", "name": "1R", "fields": []}', "Illegal initial character: 1R"),
    ('{"type": "record", "name": "R-a", "fields": []}', "Illegal character in: R-a"),
    ('{"type": "record", "name": "a-b.R", "fields": []}', "Illegal character in: a-b"),
    ('{"type": "record", "name": "", "fields": []}', "Empty name"),
    ('{"type": "record", "name": "string", "fields": []}', "may not be named after primitives"),
    ('{"type": "record", "name": "R", "fields": [], "aliases": ["a-b"]}', "Illegal character in: a-b"),
    ('{"type": "record", "name": "R", "fields": [], "aliases": "x"}', "aliases not an array"),
    (record(field('"int"'), field('"int"')), "Duplicate field a in record R"),
    (record(field('{"type": "record", "name": "R", "fields": []}')), "Can't redefine: R"),
    (record('{"type": "int"}'), "No field name"),
    (record('{"name": "a"}'), "No field type"),
    (record("3"), "not an object"),
    (record(field('"Missing"')), "Undefined schema: Missing"),
    (record(field('"int"', '"order": "up"')), "Invalid order"),
    ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "Duplicate enum symbol"),
    ('{"type": "enum", "name": "E", "symbols": ["A-B"]}', "Illegal character"),
    ('{"type": "enum", "name": "E", "symbols": [1]}', "Illegal symbol"),
    ('{"type": "enum", "name": "E"}', "Enum has no symbols"),
    ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "not in the enum symbol set"),
    ('{"type": "fixed", "name": "F"}', "Invalid or no size"),
    ('{"type": "fixed", "name": "F", "size": -1}', "Malformed fixed size"),
    ('{"type": "fixed", "name": "F", "size": 1.0}', "Invalid or no size"),
    ('{"type": "array"}', "Array has no items type"),
    ('{"type": "map"}', "Map has no values type"),
    ('["null", "null"]', "Duplicate in union: null"),
    ('["null", ["int"]]', "Nested union"),
    ('[{"type": "array", "items": "int"}, {"type": "array", "items": "string"}]', "Duplicate in union: array"),
    ('"int" x', "Not JSON"),
    ('{"type": "int", "x": NaN}', "NaN is not a value of JSON"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED, ids=lambda each: each[:60])
def test_what_java_refuses(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchemaError, match=problem.replace("(", r"\(")):
        parse("AVRO", text, {})


DEFAULTS = [
    ('"int"', "1", True),
    ('"int"', "1.0", False),
    ('"int"', "2147483648", False),
    ('"int"', '"1"', False),
    ('"long"', "2147483648", True),
    ('"long"', "9223372036854775808", False),
    ('"double"', "1", True),
    ('"double"', '"0x1p3"', True),
    ('"double"', '"1_0"', False),
    ('"double"', '"nan"', False),
    ('"boolean"', '"true"', False),
    ('"string"', "null", False),
    ('"null"', "null", True),
    ('["null", "int"]', "1", True),
    ('["int", "null"]', "null", True),
    ('["int", "null"]', '"x"', False),
    ('"bytes"', '"\\u00ff"', True),
    ('{"type": "enum", "name": "E", "symbols": ["A"]}', '"B"', True),
    ('{"type": "fixed", "name": "F", "size": 2}', '"A"', True),
    ('{"type": "array", "items": "int"}', '[1, "a"]', False),
    ('{"type": "map", "values": "int"}', '{"a": 1}', True),
    ('{"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}]}', "{}", False),
    ('{"type": "record", "name": "S", "fields": [{"name": "x", "type": "int", "default": 1}]}', "{}", True),
    ('{"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}]}', '{"x": "a"}', False),
]


@pytest.mark.parametrize(("kind", "default", "fits"), DEFAULTS)
def test_defaults_are_checked_in_new_schemas_alone(kind: str, default: str, fits: bool) -> None:
    text = record(field(kind, f'"default": {default}'))
    if fits:
        parse("AVRO", text, {})
    else:
        with pytest.raises(InvalidSchemaError, match=r"Invalid default for field a|For input string"):
            parse("AVRO", text, {})
        if "_" not in default and "nan" not in default:
            parse("AVRO", text, {}, is_new=False)


def test_names_of_stored_schemas_are_taken_as_they_are() -> None:
    assert parse("AVRO", '{"type": "record", "name": "R-a", "fields": []}', {}, is_new=False).text


def messages(level: str, old: str, new: str) -> list[str]:
    return check(level, parse("AVRO", new, {}), [parse("AVRO", old, {})], [7])


def test_the_words_of_verbose_answers() -> None:
    old = record(field('"string"'))
    new = record(field('"int"'), '{"name": "b", "type": "int"}')
    assert messages("BACKWARD", old, new) == [
        (
            "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in the new schema "
            "does not match with the old schema', "
            "additionalInfo:'reader type: INT not compatible with writer type: STRING'}"
        ),
        (
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the "
            "new schema has no default value and is missing in the old schema', additionalInfo:'b'}"
        ),
        "{oldSchemaVersion: 7}",
        '{oldSchema: \'{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}\'}',
    ]
    assert messages("FORWARD", '["null", "int"]', '["null", "string"]')[0] == (
        "{errorType:'MISSING_UNION_BRANCH', description:'The old schema is missing a type inside a union field at "
        "path '/1' in the new schema', additionalInfo:'reader union lacking writer type: STRING'}"
    )
    symbols = '{"type": "enum", "name": "E", "symbols": %s}'
    assert messages("BACKWARD", symbols % '["C", "A", "B"]', symbols % '["A"]')[0] == (
        "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum symbols '[B, C]' at path "
        "'/symbols' in the old schema', additionalInfo:'[B, C]'}"
    )
    fixed = '{"type": "fixed", "name": "%s", "size": %d}'
    assert messages("BACKWARD", fixed % ("F", 1), fixed % ("G", 2))[:2] == [
        (
            "{errorType:'NAME_MISMATCH', description:'The name of the schema has changed (path '/name')', "
            "additionalInfo:'expected: F'}"
        ),
        (
            "{errorType:'FIXED_SIZE_MISMATCH', description:'The size of FIXED type field at path '/size' in the "
            "new schema does not match with the old schema', additionalInfo:'expected: 1, found: 2'}"
        ),
    ]


def test_both_directions_show_the_old_schema_only_with_backward_problems() -> None:
    is_shown = {
        level: any("oldSchema:" in each for each in messages(level, '"long"', '"int"'))
        for level in ("BACKWARD", "FULL")
    }
    assert is_shown == {"BACKWARD": True, "FULL": True}
    assert not any("oldSchema:" in each for each in messages("FULL", '"int"', '"long"'))


def test_a_field_that_may_be_two_of_the_writer_is_not_guessed() -> None:
    old = record('{"name": "x", "type": "int"}', '{"name": "y", "type": "int"}')
    new = record('{"name": "a", "type": "int", "aliases": ["x", "y"]}')
    assert messages("BACKWARD", old, new)[0].startswith(
        "Unexpected exception during compatibility check: Reader record field a type:INT pos:0 matches multiple fields"
    )


def test_the_newest_version_that_does_not_fit_ends_the_search() -> None:
    versions = [parse("AVRO", json.dumps(kind), {}) for kind in ("boolean", "string", "long", "int")]
    found = check("BACKWARD_TRANSITIVE", parse("AVRO", '"long"', {}), versions, [1, 2, 3, 4])
    assert found[1:] == ["{oldSchemaVersion: 2}", "{oldSchema: '\"string\"'}"]
    assert check("BACKWARD", parse("AVRO", '"long"', {}), versions) == []
    assert check("FULL_TRANSITIVE", parse("AVRO", '"long"', {}), []) == []


def test_formats_do_not_mix() -> None:
    text = "Incompatible because of different schema type"
    assert check("BACKWARD", parse("AVRO", '"string"', {}), [parse("JSON", "{}", {})])[0] == text
    with pytest.raises(InvalidSchemaError, match="Invalid schema type XML"):
        parse("XML", "<a/>", {})
