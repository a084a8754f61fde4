"""Checks that checkpoint, query state and sinks belong together.

    <stream>/checkpoint/     Spark's, with the id of the query in `metadata`
    <stream>/query-<id>/     all other state of the query: notes, staged rows, dead letters, losses

A new checkpoint is a new query with a new id. After a checkpoint was deleted, replaced by an older one, or copied from
another pipeline, a run would lose or repeat rows: it must end before it writes anything.

Rules:
1. Decisions are pure: no clock, no I/O.
2. Batch numbers have no gaps, and Spark repeats the newest planned batch if it is not committed. So every sink must
   have the batch before the next one, or that one itself if it is planned already.
3. A query starts only where no earlier query of its stream has written, unless requested (--fresh).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.pipelines.running.checkpoint import CheckpointError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.external_offsets import CONFLICTING_OFFSET, Offsets, offsets_json

NONE = -1  # no batch
QUERY_FOLDER = "query-"
ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # the form of Spark's query ids
RUN_ID = r"[0-9a-f]{32}"  # ids of runs without a checkpoint


class StreamName(NamedTuple):
    """The name under which sinks store a stream's queries."""

    pipeline: str
    stream: str

    def __str__(self) -> str:
        return f"{self.pipeline}.{self.stream}"


class Standing(NamedTuple):
    """The progress of a checkpoint: the newest planned batch, and the newest committed one."""

    planned: int = NONE
    committed: int = NONE

    @property
    def following(self) -> int:
        """The next batch."""
        return self.planned if self.planned > self.committed else self.planned + 1


class Found(NamedTuple):
    """The contents of a stream's folder."""

    folder: str
    query_id: str | None  # of the checkpoint
    standing: Standing
    owner: str | None  # the stream that this query belongs to; None without notes
    others: tuple[str, ...] = ()  # folders of other queries
    missing: tuple[str, ...] = ()  # required notes that are missing
    has_traces: bool = False  # the query has staged rows, or sent dead letters

    @property
    def is_new(self) -> bool:
        return self.standing.planned == NONE


class Memory(NamedTuple):
    """The batches that a sink has stored for all queries. `own` is the name of this query."""

    place: str
    own: str
    batches: Mapping[str, LastBatch]
    # stored under the stream's name instead of the query's id: offsets are stored beside the rows
    is_lasting: bool = False
    is_exclusive: bool = False
    is_forgetful: bool = False
    ends: Offsets = MappingProxyType({})  # the end offsets of its rows, if is_lasting


def check_found(found: Found, name: StreamName, can_last: bool) -> None:
    """`name` is the stream's; `can_last`: its sinks can continue without a checkpoint. Raises CheckpointError."""
    if found.owner is not None and found.owner != str(name):
        raise CheckpointError(
            f"{found.folder} has the checkpoint of {found.owner}, not of {name}: put back its own, or {_begin(name)}"
        )
    if not found.is_new and found.owner is None:
        raise CheckpointError(
            f"{found.folder}/checkpoint belongs to query {found.query_id}, and nothing that this query kept is beside"
            f" it: the checkpoint is of another run, or {QUERY_FOLDER}{found.query_id} was removed; put back what was"
            f" there, or {_begin(name)}"
        )
    if not found.is_new and found.missing:
        raise CheckpointError(
            f"{found.folder}/{QUERY_FOLDER}{found.query_id}/{found.missing[0]} is missing:"
            f" restore it, or {_begin(name)}"
        )
    if found.is_new and found.has_traces:
        raise CheckpointError(
            f"{found.folder}/checkpoint knows of no batch, but its query has done some: parts of it are gone;"
            f" put them back, or {_begin(name)}"
        )
    if found.is_new and found.owner is None and found.others and not can_last:
        raise CheckpointError(
            f"{found.folder}/checkpoint is gone, and what its query kept is still there ({found.others[0]}): beginning"
            f" anew would repeat what was written; put the checkpoint back, or {_begin(name)}"
        )


def check_memory(memory: Memory, name: StreamName, standing: Standing, may_repeat: bool) -> None:
    """`may_repeat`: repeating rows of earlier queries is intended. Raises CheckpointError."""
    recorded = memory.batches.get(memory.own)
    strangers = [query for query in memory.batches if query != memory.own]
    if memory.is_exclusive and "" in strangers:
        raise CheckpointError(
            f"{memory.place}: the note of its newest batch is gone or damaged, so the written batches are unknown:"
            f" put it back, or {_begin(name)}"
        )
    if memory.is_exclusive and strangers:
        raise CheckpointError(
            f"{memory.place} belongs to query {strangers[0]!r}: choose another place, or remove what is there:"
            f" {_reset(name)} --sinks does that if it was written by {name}"
        )
    if standing.planned == NONE:
        _check_beginning(memory, name, recorded, may_repeat)
    elif not (memory.is_lasting and standing.following == 0):  # then the sink compares offsets
        _check_going_on(memory, name, recorded, standing)


def check_ends(memory: Memory, name: StreamName, standing: Standing, planned: Sequence[Offsets | None]) -> None:
    """For a lasting sink, which counts the batches of the next query as this one's: its rows must end at the offsets
    of the checkpoint's newest batch (`planned`, by source). Raises CheckpointError."""
    if standing.following == 0:  # then the sink compares offsets
        return
    wanted = [
        (topic, number, at) for ends in planned for topic, each in (ends or {}).items() for number, at in each.items()
    ]
    if any(memory.ends.get(topic, {}).get(number) not in (at, CONFLICTING_OFFSET) for topic, number, at in wanted):
        raise CheckpointError(
            f"{memory.place} has rows up to {offsets_json(memory.ends)}, which are of another query of {name} than the"
            f" checkpoint: put back what was there, or {_begin(name)}"
        )


def check_swept(swept: Sequence[int], newest: int, name: StreamName) -> None:
    """For a query that continues from the database without its checkpoint: the last batches whose dead letters
    earlier queries have sent, and the newest batch in the database. Unsent dead letters can only be found with the
    checkpoint. Raises CheckpointError."""
    if swept and newest not in swept:
        raise CheckpointError(
            f"the checkpoint of {name} is gone, and dead letters of its batches from {max(swept) + 1} to {newest} may"
            f" not be sent: put the checkpoint back, or {_begin(name)}"
        )


def refuse_gone_topic(name: StreamName, topic: str) -> None:
    """For a query with batches, and a target topic that no longer exists."""
    raise CheckpointError(
        f"topic {topic} is missing, with the rows that {name} has written, or is new in the file, and the"
        " checkpoint continues:"
        f" {_begin(name)}"
    )


def refuse_other_topic(name: StreamName, topic: str) -> None:
    """For a query that has stored another id for the topic."""
    raise CheckpointError(
        f"topic {topic} was deleted and recreated since the last run of {name}, and the checkpoint continues:"
        f" {_begin(name)}"
    )


def check_state(steps: Sequence[str], name: StreamName) -> None:
    """For a query that continues from the database: the state of its steps is lost with the checkpoint."""
    if steps:
        raise CheckpointError(
            f"the checkpoint of {name} is gone, and with it what {', '.join(steps)} remembered: going on where the rows"
            f" end would give wrong results; put the checkpoint back, or {_begin(name)}"
        )


def is_of_stream(query: str, name: StreamName, with_runs: bool = False) -> bool:
    """Whether a query stored in a sink belongs to this stream; `with_runs`: or is a run over its whole history."""
    rest = query.removeprefix(f"{name}.")
    if rest == query:
        return False
    if with_runs and re.fullmatch(rf"{RUN_ID}\.\d+", rest):
        return True
    return re.fullmatch(rf"(?:{ID}\.)?\d+", rest) is not None


def _check_beginning(memory: Memory, name: StreamName, recorded: LastBatch | None, may_repeat: bool) -> None:
    earlier = [query for query in memory.batches if is_of_stream(query, name)]
    if recorded is not None or (earlier and not may_repeat):
        raise CheckpointError(
            f"{memory.place} has rows of an earlier query of {name}, and the checkpoint is new: they would be there"
            f" twice; put back the old checkpoint, remove the rows ({_reset(name)} --sinks)"
            + ("" if recorded is not None else ", or write everything again with --fresh")
        )


def _check_going_on(memory: Memory, name: StreamName, recorded: LastBatch | None, standing: Standing) -> None:
    following = standing.following
    wanted = {following - 1, following} if following == standing.planned else {following - 1}
    if recorded is None and memory.is_forgetful:
        return
    newest = NONE if recorded is None else recorded.batch_id
    if newest in wanted:
        return
    if recorded is None:
        what, cause = "has no batch of this query", "it was emptied, or is new in the file, or in another order"
    else:
        what = f"has batches up to {newest}"
        cause = "the checkpoint, or what was written, is older than the other"
    raise CheckpointError(
        f"{memory.place} {what}, and the checkpoint continues with batch {following}: {cause};"
        f" put back what was there, or {_begin(name)}"
    )


def _begin(name: StreamName) -> str:
    return f"start again ({_reset(name)}; --sinks also removes the written data)"


def _reset(name: StreamName) -> str:
    return f"ottla pipeline reset {name.pipeline}"
