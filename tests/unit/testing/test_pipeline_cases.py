"""The files that pytest collects as pipeline cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing.pipeline_cases import is_ours

PIPELINE = "name: p\nfrom: {topic: t}\nto: console\n"
CASES = "cases:\n  a: {}\n"


@pytest.mark.parametrize(
    ("cases", "beside", "ours"),
    [
        (CASES, {"x.yaml": PIPELINE}, True),
        (CASES, {"x.py": "from ottla.pipelines import topic\n"}, True),
        (f"pipeline: y.yaml\n{CASES}", {}, True),
        (CASES, {}, False),
        (CASES, {"x.yaml": "kind: Deployment\n"}, False),
        (CASES, {"x.py": "print()\n"}, False),
        ("suite:\n  cases: []\n", {"x.yaml": PIPELINE}, False),
        ("pipeline: y.yaml\n", {"x.yaml": PIPELINE}, False),
    ],
)
def test_only_cases_beside_a_pipeline_are_ours(tmp_path: Path, cases: str, beside: dict[str, str], ours: bool) -> None:
    for name, text in beside.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "x.test.yaml").write_text(cases)

    assert is_ours(tmp_path / "x.test.yaml") is ours
