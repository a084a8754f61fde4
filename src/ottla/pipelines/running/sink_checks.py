"""Checks that the rows of a stream have the columns that its sinks need, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.pipelines.expressions.texts import check_condition, column_of_sql
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import Path, PipelineError, Problem, did_you_mean
from ottla.pipelines.model.row_order import row_order_after
from ottla.pipelines.model.sink_specs import DatabaseSink, FileSink, Sink, TopicSink
from ottla.pipelines.running.problem_location import ProblemLocation
from ottla.pipelines.running.special_times import refuse_special_times
from ottla.pipelines.sinks.sql_tables import newest_by_problem, table_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_upsert(sink: Sink) -> bool:
    return isinstance(sink, DatabaseSink) and sink.mode == "upsert"


def sink_order(pipeline: Pipeline, stream: Stream) -> tuple[str, ...]:
    """The hidden columns that its sinks need to determine the later of two rows."""
    return row_order_after(pipeline.streams, stream).columns if any(map(is_upsert, stream.sinks)) else ()


def check_sinks(rows: DataFrame, stream: Stream) -> None:
    """Raises PipelineError with all missing columns."""
    problems: list[Problem] = []
    for number, sink in enumerate(stream.sinks):
        path = (*stream.path, "to", number)
        problems += _missing(rows, sink, path) or _not_comparable(rows, sink, path)
        for field, condition in conditions(sink):
            refused = check_condition(condition)
            if refused:
                raise PipelineError([Problem((*path, field), refused)])
            with ProblemLocation((*path, field)):
                refuse_special_times(rows.filter(column_of_sql(condition)))
    if problems:
        raise PipelineError(problems)


def conditions(sink: Sink) -> Iterator[tuple[str, str]]:
    """Pairs of sink field and condition."""
    if sink.where:
        yield "where", sink.where
    if isinstance(sink, DatabaseSink) and sink.delete_when:
        yield "delete_when", sink.delete_when


def named_columns(sink: Sink) -> Iterator[tuple[str, str]]:
    """Pairs of sink field and column name."""
    yield from (("columns", name) for name in sink.columns or ())
    if isinstance(sink, TopicSink | DatabaseSink):
        yield from (("key", name) for name in sink.key or ())
    if isinstance(sink, DatabaseSink):
        yield from (("newest_by", name) for name in [sink.newest_by] if name)
    if isinstance(sink, FileSink):
        yield from (("partition_by", name) for name in sink.partition_by or ())
    if isinstance(sink, TopicSink):
        yield from (("headers", name) for name in sink.headers or ())
        yield from (("time", name) for name in [sink.time] if name)
        yield from (("topic_column", name) for name in [sink.topic_column] if name)
        yield from (("partition", name) for name in [sink.partition] if name)


def _missing(rows: DataFrame, sink: Sink, path: Path) -> list[Problem]:
    return [
        Problem((*path, field), f"there is no column {name!r}", did_you_mean(name, rows.columns))
        for field, name in named_columns(sink)
        if name not in rows.columns
    ]


def _not_comparable(rows: DataFrame, sink: Sink, path: Path) -> list[Problem]:
    name = sink.newest_by if isinstance(sink, DatabaseSink) else None
    problem = newest_by_problem(name, table_columns(rows.schema)) if name else None
    return [Problem((*path, "newest_by"), problem, "cast it before")] if problem else []
