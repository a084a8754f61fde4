"""Types as users write them, in a pipeline or in files of several formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.steps.parsing.schemas import SchemaError, parse_type, read_schema, type_name

BAD_TYPES = [
    "",
    "intt",
    "array",
    "array<",
    "array<int",
    "array<int>>",
    "map<int>",
    "struct<a>",
    "decimal(40,2)",
    "decimal(3,4)",
    "int;",
    "array<" * 50 + "int" + ">" * 50,
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", "string"),
        ("INT", "int"),
        ("long", "bigint"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("decimal", "decimal(10,0)"),
        ("array<struct<a:int, b: string>>", "array<struct<a:int,b:string>>"),
        ("map<string,array<double>>", "map<string,array<double>>"),
        ("struct<`a b`:int,c:timestamp>", "struct<a b:int,c:timestamp>"),
    ],
)
def test_types_are_those_of_spark(text: str, expected: str) -> None:
    assert parse_type(text).simpleString() == expected


@pytest.mark.parametrize("text", BAD_TYPES, ids=lambda text: text[:20])
def test_an_invalid_type_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        parse_type(text)


def test_a_mapping_a_text_and_files_of_every_kind_say_the_same(tmp_path: Path) -> None:
    wanted = "struct<id:bigint,at:timestamp,tags:array<string>>"
    mapping = {"id": "long", "at": "timestamp", "tags": "array<string>"}
    struct = T.StructType([T.StructField(name, parse_type(kind)) for name, kind in mapping.items()])
    (tmp_path / "mapping.yaml").write_text("id: long\nat: timestamp\ntags: array<string>\n")
    (tmp_path / "spark.json").write_text(struct.json())
    (tmp_path / "schema.ddl").write_text("id long,\n at timestamp, tags array<string>")
    properties = {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
    }
    (tmp_path / "json-schema.json").write_text(
        json.dumps({"type": "object", "properties": properties, "required": ["id"]})
    )
    for given in (
        mapping,
        "id: long, at timestamp, tags array<string>",
        "mapping.yaml",
        "spark.json",
        "schema.ddl",
        "json-schema.json",
    ):
        schema, required = read_schema(given, str(tmp_path))
        assert schema.simpleString() == wanted
        assert required == (["id"] if given == "json-schema.json" else [])


def test_a_nested_mapping_is_a_struct() -> None:
    schema, _ = read_schema({"where": {"city": "string", "zip": "int"}}, ".")
    assert schema.simpleString() == "struct<where:struct<city:string,zip:int>>"


@pytest.mark.parametrize(
    "given", [{}, {"a": 5}, {"a": "int", "A": "int"}, {"_a": "int"}, "a int,", "a", "nope.json", 5, {"a": None}]
)
def test_an_invalid_schema_is_refused(given: object, tmp_path: Path) -> None:
    with pytest.raises(SchemaError):
        read_schema(given, str(tmp_path))


def test_a_damaged_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("[" * 100_000)
    (tmp_path / "c.yaml").write_text("a: [")
    for name in ("a.json", "b.json", "c.yaml"):
        with pytest.raises(SchemaError, match=r"cannot be understood") as told:
            read_schema(name, str(tmp_path))
        assert "\n" not in str(told.value)


def test_names_of_types_are_the_users() -> None:
    assert [type_name(parse_type(text)) for text in ("long", "int", "array<long>")] == ["long", "int", "array<bigint>"]
