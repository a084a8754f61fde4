"""Types of a topic's fields from samples: right for every sample, or text; and what did not fit is counted."""

from __future__ import annotations

import json

import pytest

from ottla.pipelines.model.inference import Guess, Inference, guess_format, infer, infer_csv, infer_json
from ottla.pipelines.steps.parsing.schemas import read_schema


def of(*samples: object) -> Inference:
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


def test_contradictions_inside_are_told_with_their_path() -> None:
    found = of({"x": [{"y": 1}]}, {"x": [{"y": "one"}]})
    assert found.schema == {"x": "array<struct<y:string>>"}
    assert found.remarks() == ["x[].y: 1 bigint, 1 string; read as string"]


def test_what_is_no_object_is_counted_by_reason() -> None:
    found = infer_json([b'{"a": 1}', b"[1]", b"{", b'{"a": NaN}', b"\xff", b" ", None])
    assert found.schema == {"a": "bigint"}
    assert (found.samples, found.empty) == (1, 1)
    assert found.unread == {"not a JSON object": 1, "not JSON": 2, "not UTF-8 text": 1, "empty value": 1}
    assert found.remarks()[1] == "2 of 6 samples: not JSON"


def test_names_that_no_column_can_have_are_left_out_and_told() -> None:
    found = of({"id": 1, "_id": 2, "ID": 3, "a`b": 4, " ": 5, "x": {"_y": 1}}, {"id": 1})
    assert found.schema == {"id": "bigint", "x": "struct<_y:bigint>"}
    assert set(found.left_out) == {"_id", "ID", "a`b", " "}
    assert "ID: left out, it differs from id only in upper and lower case" in found.remarks()


def test_an_object_with_ever_new_keys_is_a_map() -> None:
    found = of(*({"x": {f"user{number}": number}} for number in range(200)))
    assert found.schema == {"x": "map<string,bigint>"}


def test_what_is_nested_without_end_is_text() -> None:
    deep: object = 1
    for _ in range(40):
        deep = {"x": deep}
    found = of(deep)
    read_schema(dict(found.schema), ".")
    assert infer_json([b'{"x":' * 100_000]).unread == {"not JSON": 1}


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
        ([b'{"a": 1}', b"oops"], Guess("json")),
        ([b'\0\0\0\0\x07{"a": 1}'], Guess("json", "confluent")),
        ([b"1;2,5;x", b"2;3;y"], Guess("csv", delimiter=";")),
        ([b"a word", b"two, words", b"another"], Guess("text")),
        ([b"\x00\x01\xff"], Guess("binary")),
        ([b"\x02\x06abc"], Guess("binary")),
        ([None, b""], Guess("json")),
    ],
)
def test_how_values_are_written(values: list[bytes | None], guess: Guess) -> None:
    assert guess_format(values) == guess


def test_nothing_to_look_at() -> None:
    assert infer([], Guess("json")) == Inference(conflicts=[])
    assert infer([b"x", None], Guess("text")).schema == {"text": "string"}
    assert infer([b"\xff"], Guess("binary")).schema == {}
