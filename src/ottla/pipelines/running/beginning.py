"""The start or continuation of a query: the contents of its stream's folder, the batches of its sinks, and its start
offsets.

The id of a new query is chosen here and written to the checkpoint's metadata before Spark looks for it, so all state of
the query is named after it from the first batch. Metadata is written first and the owner's name last: a crash in
between leaves a query without batches, which starts again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.running import dead_letters, late_letters, shape, starting
from ottla.pipelines.running.belonging import (
    QUERY_FOLDER,
    Found,
    Memory,
    Standing,
    StreamName,
    check_ends,
    check_found,
    check_memory,
    check_state,
    check_swept,
)
from ottla.pipelines.running.checkpoint import FRESH, STATE, Checkpoint, CheckpointError, Ends
from ottla.pipelines.running.delivery import SINKS_FOLDER, Delivery, can_last, kept_by_sinks, make_delivery
from ottla.pipelines.running.notes import list_folder, read_note, write_note
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.steps.frame import AppliedStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER = "owner"
METADATA = "metadata"
NOTES = (starting.NOTE, shape.NOTE, dead_letters.NOTE)
TRACES = (SINKS_FOLDER, dead_letters.FOLDER)


@dataclass(frozen=True)
class Beginning:
    """A query that may be started. `kept` is the folder of its state."""

    pipeline: Pipeline
    stream: Stream
    checkpoint: Checkpoint
    query_id: str
    kept: str
    is_new: bool
    committed: int
    start: Ends
    is_from_sinks: bool  # the start is the end of the rows in the databases
    delivery: Delivery

    def check_state(self, passages: Iterable[AppliedStep]) -> list[str]:
        """Compare the state of the steps; return permitted changes as text. Raises PipelineError, CheckpointError."""
        passages = list(passages)
        if not self.is_new:
            changes = shape.check_shape(self.pipeline, self.stream, passages, self.kept, is_new=False)
            if any(each.keeps_state for each in passages):
                self._check_state_is_there()
            if self._has_unsent():
                shape.check_unsent(self.pipeline, self.stream, passages, self.kept)
            return changes
        if self.is_from_sinks:
            check_state([each.step for each in passages if each.keeps_state], name_of(self.pipeline, self.stream))
        return []

    def _check_state_is_there(self) -> None:
        """Spark would fail in the batch, after other queries have started theirs. Raises CheckpointError."""
        names = list_folder(self.checkpoint.folder)
        if self.committed >= 0 and names and STATE not in names:
            raise CheckpointError(f"{self.checkpoint.folder}/{STATE} is gone; {FRESH}")

    def _has_unsent(self) -> bool:
        done, _ = dead_letters.noted(self.kept)
        late = late_letters.noted(self.kept)
        is_late = self.pipeline.fields.late_rows is not None and late is not None and late < self.committed
        return is_late or (self.pipeline.dead_letter_topic is not None and done < self.committed)

    def note(self, passages: Iterable[AppliedStep]) -> None:
        """From here on the query is registered."""
        passages = list(passages)
        if not self.is_new:
            shape.note_steps(self.pipeline, passages, self.kept)
            shape.note_plan(self.pipeline, self.stream, self.kept)
            return
        local = local_path(self.checkpoint.folder)
        if local is not None:  # the checksum of deleted metadata
            (local / f".{METADATA}.crc").unlink(missing_ok=True)
        write_note(self.checkpoint.folder, METADATA, json.dumps({"id": self.query_id}))
        starting.note_start(self.kept, self.start)
        shape.check_shape(self.pipeline, self.stream, passages, self.kept, is_new=True)
        shape.note_steps(self.pipeline, passages, self.kept)
        write_note(self.kept, dead_letters.NOTE, dead_letters.NOTHING)
        write_note(self.kept, OWNER, str(name_of(self.pipeline, self.stream)))


def settle(
    spark: SparkSession, pipeline: Pipeline, stream: Stream, folder: str, chosen: str | None, is_fresh: bool
) -> Beginning:
    """`folder` is the stream's. Raises CheckpointError, SinkError, and errors of the sources; writes nothing."""
    checkpoint = Checkpoint(spark, f"{folder}/checkpoint")
    found = look(checkpoint, folder)
    name = name_of(pipeline, stream)
    check_found(found, name, can_last(stream))
    query_id = found.query_id or str(uuid.uuid4())
    kept = f"{folder}/{QUERY_FOLDER}{query_id}"
    ends = kept_by_sinks(pipeline, stream) if found.is_new else {}
    start = starting.with_new(pipeline, stream, ends) if ends else None
    start = start or (None if found.is_new else starting.noted_start(kept))
    start = start or starting.find_start(pipeline, stream, chosen)
    delivery = make_delivery(pipeline, stream, kept, query_id, checkpoint.folder, start)
    if ends and pipeline.dead_letter_topic is not None:
        swept = [dead_letters.noted(f"{folder}/{each}")[0] for each in found.others]
        recorded = [
            memory.batches[memory.own].batch_id for memory in delivery.memories() if memory.own in memory.batches
        ]
        check_swept(swept, max(recorded, default=-1), name)
    if not ends:
        for memory in delivery.memories():
            check_memory(memory, name, found.standing, may_repeat=is_fresh or found.owner is not None)
            check_sink_ends(memory, name, found.standing, checkpoint)
    committed = found.standing.committed
    return Beginning(pipeline, stream, checkpoint, query_id, kept, found.is_new, committed, start, bool(ends), delivery)


def check_sink_ends(memory: Memory, name: StreamName, standing: Standing, checkpoint: Checkpoint) -> None:
    """Raises CheckpointError."""
    recorded = memory.batches.get(memory.own)
    batch = None if recorded is None or not memory.is_lasting else checkpoint.planned(recorded.batch_id)
    if batch is not None:
        check_ends(memory, name, standing, batch.ends)


def look(checkpoint: Checkpoint, folder: str) -> Found:
    """Raises CheckpointError for damaged files."""
    query_id = checkpoint.query_id()
    checkpoint.check()
    standing = Standing(checkpoint.newest_planned(), checkpoint.committed())
    own = f"{QUERY_FOLDER}{query_id}"
    others = tuple(name for name in list_folder(folder) if name.startswith(QUERY_FOLDER) and name != own)
    if query_id is None:
        return Found(folder, None, standing, None, others)
    kept = f"{folder}/{own}"
    names = list_folder(kept)
    swept = read_note(kept, dead_letters.NOTE)
    return Found(
        folder,
        query_id,
        standing,
        read_note(kept, OWNER),
        others,
        missing=tuple(note for note in NOTES if note not in names),
        has_traces=any(name in names for name in TRACES) or swept not in (None, dead_letters.NOTHING),
    )


def name_of(pipeline: Pipeline, stream: Stream) -> StreamName:
    return StreamName(pipeline.name, stream.name)
