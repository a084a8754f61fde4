"""Functions for batches: unusable ones are refused."""

from collections.abc import AsyncIterator, Iterator

import pytest

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.function import FunctionSink


async def waits(rows: object, batch_id: int) -> None: ...


async def waits_and_yields(rows: object, batch_id: int) -> AsyncIterator[int]:
    yield 1


def yields(rows: object, batch_id: int) -> Iterator[int]:
    yield 1


def takes_one(rows: object) -> None: ...


def takes_three(rows: object, batch_id: int, more: object) -> None: ...


def takes_any(*given: object, **more: object) -> None: ...


def takes_more(rows: object, batch_id: int, more: int = 3) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (waits, "function waits is asynchronous, and would do nothing"),
        (waits_and_yields, "is asynchronous"),
        (yields, "function yields is a generator"),
        (takes_one, "function takes_one does not take two arguments: too many"),
        (takes_three, "missing a required argument: 'more'"),
    ],
)
def test_a_function_that_would_do_nothing_is_refused(function: object, words: str) -> None:
    with pytest.raises(SinkError, match=words):
        FunctionSink(function)  # type: ignore[arg-type]


def test_whatever_takes_rows_and_a_number_is_right() -> None:
    assert FunctionSink(takes_any).place == "function takes_any"
    FunctionSink(takes_more)
    FunctionSink(print)
