"""Detects recreated topics: same name, another id.

The ids are stored beside the checkpoint when a query starts, on any file system. Deleting a target topic deletes the
rows of the query, even at least once. For source topics the source itself detects it, also during a run, if its own
notes are on a path (source/planner.py); for remote checkpoints it is checked here.
"""

from __future__ import annotations

import json

from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource
from ottla.pipelines.model.sink_specs import TopicSink
from ottla.pipelines.running.belonging import StreamName, refuse_other_topic
from ottla.pipelines.running.checkpoint import FRESH, CheckpointError
from ottla.pipelines.running.notes import read_note, write_note
from ottla.pipelines.running.source_options import source_options
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.source.cluster import open_cluster
from ottla.pipelines.source.options import read_options

NOTE = "topic-ids"

Ids = dict[str, str]  # (brokers, topic) -> id


def check_same_topics(pipeline: Pipeline, stream: Stream, kept: str) -> Ids:
    """`kept` is the query's folder. Return the notes to store at the start. Raises CheckpointError, SourceError."""
    text = read_note(kept, NOTE)
    try:
        noted: Ids = {} if text is None else dict(json.loads(text))
    except (ValueError, TypeError):
        raise CheckpointError(f"{kept}/{NOTE} is damaged; {FRESH}") from None
    found: Ids = {}
    for source in _topics(pipeline, stream, has_sources=local_path(kept) is None):
        ids = topic_ids(pipeline, source)
        servers = source.bootstrap_servers or pipeline.fields.bootstrap_servers
        for topic, topic_id in ids.items():
            key = f"{servers} {topic}"
            found[key] = topic_id
            if noted.get(key, topic_id) != topic_id and source.fail_on_data_loss:
                refuse_other_topic(StreamName(pipeline.name, stream.name), topic)
    return found


def note_topics(kept: str, found: Ids) -> None:
    if found:
        write_note(kept, NOTE, json.dumps(found))


def topic_ids(pipeline: Pipeline, source: TopicSource) -> Ids:
    options = read_options(source_options(pipeline.fields, source, None, None, None))
    cluster = open_cluster(options)
    try:
        cluster.partitions(options.subscription)
        return cluster.topic_ids()
    finally:
        cluster.close()


def _topics(pipeline: Pipeline, stream: Stream, has_sources: bool) -> list[TopicSource]:
    """Target topics as subscriptions; and source topics, if requested."""
    found = [
        TopicSource(topic=[sink.topic], bootstrap_servers=sink.bootstrap_servers)
        for sink in stream.sinks
        if isinstance(sink, TopicSink)
    ]
    if has_sources:
        found += [each.origin for each in pipeline.ancestry(stream) if isinstance(each.origin, TopicSource)]
    return found
