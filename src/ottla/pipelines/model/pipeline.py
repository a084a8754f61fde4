"""A pipeline: streams of records, each from a topic or another stream, through steps, to sinks.

A YAML file and Python code write the same document. `read_pipeline` turns it into a Pipeline, or reports all problems
at once. This module uses no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ottla.base.bootstrap import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, default_bootstrap
from ottla.base.regular_expressions import PatternError, compile_java_pattern
from ottla.operations.pipeline_runs.statuses import NAME
from ottla.operations.schema_registry.client_config import RegistryAddress, address_of
from ottla.operations.schema_registry.errors import SchemaError
from ottla.pipelines.model.problems import Path, PipelineError, Problem, did_you_mean
from ottla.pipelines.model.row_order import row_order_after
from ottla.pipelines.model.sink_specs import SINKS, UNSUPPORTED_SINKS, DatabaseSink, FieldProblem, Sink, TopicSink
from ottla.pipelines.model.specs import ON_ERROR, Duration, OnError, Problems, Share, read_spec

STREAM_FIELDS = ("from", "steps", "to", "output")
DEFAULT_STREAM = "main"  # the stream of a pipeline without `streams`

Connector = Literal["ottla", "jvm"]
Output = Literal["append", "update", "complete"]


class NamedStep(NamedTuple):
    name: str
    spec: object  # implements steps/step.py


@dataclass(frozen=True, kw_only=True)
class TopicSource:
    """Records of one or more topics."""

    topic: list[str] = field(default_factory=list, metadata={"doc": "topic or topics to read"})
    pattern: str | None = field(default=None, metadata={"doc": "regular expression of topic names"})
    starting: str | dict[str, object] = field(
        default="earliest",
        metadata={"doc": "earliest, latest, a time (2026-01-31T12:00:00Z), or offsets per partition"},
    )
    connector: Connector | None = field(default=None, metadata={"doc": "ottla (default) or jvm: Spark's own connector"})
    max_per_batch: int | None = field(default=None, metadata={"doc": "most records in one micro-batch"})
    fail_on_data_loss: bool = field(
        default=True, metadata={"doc": "stop when records were deleted before they were read"}
    )
    bootstrap_servers: str | None = field(default=None, metadata={"doc": "another cluster than the pipeline's"})
    options: dict[str, str] = field(default_factory=dict, metadata={"doc": "further options of the source"})

    def problems(self) -> Iterator[FieldProblem]:
        if bool(self.topic) == bool(self.pattern):
            yield "", "needs either topic or pattern", "write `from: {topic: NAME}`"
        if self.max_per_batch is not None and self.max_per_batch < 1:
            yield "max_per_batch", "must be at least 1", ""


@dataclass(frozen=True, kw_only=True)
class PipelineFields:
    """The fields of a pipeline besides its streams."""

    name: str = field(metadata={"doc": "letters, digits, dot, dash and underscore"})
    description: str = field(default="", metadata={"doc": "what it is for"})
    bootstrap_servers: str = field(
        default_factory=default_bootstrap,
        metadata={"doc": f"brokers, HOST:PORT,… (${BOOTSTRAP_VARIABLE} or {DEFAULT_BOOTSTRAP})"},
    )
    client: dict[str, str] = field(default_factory=dict, metadata={"doc": "settings of the Kafka client (TLS, SASL)"})
    registry: str | dict[str, str] | None = field(
        default=None,
        metadata={"doc": "schema registry: URL, or url and properties such as basic.auth.user.info: ${REGISTRY_LOGIN}"},
    )
    group: str | None = field(default=None, metadata={"doc": "consumer group for the progress"})
    on_error: OnError = field(
        default="dead", metadata={**ON_ERROR, "doc": "rows with which an expression fails: dead, null or fail"}
    )
    dead_letters: str | bool = field(default=True, metadata={"doc": "topic for records that fail, or false"})
    max_dead: Share | None = field(
        default=None,
        metadata={"doc": "share of dead rows above which a run fails, such as 5 % (only if all are dead)"},
    )
    late_rows: str | None = field(default=None, metadata={"doc": "topic for late records (only counted)"})
    latency: Literal["micro-batch", "realtime"] = field(
        default="micro-batch", metadata={"doc": "micro-batch or realtime"}
    )
    every: Duration | None = field(default=None, metadata={"doc": "time between micro-batches (as fast as possible)"})
    restart: Literal["never", "on-failure", "always"] = field(
        default="never", metadata={"doc": "after a failure: never, on-failure (if it had been running) or always"}
    )
    spark: dict[str, str] = field(default_factory=dict, metadata={"doc": "settings of Spark"})

    def problems(self) -> Iterator[FieldProblem]:
        if not NAME.fullmatch(self.name):
            yield "name", f"{self.name!r} is not a valid name", "use letters, digits, dot, dash and underscore"
        try:
            if self.registry is not None and self.registry_address is None:
                yield "registry", "has no url", "write `registry: http://host:8081`"
            elif self.registry_address is not None:
                self.registry_address.nodes()
        except SchemaError as problem:
            yield "registry", str(problem), ""
        if self.late_rows is not None and self.latency == "realtime":
            yield "late_rows", "realtime has no late rows", "remove it, or use latency: micro-batch"

    @property
    def registry_address(self) -> RegistryAddress | None:
        if isinstance(self.registry, Mapping):
            properties = {name: value for name, value in self.registry.items() if name != "url"}
            return address_of(properties, self.registry.get("url"))
        return address_of({}, self.registry)


class Stream(NamedTuple):
    """`origin` is a topic source or the name of another stream."""

    name: str
    origin: TopicSource | str
    steps: tuple[NamedStep, ...]
    sinks: tuple[Sink, ...]
    output: Output
    path: Path


class Pipeline(NamedTuple):
    """A pipeline that was read without problems."""

    fields: PipelineFields
    streams: dict[str, Stream]
    folder: str = "."  # base of relative paths; files are written only below it
    roots: tuple[str, ...] = ()  # and below these folders

    @property
    def name(self) -> str:
        return self.fields.name

    @property
    def group(self) -> str:
        return self.fields.group or f"ottla-pipeline-{self.name}"

    @property
    def dead_letter_topic(self) -> str | None:
        chosen = self.fields.dead_letters
        if isinstance(chosen, str):
            return chosen
        return f"{self.name}-dead-letters" if chosen else None

    def queries(self) -> list[Stream]:
        """The streams with sinks: each becomes one query."""
        return [stream for stream in self.streams.values() if stream.sinks]

    def group_of(self, stream: Stream) -> str:
        """The consumer group that shows the progress of a query; each query has its own."""
        return self.group if len(self.queries()) == 1 else f"{self.group}.{stream.name}"

    def ancestry(self, stream: Stream) -> list[Stream]:
        """The stream and all streams that lead to it, through parents and joins."""
        found: dict[str, Stream] = {}
        self._walk(stream, found)
        return list(found.values())

    def sources_of(self, stream: Stream) -> list[TopicSource]:
        return [each.origin for each in self.ancestry(stream) if not isinstance(each.origin, str)]

    def _walk(self, stream: Stream, found: dict[str, Stream]) -> None:
        if stream.name in found:
            return
        found[stream.name] = stream
        for name in parents(stream):
            self._walk(self.streams[name], found)


def parents(stream: Stream) -> list[str]:
    """The names of the streams that this one reads."""
    joined = [getattr(step.spec, "with_stream", None) for step in stream.steps]
    joined += [name for step in stream.steps for name in getattr(step.spec, "with_streams", ())]
    own = [stream.origin] if isinstance(stream.origin, str) else []
    return [*own, *(name for name in joined if name)]


def read_pipeline(values: object, steps: Mapping[str, type[object]], folder: str = ".") -> Pipeline:
    """Raises PipelineError with all problems. `steps` maps names to step classes."""
    problems: Problems = []
    if not isinstance(values, Mapping):
        raise PipelineError([Problem((), "a pipeline is a mapping", "start with `name: …`")])
    whole = dict(values)
    is_flat = "streams" not in whole
    top = {key: whole.pop(key) for key in STREAM_FIELDS if key in whole} if is_flat else {}
    described = {DEFAULT_STREAM: top} if is_flat else whole.pop("streams")
    head = read_spec(PipelineFields, whole, (), problems)
    streams = _read_streams(described, is_flat, steps, problems)
    if head is None or problems:
        raise PipelineError(problems)
    _check_references(streams, problems)
    if not problems:
        _check_row_order(streams, problems)
    pipeline = Pipeline(head, streams, folder)
    if not problems:
        problems += find_pattern_loops(pipeline)
    if problems:
        raise PipelineError(problems)
    return pipeline


def _read_streams(
    described: object, is_flat: bool, steps: Mapping[str, type[object]], problems: Problems
) -> dict[str, Stream]:
    if not isinstance(described, Mapping) or not described:
        problems.append(Problem(("streams",), "streams is a mapping of names to streams", ""))
        return {}
    streams: dict[str, Stream] = {}
    for name, value in described.items():
        path: Path = () if is_flat else ("streams", str(name))
        if not NAME.fullmatch(str(name)):
            problems.append(
                Problem(path, f"{name!r} is not a valid name", "use letters, digits, dot, dash and underscore")
            )
        stream = _read_stream(str(name), value, path, steps, problems)
        if stream is not None:
            streams[stream.name] = stream
    return streams


def _read_stream(
    name: str, value: object, path: Path, steps: Mapping[str, type[object]], problems: Problems
) -> Stream | None:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, "a stream is a mapping", "give it from, steps and to"))
        return None
    for key in value:
        if key not in STREAM_FIELDS:
            problems.append(Problem((*path, str(key)), f"unknown field {key!r}", did_you_mean(str(key), STREAM_FIELDS)))
    if "from" not in value:
        problems.append(Problem(path, "'from' is missing", "write `from: {topic: NAME}`"))
        return None
    output = value.get("output", "append")
    if output not in ("append", "update", "complete"):
        problems.append(Problem((*path, "output"), f"{output!r} is not append, update or complete", ""))
    origin = _read_origin(value["from"], (*path, "from"), problems)
    read_steps = _read_steps(value.get("steps"), (*path, "steps"), steps, problems)
    sinks = _read_sinks(value.get("to"), (*path, "to"), problems)
    return Stream(name, origin, read_steps, sinks, output, path) if origin is not None else None


def _read_origin(value: object, path: Path, problems: Problems) -> TopicSource | str | None:
    return value if isinstance(value, str) else read_spec(TopicSource, value, path, problems)


def _read_steps(
    value: object, path: Path, known: Mapping[str, type[object]], problems: Problems
) -> tuple[NamedStep, ...]:
    read: list[NamedStep] = []
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        problems.append(Problem(path, "steps is a list", "start each step with a dash"))
        return ()
    for number, entry in enumerate(value):
        here = (*path, number)
        pair = _name_and_fields(entry)
        if pair is None:
            problems.append(Problem(here, "a step is one name with its fields", "write `- filter: {where: …}`"))
            continue
        name, fields = pair
        if name not in known:
            problems.append(Problem((*here, name), f"there is no step {name!r}", did_you_mean(name, list(known))))
            continue
        spec = read_spec(known[name], fields, (*here, name), problems)
        if spec is not None:
            read.append(NamedStep(name, spec))
    return tuple(read)


def _name_and_fields(entry: object) -> tuple[str, object] | None:
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, Mapping) and len(entry) == 1:
        return next((str(name), fields) for name, fields in entry.items())
    return None


def _read_sinks(value: object, path: Path, problems: Problems) -> tuple[Sink, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        read = [_read_sink(value, path, problems)]
    else:
        read = [_read_sink(entry, (*path, number), problems) for number, entry in enumerate(value)]
    return tuple(sink for sink in read if sink is not None)


def _read_sink(value: object, path: Path, problems: Problems) -> Sink | None:
    fields = {"console": True} if value == "console" else value
    kind = next((kind for kind in SINKS if kind in fields), None) if isinstance(fields, Mapping) else None
    if kind is None or not isinstance(fields, Mapping):
        later = (
            next((kind for kind in UNSUPPORTED_SINKS if kind in fields), None) if isinstance(fields, Mapping) else None
        )
        if later is not None:
            problems.append(Problem((*path, later), *UNSUPPORTED_SINKS[later]))
            return None
        problems.append(Problem(path, "has no target", f"name one of {', '.join(SINKS)}"))
        return None
    given = {key: entry for key, entry in fields.items() if not (key == "console" and entry in (None, True))}
    return read_spec(SINKS[kind], given, path, problems)


def _check_references(streams: dict[str, Stream], problems: Problems) -> None:
    for stream in streams.values():
        problems.extend(
            Problem((*stream.path, "from"), f"there is no stream {name!r}", did_you_mean(name, list(streams)))
            for name in parents(stream)
            if name not in streams
        )
    if problems:
        return
    for stream in streams.values():
        if _depends_on(stream.name, stream.name, streams, set()):
            problems.append(Problem(stream.path, f"stream {stream.name!r} reads itself", "break the cycle"))
    if not any(stream.sinks for stream in streams.values()):
        problems.append(Problem((), "no stream has a `to`", "name a sink, e.g. `to: console`"))


def _depends_on(name: str, goal: str, streams: dict[str, Stream], seen: set[str]) -> bool:
    for parent in parents(streams[name]):
        if parent == goal:
            return True
        if parent not in seen:
            seen.add(parent)
            if _depends_on(parent, goal, streams, seen):
                return True
    return False


def _check_row_order(streams: dict[str, Stream], problems: Problems) -> None:
    """Rows that overwrite each other must have an order."""
    for stream in streams.values():
        order = row_order_after(streams, stream)
        for number, sink in enumerate(stream.sinks):
            if not isinstance(sink, DatabaseSink) or sink.mode != "upsert" or sink.newest_by is not None:
                continue
            if not order.determines_newest_for(sink.key or ()):
                same = ", ".join(sink.key or ())
                cause = f"which of several rows with the same {same} is the newest is not known after {order.lost_at}"
                known = "".join(f", or have {', '.join(sorted(each))} in key" for each in order.keys[:1])
                cure = f"name the column that determines it (newest_by: COLUMN){known}"
                problems.append(Problem((*stream.path, "to", number), cause, cure))


def find_pattern_loops(pipeline: Pipeline) -> Iterator[Problem]:
    """Find patterns that match a topic which the pipeline writes: its rows would come back as records without end.

    A topic that both `from` and `to` name is intended, for example to retry a record. This check uses no Spark and no
    broker, so it runs before the topics exist.
    """
    for reader in pipeline.streams.values():
        origin = reader.origin
        if isinstance(origin, str) or not origin.pattern:
            continue
        for topic, what, cure in _written_topics(pipeline, reader):
            if _matches(origin.pattern, topic):
                cause = (
                    f"{origin.pattern!r} matches {topic}, {what}: the rows would be read again as records, without end"
                )
                yield Problem((*reader.path, "from", "pattern"), cause, cure)


def _written_topics(pipeline: Pipeline, reader: Stream) -> Iterator[tuple[str, str, str]]:
    """The topics that receive rows of this stream: topic, description, hint."""
    own = pipeline.fields.bootstrap_servers
    servers = getattr(reader.origin, "bootstrap_servers", None) or own
    if servers == own:
        if pipeline.dead_letter_topic:
            yield (
                pipeline.dead_letter_topic,
                "to which dead letters go",
                "narrow the pattern, or choose another topic (dead_letters: TOPIC)",
            )
        if pipeline.fields.late_rows:
            yield (
                pipeline.fields.late_rows,
                "to which late rows go",
                "narrow the pattern, or choose another topic (late_rows: TOPIC)",
            )
    for stream in pipeline.queries():
        if reader in pipeline.ancestry(stream):
            for sink in stream.sinks:
                if isinstance(sink, TopicSink) and (sink.bootstrap_servers or own) == servers:
                    yield (
                        sink.topic,
                        f"to which rows of stream {stream.name} go",
                        "narrow the pattern, or write to another topic",
                    )


def _matches(pattern: str, topic: str) -> bool:
    try:
        return compile_java_pattern(pattern).fullmatch(topic) is not None
    except PatternError:
        return False  # reported when the topics are read
