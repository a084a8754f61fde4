"""The step that samples lead to is one that a pipeline takes, and reads the samples."""

from __future__ import annotations

import pytest

from ottla.cli.pipelines.infer import inferred
from ottla.cli.terminal import ToolError
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.inferred_step import parse_step
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.steps.parse import Parse
from ottla.pipelines.steps.table import STEPS


def step(values: list[bytes | None], chosen: str | None = None) -> tuple[str, Parse]:
    text = parse_step("t", *inferred("t", values, chosen))
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


def test_a_field_that_is_not_always_there_says_so() -> None:
    text, _ = step([b'{"id": 1, "x": 2}', b'{"id": 1}'])

    assert "      x: bigint  # null or missing in 1 of 2\n" in text


def test_csv_and_text_are_steps_too() -> None:
    assert step([b"1;a;2.5", b"2;b;3.5"])[1].delimiter == ";"
    assert step([b"some words here", b"and others"])[1].format == "text"
    assert step([b'{"a": 1}'], chosen="text")[1].format == "text"


@pytest.mark.parametrize("values", [[], [None], [b"\x00\xff\xfe\x01"]])
def test_what_tells_nothing_is_refused(values: list[bytes | None]) -> None:
    with pytest.raises(ToolError):
        inferred("t", values, None)
