"""Files that a task writes for the rows that it drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.pipelines.running import laid_aside
from ottla.pipelines.running.checkpoint import CheckpointError

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
    run(tmp_path, rows(0))  # the task is repeated without dead rows
    assert not file.exists()


def test_rows_without_a_source_record_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laid_aside.TaskContext, "get", lambda: Task("1"))
    dead = pa.array([{"_fate": -1, "_reason": "r", "_letter": None}], KIND)
    assert run(tmp_path, dead) == [[False]]
    assert list(tmp_path.iterdir()) == []


LATE = pa.struct([("_end_ms", pa.int64()), ("_letter", pa.struct([("_offset", pa.int64())]))])


def test_rows_that_the_watermark_of_the_batch_before_made_late_are_written_and_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [1000, 1001, None, 5]
    piece = pa.array([{"_end_ms": end, "_letter": {"_offset": at}} for at, end in enumerate(ends)], LATE)
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for batch, watermark_ms in ((0, 0), (1, 1000), (2, 9000)):
        (offsets / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":{watermark_ms}}}\n-')
    for batch in ("0", "1", "2"):  # the first two have no earlier watermark
        monkeypatch.setattr(laid_aside.TaskContext, "get", lambda number=batch: Task(number))
        passes = laid_aside._writing_late(str(tmp_path / "late"), 0, 4, str(tmp_path / "checkpoint"))
        assert [each.to_pylist() for each in passes(iter([piece]))] == [[True] * 4]
    monkeypatch.setattr(laid_aside.TaskContext, "get", lambda: Task("4"))
    with pytest.raises(CheckpointError, match="no longer has batch 3"):
        list(passes(iter([piece])))
    (folder,) = (tmp_path / "late").iterdir()
    rows = pq.read_table(folder / "0-3.parquet").to_pylist()
    assert folder.name == "2"
    assert [(row["_fate"], row["_letter"]["_offset"]) for row in rows] == [(-4, 0), (-4, 3)]
    assert {row["_reason"] for row in rows} == {"late: the watermark was 1970-01-01T00:00:01.000+00:00"}
