"""Records on their way to a sink through the sort."""

from __future__ import annotations

from ottla.cli.records import ordered
from ottla.cli.records.formatters import Message
from ottla.cli.records.ordered import SortingSink
from ottla.cli.records.record_meter import RecordMeter


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
    monkeypatch.setattr(ordered, "SORTED_LOT", 3)  # type: ignore[attr-defined]
    sink = Collector()
    with SortingSink(sink, memory_bytes=1000) as sorting:
        sorting.print([message(number) for number in (5, 3, 8)])
        sorting.print([message(number) for number in (1, 9, 2, 4)])
        assert (sorting.count, sink.lots) == (7, [])
        sorting.finish()
    assert [item.timestamp for lot in sink.lots for item in lot] == [1, 2, 3, 4, 5, 8, 9]
    assert [len(lot) for lot in sink.lots] == [3, 3, 1]
    assert sink.is_finished


def test_a_meter_of_records_tells_their_number() -> None:
    meter = RecordMeter("writing", 2000)
    meter.reach(500)
    meter.reach(1000)
    assert meter.line(0.0).startswith("writing [")
    assert meter.line(0.0).endswith("50 %  1,000 records")
