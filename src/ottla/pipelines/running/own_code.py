"""Whether a pipeline runs user code: Python functions, models, settings that load code."""

from __future__ import annotations

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.sink_specs import FunctionSink
from ottla.pipelines.spark.settings import check_setting

CODE = ("python", "stateful")
MODEL = "classifier"


def has_own_code(pipeline: Pipeline) -> bool:
    """If so, its requirements of Spark are unknown."""
    streams = pipeline.streams.values()
    steps = [step for stream in streams for step in stream.steps]
    return (
        any(step.name in CODE or getattr(step.spec, MODEL, None) for step in steps)
        or any(isinstance(sink, FunctionSink) for stream in streams for sink in stream.sinks)
        or any(check_setting(key, value) for key, value in pipeline.fields.spark.items())
    )
