"""Data pipelines on Spark: from a topic through steps to a topic, a table or files. See docs/pipelines.md."""

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
