"""The columns of every stream, followed from the source through the steps to the sinks without Spark.

Declared columns are known: the source's columns, schemas of `parse`, and the results of select, rename, drop, cast,
derive, window. Undeclared columns (joins, SQL queries, Python) are unknown until a step defines its columns again. Only
certain problems are reported; Spark finds more when it plans the queries.

A column's type is None if unknown; `columns` is None if the set of columns is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.operations.schema_registry.client_config import RegistryAddress
from ottla.pipelines.expressions.texts import needed_columns
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import Path, PipelineError, Problem
from ottla.pipelines.running.sink_checks import conditions, named_columns
from ottla.pipelines.steps.columns import Cast, Derive, Drop, Explode, Mask, Rename, Select
from ottla.pipelines.steps.deduplicate import Deduplicate
from ottla.pipelines.steps.enrich import Enrich
from ottla.pipelines.steps.event_time import WINDOW_END, WINDOW_START, Watermark
from ottla.pipelines.steps.failing_values import NO_RECORD
from ottla.pipelines.steps.filter import Filter, Rule, Sample
from ottla.pipelines.steps.parse import Parse, choose_reader
from ottla.pipelines.steps.parsing.patterns import GrokError
from ottla.pipelines.steps.parsing.schemas import SchemaError, parse_type, read_schema
from ottla.pipelines.steps.pattern import Pattern
from ottla.pipelines.steps.python import Python
from ottla.pipelines.steps.stateful import Stateful
from ottla.pipelines.steps.step import StepError
from ottla.pipelines.steps.window import Window

Columns = dict[str, T.DataType | None]

SOURCE: Columns = {
    "key": T.BinaryType(),
    "value": T.BinaryType(),
    "topic": T.StringType(),
    "partition": T.IntegerType(),
    "offset": T.LongType(),
    "timestamp": T.TimestampType(),
    "timestampType": T.IntegerType(),
    "headers": None,
}
MERGING = ("window", "top", "anomalies", "pattern", "order", "associations", "stateful", "sql")
NUMBERS = ("sum", "avg", "deviation", "percentile")
COMPARED = ("min", "max", "first", "last", "distinct")


@dataclass
class Flow:
    """The columns at one point of one stream."""

    columns: Columns | None
    folder: str
    registry: RegistryAddress | None = None

    def need(self, names: Iterable[str], where: str) -> None:
        """Case-sensitive, like the steps. Raises StepError."""
        for name in names:
            if self.columns is not None and name not in self.columns:
                raise StepError(f"there is no column {name!r}", self._known(), where)

    def need_in(self, sql: str, where: str, also: Iterable[str] = ()) -> None:
        """Case-insensitive, like Spark; `also` are additional names. Raises StepError."""
        if self.columns is None:
            return
        known = {name.lower() for name in (*self.columns, *also)}
        for name in needed_columns(sql):
            if name.lower() not in known and not name.startswith("_"):
                raise StepError(f"there is no column {name!r}", self._known(), where)

    def kind(self, name: str) -> T.DataType | None:
        return None if self.columns is None else self.columns.get(name)

    def _known(self) -> str:
        return f"there are: {', '.join(self.columns or ())}"


@dataclass
class ColumnCheck:
    """`problems` has only the first problem of every stream: later ones may follow from it."""

    pipeline: Pipeline
    problems: list[Problem] = field(default_factory=list)
    unknown: list[Path] = field(default_factory=list)  # the steps after which the columns are unknown
    known: dict[str, Columns | None] = field(default_factory=dict)
    merged: set[str] = field(default_factory=set)  # streams whose rows have no record of their own

    def run(self) -> None:
        """Raises PipelineError."""
        for stream in self.pipeline.queries():
            after = self._after(stream)
            for number, sink in enumerate(stream.sinks):
                flow = Flow(after, self.pipeline.folder, self.pipeline.fields.registry_address)
                path = (*stream.path, "to", number)
                for where, name in named_columns(sink):
                    self._try(path, partial(flow.need, [name], where))
                for where, condition in conditions(sink):
                    self._try(path, partial(flow.need_in, condition, where))
        if self.problems:
            raise PipelineError(self.problems)

    def _after(self, stream: Stream) -> Columns | None:
        """The stream's columns; a shared stream is followed once."""
        if stream.name not in self.known:
            self.known[stream.name] = self._followed(stream)
        return self.known[stream.name]

    def _followed(self, stream: Stream) -> Columns | None:
        is_source = not isinstance(stream.origin, str)
        columns = dict(SOURCE) if is_source else self._after(self.pipeline.streams[str(stream.origin)])
        has_record = is_source or str(stream.origin) not in self.merged
        for number, (name, spec) in enumerate(stream.steps):
            flow = Flow(columns, self.pipeline.folder, self.pipeline.fields.registry_address)
            follow = STEPS.get(type(spec))
            path = (*stream.path, "steps", number, name)
            if follow is None:
                flow.columns = None
            elif not self._try(path, partial(follow, spec, flow)):
                return None
            if not has_record and not self._try(path, partial(_refuse_letters, spec)):
                return None
            has_record = has_record and not _merges(name, spec)
            if columns is not None and flow.columns is None:
                self.unknown.append(path)
            columns = flow.columns
        if not has_record:
            self.merged.add(stream.name)
        return columns

    def _try(self, path: Path, work: Callable[[], None]) -> bool:
        try:
            work()
        except StepError as error:
            where = (*path, error.field) if error.field else path
            self.problems.append(Problem(where, error.cause, error.cure))
            return False
        return True


def _merges(name: str, spec: object) -> bool:
    """Steps behind which rows surely have no record; about joins and unions the builder decides."""
    is_frame = isinstance(spec, Python) and spec.each != "row"
    return is_frame or (bool(getattr(spec, "with_stream", None)) and name == "join") or name in MERGING


def _refuse_letters(spec: object) -> None:
    """Raises StepError."""
    if isinstance(spec, Derive | Filter | Rule | Select) and spec.on_error == "dead":
        raise StepError(*NO_RECORD)


def check_columns(pipeline: Pipeline) -> list[Path]:
    """Return the steps after which only Spark knows the columns. Raises PipelineError."""
    check = ColumnCheck(pipeline)
    check.run()
    return check.unknown


def _parse(step: Parse, flow: Flow) -> None:
    flow.need([step.column], "column")
    flow.need(step.keep, "keep")
    try:
        schema = choose_reader(step, flow.folder, flow.registry)[0].schema
    except (SchemaError, GrokError) as problem:
        raise StepError(str(problem), field=step.field_of(problem)) from None
    except ImportError:  # the package for this format is not installed
        flow.columns = None
        return
    made: Columns = {name: flow.kind(name) for name in step.keep}
    flow.columns = made | {each.name: each.dataType for each in schema.fields}


def _filter(step: Filter, flow: Flow) -> None:
    flow.need(step.matches, "matches")
    flow.need(step.equals, "equals")
    if step.where:
        flow.need_in(step.where, "where")
    if step.classifier:
        flow.columns = None  # may add columns


def _rule(step: Rule, flow: Flow) -> None:
    for text in step.rules.values():
        flow.need_in(text, "rules")


def _select(step: Select, flow: Flow) -> None:
    if isinstance(step.columns, Mapping):
        for text in step.columns.values():
            flow.need_in(text, "columns", also=step.columns)  # an expression may use other columns of the same step
        flow.columns = {name: flow.kind(text.strip("`")) for name, text in step.columns.items()}
        return
    columns = flow.columns
    for path in step.columns:
        flow.need([path if columns is not None and path in columns else path.split(".")[0]], "columns")
    flow.columns = {path.split(".")[-1]: flow.kind(path) for path in step.columns}


def _rename(step: Rename, flow: Flow) -> None:
    flow.need(step.columns, "columns")
    if flow.columns is not None:
        flow.columns = {step.columns.get(name, name): kind for name, kind in flow.columns.items()}


def _drop(step: Drop, flow: Flow) -> None:
    flow.need(step.columns, "columns")
    if flow.columns is not None:
        flow.columns = {name: kind for name, kind in flow.columns.items() if name not in step.columns}


def _cast(step: Cast, flow: Flow) -> None:
    flow.need(step.columns, "columns")
    if flow.columns is not None:
        flow.columns = flow.columns | {name: parse_type(text) for name, text in step.columns.items()}


def _derive(step: Derive, flow: Flow) -> None:
    for name, text in step.columns.items():
        flow.need_in(text, "columns")
        if flow.columns is not None:
            same = next((each for each in flow.columns if each.lower() == name.lower()), name)
            flow.columns = flow.columns | {same: flow.kind(text.strip("`"))}


def _mask(step: Mask, flow: Flow) -> None:
    flow.need(step.columns, "columns")
    if flow.columns is not None:
        flow.columns = flow.columns | dict.fromkeys(step.columns)


def _explode(step: Explode, flow: Flow) -> None:
    flow.need([step.column], "column")
    kind = flow.kind(step.column)
    if kind is not None and not isinstance(kind, T.ArrayType | T.MapType):
        raise StepError(f"{step.column!r} is {kind.simpleString()}, not a list or map", field="column")
    if flow.columns is None or kind is None:
        flow.columns = None
        return
    made = {name: each for name, each in flow.columns.items() if name != step.column}
    if step.position:
        made[step.position] = T.IntegerType()
    if isinstance(kind, T.MapType):
        made[step.key] = kind.keyType
    made[step.into or step.column] = kind.valueType if isinstance(kind, T.MapType) else kind.elementType
    flow.columns = made


def _watermark(step: Watermark, flow: Flow) -> None:
    if step.time == "timestamp" and flow.columns is not None and "timestamp" not in flow.columns:
        return  # the record's own time, if rows are still records
    flow.need([step.time], "time")
    kind = flow.kind(step.time)
    if kind is not None and not isinstance(kind, T.TimestampType):
        name = kind.simpleString()
        raise StepError(f"{step.time} is {name}, not a timestamp", "read it as timestamp, or cast it before", "time")


def _deduplicate(step: Deduplicate, flow: Flow) -> None:
    flow.need(step.by, "by")


def _window(step: Window, flow: Flow) -> None:
    kinds = {name: flow.kind(name) for name in step.by}
    if flow.columns is not None:
        lower = {name.lower() for name in flow.columns}
        for where, names in [("by", step.by), *((form, getattr(step, form).values()) for form in COMPARED)]:
            flow.need([name for name in names if name.lower() not in lower and "." not in name], where)
    for form in NUMBERS:
        flow.need(getattr(step, form).values(), form)
        for name in getattr(step, form).values():
            kind = flow.kind(name)
            if kind is not None and not isinstance(kind, T.NumericType | T.StringType):
                cure = "cast it before, or use SQL"
                raise StepError(f"{name} is {kind.simpleString()}, not a number", cure, form)
    for text in step.aggregates.values():
        flow.need_in(text, "aggregates", also=(*step.new_columns(), WINDOW_START, WINDOW_END))
    span: Columns = {} if step.total else {WINDOW_START: T.TimestampType(), WINDOW_END: T.TimestampType()}
    flow.columns = span | kinds | dict.fromkeys(step.new_columns())


def _sample(step: Sample, flow: Flow) -> None:
    flow.need(step.by, "by")


def _enrich(step: Enrich, flow: Flow) -> None:
    flow.need(step.keys, "http" if step.http is not None else "query")
    made = _declared(step.schema, flow)
    if flow.columns is not None:
        taken = {name.lower() for name in flow.columns} & {name.lower() for name in made}
        if taken:
            raise StepError(f"there is a column {min(taken)!r} already", "rename it before", "schema")
        flow.columns = flow.columns | made


def _pattern(step: Pattern, flow: Flow) -> None:
    flow.need(step.by, "by")
    for where, text in step.conditions:
        flow.need_in(text, where)
    flow.columns = None  # the name of the time is unknown here


def _stateful(step: Stateful, flow: Flow) -> None:
    flow.need(step.by, "by")
    _declared(step.state, flow, "state")
    _declared(step.schema, flow)
    flow.columns = None  # as above


def _declared(schema: object, flow: Flow, where: str = "schema") -> Columns:
    try:
        return {each.name: each.dataType for each in read_schema(schema, flow.folder)[0].fields}
    except SchemaError as problem:
        raise StepError(str(problem), field=where) from None


STEPS: dict[type, Callable[[Any, Flow], None]] = {
    Parse: _parse, Filter: _filter, Rule: _rule, Select: _select, Rename: _rename, Drop: _drop, Cast: _cast,
    Derive: _derive, Mask: _mask, Explode: _explode, Watermark: _watermark, Deduplicate: _deduplicate, Window: _window,
    Sample: _sample, Enrich: _enrich, Pattern: _pattern, Stateful: _stateful,
}  # fmt: skip
