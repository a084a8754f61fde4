"""Does a pipeline read by a pattern what it writes? Its rows would come back as records, and be written again, without
end. A topic that is named in `from` and in `to` is meant so: to try a record once more, for example.

Rule: no Spark and no broker, so that a file is refused before the topics are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.pipelines.model.problems import Problem
from ottla.pipelines.model.sinks import TopicSink

if TYPE_CHECKING:
    from ottla.pipelines.model.pipeline import Pipeline, Stream


def circles(pipeline: Pipeline) -> Iterator[Problem]:
    for reader in pipeline.streams.values():
        origin = reader.origin
        if isinstance(origin, str) or not origin.pattern:
            continue
        for topic, what, cure in _written(pipeline, reader):
            if _matches(origin.pattern, topic):
                cause = f"{origin.pattern!r} matches {topic}, {what}: they would be read as records again, without end"
                yield Problem((*reader.path, "from", "pattern"), cause, cure)


def _written(pipeline: Pipeline, reader: Stream) -> Iterator[tuple[str, str, str]]:
    """Topics that get what comes from this stream, what they get, and what to do about it."""
    own = pipeline.head.bootstrap_servers
    servers = getattr(reader.origin, "bootstrap_servers", None) or own
    if servers == own:
        if pipeline.dead_letter_topic:
            yield (
                pipeline.dead_letter_topic,
                "to which dead letters go",
                "narrow the pattern, or choose another topic (dead_letters: TOPIC)",
            )
        if pipeline.head.late_rows:
            yield (
                pipeline.head.late_rows,
                "to which late rows go",
                "narrow the pattern, or choose another topic (late_rows: TOPIC)",
            )
    for stream in pipeline.queries():
        if reader in pipeline.ancestry(stream):
            for sink in stream.sinks:
                if isinstance(sink, TopicSink) and (sink.bootstrap_servers or own) == servers:
                    yield (
                        sink.topic,
                        f"to which rows of stream {stream.name} go",
                        "narrow the pattern, or write to another topic",
                    )


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except re.error:
        return False  # whoever reads the topics says so
