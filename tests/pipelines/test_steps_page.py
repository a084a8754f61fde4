"""The examples of docs/pipeline-steps.md give the documented results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.pipelines.frames import problems_of, records, through

from ottla.pipelines.model.document import parse_document
from ottla.pipelines.steps.frame import FATE, REASON
from ottla.pipelines.steps.step_table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "pipeline-steps.md"
STATELESS = {
    "parse", "filter", "rule", "select", "rename", "drop", "cast", "derive", "mask", "flatten", "explode", "sample",
    "union", "python", "sql", "enrich",
}  # fmt: skip
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    steps: Any
    lines: list[str]  # in:, out:, dead:, filtered:

    def said(self, word: str) -> list[str]:
        return [line.removeprefix(f"{word}: ") for line in self.lines if line.startswith(f"{word}: ")]


def blocks() -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


def examples() -> Iterator[Example]:
    found = blocks()
    for (kind, text), (then, lines) in zip(found, [*found[1:], ("", "")], strict=True):
        if kind == "yaml":
            has_lines = then == "" and lines.startswith("in: ")
            yield Example(parse_document(text, "").values, lines.splitlines() if has_lines else [])


def as_mapping(step: object) -> dict[str, object]:
    return {step: None} if isinstance(step, str) else step  # type: ignore[dict-item,return-value]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the Python files of the page; those that make something have been run."""
    made = tmp_path_factory.mktemp("page")
    for kind, text in blocks():
        if kind == "python":
            (made / text.splitlines()[0].removeprefix("# ")).write_text(text)
    for script in ("train.py", "make_shop.py"):
        subprocess.run([sys.executable, script], cwd=made, check=True)
    return made


def test_every_step_in_the_examples_is_one() -> None:
    for example in examples():
        for step in map(as_mapping, example.steps):
            ((name, fields),) = step.items()
            assert problems_of(name, fields) == []


def test_every_stateless_step_has_its_place_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = set(re.findall(r"[a-z]+", " ".join(re.findall(r"^##+ (.*)$", text, re.MULTILINE))))
    assert STATELESS - set(STEPS) == set()
    assert STATELESS - headings == set()


@pytest.mark.parametrize("example", [each for each in examples() if each.lines], ids=lambda each: each.lines[0][:40])
def test_the_examples_do_what_the_page_says(spark: SparkSession, folder: Path, example: Example) -> None:
    frame = through(records(spark, example.said("in"), folder), *map(as_mapping, example.steps))
    rows = [row.asDict(recursive=True) for row in frame.rows.collect()]
    out = [{name: _plain(row[name]) for name in frame.columns} for row in rows if row[FATE] == 0]
    dead = [row[REASON] for row in rows if row[FATE] < 0]
    assert out == [json.loads(line) for line in example.said("out")]
    assert dead == example.said("dead")
    assert sum(row[FATE] > 0 for row in rows) == sum(map(int, example.said("filtered")))


def _plain(value: object) -> object:
    """Timestamps as the page writes them."""
    return value.isoformat() if isinstance(value, datetime) else value
