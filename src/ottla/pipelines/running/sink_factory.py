"""Creates sinks from their specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.pipelines.model import sink_specs as model
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.running.file_access import OutsideError, check_reads, confined
from ottla.pipelines.sinks.batch import Sink, SinkError
from ottla.pipelines.sinks.console import ConsoleSink
from ottla.pipelines.sinks.database import DatabaseSink, PostgresSink, SqliteSink
from ottla.pipelines.sinks.encoding import Encoding
from ottla.pipelines.sinks.files import DeltaSink, FilesSink
from ottla.pipelines.sinks.function import FunctionSink
from ottla.pipelines.sinks.http_sink import HttpRequest, HttpSink
from ottla.pipelines.sinks.redis_database import RedisSink
from ottla.pipelines.sinks.redis_database import check_url as check_redis_url
from ottla.pipelines.sinks.sql_tables import DELETED, Table
from ottla.pipelines.sinks.sqlalchemy_database import SqlAlchemySink, check_url
from ottla.pipelines.sinks.subjects import Subject
from ottla.pipelines.sinks.topic import AtLeastOnceTopic, ExactlyOnceTopic
from ottla.pipelines.steps.lookups.databases import FILE_DATABASES
from ottla.pipelines.steps.step import StepError

Offsets = Mapping[str, Mapping[int, int]]

OLD_S3 = ("s3://", "s3n://")


@dataclass(frozen=True)
class Setting:
    """The query-related settings of a sink."""

    pipeline: Pipeline
    checkpoint: str
    started_at: Offsets = field(default_factory=dict)  # if the start offsets come from a database
    order: tuple[str, ...] = ()  # hidden columns that determine the later row


def make_sink(spec: model.Sink, number: int, setting: Setting) -> Sink:
    """`number` is its index among the sinks of the stream. Raises SinkError."""
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
    """Checks of all sinks without Spark and without connections: writable folders, functions, drivers; and the files
    of its steps. Raises PipelineError with all problems."""
    problems: list[Problem] = []
    for stream in pipeline.streams.values():
        for number, (name, spec) in enumerate(stream.steps):
            try:
                check_reads(pipeline, spec)
            except StepError as problem:
                problems.append(Problem((*stream.path, "steps", number, name, problem.field), problem.cause))
    for stream in pipeline.queries():
        for number, spec in enumerate(stream.sinks):
            try:
                make_sink(spec, number, Setting(pipeline, ""))
            except SinkError as problem:
                problems.append(Problem((*stream.path, "to", number), str(problem)))
    if problems:
        raise PipelineError(problems)


def table_of(spec: model.DatabaseSink, order: tuple[str, ...]) -> Table:
    """`order`: hidden columns that determine the later row."""
    needed = order if spec.mode == "upsert" else None
    delete_by = DELETED if spec.delete_when else None
    return Table(spec.table, spec.mode, tuple(spec.key or ()), spec.create, spec.newest_by, needed, delete_by)


def make_database(spec: model.DatabaseSink, setting: Setting) -> DatabaseSink:
    table = table_of(spec, setting.order)
    started_at = setting.started_at or None
    if isinstance(spec, model.PostgresSink):
        return PostgresSink(table, None, spec.keep_offsets, setting.checkpoint, started_at, spec.postgres)
    if isinstance(spec, model.SqlAlchemySink):
        url = _database_url(setting.pipeline, spec.sqlalchemy)
        return SqlAlchemySink(table, None, spec.keep_offsets, setting.checkpoint, started_at, url)
    if isinstance(spec, model.RedisSink):
        check_redis_url(spec.redis)
        kept = (spec.keep_offsets, setting.checkpoint, started_at)
        return RedisSink(table, None, *kept, spec.redis, spec.chosen_type, spec.expire)
    assert isinstance(spec, model.SqliteSink)
    path = located(setting.pipeline, spec.sqlite)
    return SqliteSink(table, None, spec.keep_offsets, setting.checkpoint, started_at, path)


def encoding_of(pipeline: Pipeline, spec: model.TopicSink) -> Encoding:
    schema = located(pipeline, spec.schema) if spec.schema else None
    subject = None
    if spec.subject is not None:
        address = pipeline.fields.registry_address
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


def located(pipeline: Pipeline, path: str) -> str:
    """The target path, relative to the pipeline's folder, and only in it or below one of its roots. Raises
    SinkError."""
    if path.startswith(OLD_S3):
        raise SinkError(f"{path}: Spark reaches S3 as s3a://{path.partition('://')[2]}")
    try:
        full = confined(pipeline, path)
    except OutsideError as problem:
        raise SinkError(str(problem)) from None
    return path if full is None else str(full)


def _database_url(pipeline: Pipeline, url: str) -> str:
    """A SQLite file must be in a writable folder. Raises SinkError."""
    if check_url(url) not in FILE_DATABASES:
        return url
    start, _, path = url.partition(":///")
    file, question, options = path.partition("?")
    return f"{start}:///{located(pipeline, file)}{question}{options}"


def _topic(spec: model.TopicSink, number: int, pipeline: Pipeline) -> Sink:
    servers = spec.bootstrap_servers or pipeline.fields.bootstrap_servers
    options = {**pipeline.fields.client, **spec.options}
    encoding = encoding_of(pipeline, spec)
    dead_letters = pipeline.dead_letter_topic if spec.bootstrap_servers is None else None
    if spec.delivery == "at-least-once":
        return AtLeastOnceTopic(spec.topic, servers, options, encoding, dead_letters)
    return ExactlyOnceTopic(spec.topic, servers, options, encoding, dead_letters, name=str(number))


def _function(spec: model.FunctionSink, pipeline: Pipeline) -> Sink:
    from ottla.pipelines.steps.user_functions import CodeError, find_function, module_file  # noqa: PLC0415 (imports pyspark)

    given = spec.foreach_batch
    for file in module_file(given):
        located(pipeline, file)
    try:
        return FunctionSink(find_function(given, pipeline.folder) if isinstance(given, str) else given)
    except CodeError as problem:
        raise SinkError(str(problem)) from None


def _http(spec: model.HttpSink) -> Sink:
    seconds = [length / 1000 for length in (spec.timeout, spec.retry)]
    return HttpSink(HttpRequest(spec.http, spec.method, dict(spec.headers), spec.format, spec.batch_rows, *seconds))


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
