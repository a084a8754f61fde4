"""The start offsets of a query, determined once and stored beside its checkpoint.

`latest` or a time would resolve differently each time, and the start is needed again when the first batch is read
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.running.checkpoint import FRESH, CheckpointError, Ends, parse_ends
from ottla.pipelines.running.notes import read_note, write_note
from ottla.pipelines.running.source_options import source_options, starting_options
from ottla.pipelines.source.cluster import open_cluster
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.source.options import read_options
from ottla.pipelines.source.planner import Planner

NOTE = "starting"


def noted_start(folder: str) -> Ends:
    """Empty before the first start. Raises CheckpointError."""
    try:
        return parse_ends(read_note(folder, NOTE)) or {}
    except ValueError:
        raise CheckpointError(f"{folder}/{NOTE} is damaged; {FRESH}") from None


def note_start(folder: str, start: Ends) -> None:
    write_note(folder, NOTE, json.dumps(start))


def find_start(pipeline: Pipeline, stream: Stream, chosen: str | None) -> Ends:
    """Resolve the sources' start in the cluster. Raises the source's errors, for example for a missing topic."""
    return {
        topic: {number: bounds[0] for number, bounds in each.items()}
        for topic, each in find_ranges(pipeline, stream, chosen).items()
    }


def with_new(pipeline: Pipeline, stream: Stream, ends: Ends) -> Ends:
    """The end of stored rows, and the beginning of topics and partitions that were added since."""
    earliest = find_start(pipeline, stream, "earliest")
    return {topic: {**earliest.get(topic, {}), **ends.get(topic, {})} for topic in {*ends, *earliest}}


def find_ranges(pipeline: Pipeline, stream: Stream, chosen: str | None) -> dict[str, dict[int, tuple[int, int]]]:
    """From the start of the sources to the current end. Raises SourceError if two sources start the same topic at
    different offsets: a query has one position per partition, for dead letters and for stored offsets."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    beginnings: dict[str, object] = {}
    for source in pipeline.sources_of(stream):
        beginning = starting_options(source.starting if chosen is None else chosen)
        options = read_options(_for_batch(source_options(pipeline.fields, source, chosen, None, None)))
        cluster = open_cluster(options)
        try:
            starts = Planner(options, cluster).initial()
            ends = cluster.end_offsets(starts)
        finally:
            cluster.close()
        for place, start in starts.items():
            if beginnings.setdefault(place.topic, beginning) != beginning:
                raise SourceError(
                    f"{stream.name}: two of its streams read topic {place.topic} and begin in different places: give"
                    " both the same `starting`, or make two queries of them (each with its own `to`)"
                )
            found.setdefault(place.topic, {})[place.partition] = (start, max(start, ends[place]))
    return found


def _for_batch(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key != "maxOffsetsPerTrigger"}
