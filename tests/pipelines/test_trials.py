"""`ottla pipeline test` and the same under pytest: real Spark, no broker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ottla.cli.main import main

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "pipeline-testing.md"
PIPELINE, CASES, *_ = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "orders-with-customers"
WRONG = """
  a wrong count:
    given: {site-events: [{user: ann, page: /a, at: 2026-01-01T10:00:01Z}, hello]}
    watermark: end
    expect: {latest: [{page: /a, views: 2, window_end: 2026-01-01T10:01:00Z}]}
    ignore: [window_start]
"""
LETTER = {"key": None, "value": "hello", "step": "events 1 parse", "reason": 'not JSON: "hello"'}


@pytest.fixture
def folder(spark: object, tmp_path: Path) -> Path:
    assert spark is not None  # it is used, and left to the other tests
    (tmp_path / "views.yaml").write_text(PIPELINE)
    (tmp_path / "views.test.yaml").write_text(CASES + WRONG)
    return tmp_path


def test_cases_are_tried_and_a_difference_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.iterdir())

    assert main(["pipeline", "test", str(folder / "views.yaml"), "--json"]) == 1

    *cases, total = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(case["case"], case["passed"], case["differences"]) for case in cases] == [
        ("views are counted by the minute", True, []),
        ("what comes too late is not counted", True, []),
        (
            "a wrong count",
            False,
            [
                "latest: 0 of 1 row came as expected, 1 row came in all",
                '  expected      {"page": "/a", "views": 2, "window_end": "2026-01-01T10:01:00Z"}',
                '  got           {"window_end": "2026-01-01T10:01:00Z", "page": "/a", "views": 1}',
                "    views: expected 2, got 1",
                "dead letters: nothing is expected, 1 row came",
                f"  not expected  {json.dumps(LETTER)}",
            ],
        ),
    ]
    assert (total["passed"], total["failed"]) == (2, 1)
    assert sorted(folder.iterdir()) == before  # nothing was written


def test_pytest_collects_cases_beside_pipelines_only(
    folder: Path, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "other.test.yaml").write_text("- not: ours\n")

    chosen = "wrong or country"
    outcome = pytester.runpytest_inprocess("-p", "no:cacheprovider", str(folder), str(EXAMPLE), "-k", chosen)

    outcome.assert_outcomes(passed=1, failed=1, deselected=4)
    outcome.stdout.fnmatch_lines(["*a wrong count*", "*views: expected 2, got 1"])
    assert "Traceback" not in outcome.stdout.str() + capsys.readouterr().err


def test_a_wrong_file_is_told_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "views.yaml").write_text(PIPELINE)

    assert main(["pipeline", "test", str(tmp_path / "views.yaml")]) == 2
    assert "views.test.yaml" in capsys.readouterr().err

    (tmp_path / "views.test.yaml").write_text(CASES.replace("page-views:", "page-view:"))
    assert main(["pipeline", "test", str(tmp_path / "views.yaml")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("nothing is written to 'page-view'; did you mean 'page-views'?")
    assert lines[0].startswith(f"{tmp_path}/views.test.yaml:13: ")

    (tmp_path / "views.test.yaml").write_text(CASES)
    assert main(["pipeline", "test", str(tmp_path / "views.yaml"), "what comes to late is not counted"]) == 2
    assert "did you mean 'what comes too late is not counted'?" in capsys.readouterr().err
