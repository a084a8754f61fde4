"""`latency: realtime`: Spark's real-time mode, in which rows do not wait for a batch.

It supports only Spark's own connector for sources and sinks, and delivers at least once; spark/realtime.py has the
rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipelines.expressions.texts import asks_the_time, column_of_sql
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.model.sink_specs import TopicSink
from ottla.pipelines.running.sink_factory import encoding_of
from ottla.pipelines.spark.realtime import OUTPUT_MODE, cores_problem, sink_problem, step_problem, trigger_arguments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CURE = "or leave `latency: realtime` away"


def start_realtime(rows: DataFrame, pipeline: Pipeline, stream: Stream, checkpoint: str) -> StreamingQuery:
    """The stream must have been checked."""
    (spec,) = stream.sinks
    assert isinstance(spec, TopicSink)
    options = {f"kafka.{key}": value for key, value in {**pipeline.fields.client, **spec.options}.items()}
    options["kafka.bootstrap.servers"] = spec.bootstrap_servers or pipeline.fields.bootstrap_servers
    if spec.topic_column is None:
        options["topic"] = spec.topic
    records = encoding_of(pipeline, spec).apply(rows.filter(column_of_sql(spec.where)) if spec.where else rows)
    writer = records.writeStream.format("kafka").options(**options).outputMode(OUTPUT_MODE)
    writer = writer.queryName(f"{pipeline.name}.{stream.name}").option("checkpointLocation", checkpoint)
    every: dict[str, Any] = dict(trigger_arguments())  # newer than PySpark's annotations
    return writer.trigger(**every).start()


def check_realtime(
    spark: SparkSession, pipeline: Pipeline, stream: Stream, starting: Mapping[str, Mapping[int, int]]
) -> None:
    """Raises PipelineError with everything that real-time mode does not support."""
    problems: list[Problem] = []
    for each in pipeline.ancestry(stream):
        for number, (name, spec) in enumerate(each.steps):
            refused = step_problem(name, spec)
            if refused:
                problems.append(Problem((*each.path, "steps", number, name), refused, CURE))
            columns = getattr(spec, "columns", None)
            for column, text in columns.items() if isinstance(columns, Mapping) else ():
                if asks_the_time(text):
                    cause = f"{column}: real-time mode has one time for all rows between two checkpoints"
                    problems.append(Problem((*each.path, "steps", number, name, "columns"), cause, CURE))
    if len(stream.sinks) != 1:
        problems.append(Problem((*stream.path, "to"), "real-time mode writes to one topic", CURE))
    refusals = [sink_problem(sink) for sink in stream.sinks]
    problems += [Problem((*stream.path, "to", place), text, CURE) for place, text in enumerate(refusals) if text]
    too_few = cores_problem(sum(map(len, starting.values())), cores_of(spark))
    if too_few:
        problems.append(Problem((*stream.path, "from"), too_few))
    if problems:
        raise PipelineError(problems)


def cores_of(spark: SparkSession) -> int | None:
    """None if unknown: on a cluster executors come and go."""
    master = str(spark.conf.get("spark.master", ""))
    inside = master.partition("[")[2].rstrip("]").split(",", maxsplit=1)[0]
    return int(inside) if master.startswith("local") and inside.isdigit() else None
