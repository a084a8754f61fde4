"""Has this batch been written? What every sink asks before it writes, decided in one place.

A sink remembers, together with the rows and in the same transaction, the number of the newest batch and the identity of
its pinned rows. Spark numbers batches without gaps and repeats only the newest, so exactly two answers are sound: the
batch before this one (write), or this one with the same rows (skip). Anything else means that the checkpoint and the
sink do not belong together any more, and going on would lose or repeat rows in silence.

Rule: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from ottla.pipelines.sinks.batch import SinkError


class Recorded(NamedTuple):
    """What the sink remembers."""

    batch_id: int
    identity: str  # of the pinned rows


@runtime_checkable
class Remembering(Protocol):
    """A sink that knows the newest batch of each query that has written there."""

    @property
    def place(self) -> str:
        """`topic views`, as a sentence names it."""

    @property
    def is_exclusive(self) -> bool:
        """One query writes there, and no other."""

    @property
    def is_forgetful(self) -> bool:
        """What it does not know may have been written all the same."""

    def remembered(self) -> Mapping[str, Recorded]:
        """By the names of queries. Looking makes nothing."""


class Question(NamedTuple):
    """Which batch is asked about, and how strictly."""

    batch_id: int
    identity: str
    subject: str  # "query views, topic page-views"
    begin_at: int | None = None  # the batch that is to be written on purpose, whatever is recorded
    needs_marker: bool = True  # False: batch numbers have gaps, and any of them may be the first


def is_written(question: Question, recorded: Recorded | None) -> bool:
    """Raises SinkError when the question cannot be answered for sure."""
    if recorded is not None and recorded == (question.batch_id, question.identity):
        return True
    if question.batch_id == question.begin_at:
        return False
    if not question.needs_marker:
        return recorded is not None and recorded.batch_id >= question.batch_id
    _refuse_doubt(question, recorded)
    return False


def _refuse_doubt(question: Question, recorded: Recorded | None) -> None:
    batch_id = question.batch_id
    if recorded is None:
        if batch_id > 0:
            raise SinkError(_lost(question, "nothing is remembered of earlier batches"))
    elif recorded.batch_id == batch_id:
        raise SinkError(
            f"{question.subject}: batch {batch_id} was written before, from other pinned rows: the checkpoint or the"
            f" folder of pinned rows was removed or replaced meanwhile; {_on_purpose(question)}"
        )
    elif recorded.batch_id > batch_id:
        raise SinkError(
            f"{question.subject}: batch {batch_id} comes after batch {recorded.batch_id} was written: the checkpoint is"
            f" new or older than what was written; give the query another name, or {_on_purpose(question)}"
        )
    elif recorded.batch_id < batch_id - 1:
        raise SinkError(_lost(question, f"the newest batch that is remembered is {recorded.batch_id}"))


def _lost(question: Question, what: str) -> str:
    return (
        f"{question.subject}: batch {question.batch_id} is to be written but {what}: the marker was lost (topic or"
        f" table deleted, a backup put back), or this sink is new to an older query; {_on_purpose(question)}"
    )


def _on_purpose(question: Question) -> str:
    return f"to write this batch whatever was before, set begin_at={question.batch_id}"
