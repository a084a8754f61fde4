"""What a task writes down of the rows that it drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.pipelines.running import laid_aside

KIND = pa.struct([("_fate", pa.int32()), ("_reason", pa.string()), ("_letter", pa.struct([("_offset", pa.int64())]))])


class Task:
    def __init__(self, batch: str | None) -> None:
        self.batch = batch

    def getLocalProperty(self, _key: str) -> str | None:  # noqa: N802 (Spark's name)
        return self.batch

    def partitionId(self) -> int:  # noqa: N802
        return 3

    def taskAttemptId(self) -> int:  # noqa: N802
        return 17


def rows(*fates: int) -> Any:
    letters = [{"_fate": fate, "_reason": "r", "_letter": {"_offset": at}} for at, fate in enumerate(fates)]
    return pa.array(letters, KIND)


def run(folder: Path, *pieces: Any) -> list[list[bool]]:
    return [each.to_pylist() for each in laid_aside._writing(str(folder), 2)(iter(pieces))]


@pytest.mark.parametrize(("batch", "name"), [("7", "7"), (None, "0")])
def test_the_dead_are_written_and_the_living_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str | None, name: str
) -> None:
    monkeypatch.setattr(laid_aside.TaskContext, "get", lambda: Task(batch))
    assert run(tmp_path, rows(0, -1), rows(2, 0), rows(-4)) == [[True, False], [False, True], [False]]
    file = tmp_path / name / "2-3.parquet"
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert [(row["_fate"], row["_letter"]["_offset"]) for row in pq.read_table(file).to_pylist()] == [(-1, 1), (-4, 0)]
    run(tmp_path, rows(0))  # the task is done again, and nobody dies
    assert not file.exists()


def test_what_has_no_letter_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laid_aside.TaskContext, "get", lambda: Task("1"))
    dead = pa.array([{"_fate": -1, "_reason": "r", "_letter": None}], KIND)
    assert run(tmp_path, dead) == [[False]]
    assert list(tmp_path.iterdir()) == []
