"""Data pipelines on Spark: from a topic through steps to a topic, a table or files. See docs/pipelines.md.

What stands here is imported when it is asked for: a command starts Java first, and that must not wait for Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipelines.confluent import from_confluent, to_confluent
    from ottla.pipelines.model.problems import PipelineError
    from ottla.pipelines.sinks.topic import at_least_once_topic, exactly_once_topic
    from ottla.pipelines.source import read_topic, read_topic_stream
    from ottla.pipelines.writing import pipeline, stream, topic

__all__ = [
    "PipelineError",
    "at_least_once_topic",
    "exactly_once_topic",
    "from_confluent",
    "pipeline",
    "read_topic",
    "read_topic_stream",
    "stream",
    "to_confluent",
    "topic",
]

HOMES = {
    "PipelineError": "model.problems",
    "at_least_once_topic": "sinks.topic",
    "exactly_once_topic": "sinks.topic",
    "from_confluent": "confluent",
    "pipeline": "writing",
    "read_topic": "source",
    "read_topic_stream": "source",
    "stream": "writing",
    "to_confluent": "confluent",
    "topic": "writing",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
