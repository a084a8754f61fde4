"""Files with test cases: they become records and rows, and problems have their lines."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.trials.cases import Case, cases_beside, pipeline_beside, place_names, read_case_file

PIPELINE = {
    "name": "views",
    "streams": {
        "main": {
            "from": {"topic": ["clicks", "taps"]},
            "to": [{"topic": "views"}, {"sqlite": "a.db", "table": "counts"}, "console"],
        },
        "other": {"from": {"pattern": "log-.*"}, "to": [{"topic": "views"}]},
    },
}


def pipeline(document: object = PIPELINE) -> Pipeline:
    return read_pipeline(document, {})


def read(folder: Path, text: str) -> list[Case]:
    (folder / "p.yaml").write_text("")
    (folder / "p.test.yaml").write_text(text)
    return read_case_file(folder / "p.test.yaml").cases(pipeline())


def only(folder: Path, text: str) -> Case:
    (case,) = read(folder, text)
    return case


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(PipelineError) as raised:
        read(folder, text)
    return [line.replace(f"{folder}/", "") for line in raised.value.texts()]


def test_records_are_written_short_or_in_full(tmp_path: Path) -> None:
    case = only(
        tmp_path,
        """
        cases:
          one:
            clock: 2026-02-01T00:00:00Z
            given:
              clicks:
                - hello
                - {user: ann, at: 2026-01-01T10:00:01Z, size: 1.5}
                - {key: k, value: [1], headers: {a: b}, timestamp: 2026-01-01, partition: 2}
                - {value: null}
              log-x: [5]
            expect: {views: []}
        """,
    )

    (batch,) = case.batches
    assert [(each.topic, each.partition, each.offset, each.key, each.value) for each in batch] == [
        ("clicks", 0, 0, None, b"hello"),
        ("clicks", 0, 1, None, b'{"user": "ann", "at": "2026-01-01T10:00:01Z", "size": 1.5}'),
        ("clicks", 2, 0, b"k", b"[1]"),
        ("clicks", 0, 2, None, None),
        ("log-x", 0, 0, None, b"5"),
    ]
    assert [each.timestamp for each in batch[1:3]] == [
        datetime(2026, 2, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
    ]
    assert batch[2].headers == (("a", b"b"),)


def test_batches_go_on_counting_offsets(tmp_path: Path) -> None:
    case = only(tmp_path, "cases: {a: {given: [{clicks: [x]}, {clicks: [y]}], late: 0, watermark: end}}")

    assert [[each.offset for each in batch] for batch in case.batches] == [[0], [1]]
    assert case.watermark is not None
    assert case.watermark.year == 9999


def test_expectations_are_records_of_topics_and_rows_of_tables(tmp_path: Path) -> None:
    case = only(
        tmp_path,
        """
        cases:
          one:
            given: {clicks: []}
            expect:
              views: {ordered: true, rows: [{key: a}, {page: /a}]}
              counts: [{key: a, views: 1}]
            dead_letters: [hello, {reason: bad}]
        """,
    )

    assert case.expected["views"] == ([{"key": "a"}, {"value": {"page": "/a"}}], True)
    assert case.expected["counts"] == ([{"key": "a", "views": 1}], False)
    assert case.dead_letters == [{"value": "hello"}, {"reason": "bad"}]


def test_values_and_rows_may_be_in_files(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"a": 1}\n\nhello\n')
    (tmp_path / "rows.jsonl").write_text('{"views": 1}\n')
    (tmp_path / "one.avro").write_bytes(b"\x00\xff")
    case = only(
        tmp_path,
        """
        cases:
          one:
            given: {clicks: [{file: in.jsonl}, {value_file: one.avro, key: k}]}
            expect: {counts: {file: rows.jsonl}}
        """,
    )

    assert [each.value for each in case.batches[0]] == [b'{"a": 1}', b"hello", b"\x00\xff"]
    assert case.expected["counts"].rows == [{"views": 1}]


def test_all_problems_are_reported_with_their_lines(tmp_path: Path) -> None:
    text = """\
cases:
  one:
    given:
      click: [x]
      clicks:
        - {value: x, hedaers: {}}
        - {value: x, timestamp: soon}
        - {file: none.jsonl}
    watermark: later
    expect: {view: []}
  two: {given: {clicks: []}}
  three: {given: [x], expect: {counts: [5]}, late: many}
"""
    assert problems(tmp_path, text) == [
        "p.test.yaml:9: cases, one, watermark: 'later' is not a time; write it as 2026-01-31T12:00:00Z, or `end`",
        "p.test.yaml:11: cases, two: expects nothing; give expect, dead_letters or late",
        "p.test.yaml:12: cases, three, late: 'many' is not a whole number; expected number of late rows",
    ]
    mended = text.replace("later", "end").replace("{clicks: []}}", "{clicks: []}, late: 0}").replace("many", "0")
    assert problems(tmp_path, mended) == [
        "p.test.yaml:4: cases, one, given, click: no stream reads the topic 'click'; did you mean 'clicks'?",
        "p.test.yaml:6: cases, one, given, clicks, 1, hedaers: unknown field 'hedaers'; did you mean 'headers'?",
        (
            "p.test.yaml:7: cases, one, given, clicks, 2, timestamp: 'soon' is not a time; "
            "write it as 2026-01-31T12:00:00Z"
        ),
        (
            "p.test.yaml:8: cases, one, given, clicks, 3: cannot read none.jsonl: No such file or directory; "
            "paths are relative to the test file"
        ),
        "p.test.yaml:10: cases, one, expect, view: nothing is written to 'view'; did you mean 'views'?",
        "p.test.yaml:12: cases, three, given, 1: a batch is a mapping of topics to records",
        "p.test.yaml:12: cases, three, expect, counts, 1: a row is a mapping of columns to values",
    ]


def test_a_file_finds_its_pipeline_and_a_pipeline_its_file(tmp_path: Path) -> None:
    (tmp_path / "orders.py").touch()
    (tmp_path / "orders.test.yaml").write_text("cases: {}")
    (tmp_path / "alone.test.yaml").write_text("cases: {a: {}}")

    assert pipeline_beside(tmp_path / "orders.test.yaml") == tmp_path / "orders.py"
    assert cases_beside(tmp_path / "orders.py") == tmp_path / "orders.test.yaml"
    with pytest.raises(PipelineError, match="there are none"):
        read_case_file(tmp_path / "orders.test.yaml")
    with pytest.raises(PipelineError, match="no pipeline beside it"):
        read_case_file(tmp_path / "alone.test.yaml")


def test_targets_that_share_a_name_are_distinguished() -> None:
    document = {
        "name": "n",
        "from": {"topic": "x"},
        "to": [
            {"topic": "views"},
            {"sqlite": "a.db", "table": "views"},
            {"sqlite": "b.db", "table": "views"},
            {"json": "out"},
        ],
    }

    assert list(place_names(pipeline(document)).values()) == [
        "topic:views",
        "sqlite:a.db/views",
        "sqlite:b.db/views",
        "out",
    ]
