"""Decides whether a pipeline may continue from a savepoint: sinks with later rows would get them twice.

exactly once   a sink has stored its newest batch: one after the savepoint is rejected. Folders on a path can be
               truncated to the savepoint on request; tables and topics cannot, because rows have no batch number
at least once  batches are not stored: rejected unless the checkpoint has no batch after the savepoint, or repetition is
               requested
letters        dead and late rows are treated like rows of an exactly-once sink
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.sink_specs import is_at_least_once
from ottla.pipelines.running.beginning import check_sink_ends, look, name_of
from ottla.pipelines.running.belonging import QUERY_FOLDER, Standing, check_memory
from ottla.pipelines.running.checkpoint import Checkpoint, CheckpointError
from ottla.pipelines.running.delivery import make_delivery
from ottla.pipelines.running.savepoint import SavedStream, Savepoint, SavepointError
from ottla.pipelines.running.shape import check_file
from ottla.pipelines.sinks.batch import Sink
from ottla.pipelines.sinks.batch_ledger import LedgerSink
from ottla.pipelines.sinks.files import FilesSink, batch_number, list_batches
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.sinks.topic import ExactlyOnceTopic


class Allowed(NamedTuple):
    """The permissions of the command line."""

    truncates: bool = False
    repeats: bool = False


def surplus(savepoint: Savepoint, folder: str, pipeline: Pipeline, allowed: Allowed) -> list[Path]:
    """The folders of batches to remove. Raises SavepointError, CheckpointError, SinkError, PipelineError."""
    found: list[Path] = []
    for stream in pipeline.queries():
        saved = savepoint.streams.get(stream.name)
        if saved is not None:
            check_file(pipeline, stream, str(savepoint.folder / stream.name / f"{QUERY_FOLDER}{saved.query_id}"))
            kept_there = Checkpoint(None, str(savepoint.folder / stream.name / "checkpoint"))
            found += _of_stream(saved, kept_there, folder, pipeline, stream, allowed)
            _check_letters(saved, pipeline, stream)
    return found


def cut_back(batches: list[Path]) -> None:
    for path in batches:
        shutil.rmtree(path)


def newest_allowed(standing: Standing) -> int:
    """The newest batch that a sink may have: the planned one may already be written."""
    return standing.following if standing.following == standing.planned else standing.following - 1


def _of_stream(
    saved: SavedStream, kept_there: Checkpoint, folder: str, pipeline: Pipeline, stream: Stream, allowed: Allowed
) -> Iterator[Path]:
    place = f"{folder.rstrip('/')}/{pipeline.name}/{stream.name}"
    kept = f"{place}/{QUERY_FOLDER}{saved.query_id}"
    delivery = make_delivery(pipeline, stream, kept, saved.query_id, f"{place}/checkpoint")
    newest = newest_allowed(saved.standing)
    memories = {memory.own: memory for memory in delivery.memories()}
    for number, route in enumerate(delivery.routes):
        memory = memories.get(delivery.name(number))
        recorded = memory.batches.get(memory.own) if memory else None
        if recorded is not None and recorded.batch_id > newest:
            yield from _beyond(route.sink, recorded.batch_id, newest, allowed, pipeline.name)
        elif memory is not None:
            check_memory(memory, name_of(pipeline, stream), saved.standing, may_repeat=True)
            check_sink_ends(memory, name_of(pipeline, stream), saved.standing, kept_there)
        elif is_at_least_once(stream.sinks[number]) and not allowed.repeats and not _is_there(saved, place):
            raise SavepointError(
                f"{getattr(route.sink, 'place', 'a sink')} is at least once: rows since the savepoint would be written"
                " again; --repeat allows that"
            )


def _beyond(sink: Sink, found: int, newest: int, allowed: Allowed, pipeline: str) -> Iterator[Path]:
    """Raises SavepointError."""
    assert isinstance(sink, LedgerSink)
    cause = f"{sink.place} has batches up to {found}, and the savepoint ends with {newest}: they would be there twice"
    folder = local_path(sink.path) if isinstance(sink, FilesSink) else None
    if folder is None:
        raise SavepointError(
            f"{cause}; restore a copy of it from the time of the savepoint, use a newer savepoint, or start again"
            f" (ottla pipeline reset {pipeline} --sinks)"
        )
    if not allowed.truncates:
        raise SavepointError(f"{cause}; --truncate-sinks removes them")
    yield from (path for path, _ in list_batches(folder) if batch_number(path) > newest)


def _check_letters(saved: SavedStream, pipeline: Pipeline, stream: Stream) -> None:
    """Raises SavepointError."""
    head = pipeline.fields
    topics = (("dead-letters", "dead_letters", pipeline.dead_letter_topic), ("late-rows", "late_rows", head.late_rows))
    for kind, field, topic in topics:
        if topic is None:
            continue
        sink = ExactlyOnceTopic(topic, head.bootstrap_servers, options=head.client)
        recorded = sink.last_batches().get(f"{name_of(pipeline, stream)}.{kind}.{saved.query_id}")
        if recorded is not None and recorded.batch_id > saved.standing.committed:
            raise SavepointError(
                f"{sink.place} has letters of batches up to {recorded.batch_id}, and the savepoint ends with"
                f" {saved.standing.committed}: they would be there twice; use another topic (--set {field}=TOPIC)"
            )


def _is_there(saved: SavedStream, place: str) -> bool:
    """Whether the checkpoint is at the savepoint: then nothing was written since."""
    try:
        found = look(Checkpoint(None, f"{place}/checkpoint"), place)
    except CheckpointError:
        return False
    return found.query_id == saved.query_id and found.standing == saved.standing
