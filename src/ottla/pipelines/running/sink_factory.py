"""From what a pipeline says about a sink to the sink itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla.pipelines.model import sinks as model
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.sinks.any_database import SqlAlchemySink
from ottla.pipelines.sinks.batch import Sink, SinkError
from ottla.pipelines.sinks.console import ConsoleSink
from ottla.pipelines.sinks.database import DatabaseSink, PostgresSink, SqliteSink
from ottla.pipelines.sinks.encoding import Encoding
from ottla.pipelines.sinks.files import DeltaSink, FilesSink
from ottla.pipelines.sinks.function import FunctionSink
from ottla.pipelines.sinks.posting import HttpSink, Request
from ottla.pipelines.sinks.redis_session import RedisSink
from ottla.pipelines.sinks.redis_session import check_url as check_redis_url
from ottla.pipelines.sinks.sqlalchemy_tables import check_url
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.sinks.subjects import Subject
from ottla.pipelines.sinks.tables import DELETED, Table
from ottla.pipelines.sinks.topic import AtLeastOnceTopic, ExactlyOnceTopic

Offsets = Mapping[str, Mapping[int, int]]

OLD_S3 = ("s3://", "s3n://")
VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Setting:
    """What a sink must know of the query around it."""

    pipeline: Pipeline
    checkpoint: str
    started_at: Offsets = field(default_factory=dict)  # if the start came from a database
    order: tuple[str, ...] = ()  # hidden columns of the rows that tell which is the later one


def make_sink(spec: model.Sink, number: int, setting: Setting) -> Sink:
    """`number` is its place among the sinks of the stream. Raises SinkError."""
    if isinstance(spec, model.TopicSink):
        return _topic(spec, number, setting.pipeline)
    if isinstance(spec, model.DatabaseSink):
        return make_database(spec, setting)
    if isinstance(spec, model.ConsoleSink):
        return ConsoleSink(spec.console)
    if isinstance(spec, model.FunctionSink):
        return _function(spec, setting.pipeline)
    if isinstance(spec, model.HttpSink):
        return _http(spec)
    assert isinstance(spec, model.FileSink)
    return _files(spec, setting)


def check_places(pipeline: Pipeline) -> None:
    """Whether all its sinks can be, as far as that is known without Spark and without asking them: folders that may be
    written, functions, drivers, variables of the environment. Raises PipelineError with all that is wrong."""
    problems: list[Problem] = []
    for stream in pipeline.queries():
        for number, spec in enumerate(stream.sinks):
            try:
                make_sink(spec, number, Setting(pipeline, ""))
            except SinkError as problem:
                problems.append(Problem((*stream.path, "to", number), str(problem)))
    if problems:
        raise PipelineError(problems)


def table_of(spec: model.DatabaseSink, order: tuple[str, ...]) -> Table:
    """`order`: hidden columns of the rows that tell which is the later one."""
    needed = order if spec.mode == "upsert" else None
    delete_by = DELETED if spec.delete_when else None
    return Table(spec.table, spec.mode, tuple(spec.key or ()), spec.create, spec.newest_by, needed, delete_by)


def make_database(spec: model.DatabaseSink, setting: Setting) -> DatabaseSink:
    table = table_of(spec, setting.order)
    started_at = setting.started_at or None
    if isinstance(spec, model.PostgresSink):
        connection = os.path.expandvars(spec.postgres)  # a password belongs into a variable, not into the file
        return PostgresSink(table, None, spec.keep_offsets, setting.checkpoint, started_at, connection)
    if isinstance(spec, model.SqlAlchemySink):
        url = _database_url(setting.pipeline, spec.sqlalchemy)
        return SqlAlchemySink(table, None, spec.keep_offsets, setting.checkpoint, started_at, url)
    if isinstance(spec, model.RedisSink):
        url = expanded(spec.redis)
        check_redis_url(url)
        kept = (spec.keep_offsets, setting.checkpoint, started_at)
        return RedisSink(table, None, *kept, url, spec.chosen_type, spec.expire)
    assert isinstance(spec, model.SqliteSink)
    path = located(setting.pipeline, spec.sqlite)
    return SqliteSink(table, None, spec.keep_offsets, setting.checkpoint, started_at, path)


def encoding_of(pipeline: Pipeline, spec: model.TopicSink) -> Encoding:
    schema = str(Path(pipeline.folder) / spec.schema) if spec.schema else None
    subject = None
    if spec.subject is not None:
        address = pipeline.head.registry_address
        if address is None:
            raise SinkError(f"subject {spec.subject} needs a registry: write `registry: http://host:8081` at the top")
        subject = Subject(address, spec.subject, spec.format, schema, spec.message)
    return Encoding(
        format=spec.format,
        key=tuple(spec.key or ()),
        columns=tuple(spec.columns or ()),
        headers=tuple(spec.headers or ()),
        topic_column=spec.topic_column,
        partition=spec.partition,
        time=spec.time,
        schema=schema,
        subject=subject,
    )


def expanded(text: str) -> str:
    """With variables of the environment, once: a file has them already, what was written in Python has not.

    Raises SinkError.
    """

    def value_of(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise SinkError(f"the environment has no {found[1]}: export it before the pipeline runs")
        return os.environ[found[1]]

    return VARIABLE.sub(value_of, text)


def located(pipeline: Pipeline, path: str) -> str:
    """Where to write: relative to the pipeline's folder, and only in it or below one of its roots. Raises SinkError."""
    local = local_path(path)
    if path.startswith(OLD_S3):
        raise SinkError(f"{path}: Spark reaches S3 as s3a://{path.partition('://')[2]}")
    if local is None:
        return path  # an address of another file system, whose own rights apply
    full = local if Path(path).is_absolute() or ":" in path else Path(pipeline.folder) / path
    real = Path(os.path.realpath(full))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in (pipeline.folder, *pipeline.roots)):
        raise SinkError(f"{path} is outside of the pipeline's folder: allow it with --root {real.parent}")
    return str(full)


def _database_url(pipeline: Pipeline, text: str) -> str:
    """A SQLite file lies where files may be written. Raises SinkError."""
    url = expanded(text)
    if check_url(url) != "sqlite":
        return url
    start, _, path = url.partition(":///")
    file, question, options = path.partition("?")
    return f"{start}:///{located(pipeline, file)}{question}{options}"


def _topic(spec: model.TopicSink, number: int, pipeline: Pipeline) -> Sink:
    servers = spec.bootstrap_servers or pipeline.head.bootstrap_servers
    options = {**pipeline.head.client, **spec.options}
    encoding = encoding_of(pipeline, spec)
    dead_letters = pipeline.dead_letter_topic if spec.bootstrap_servers is None else None
    if spec.delivery == "at-least-once":
        return AtLeastOnceTopic(spec.topic, servers, options, encoding, dead_letters)
    return ExactlyOnceTopic(spec.topic, servers, options, encoding, dead_letters, name=str(number))


def _function(spec: model.FunctionSink, pipeline: Pipeline) -> Sink:
    from ottla.pipelines.steps.python_code import CodeError, find_function  # noqa: PLC0415 (imports pyspark)

    given = spec.foreach_batch
    try:
        return FunctionSink(find_function(given, pipeline.folder) if isinstance(given, str) else given)
    except CodeError as problem:
        raise SinkError(str(problem)) from None


def _http(spec: model.HttpSink) -> Sink:
    headers = {name: expanded(value) for name, value in spec.headers.items()}
    seconds = [length / 1000 for length in (spec.timeout, spec.retry)]
    return HttpSink(Request(expanded(spec.http), spec.method, headers, spec.format, spec.batch_rows, *seconds))


def _files(spec: model.FileSink, setting: Setting) -> Sink:
    pipeline = setting.pipeline
    partition_by = tuple(spec.partition_by or ())
    if isinstance(spec, model.DeltaSink):
        return DeltaSink(located(pipeline, spec.delta), partition_by)
    if isinstance(spec, model.JsonSink):
        return FilesSink(located(pipeline, spec.json), "json", partition_by, checkpoint=setting.checkpoint)
    if isinstance(spec, model.CsvSink):
        return FilesSink(located(pipeline, spec.csv), "csv", partition_by, checkpoint=setting.checkpoint)
    assert isinstance(spec, model.ParquetSink)
    return FilesSink(located(pipeline, spec.parquet), "parquet", partition_by, checkpoint=setting.checkpoint)
