"""The Python API for pipelines: calls build the same document as a YAML file.

    from ottla.pipelines import pipeline, topic

    events = topic("site-events").parse(format="json", schema={"page": "string"}).named("events")
    pages = events.filter(where="page IS NOT NULL").to(topic="pages", key="page").named("pages")
    pipeline("site", pages, bootstrap_servers="127.0.0.1:9092")

Every step is a method of the same name. Its fields are keywords; the first one may be positional. A named stream that
has further steps becomes a stream of its own in the document, and all its continuations share it.

Rules:
1. Streams are values: each call returns a new one.
2. Nothing is checked here. The reader of documents checks, and its errors name the line of the call.
3. Writing a pipeline needs no running Spark, only the list of steps, which is imported at the first step.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ottla.pipelines.model.pipeline import DEFAULT_STREAM, Pipeline, read_pipeline
from ottla.pipelines.model.problems import Path, PipelineError, Problem, did_you_mean
from ottla.pipelines.model.variables import substitute_sink_variables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipelines.running.runner import Runner

_collected: list[WrittenPipeline] | None = None  # pipelines that a file creates while it is loaded


@dataclass(frozen=True)
class Place:
    """The file and line of a call."""

    file: str
    line: int


@dataclass(frozen=True)
class WrittenStream:
    """A stream under construction. Steps are methods: dir() lists them, help() explains them."""

    _origin: WrittenStream | dict[str, object] | str
    _place: Place
    _steps: tuple[tuple[str, dict[str, object], Place], ...] = ()
    _sinks: tuple[tuple[dict[str, object], Place], ...] = ()
    _name: str | None = None
    _output: str | None = None

    def __repr__(self) -> str:
        steps = ", ".join(name for name, _, _ in self._steps)
        return f"WrittenStream({self._name or 'unnamed'}, {steps or 'no steps'}, {len(self._sinks)} sinks)"

    def __getattr__(self, name: str) -> Callable[..., WrittenStream]:
        if name.startswith("_"):
            raise AttributeError(name)
        known = _known_steps()
        if name not in known:
            raise AttributeError(f"there is no step {name!r}; {did_you_mean(name, list(known))}")
        return _step_method(self, name, known[name])

    def __dir__(self) -> list[str]:
        return [*(name for name in super().__dir__() if not name.startswith("_")), *_known_steps()]

    def named(self, name: str) -> WrittenStream:
        """Name this stream. The name is the key of its checkpoint: keep it."""
        return replace(self, _name=name)

    def to(self, **sink: object) -> WrittenStream:
        """Add a sink: topic=…, sqlite=…, parquet=…, console=20; `ottla pipeline steps` lists all."""
        return replace(self, _sinks=(*self._sinks, (sink, caller())))

    def output(self, mode: str) -> WrittenStream:
        """Set the output mode: append, update or complete."""
        return replace(self, _output=mode)

    def frame(self, spark: SparkSession, *, bootstrap_servers: str | None = None, streaming: bool = True) -> DataFrame:
        """Return the rows of this stream, for a notebook: `streaming=False` reads the records that exist now."""
        servers = {} if bootstrap_servers is None else {"bootstrap_servers": bootstrap_servers}
        looked_at = self.to(console=0) if not self._sinks else self
        return pipeline("notebook", looked_at, **servers).frame(spark, streaming=streaming)

    def _continued(self) -> WrittenStream:
        """Return the stream to which the next step is added. A stream that has a name or a sink is complete; a new one
        reads it."""
        return WrittenStream(self, caller()) if self._name or self._sinks else self


class WrittenPipeline:
    """A pipeline as written; `model()` returns the checked one."""

    def __init__(self, document: dict[str, object], lines: dict[Path, int], file: str, problems: list[Problem]) -> None:
        self.document = document
        self.roots: tuple[str, ...] = ()
        self.lines = lines
        self.file = file
        self.problems = problems

    def __repr__(self) -> str:
        return f"WrittenPipeline({self.document['name']}, {self.file})"

    @property
    def folder(self) -> str:
        """The base of relative paths: the folder of the file, in a notebook the working directory."""
        path = FilePath(self.file)
        return str(path.resolve().parent) if path.is_file() else "."

    def model(self) -> Pipeline:
        """Check the pipeline. Raises PipelineError."""
        if self.problems:
            raise PipelineError(self.problems, self.file, self.lines)
        with self.with_call_lines():
            document = substitute_sink_variables(self.document, os.environ)
            return read_pipeline(document, _known_steps(), self.folder)._replace(roots=self.roots)

    def frame(self, spark: SparkSession, stream: str | None = None, *, streaming: bool = True) -> DataFrame:
        """Return the rows of a stream after its last step. Without a name, the only stream or the last one."""
        from ottla.pipelines.running.notebook import frame_of  # noqa: PLC0415 (needs Spark)

        with self.with_call_lines():
            return frame_of(self.model(), spark, stream, streaming)

    def start(self, spark: SparkSession, folder: str | None = None, *, once: bool = False) -> Runner:
        """Start the queries in this session; `folder` keeps checkpoints. The caller uses poll() and stop() of the
        result."""
        from ottla.pipelines.running.notebook import start  # noqa: PLC0415 (needs Spark)

        with self.with_call_lines():
            return start(self.model(), spark, folder, once)

    def run(self, spark: SparkSession | None = None, folder: str | None = None, *, once: bool = True) -> None:
        """Run until all existing records are processed, or with once=False until interrupted, and print the figures."""
        from ottla.pipelines.running.notebook import run  # noqa: PLC0415 (needs Spark)

        with self.with_call_lines():
            run(self.model(), spark, folder, once)

    @contextmanager
    def with_call_lines(self) -> Iterator[None]:
        """Add the line of the call to problems that are found inside."""
        try:
            yield
        except PipelineError as wrong:
            raise PipelineError(wrong.problems, self.file, self.lines) from None


@dataclass
class DocumentBuilder:
    """Adds streams to a document, parents first."""

    streams: dict[str, dict[str, object]] = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    known: dict[str, WrittenStream] = field(default_factory=dict)
    file: str = ""

    def add(self, stream: WrittenStream, is_only: bool) -> str:
        """Add a stream and return its name in the document."""
        name = stream._name or (DEFAULT_STREAM if is_only else "")
        path: Path = ("streams", name)
        if not name:
            path = ("streams", f"(line {stream._place.line})")
            self.problems.append(Problem(path, "a stream without a name", "end it with .named('…')"))
            self._record_line(path, stream._place)
            return ""
        if name in self.known:
            if self.known[name] is not stream:
                self._record_line(path, stream._place)
                self.problems.append(Problem(path, f"there are two streams {name!r}", "name one of them differently"))
            return name
        self.known[name] = stream
        self._record_line(path, stream._place)
        self.streams[name] = self._document(stream, path)
        return name

    def _document(self, stream: WrittenStream, path: Path) -> dict[str, object]:
        origin = stream._origin
        if isinstance(origin, WrittenStream):
            origin = self.add(origin, is_only=False)
        found: dict[str, object] = {"from": origin}
        if stream._steps:
            found["steps"] = [self._step(entry, (*path, "steps", at)) for at, entry in enumerate(stream._steps)]
        if stream._sinks:
            found["to"] = [sink for sink, _ in stream._sinks]
            for at, (_, place) in enumerate(stream._sinks):
                self._record_line((*path, "to", at), place)
        return found | ({"output": stream._output} if stream._output else {})

    def _step(self, entry: tuple[str, dict[str, object], Place], path: Path) -> dict[str, object]:
        name, given, place = entry
        self._record_line(path, place)
        return {name: {key: self._stream_names(value) for key, value in given.items()}}

    def _stream_names(self, value: object) -> object:
        """Replace a stream that is given as a value, for example in a join, by its name."""
        return self.add(value, is_only=False) if isinstance(value, WrittenStream) else value

    def _record_line(self, path: Path, place: Place) -> None:
        if place.file == self.file:
            self.lines.setdefault(path, place.line)


def topic(*names: str, **source: object) -> WrittenStream:
    """Read records of one or several topics: topic("orders", starting="latest"), topic(pattern="logs-.*")."""
    return WrittenStream({**({"topic": list(names)} if names else {}), **source}, caller())


def stream(name: str) -> WrittenStream:
    """Refer to another stream of the same pipeline by its name."""
    return WrittenStream(name, caller())


def pipeline(name: str, *streams: WrittenStream, roots: Sequence[str] = (), **head: object) -> WrittenPipeline:
    """Create a pipeline of these streams and their parents. Keywords are its fields: bootstrap_servers, every, …
    `roots` are further folders in which it may read and write files."""
    place = caller()
    writer = DocumentBuilder(file=place.file, lines={(): place.line})
    if not streams:
        writer.problems.append(Problem((), "a pipeline without a stream", "pipeline(name, topic(…)…)"))
    for each in streams:
        writer.add(each, is_only=len(streams) == 1)
    document: dict[str, object] = {"name": name, **head, "streams": writer.streams}
    made = WrittenPipeline(document, writer.lines, place.file, writer.problems)
    made.roots = tuple(roots)
    if _collected is not None:
        _collected.append(made)
    return made


@contextmanager
def collect_pipelines() -> Iterator[list[WrittenPipeline]]:
    """Collect all pipelines that are created in this context."""
    global _collected  # noqa: PLW0603 (a file that is loaded gets no arguments)
    before, _collected = _collected, []
    try:
        yield _collected
    finally:
        _collected = before


def caller() -> Place:
    """Return the nearest line of the stack outside this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def _known_steps() -> Mapping[str, type]:
    from ottla.pipelines.steps.step_table import STEPS  # noqa: PLC0415 (imports pyspark)

    return STEPS


def _step_method(written: WrittenStream, name: str, spec: type) -> Callable[..., WrittenStream]:
    """Return the method `stream.filter`, with the signature and the help of the step."""
    described = fields(spec)
    first = described[0].name if described else None

    def method(*values: object, **given: object) -> WrittenStream:
        if len(values) > 1 or (values and (first is None or first in given)):
            raise TypeError(f"{name}() takes its fields by name; only the first, {first}, may be given without")
        entries = {**({str(first): values[0]} if values else {}), **given}
        base = written._continued()
        return replace(base, _steps=(*base._steps, (name, entries, caller())))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{inspect.cleandoc(spec.__doc__ or '')}\n\n" + "\n".join(
        f"{each.name}: {each.metadata.get('doc', '')}" for each in described
    )
    method.__signature__ = _signature(spec)  # type: ignore[attr-defined]
    return method


def _signature(spec: type) -> inspect.Signature:
    defaults = {each.name: each.default_factory() for each in fields(spec) if each.default_factory is not MISSING}
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(spec).parameters.values():
        kind = inspect.Parameter.KEYWORD_ONLY if parameters else inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(each.replace(kind=kind, default=defaults.get(each.name, each.default)))
    return inspect.Signature(parameters, return_annotation=WrittenStream)
