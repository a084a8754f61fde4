"""Data pipelines on Spark: from a topic through steps to a topic, a table or files. See docs/pipelines.md."""

from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.writing import pipeline, stream, topic

__all__ = ["PipelineError", "pipeline", "stream", "topic"]
