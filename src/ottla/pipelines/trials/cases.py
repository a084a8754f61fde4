"""Test cases of a pipeline: input records and the expected output.

    cases:                                # orders.test.yaml, beside orders.yaml
      views are counted by the minute:
        given:
          site-events:
            - {user: ann, page: /a, at: 2026-01-01T10:00:01Z}
            - hello
        watermark: 2026-01-01T10:01:00Z
        expect:
          page-views: [{key: /a, value: {page: /a, views: 1}}]
        dead_letters: [{value: hello, reason: not JSON}]

Rules:
1. `given` is one batch, or a list of batches: later ones may contain late records.
2. A record has key, value, headers, timestamp, partition. Anything without these names is the value: text as written,
   other values as JSON.
3. Of an expected record, only the given fields are compared; of a row of a table or file, all columns.
4. Unexpected dead letters are a failure; targets that `expect` does not name are ignored.

A target's name is the topic, the table, the path, or `console`. If two targets share it, the kind is added
(`topic:views`, `sqlite:views`), and if that is not enough, the database (`sqlite:a.db/views`). Several streams may
write to one target.

This module uses no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path as FilePath
from typing import Any, NamedTuple
from zlib import crc32

from ottla.pipelines.model.document import Document, read_document
from ottla.pipelines.model.pipeline import Pipeline, TopicSource
from ottla.pipelines.model.problems import Path, Problem, did_you_mean
from ottla.pipelines.model.sink_specs import (
    CONNECTION_SINKS,
    SINKS,
    DatabaseSink,
    FieldProblem,
    Sink,
    TopicSink,
    sink_display_name,
)
from ottla.pipelines.model.specs import Problems, read_spec
from ottla.pipelines.running.file_access import OutsideError, confined
from ottla.pipelines.running.source_options import reads

SUFFIXES = (".test.yaml", ".test.yml")
PIPELINE_SUFFIXES = (".yaml", ".yml", ".py")
FILE_BYTES_MAX = 64 << 20
DEFAULT_CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)
TIME_CURE = "write it as 2026-01-31T12:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Record:
    """An input record, or an expected one."""

    value: object = field(default=None, metadata={"doc": "text, or a value for JSON; null is a tombstone"})
    key: object = field(default=None, metadata={"doc": "text, or a value for JSON"})
    value_file: str | None = field(default=None, metadata={"doc": "file whose bytes are the value"})
    headers: dict[str, object] = field(default_factory=dict, metadata={"doc": "name: text"})
    timestamp: object = field(default=None, metadata={"doc": "time of the record (the clock of the case)"})
    partition: int = field(default=0, metadata={"doc": "partition (0)"})

    def problems(self) -> Iterator[FieldProblem]:
        if self.value is not None and self.value_file is not None:
            yield "value_file", "there is a value beside it", "keep one of them"
        if self.timestamp is not None and parse_time(self.timestamp) is None:
            yield "timestamp", f"{self.timestamp!r} is not a time", TIME_CURE
        if not 0 <= self.partition < 1 << 31:
            yield "partition", "must not be negative", ""


@dataclass(frozen=True, kw_only=True)
class ExpectedDeadLetter:
    """An expected dead letter: only given fields are compared; `reason` may be a part of the text."""

    value: object = field(default=None, metadata={"doc": "value of the record that died"})
    key: object = field(default=None, metadata={"doc": "key of the record that died"})
    reason: str | None = field(default=None, metadata={"doc": "part of the reason"})
    step: str | None = field(default=None, metadata={"doc": "where it died, such as `main 1 parse`"})


@dataclass(frozen=True, kw_only=True)
class CaseFields:
    """The fields of a case."""

    given: object = field(metadata={"doc": "topic: records, or a list of such batches"})
    expect: dict[str, object] = field(default_factory=dict, metadata={"doc": "topic, table or path: rows"})
    dead_letters: object = field(default=None, metadata={"doc": "records that must die (none)"})
    late: int | None = field(default=None, metadata={"doc": "expected number of late rows"})
    clock: object = field(default=DEFAULT_CLOCK, metadata={"doc": "time of records without a timestamp"})
    watermark: object = field(default=None, metadata={"doc": "final watermark, or `end`: all windows close"})
    ignore: list[str] = field(default_factory=list, metadata={"doc": "columns that are not compared"})

    def problems(self) -> Iterator[FieldProblem]:
        if parse_time(self.clock) is None:
            yield "clock", f"{self.clock!r} is not a time", TIME_CURE
        if self.watermark not in (None, "end") and parse_time(self.watermark) is None:
            yield "watermark", f"{self.watermark!r} is not a time", f"{TIME_CURE}, or `end`"
        if not self.expect and self.dead_letters is None and self.late is None:
            yield "", "expects nothing", "give expect, dead_letters or late"


@dataclass(frozen=True, kw_only=True)
class FileFields:
    """The fields of a file with cases."""

    cases: dict[str, object] = field(metadata={"doc": "name: given, expect, …"})
    pipeline: str | None = field(default=None, metadata={"doc": "the pipeline (orders.yaml for orders.test.yaml)"})

    def problems(self) -> Iterator[FieldProblem]:
        if not self.cases:
            yield "cases", "there are none", ""


class InputRecord(NamedTuple):
    """A record as a topic contains it."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Expected(NamedTuple):
    """`rows` are rows of a table or file, or fields of records."""

    rows: list[dict[str, Any]]
    is_ordered: bool = False


@dataclass(frozen=True)
class Case:
    name: str
    path: Path
    batches: list[list[InputRecord]]
    expected: dict[str, Expected]
    dead_letters: list[dict[str, Any]]
    late: int | None
    watermark: datetime | None
    ignored: frozenset[str]


@dataclass(frozen=True)
class CaseFile:
    """Parsed, but not yet checked against the pipeline."""

    file: FilePath
    document: Document
    pipeline: FilePath
    fields: FileFields

    def cases(self, pipeline: Pipeline) -> list[Case]:
        """Raises PipelineError with all problems and their lines in the test file."""
        problems: Problems = []
        read = [_CaseReader(self.file.parent, pipeline, problems).case(*each) for each in self.fields.cases.items()]
        if problems:
            raise self.document.error(*problems)
        return [case for case in read if case is not None]

    @property
    def names(self) -> list[str]:
        return list(self.fields.cases)


def read_case_file(file: FilePath) -> CaseFile:
    """Raises PipelineError."""
    document = read_document(file)
    problems: Problems = []
    if not isinstance(document.values, Mapping):
        raise document.error(Problem((), "a file with cases is a mapping", "start with `cases:`"))
    fields = read_spec(FileFields, document.values, (), problems)
    if fields is None:
        raise document.error(*problems)
    pipeline = file.parent / fields.pipeline if fields.pipeline else pipeline_beside(file)
    if pipeline is None:
        raise document.error(Problem((), "there is no pipeline beside it", "name it with `pipeline: FILE`"))
    return CaseFile(file, document, pipeline, fields)


def is_case_file(file: FilePath) -> bool:
    return file.name.endswith(SUFFIXES)


def pipeline_beside(file: FilePath) -> FilePath | None:
    """orders.yaml or orders.py for orders.test.yaml."""
    stem = next((file.name.removesuffix(suffix) for suffix in SUFFIXES if file.name.endswith(suffix)), file.stem)
    return next((each for suffix in PIPELINE_SUFFIXES if (each := file.with_name(stem + suffix)).is_file()), None)


def cases_beside(pipeline: FilePath) -> FilePath | None:
    """orders.test.yaml for orders.yaml."""
    return next((each for suffix in SUFFIXES if (each := pipeline.with_name(pipeline.stem + suffix)).is_file()), None)


def parse_time(value: object) -> datetime | None:
    """A time from YAML or text; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return datetime(value.year, value.month, value.day, tzinfo=UTC) if isinstance(value, date) else None


def to_bytes(value: object) -> bytes | None:
    """Text unchanged, other values as JSON; times as ISO 8601 in UTC."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, default=_json_text, ensure_ascii=False).encode()


def _json_text(value: object) -> str:
    moment = parse_time(value)
    if isinstance(value, datetime) and moment is not None:
        return moment.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else str(value)


class _CaseReader:
    """Reads one case."""

    def __init__(self, folder: FilePath, pipeline: Pipeline, problems: Problems) -> None:
        self.folder = folder
        self.pipeline = pipeline
        self.problems = problems
        self.offsets: dict[tuple[str, int], int] = {}
        self.clock = DEFAULT_CLOCK

    def case(self, name: str, value: object) -> Case | None:
        path: Path = ("cases", name)
        if not isinstance(value, Mapping):
            self._add_problem(path, "a case is a mapping", "give it given and expect")
            return None
        fields = read_spec(CaseFields, value, path, self.problems)
        if fields is None:
            return None
        self.clock = parse_time(fields.clock) or DEFAULT_CLOCK
        batches = self._batches(fields.given, (*path, "given"))
        expected = {
            place: self._expected(place, rows, (*path, "expect", place)) for place, rows in fields.expect.items()
        }
        letters = self._letters(fields.dead_letters, (*path, "dead_letters"))
        watermark = END_OF_TIME if fields.watermark == "end" else parse_time(fields.watermark)
        return Case(name, path, batches, expected, letters, fields.late, watermark, frozenset(fields.ignore))

    # Input

    def _batches(self, value: object, path: Path) -> list[list[InputRecord]]:
        if isinstance(value, list):
            return [self._batch(each, (*path, number)) for number, each in enumerate(value)]
        return [self._batch(value, path)]

    def _batch(self, value: object, path: Path) -> list[InputRecord]:
        if not isinstance(value, Mapping):
            self._add_problem(path, "a batch is a mapping of topics to records", "")
            return []
        found: list[InputRecord] = []
        for topic, entries in value.items():
            here = (*path, str(topic))
            if not any(reads(source, str(topic)) for source in _sources(self.pipeline)):
                known = [name for source in _sources(self.pipeline) for name in source.topic]
                self._add_problem(here, f"no stream reads the topic {topic!r}", did_you_mean(str(topic), known))
                continue
            found += [self._given(str(topic), record) for record in self._records(entries, here)]
        return found

    def _given(self, topic: str, record: Record) -> InputRecord:
        place = (topic, record.partition)
        offset = self.offsets.get(place, 0)
        self.offsets[place] = offset + 1
        return InputRecord(
            topic,
            record.partition,
            offset,
            parse_time(record.timestamp) or self.clock,
            to_bytes(record.key),
            to_bytes(record.value),
            tuple((name, to_bytes(text)) for name, text in record.headers.items()),
        )

    def _records(self, entries: object, path: Path) -> Iterator[Record]:
        for fields, here in self._entries(entries, path, Record):
            record = read_spec(Record, fields, here, self.problems)
            if record is not None:
                yield record

    # Expected output

    def _expected(self, place: str, value: object, path: Path) -> Expected:
        names = list(place_names(self.pipeline).values())
        is_topic = place in topic_names(self.pipeline) or (place not in names and chooses_topics(self.pipeline))
        if place not in names and not is_topic:
            self._add_problem(path, f"nothing is written to {place!r}", did_you_mean(place, names))
            return Expected([])
        is_ordered = False
        if isinstance(value, Mapping) and "rows" in value:
            is_ordered = value.get("ordered", False)
            unknown = [str(key) for key in value if key not in ("rows", "ordered")]
            if unknown or not isinstance(is_ordered, bool):
                self._add_problem(path, f"unknown field {unknown[0]!r}" if unknown else "ordered is true or false", "")
            value, path = value["rows"], (*path, "rows")
        if is_topic:
            return Expected(
                [_with_parsed_timestamp(each) for each, _ in self._checked(value, path, Record)], bool(is_ordered)
            )
        return Expected([dict(row) for row, _ in self._entries(value, path, None)], bool(is_ordered))

    def _letters(self, value: object, path: Path) -> list[dict[str, Any]]:
        return [dict(each) for each, _ in self._checked([] if value is None else value, path, ExpectedDeadLetter)]

    def _checked(self, value: object, path: Path, kind: type) -> Iterator[tuple[dict[str, Any], Path]]:
        for fields, here in self._entries(value, path, kind):
            if read_spec(kind, fields, here, self.problems) is not None:
                yield fields, here

    # Entries of lists and files

    def _entries(self, value: object, path: Path, kind: type | None) -> Iterator[tuple[dict[str, Any], Path]]:
        """Each entry as fields of the kind, or as a row."""
        if not isinstance(value, list):
            value = [value]
        for number, entry in enumerate(value):
            here = (*path, number)
            if isinstance(entry, Mapping) and list(entry) == ["file"]:
                lines = (self._read(str(entry["file"]), here) or b"").splitlines()
                entries: list[object] = [self._line(line, kind, here) for line in lines if line.strip()]
            else:
                entries = [entry]
            for each in entries:
                fields = _as_fields(each, kind)
                if fields is None:
                    self._add_problem(here, "a row is a mapping of columns to values", "")
                elif kind is Record and "value" not in fields and isinstance(fields.get("value_file"), str):
                    name = fields.pop("value_file")
                    yield {**fields, "value": self._read(name, (*here, "value_file"))}, here
                else:
                    yield fields, here

    def _line(self, line: bytes, kind: type | None, path: Path) -> object:
        """A line of a file is a record value; a row is JSON."""
        if kind is not None:
            return {"value": line}
        try:
            return json.loads(line)
        except ValueError:
            self._add_problem(path, f"not JSON: {line[:60]!r}", "")
            return {}

    def _read(self, name: str, path: Path) -> bytes | None:
        try:
            file = confined(self.pipeline._replace(folder=str(self.folder)), name)
            if file is None:
                raise OutsideError(f"{name} is not a file")
            if file.stat().st_size > FILE_BYTES_MAX:
                self._add_problem(path, f"{name} is larger than {FILE_BYTES_MAX >> 20} MiB", "take a part of it")
                return None
            return file.read_bytes()
        except OutsideError as problem:
            self._add_problem(path, str(problem), "")
            return None
        except OSError as problem:
            self._add_problem(path, f"cannot read {name}: {problem.strerror}", "paths are relative to the test file")
            return None

    def _add_problem(self, path: Path, cause: str, cure: str) -> None:
        self.problems.append(Problem(path, cause, cure))


def _as_fields(entry: object, kind: type | None) -> dict[str, Any] | None:
    """A value without any field name is the value itself."""
    if kind is None:
        return {str(key): each for key, each in entry.items()} if isinstance(entry, Mapping) else None
    if isinstance(entry, Mapping) and set(entry) & set(kind.__dataclass_fields__):  # type: ignore[attr-defined]
        return {str(key): each for key, each in entry.items()}
    return {"value": entry}


def _with_parsed_timestamp(record: dict[str, Any]) -> dict[str, Any]:
    if "timestamp" in record:
        return {**record, "timestamp": parse_time(record["timestamp"])}
    return record


def _sources(pipeline: Pipeline) -> list[TopicSource]:
    return [stream.origin for stream in pipeline.streams.values() if not isinstance(stream.origin, str)]


class SinkPlace(NamedTuple):
    kind: str
    name: str
    whole: str  # with the database


def place_names(pipeline: Pipeline) -> dict[SinkPlace, str]:
    places = list(dict.fromkeys(place_of(sink) for stream in pipeline.queries() for sink in stream.sinks))
    forms = {place: (place.name, f"{place.kind}:{place.name}", f"{place.kind}:{place.whole}") for place in places}
    return {
        place: next(
            (form for level, form in enumerate(own) if [each[level] for each in forms.values()].count(form) == 1),
            own[-1],
        )
        for place, own in forms.items()
    }


def topic_names(pipeline: Pipeline) -> set[str]:
    """The targets that contain records instead of rows."""
    return {name for place, name in place_names(pipeline).items() if SINKS[place.kind] is TopicSink}


def chooses_topics(pipeline: Pipeline) -> bool:
    """Whether a column names the topic of each row: then any topic name is possible."""
    return any(
        isinstance(sink, TopicSink) and sink.topic_column is not None
        for stream in pipeline.queries()
        for sink in stream.sinks
    )


def place_of(sink: Sink) -> SinkPlace:
    kind = next(name for name, each in SINKS.items() if each is type(sink))
    if isinstance(sink, DatabaseSink):
        database = str(getattr(sink, kind))
        if kind in CONNECTION_SINKS:
            database = f"{crc32(database.encode()):08x}"  # may contain a password
        return SinkPlace(kind, sink.table, f"{database}/{sink.table}")
    name = "console" if kind == "console" else sink_display_name(sink)
    return SinkPlace(kind, name, name)
