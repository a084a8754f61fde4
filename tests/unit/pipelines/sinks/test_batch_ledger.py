"""Which batches are written, and which ledger states stop the query."""

import pytest

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.batch_ledger import BatchCheck, LastBatch, is_written


def ask(batch_id: int, recorded: LastBatch | None, **more: object) -> bool:
    return is_written(BatchCheck(batch_id, "rows", "query q", **more), recorded)  # type: ignore[arg-type]


def test_the_first_batch_is_written() -> None:
    assert not ask(0, None)


def test_a_batch_that_follows_the_recorded_one_is_written() -> None:
    assert not ask(5, LastBatch(4, "other rows"))


def test_a_batch_that_comes_again_is_not_written() -> None:
    assert ask(5, LastBatch(5, "rows"))


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        (None, "no earlier batch is stored.*marker was lost"),
        (LastBatch(3, "x"), "newest stored batch is 3.*marker was lost"),
        (LastBatch(5, "x"), "from other staged rows"),
        (LastBatch(9, "x"), "checkpoint is new or older.*another name"),
    ],
)
def test_whatever_else_is_recorded_stops_the_query_with_a_way_to_go_on(recorded: LastBatch | None, words: str) -> None:
    with pytest.raises(SinkError, match=f"(?s)query q.*{words}.*begin_at=5"):
        ask(5, recorded)


@pytest.mark.parametrize("recorded", [None, LastBatch(3, "x"), LastBatch(5, "x"), LastBatch(9, "x")])
def test_on_purpose_the_batch_is_written_whatever_is_recorded(recorded: LastBatch | None) -> None:
    assert not ask(5, recorded, begin_at=5)


def test_on_purpose_is_once() -> None:
    assert ask(5, LastBatch(5, "rows"), begin_at=5)
    with pytest.raises(SinkError):
        ask(7, LastBatch(5, "rows"), begin_at=5)


def test_with_gaps_in_the_numbers_any_later_batch_is_written() -> None:
    assert not ask(7, None, needs_marker=False)
    assert not ask(7, LastBatch(2, "x"), needs_marker=False)
    assert ask(7, LastBatch(7, "x"), needs_marker=False)
    assert ask(7, LastBatch(9, "x"), needs_marker=False)
