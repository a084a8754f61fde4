"""Field types inferred from a topic's samples: exact for every sample, or text, with counts of conflicts."""

from __future__ import annotations

import json

import pytest

from ottla.cli.pipelines.infer import inferred
from ottla.cli.terminal import ToolError
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.inference import (
    FormatGuess,
    InferredSchema,
    format_parse_step,
    guess_format,
    infer_csv,
    infer_json,
    infer_schema,
)
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.steps.parse import Parse
from ottla.pipelines.steps.parsing.schemas import read_schema
from ottla.pipelines.steps.step_table import STEPS


def of(*samples: object) -> InferredSchema:
    return infer_json([json.dumps(sample).encode() for sample in samples])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, -2, None], "bigint"),
        ([1, 2.5], "double"),
        ([2**53 + 1], "bigint"),
        ([2**63, 1], "decimal(38,0)"),
        ([10**40], "string"),
        ([True, False], "boolean"),
        (["a", ""], "string"),
        ([None], "string"),
        (["2026-01-31T12:00:00Z", "2026-01-31 12:00:00.123+02:00"], "timestamp"),
        (["2026-01-31"], "date"),
        (["2026-01-31", "2026-01-31T12:00"], "timestamp"),
        (["2026-02-31"], "string"),
        (["12:30"], "string"),
        ([1735689600], "bigint"),
        ([[1], [], [2.5]], "array<double>"),
        ([[]], "array<string>"),
        ([{"a": 1}, {"b": "x"}], "struct<a:bigint,b:string>"),
        ([{"a-b": [{"c": True}]}], "struct<`a-b`:array<struct<c:boolean>>>"),
        ([{}], "string"),
    ],
)
def test_one_type_reads_all_samples(values: list[object], kind: str) -> None:
    found = of(*({"x": value} for value in values))
    assert found.schema == {"x": kind}
    assert found.remarks() == []
    read_schema(dict(found.schema), ".")
    read_schema(found.ddl, ".")


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ("0.30000000000000004 1.10 1e3", "double"),
        ("12345678901234567890.123 0.5 7", "decimal(38,3)"),
        ("0.1000000000000000055511151231257827", "decimal(38,34)"),
        ("123456789.12345678901234567890123456789012", "string"),
        ("1e-400", "string"),
        ("1e400 1e9999999999999999999999", "string"),
    ],
)
def test_numbers_that_a_double_would_round_are_kept(numbers: str, kind: str) -> None:
    found = infer_json([f'{{"x": {number}}}'.encode() for number in numbers.split()])
    assert found.schema == {"x": kind}
    lines = infer_csv([f"{number},a".encode() for number in numbers.split() if "e" not in number])
    assert not lines.schema or lines.schema["c1"] == kind


@pytest.mark.parametrize(
    ("values", "remark"),
    [
        ([1, "one", 2], "x: 2 bigint, 1 string; read as string"),
        ([2**53 + 1, 0.5], "x: 1 bigint above 2^53, 1 double; read as string"),
        (["2026-01-31", "n/a"], "x: 1 date, 1 string; read as string"),
        ([True, 1], "x: 1 boolean, 1 bigint; read as string"),
        ([{"a": 1}, [1]], "x: 1 object, 1 array; read as string"),
    ],
)
def test_samples_that_contradict_each_other_are_text_and_counted(values: list[object], remark: str) -> None:
    found = of(*({"x": value} for value in values))
    assert (dict(found.schema), found.remarks()) == ({"x": "string"}, [remark])


def test_nested_conflicts_are_reported_with_their_path() -> None:
    found = of({"x": [{"y": 1}]}, {"x": [{"y": "one"}]})
    assert found.schema == {"x": "array<struct<y:string>>"}
    assert found.remarks() == ["x[].y: 1 bigint, 1 string; read as string"]


def test_samples_that_are_no_objects_are_counted_by_reason() -> None:
    found = infer_json([b'{"a": 1}', b"[1]", b"{", b'{"a": NaN}', b"\xff", b" ", None])
    assert found.schema == {"a": "bigint"}
    assert (found.samples, found.null_values) == (1, 1)
    assert found.unreadable == {"not a JSON object": 1, "not JSON": 2, "not UTF-8 text": 1, "empty value": 1}
    assert found.remarks()[1] == "2 of 6 samples: not JSON"


def test_names_that_no_column_can_have_are_omitted_with_a_remark() -> None:
    found = of({"id": 1, "_id": 2, "ID": 3, "a`b": 4, " ": 5, "x": {"_y": 1}}, {"id": 1})
    assert found.schema == {"id": "bigint", "x": "struct<_y:bigint>"}
    assert set(found.omitted) == {"_id", "ID", "a`b", " "}
    assert "ID: omitted, it differs from id only in upper and lower case" in found.remarks()


def test_an_object_with_ever_new_keys_is_a_map() -> None:
    found = of(*({"x": {f"user{number}": number}} for number in range(200)))
    assert found.schema == {"x": "map<string,bigint>"}


def test_deeply_nested_values_are_text() -> None:
    deep: object = 1
    for _ in range(40):
        deep = {"x": deep}
    found = of(deep)
    read_schema(dict(found.schema), ".")
    assert infer_json([b'{"x":' * 100_000]).unreadable == {"not JSON": 1}


def test_how_often_a_field_has_a_value() -> None:
    found = of({"a": 1, "b": None}, {"a": 2}, {"a": 3, "b": 1})
    assert found.present == {"a": 3, "b": 1}


def test_lines_of_csv() -> None:
    found = infer_csv([b'1,2.5,007,true,2026-01-31,"a,b"', b"2,3,x,,,y", b"1,2", None])
    assert list(found.schema.values()) == ["bigint", "double", "string", "boolean", "date", "string"]
    assert next(iter(found.schema)) == "c1"
    assert found.remarks() == ["1 of 3 samples: 2 fields instead of 6"]


@pytest.mark.parametrize(
    ("values", "guess"),
    [
        ([b'{"a": 1}', b"oops"], FormatGuess("json")),
        ([b'\0\0\0\0\x07{"a": 1}'], FormatGuess("json", "confluent")),
        ([b"1;2,5;x", b"2;3;y"], FormatGuess("csv", delimiter=";")),
        ([b"a word", b"two, words", b"another"], FormatGuess("text")),
        ([b"\x00\x01\xff"], FormatGuess("binary")),
        ([b"\x02\x06abc"], FormatGuess("binary")),
        ([None, b""], FormatGuess("json")),
    ],
)
def test_how_values_are_written(values: list[bytes | None], guess: FormatGuess) -> None:
    assert guess_format(values) == guess


def test_nothing_to_look_at() -> None:
    assert infer_schema([], FormatGuess("json")) == InferredSchema(conflicts=[])
    assert infer_schema([b"x", None], FormatGuess("text")).schema == {"text": "string"}
    assert infer_schema([b"\xff"], FormatGuess("binary")).schema == {}


def step(values: list[bytes | None], chosen: str | None = None) -> tuple[str, Parse]:
    text = format_parse_step("t", *inferred("t", values, chosen))
    whole = f"name: p\nfrom: {{topic: t}}\nsteps:\n{text}to: console\n"
    made = read_pipeline(parse_document(whole, "p.yaml").values, STEPS).streams["main"].steps[0].spec
    assert isinstance(made, Parse)
    return text, made


def test_json_becomes_a_schema_with_remarks() -> None:
    text, made = step(
        [
            b'{"id": 1, "at": "2026-01-01T10:00:00Z", "on": true, "a b": {"c": [1]}, "x": 1}',
            b'{"id": 2, "at": "2026-01-01T10:00:00Z", "on": false, "a b": {"c": []}, "x": "y"}',
            b"hello",
            None,
        ]
    )

    assert made.format == "json"
    assert isinstance(made.schema, dict)
    assert list(made.schema) == ["id", "at", "on", "a b", "x"]
    assert (made.schema["id"], made.schema["at"], made.schema["on"]) == ("bigint", "timestamp", "boolean")
    assert text.startswith("# t: 4 samples, 2 of them read as json\n# 1 have no value;")
    assert "# 1 of 3 samples: " in text
    assert "# x: 1 " in text


def test_an_optional_field_has_a_remark() -> None:
    text, _ = step([b'{"id": 1, "x": 2}', b'{"id": 1}'])

    assert "      x: bigint  # null or missing in 1 of 2\n" in text


def test_csv_and_text_are_steps_too() -> None:
    assert step([b"1;a;2.5", b"2;b;3.5"])[1].delimiter == ";"
    assert step([b"some words here", b"and others"])[1].format == "text"
    assert step([b'{"a": 1}'], chosen="text")[1].format == "text"


@pytest.mark.parametrize("values", [[], [None], [b"\x00\xff\xfe\x01"]])
def test_a_topic_without_usable_samples_is_refused(values: list[bytes | None]) -> None:
    with pytest.raises(ToolError):
        inferred("t", values, None)
