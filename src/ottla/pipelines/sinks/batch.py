"""The interface of sinks: rows, and the batch and query that they belong to.

Spark Connect pickles sinks and sends them to the server, so state that a sink collects while it runs is not pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SinkError(Exception):
    """Rows cannot be written: one line with the cause and the fix."""


class TransactionLostError(Exception):
    """The connection broke, or another transaction was first: retry."""


@dataclass(frozen=True)
class Batch:
    """`folder` lies beside the query's checkpoint and has the same lifetime: rows are staged there until they are
    published.

    `identity` is that of the checkpoint, if the caller knows it.
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
            raise SinkError("a query needs a name: the sink stores its batches under it")
        if not self.folder:
            raise SinkError("a query needs a folder beside its checkpoint: rows are staged there")

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self.sink.write(rows, Batch(self.query, batch_id, self.folder))


def run_plan(rows: DataFrame) -> None:
    """Run the plan and discard its rows: state stores and counts advance even if the batch was written before."""
    rows.write.format("noop").mode("overwrite").save()
