"""The external sort: any number of records in bounded memory."""

from __future__ import annotations

import random
from pathlib import Path

from ottla.cli.records import sorting
from ottla.cli.records.formatters import Message
from ottla.cli.records.sorting import ExternalSort


def message(timestamp: int, partition: int = 0, offset: int = 0, value: bytes = b"v") -> Message:
    return Message("t", partition, offset, "CreateTime", timestamp, None, value, [("h", None), ("i", b"\xff")])


def test_records_come_out_by_time_then_partition_then_offset(tmp_path: Path) -> None:
    messages = [message(number // 10, number % 3, number) for number in range(1000)]
    shuffled = random.Random(1).sample(messages, len(messages))
    with ExternalSort(memory_bytes=20_000, folder=str(tmp_path)) as sort:
        for item in shuffled:
            sort.add(item)
        assert "runs" in repr(sort)
        assert list(sort.sorted()) == sorted(messages, key=lambda item: (item.timestamp, item.partition, item.offset))
        assert sort.count == 1000
    assert list(tmp_path.iterdir()) == []


def test_many_runs_are_merged_so_that_few_files_are_open(tmp_path: Path, monkeypatch: object) -> None:
    monkeypatch.setattr(sorting, "RUNS_MAX", 4)  # type: ignore[attr-defined]
    with ExternalSort(memory_bytes=1, folder=str(tmp_path)) as sort:  # every record is a run
        for number in range(50):
            sort.add(message(-number))
            assert len(sort._runs) < 5
        assert [item.timestamp for item in sort.sorted()] == list(range(-49, 1))


def test_nothing_sorted_is_nothing() -> None:
    with ExternalSort() as sort:
        assert list(sort.sorted()) == []
