"""The external sort and its sink."""

from __future__ import annotations

import random
from pathlib import Path

from ottla.cli.progress_bar import RecordProgressBar
from ottla.cli.records import sorted_output
from ottla.cli.records.formatters import Message
from ottla.cli.records.sorted_output import ExternalSort, SortingSink


class Collector:
    def __init__(self) -> None:
        self.lots: list[list[Message]] = []
        self.is_finished = False

    @property
    def count(self) -> int:
        return sum(map(len, self.lots))

    def print(self, batch: list[Message]) -> None:
        self.lots.append(batch)

    def finish(self) -> None:
        self.is_finished = True


def message(timestamp: int) -> Message:
    return Message("t", 0, timestamp, "CreateTime", timestamp, None, b"v", [])


def test_everything_is_passed_on_in_order_and_in_lots(monkeypatch: object) -> None:
    monkeypatch.setattr(sorted_output, "SORTED_BATCH_RECORDS", 3)  # type: ignore[attr-defined]
    sink = Collector()
    with SortingSink(sink, memory_bytes=1000) as sorting:
        sorting.print([message(number) for number in (5, 3, 8)])
        sorting.print([message(number) for number in (1, 9, 2, 4)])
        assert (sorting.count, sink.lots) == (7, [])
        sorting.finish()
    assert [item.timestamp for batch in sink.lots for item in batch] == [1, 2, 3, 4, 5, 8, 9]
    assert [len(batch) for batch in sink.lots] == [3, 3, 1]
    assert sink.is_finished


def test_a_record_bar_shows_their_number() -> None:
    meter = RecordProgressBar("writing", 2000)
    meter.set_count(500)
    meter.set_count(1000)
    assert meter.line(0.0).startswith("writing [")
    assert meter.line(0.0).endswith("50 %  1,000 records")


def sort_message(timestamp: int, partition: int = 0, offset: int = 0, value: bytes = b"v") -> Message:
    return Message("t", partition, offset, "CreateTime", timestamp, None, value, [("h", None), ("i", b"\xff")])


def test_records_are_sorted_by_time_then_partition_then_offset(tmp_path: Path) -> None:
    messages = [sort_message(number // 10, number % 3, number) for number in range(1000)]
    shuffled = random.Random(1).sample(messages, len(messages))
    with ExternalSort(memory_bytes=20_000, folder=str(tmp_path)) as sort:
        for item in shuffled:
            sort.add(item)
        assert "runs" in repr(sort)
        assert list(sort.sorted()) == sorted(messages, key=lambda item: (item.timestamp, item.partition, item.offset))
        assert sort.count == 1000
    assert list(tmp_path.iterdir()) == []


def test_many_runs_are_merged_so_that_few_files_are_open(tmp_path: Path, monkeypatch: object) -> None:
    monkeypatch.setattr(sorted_output, "RUNS_MAX", 4)  # type: ignore[attr-defined]
    with ExternalSort(memory_bytes=1, folder=str(tmp_path)) as sort:  # every record becomes a run
        for number in range(50):
            sort.add(sort_message(-number))
            assert len(sort._runs) < 5
        assert [item.timestamp for item in sort.sorted()] == list(range(-49, 1))


def test_nothing_sorted_is_nothing() -> None:
    with ExternalSort() as sort:
        assert list(sort.sorted()) == []
