"""Rows of `ottla sql` as text and as JSON: no loss, and distinct values stay distinct."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import Row

from ottla.cli.sql.output import JsonOutput, LineOutput, TerminalOutput
from ottla.cli.sql.values import cell, json_line, line
from ottla.pipelines.sql.execution import Batch

NOON = datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC).astimezone().replace(tzinfo=None)  # as Spark returns it


@pytest.mark.parametrize(
    ("value", "text", "plain"),
    [
        (None, "NULL", None),
        (True, "true", True),
        (7, "7", 7),
        (0.5, "0.5", 0.5),
        (float("nan"), "nan", "nan"),
        ("a\tb", "a\tb", "a\tb"),
        (Decimal("1.10"), "1.10", "1.10"),
        (NOON, "2026-01-31 12:00:00.500000", "2026-01-31T12:00:00.500000Z"),
        (date(2026, 1, 31), "2026-01-31", "2026-01-31"),
        (bytearray(b"ab"), "ab", "YWI="),
        ([1, None], "[1, null]", [1, None]),
        ({"a": Decimal(1)}, '{"a": "1"}', {"a": "1"}),
        (Row(a=1, b=Row(c="ä")), '{"a": 1, "b": {"c": "ä"}}', {"a": 1, "b": {"c": "ä"}}),
    ],
)
def test_values(value: object, text: str, plain: object) -> None:
    assert cell(value) == text
    assert json.loads(json_line(["x"], [value])) == {"x": plain}


def test_a_row_is_one_line() -> None:
    assert line(["a\tb\nc\\d", None]) == "a\\tb\\nc\\\\d\tNULL"


def test_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    batch = Batch(["id", "name"], [(1, "a"), (2, None)])
    LineOutput().batch(batch)
    assert capsys.readouterr().out == "1\ta\n2\tNULL\n"
    JsonOutput().batch(batch)
    assert capsys.readouterr().out == '{"id": 1, "name": "a"}\n{"id": 2, "name": null}\n'
    JsonOutput().listing(("TOPIC", "PARTITIONS"), [("a", "3")])
    assert capsys.readouterr().out == '{"topic": "a", "partitions": "3"}\n'


def test_a_terminal_gets_one_heading_for_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    output = TerminalOutput()
    output.batch(Batch(["id", "name"], [(1, "\x1b[2J")]))
    output.batch(Batch(["id", "name"], [(2, "x" * 100)]))
    output.end(2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["id      name", "------  -------", "1       \\x1b[2J"]
    assert lines[3] == f"2       {'x' * 59}…"
    assert lines[4] == "(2 rows)"


def test_a_table_that_changes_is_painted_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    output = TerminalOutput()
    output.batch(Batch(["n"], [(1,)], is_whole=True))
    output.batch(Batch(["n"], [(2,)], is_whole=True))
    out = capsys.readouterr().out
    assert out.count("\x1b[4F\x1b[J") == 1
    assert out.endswith("2\n(1 row)\n")


def test_a_table_that_follows_a_remark_begins_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    output = TerminalOutput()
    output.batch(Batch(["n"], [(1,)], is_whole=True))
    output.remark("broker away")
    output.batch(Batch(["n"], [(2,)], is_whole=True))
    output.remark("broker back")
    output.end(2)
    found = capsys.readouterr()
    assert found.err == "broker away\nbroker back\n"
    assert "\x1b[" not in found.out
    assert "(2 rows)" not in found.out
