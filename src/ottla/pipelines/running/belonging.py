"""Does what a run finds belong together: the checkpoint, what its query kept beside it, and what its sinks remember?

    <stream>/checkpoint/     Spark's, with the id of the query in `metadata`
    <stream>/query-<id>/     all that the query keeps besides: notes, pinned rows, letters, losses

A new checkpoint is a new query with a new id. Whoever deletes a checkpoint, puts back an older one or brings that of
another pipeline would make a run lose or repeat rows: then it must end before it has written anything.

Rules:
1. What decides is pure: no clock, no I/O.
2. Batches have numbers without gaps, and Spark does the newest planned one again if it is not committed. So every sink
   must have the batch before the next one, or that one itself if it is planned already.
3. A query begins only where no earlier query of its stream has written, unless that is wanted (--fresh).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.pipelines.running.checkpoint import CheckpointError
from ottla.pipelines.sinks.external_offsets import DIFFERENT, Offsets, offsets_json
from ottla.pipelines.sinks.ledger import Recorded

NONE = -1  # no batch
QUERY_FOLDER = "query-"
ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # as Spark makes them
RUN_ID = r"[0-9a-f]{32}"  # of a run without a checkpoint


class StreamName(NamedTuple):
    """Under which sinks remember a stream's queries."""

    pipeline: str
    stream: str

    def __str__(self) -> str:
        return f"{self.pipeline}.{self.stream}"


class Standing(NamedTuple):
    """How far a checkpoint is: the newest batch that is planned, and the newest that is done."""

    planned: int = NONE
    committed: int = NONE

    @property
    def following(self) -> int:
        """The batch that runs next."""
        return self.planned if self.planned > self.committed else self.planned + 1


class Found(NamedTuple):
    """What lies in the folder of a stream."""

    folder: str
    query_id: str | None  # of the checkpoint
    standing: Standing
    owner: str | None  # the stream for which this query keeps its notes; None if there are none
    others: tuple[str, ...] = ()  # folders of other queries
    missing: tuple[str, ...] = ()  # notes that a query has from its beginning
    has_traces: bool = False  # the query has pinned rows, or sent letters

    @property
    def is_new(self) -> bool:
        return self.standing.planned == NONE


class Memory(NamedTuple):
    """What a sink remembers of all queries that have written there. `own` is the name of this one."""

    place: str
    own: str
    batches: Mapping[str, Recorded]
    is_lasting: bool = False  # kept under the stream's name and not under the query's id: offsets are beside the rows
    is_exclusive: bool = False
    is_forgetful: bool = False
    ends: Offsets = MappingProxyType({})  # where its rows end, of one that is lasting


def check_found(found: Found, name: StreamName, can_last: bool) -> None:
    """`name` is the stream's; `can_last`: its sinks know by themselves where to go on. Raises CheckpointError."""
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
            f"{found.folder}/{QUERY_FOLDER}{found.query_id}/{found.missing[0]} is gone: put it back, or {_begin(name)}"
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
    """`may_repeat`: that rows of earlier queries are there is known, and wanted. Raises CheckpointError."""
    recorded = memory.batches.get(memory.own)
    strangers = [query for query in memory.batches if query != memory.own]
    if memory.is_exclusive and "" in strangers:
        raise CheckpointError(
            f"{memory.place}: the note of its newest batch is gone or damaged, so nobody knows what was written there:"
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
    """Of a lasting sink, that counts the batches of the next query as this one's: its rows end where the checkpoint
    says that its newest batch does (`planned`, by source). Raises CheckpointError."""
    if standing.following == 0:  # then the sink compares offsets
        return
    wanted = [
        (topic, number, at) for ends in planned for topic, each in (ends or {}).items() for number, at in each.items()
    ]
    if any(memory.ends.get(topic, {}).get(number) not in (at, DIFFERENT) for topic, number, at in wanted):
        raise CheckpointError(
            f"{memory.place} has rows up to {offsets_json(memory.ends)}, which are of another query of {name} than the"
            f" checkpoint: put back what was there, or {_begin(name)}"
        )


def check_swept(swept: Sequence[int], newest: int, name: StreamName) -> None:
    """Of a query that goes on where the rows in its database end, without its checkpoint: up to which batches those
    before it have sent their dead letters, and the newest that the database has. What is not sent can be found only
    with the checkpoint. Raises CheckpointError."""
    if swept and newest not in swept:
        raise CheckpointError(
            f"the checkpoint of {name} is gone, and dead letters of its batches from {max(swept) + 1} to {newest} may"
            f" not be sent: put the checkpoint back, or {_begin(name)}"
        )


def refuse_gone_topic(name: StreamName, topic: str) -> None:
    """Of a query that has batches, and a topic that it wrote to."""
    raise CheckpointError(
        f"topic {topic} is gone, with what {name} has written there, or is new in the file, and the checkpoint goes on:"
        f" {_begin(name)}"
    )


def refuse_other_topic(name: StreamName, topic: str) -> None:
    """Of a query that knows another one by that name."""
    raise CheckpointError(
        f"topic {topic} was deleted and made anew since the last run of {name}, and the checkpoint goes on:"
        f" {_begin(name)}"
    )


def check_state(steps: Sequence[str], name: StreamName) -> None:
    """Of a query that goes on where the rows in its database end: what steps remembered is gone with the checkpoint."""
    if steps:
        raise CheckpointError(
            f"the checkpoint of {name} is gone, and with it what {', '.join(steps)} remembered: going on where the rows"
            f" end would give wrong results; put the checkpoint back, or {_begin(name)}"
        )


def is_of_stream(query: str, name: StreamName, with_runs: bool = False) -> bool:
    """Whether a query that a sink remembers was one of this stream; `with_runs`: or a run over its whole history."""
    identity = rf"(?:{ID}|{RUN_ID})" if with_runs else ID
    return re.fullmatch(rf"{re.escape(str(name))}\.(?:{identity}\.)?\d+", query) is not None


def _check_beginning(memory: Memory, name: StreamName, recorded: Recorded | None, may_repeat: bool) -> None:
    earlier = [query for query in memory.batches if is_of_stream(query, name)]
    if recorded is not None or (earlier and not may_repeat):
        raise CheckpointError(
            f"{memory.place} has rows of an earlier query of {name}, and the checkpoint is new: they would be there"
            f" twice; put back the old checkpoint, remove the rows ({_reset(name)} --sinks)"
            + ("" if recorded is not None else ", or write all of it once more with --fresh")
        )


def _check_going_on(memory: Memory, name: StreamName, recorded: Recorded | None, standing: Standing) -> None:
    following = standing.following
    wanted = {following - 1, following} if following == standing.planned else {following - 1}
    if recorded is None and memory.is_forgetful:
        return
    newest = NONE if recorded is None else recorded.batch_id
    if newest in wanted:
        return
    if recorded is None:
        what, cause = "remembers no batch of this query", "it was emptied, or is new in the file, or in another order"
    else:
        what = f"has batches up to {newest}"
        cause = "the checkpoint, or what was written, is older than the other"
    raise CheckpointError(
        f"{memory.place} {what}, and the checkpoint goes on with batch {following}: {cause};"
        f" put back what was there, or {_begin(name)}"
    )


def _begin(name: StreamName) -> str:
    return f"begin anew ({_reset(name)}; with --sinks what was written goes, too)"


def _reset(name: StreamName) -> str:
    return f"ottla pipeline reset {name.pipeline}"
