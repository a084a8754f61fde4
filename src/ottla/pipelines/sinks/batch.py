"""What a sink is given: rows, and which batch of which query they are.

A sink is picklable, because Spark Connect sends it to the server: what it learns while it works is left behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SinkError(Exception):
    """Why rows cannot be written: one line with the cause, and what to do about it."""


class LostError(Exception):
    """The connection broke, or another transaction was first: to be tried again."""


@dataclass(frozen=True)
class Batch:
    """`folder` lies beside the query's checkpoint and lives as long: rows are pinned there until they are published.

    `identity` is that of the checkpoint, where whoever calls knows it.
    """

    query: str
    batch_id: int
    folder: str
    identity: str = ""


class Sink(Protocol):
    """Writes the rows of a batch; called again with the same batch after a crash."""

    def write(self, rows: DataFrame, batch: Batch) -> None: ...


@dataclass(frozen=True)
class ForeachBatch:
    """A sink as a function for `DataFrame.writeStream.foreachBatch`."""

    sink: Sink
    query: str
    folder: str

    def __post_init__(self) -> None:
        if not self.query:
            raise SinkError("a query needs a name: what it has written is remembered under it")
        if not self.folder:
            raise SinkError("a query needs a folder beside its checkpoint: rows are pinned there")

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self.sink.write(rows, Batch(self.query, batch_id, self.folder))


def run_plan(rows: DataFrame) -> None:
    """Run the plan and keep nothing: state stores and counts are those of the batch, also when it is a repetition."""
    rows.write.format("noop").mode("overwrite").save()
