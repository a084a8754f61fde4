"""Decides whether a batch has been written; every sink asks before it writes.

In the transaction of the rows, a sink stores the number of the newest batch and the identity of its staged rows. Spark
numbers batches without gaps and repeats only the newest one. So exactly two states are valid: the previous batch
(write), or this batch with the same rows (skip). Any other state means that checkpoint and sink no longer match, and
continuing would silently lose or repeat rows.

Rule: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from ottla.pipelines.sinks.batch import SinkError


class LastBatch(NamedTuple):
    """The newest batch that the sink has stored."""

    batch_id: int
    identity: str  # of the staged rows


@runtime_checkable
class LedgerSink(Protocol):
    """A sink that stores the newest batch of each query that writes to it."""

    @property
    def place(self) -> str:
        """The target for messages: `topic views`."""

    @property
    def has_single_query(self) -> bool:
        """Whether only one query may write to the target."""

    @property
    def may_forget_batches(self) -> bool:
        """Whether a batch that is not stored may have been written nevertheless."""

    def last_batches(self) -> Mapping[str, LastBatch]:
        """The newest batches by query name. Has no side effects."""


class BatchCheck(NamedTuple):
    """The batch to check, and how strictly."""

    batch_id: int
    identity: str
    subject: str  # "query views, topic page-views"
    begin_at: int | None = None  # a batch to write regardless of the stored one
    needs_marker: bool = True  # batch numbers have gaps, and any number may be the first


def is_written(question: BatchCheck, recorded: LastBatch | None) -> bool:
    """Raises SinkError if the stored batch does not allow a decision."""
    if recorded is not None and recorded == (question.batch_id, question.identity):
        return True
    if question.batch_id == question.begin_at:
        return False
    if not question.needs_marker:
        return recorded is not None and recorded.batch_id >= question.batch_id
    _reject_unexpected_batch(question, recorded)
    return False


def _reject_unexpected_batch(question: BatchCheck, recorded: LastBatch | None) -> None:
    batch_id = question.batch_id
    if recorded is None:
        if batch_id > 0:
            raise SinkError(_lost_marker_text(question, "no earlier batch is stored"))
    elif recorded.batch_id == batch_id:
        raise SinkError(
            f"{question.subject}: batch {batch_id} was written before from other staged rows: the checkpoint or the"
            f" folder of staged rows was removed or replaced since; {_override_hint(question)}"
        )
    elif recorded.batch_id > batch_id:
        raise SinkError(
            f"{question.subject}: batch {batch_id} comes after batch {recorded.batch_id} was written: the checkpoint is"
            f" new or older than what was written; give the query another name, or {_override_hint(question)}"
        )
    elif recorded.batch_id < batch_id - 1:
        raise SinkError(_lost_marker_text(question, f"the newest stored batch is {recorded.batch_id}"))


def _lost_marker_text(question: BatchCheck, what: str) -> str:
    return (
        f"{question.subject}: batch {question.batch_id} should be written but {what}: the marker was lost (topic or"
        f" table deleted, a backup restored), or this sink was added to an older query; {_override_hint(question)}"
    )


def _override_hint(question: BatchCheck) -> str:
    return f"to write this batch regardless, set begin_at={question.batch_id}"
