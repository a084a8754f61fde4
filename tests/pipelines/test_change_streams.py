"""Streams of changes, with a real Spark: deletions by tombstones and change records."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.running import pipeline_of, produce, run_batch, run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOMBSTONES = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}", max_per_batch: 3}
steps:
  - parse: {format: json, schema: {city: string}, keep: [key, value], tombstone: keep}
  - cast: {key: string}
to:
  - {sqlite: users.db, table: users, mode: upsert, key: key, columns: [key, city], delete_when: value IS NULL}
  - {sqlite: users.db, table: changes, columns: [key, city]}
"""


def rows_of(file: Path, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(file) as database:
        return sorted(database.execute(statement).fetchall(), key=repr)


def started(text: str, bootstrap: str) -> tuple[str, str]:
    """The text of the pipeline, and its name."""
    name = f"changes-{uuid.uuid4().hex[:8]}"
    return text.replace("{name}", name).replace("{bootstrap}", bootstrap), name


@pytest.mark.parametrize("run", [run_once, run_batch])
def test_a_record_without_value_removes_the_row_of_its_key(
    spark: SparkSession, bootstrap: str, tmp_path: Path, run: Any
) -> None:
    text, name = started(TOMBSTONES, bootstrap)
    changes: list[tuple[str, Any]] = [
        ("ann", {"city": "Oslo"}), ("bob", {"city": "Rome"}), ("ann", None), ("cid", {"city": "Bern"}), ("bob", None),
        ("bob", {"city": "Bonn"}), ("dan", None), ("eve", {}),
    ]  # fmt: skip
    produce(bootstrap, name, changes, partition=0)
    run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    assert rows_of(tmp_path / "users.db", "SELECT * FROM users") == [("bob", "Bonn"), ("cid", "Bern"), ("eve", None)]
    assert len(rows_of(tmp_path / "users.db", "SELECT * FROM changes")) == len(changes)
