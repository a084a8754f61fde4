"""Captured rows in the form of a test case."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from ottla.pipelines.sinks.sql_tables import Table
from ottla.pipelines.trials.captures import read_table, record_of


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_a_record_has_text_and_its_time_in_utc_in_any_zone() -> None:
    found = {
        "key": bytearray(b"k"),
        "value": bytearray(b'{"x": 0.1}'),
        "headers": [{"key": "h", "value": bytearray(b"v")}],
        "timestamp": datetime(2026, 1, 1, 5),  # noqa: DTZ001 (as Spark gives it)
    }

    assert record_of(found, is_json=True) == {
        "key": "k",
        "value": {"x": Decimal("0.1")},
        "headers": {"h": "v"},
        "timestamp": datetime(2026, 1, 1, 10, tzinfo=UTC),
    }
    assert record_of({"value": None}, is_json=True) == {"key": None, "value": None}


def test_a_table_has_the_types_that_sqlite_does_not_know(tmp_path: Path) -> None:
    file = str(tmp_path / "t.db")
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE t (b INTEGER, d TEXT, j TEXT, x BLOB, n INTEGER)")
    database.execute("INSERT INTO t VALUES (1, '2.50', '[1]', x'00ff', NULL)")
    database.commit()
    database.close()

    kinds = {"b": "boolean", "d": "decimal", "j": "json", "x": "binary", "n": "boolean"}
    assert read_table(file, Table("t"), kinds) == [{"b": True, "d": Decimal("2.50"), "j": [1], "x": "AP8=", "n": None}]
