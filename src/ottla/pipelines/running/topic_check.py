"""Checks that the source topics of a pipeline exist, before Spark is started, which takes much longer."""

from __future__ import annotations

from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource
from ottla.pipelines.model.problems import Path, PipelineError, Problem
from ottla.pipelines.model.sink_specs import TopicSink
from ottla.pipelines.running.source_options import source_options
from ottla.pipelines.source.cluster import open_cluster
from ottla.pipelines.source.options import OptionError, Options, read_options


def check_topics(pipeline: Pipeline) -> None:
    """Raises PipelineError for missing topics; ClientError, SourceError if the brokers do not answer."""
    problems: list[Problem] = []
    for stream in pipeline.streams.values():
        if isinstance(stream.origin, TopicSource):
            problems += _of_source(pipeline, stream.origin, (*stream.path, "from"))
        problems += _of_sinks(pipeline, stream)
    if problems:
        raise PipelineError(problems)


def _of_source(pipeline: Pipeline, source: TopicSource, path: Path) -> list[Problem]:
    try:
        options = read_options(source_options(pipeline.fields, source, None, None, None))
    except (OptionError, ValueError) as wrong:
        return [Problem(path, str(wrong))]
    found = _existing(options)
    if source.pattern and not found:
        return [Problem((*path, "pattern"), f"no topic at {options.bootstrap} matches {source.pattern!r}")]
    return [_missing(name, options, (*path, "topic")) for name in source.topic if name not in found]


def _of_sinks(pipeline: Pipeline, stream: Stream) -> list[Problem]:
    problems: list[Problem] = []
    for number, sink in enumerate(stream.sinks):
        if isinstance(sink, TopicSink) and not sink.create:
            written = TopicSource(topic=[sink.topic], bootstrap_servers=sink.bootstrap_servers)
            options = read_options(source_options(pipeline.fields, written, None, None, None))
            if sink.topic not in _existing(options):
                problems.append(_missing(sink.topic, options, (*stream.path, "to", number, "topic")))
    return problems


def _existing(options: Options) -> set[str]:
    cluster = open_cluster(options)
    try:
        return {place.topic for place in cluster.partitions(options.subscription)}
    finally:
        cluster.close()


def _missing(name: str, options: Options, path: Path) -> Problem:
    cure = f"ottla topics create {name} --bootstrap-server {options.bootstrap}"
    return Problem(path, f"there is no topic {name!r} at {options.bootstrap}", cure)
