"""Data pipelines on Spark: from a topic through steps to a topic, a table or files. See docs/pipelines.md.

Names are imported on first use, because a command starts Java first and must not wait for the import of Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipelines.confluent import from_confluent, to_confluent
    from ottla.pipelines.model.problems import PipelineError
    from ottla.pipelines.python_api import pipeline, stream, topic
    from ottla.pipelines.sinks.topic import at_least_once_topic, exactly_once_topic
    from ottla.pipelines.source import read_topic, read_topic_stream

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

EXPORTS = {
    "PipelineError": "model.problems",
    "at_least_once_topic": "sinks.topic",
    "exactly_once_topic": "sinks.topic",
    "from_confluent": "confluent",
    "pipeline": "python_api",
    "read_topic": "source",
    "read_topic_stream": "source",
    "stream": "python_api",
    "to_confluent": "confluent",
    "topic": "python_api",
}


def __getattr__(name: str) -> Any:
    if name not in EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{EXPORTS[name]}"), name)
