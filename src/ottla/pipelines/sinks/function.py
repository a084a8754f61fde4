"""A user function for each batch, like `DataFrame.writeStream.foreachBatch`: at least once.

The effects of the function cannot be undone: after a crash it is called again with the same batch number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.pipelines.sinks.batch import Batch, SinkError, run_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class FunctionSink:
    """`function` is called with the rows and the batch number."""

    function: Callable[..., object]

    def __post_init__(self) -> None:
        problem = function_problem(self.function)
        if problem:
            raise SinkError(f"{self.place} {problem}: write def {self.name}(rows, batch_id)")

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def place(self) -> str:
        return f"function {self.name}"

    def write(self, rows: DataFrame, batch: Batch) -> None:
        kept = rows.persist()  # state and counts need the plan to run exactly once, regardless of the function
        try:
            run_plan(kept)
            self._call(kept, batch.batch_id)
        finally:
            kept.unpersist()

    def _call(self, rows: DataFrame, batch_id: int) -> None:
        try:
            self.function(rows, batch_id)
        except Exception as problem:  # user code may raise anything
            words = " ".join(f"{type(problem).__name__}: {problem}".split())
            raise SinkError(f"{self.place}, batch {batch_id}: {words}") from problem


def function_problem(function: Callable[..., object]) -> str | None:
    """Why it cannot be called with rows and a number, or would have no effect."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is asynchronous, and would do nothing"
    if inspect.isgeneratorfunction(function):
        return "is a generator (it has a yield), and would do nothing"
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError as problem:
        return f"does not take two arguments: {problem}"
    except ValueError:  # functions written in C have no signature
        return None
    return None
