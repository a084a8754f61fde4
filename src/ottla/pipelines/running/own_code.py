"""Whether something of the user's own runs in a pipeline: functions in Python, models, settings that load more."""

from __future__ import annotations

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.sinks import FunctionSink
from ottla.pipelines.spark.settings import check_setting

CODE = ("python", "stateful")
MODEL = "classifier"


def has_own_code(pipeline: Pipeline) -> bool:
    """If so, nobody knows what it needs of Spark."""
    streams = pipeline.streams.values()
    steps = [step for stream in streams for step in stream.steps]
    return (
        any(step.name in CODE or getattr(step.spec, MODEL, None) for step in steps)
        or any(isinstance(sink, FunctionSink) for stream in streams for sink in stream.sinks)
        or any(check_setting(key, value) for key, value in pipeline.head.spark.items())
    )
