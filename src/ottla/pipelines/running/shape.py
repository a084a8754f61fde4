"""The parts of a pipeline that may change between runs, and those that must match the checkpoint.

Spark compares the columns of its state with those of the query, but not their meaning: with another window size it
would continue and mix old and new windows. So the structure of a query is stored when it starts:

    steps without state   may change, before and after steps with state, unless dead letters of the last run are still
                          unsent: they are found by repeating these steps
    steps with state      must stay: which, how many, in which order, and all their fields; so must the time column of a
                          watermark, and the output mode
    sources               must stay in number and order. Topics may be added, and are read from their beginning; a
                          removed one is data loss
    sinks                 those that store their batches are checked (belonging.py); the others may change
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.model.sink_specs import SINKS, Sink, sink_display_name
from ottla.pipelines.running.checkpoint import FRESH, CheckpointError
from ottla.pipelines.running.notes import read_note, write_note
from ottla.pipelines.steps.event_time import Watermark
from ottla.pipelines.steps.frame import AppliedStep

NOTE = "state-steps"
ALL = "steps"  # note of all steps at the last start of the query
PLAN = "plan"  # the rest; queries of earlier versions have none

Shape = list[list[Any]]  # [["window", {"size": 60000}], …]: steps with their explicit fields


class Plan(NamedTuple):
    """The other parts of a query."""

    output: str
    times: tuple[str, ...]  # the time columns of watermarks
    sources: tuple[tuple[str, ...], ...]  # topics, or a pattern, of each
    sinks: tuple[str, ...]


def check_shape(
    pipeline: Pipeline, stream: Stream, passages: Iterable[AppliedStep], folder: str, is_new: bool
) -> list[str]:
    """Return permitted changes as text; stores the structure of a new query. Raises PipelineError, CheckpointError."""
    passages = list(passages)
    now: Shape = [step_shape(pipeline, passage) for passage in passages if passage.keeps_state]
    plan = plan_of(pipeline, stream)
    changes: list[str] = []
    if not is_new:
        before = _parsed(read_note(folder, NOTE) or "", folder)
        started = read_note(folder, ALL)
        if started is None:
            _check_noted(before, now, pipeline, stream)
        if started != _all_steps(pipeline, passages):  # otherwise they are those of the last run
            _check_steps(before, now, pipeline, stream)
        known = _parsed_plan(read_note(folder, PLAN), folder)
        changes = _changes(known, plan, pipeline, stream, has_state=bool(now)) if known is not None else []
    else:
        write_note(folder, NOTE, json.dumps(now))
        write_note(folder, PLAN, json.dumps(plan._asdict()))
    return changes


def check_file(pipeline: Pipeline, stream: Stream, folder: str) -> None:
    """The checks without Spark, which alone knows the steps with state: earlier ones are in the file, and fixed
    parts are unchanged. Raises PipelineError, CheckpointError."""
    before = _parsed(read_note(folder, NOTE) or "", folder)
    now = [_shape(step.name, step.spec) for each in pipeline.ancestry(stream) for step in each.steps]
    gone = [each for each in before if each not in now]
    if gone:
        names = {name for name, _ in gone}
        _check_steps(gone, [each for each in now if each[0] in names and each not in before], pipeline, stream)
    known = _parsed_plan(read_note(folder, PLAN), folder)
    if known is not None:
        _changes(known, plan_of(pipeline, stream), pipeline, stream, has_state=bool(before))


def note_plan(pipeline: Pipeline, stream: Stream, folder: str) -> None:
    """Stores the changes of a continued query."""
    write_note(folder, PLAN, json.dumps(plan_of(pipeline, stream)._asdict()))


def plan_of(pipeline: Pipeline, stream: Stream) -> Plan:
    specs = [step.spec for each in pipeline.ancestry(stream) for step in each.steps]
    times = tuple(spec.time for spec in specs if isinstance(spec, Watermark))
    sources = tuple(_topics(source) for source in pipeline.sources_of(stream))
    return Plan(stream.output, times, sources, tuple(map(shown_sink, stream.sinks)))


def shown_sink(sink: Sink) -> str:
    kind = next(name for name, each in SINKS.items() if each is type(sink))
    return " ".join(word for word in (kind, sink_display_name(sink), getattr(sink, "table", "")) if word)


def note_steps(pipeline: Pipeline, passages: Iterable[AppliedStep], folder: str) -> None:
    """Stores the steps of a new run. Another version may have classified other steps as stateful."""
    passages = list(passages)
    with_state = [step_shape(pipeline, passage) for passage in passages if passage.keeps_state]
    for name, steps in ((NOTE, json.dumps(with_state)), (ALL, _all_steps(pipeline, passages))):
        if read_note(folder, name) != steps:
            write_note(folder, name, steps)


def check_unsent(pipeline: Pipeline, stream: Stream, passages: Iterable[AppliedStep], folder: str) -> None:
    """Called while letters of earlier batches are unsent. Raises PipelineError if they would differ now."""
    before = read_note(folder, ALL)
    if before is not None and before != _all_steps(pipeline, passages):
        cause = "dead letters or late rows of the last batches are not sent yet, and steps have changed since"
        raise PipelineError([Problem(stream.path, cause, "run it once unchanged, then with the change")])


def _all_steps(pipeline: Pipeline, passages: Iterable[AppliedStep]) -> str:
    return json.dumps([step_shape(pipeline, passage) for passage in passages])


def step_shape(pipeline: Pipeline, passage: AppliedStep) -> list[Any]:
    return _shape(passage.step, pipeline.streams[passage.stream].steps[passage.number - 1].spec)


def _shape(name: str, spec: object) -> list[Any]:
    assert dataclasses.is_dataclass(spec)
    given = {
        each.name: _plain(getattr(spec, each.name))
        for each in dataclasses.fields(spec)
        if each.init and getattr(spec, each.name) != _default(each)
    }
    return [name, given]


def _check_noted(before: Shape, now: Shape, pipeline: Pipeline, stream: Stream) -> None:
    """For a query of a version that did not detect state in SQL. Raises PipelineError."""
    if before != now and before == [each for each in now if each[0] != "sql"]:
        cause = (
            "the checkpoint is that of an earlier version, which did not store sql: whether it has changed is unknown"
        )
        _refuse(cause, pipeline, stream)


def _check_steps(before: Shape, now: Shape, pipeline: Pipeline, stream: Stream) -> None:
    """Raises PipelineError."""
    if before == now:
        return
    gone = [each for each in before if each not in now] or before
    new = [each for each in now if each not in before] or now
    _refuse(f"the checkpoint was made with {_told(gone)}, now there is {_told(new)}", pipeline, stream)


def _changes(before: Plan, now: Plan, pipeline: Pipeline, stream: Stream, has_state: bool) -> list[str]:
    """Raises PipelineError."""
    if has_state and before.output != now.output:
        _refuse(f"the checkpoint was made with output {before.output}, now it is {now.output}", pipeline, stream)
    if has_state and before.times != now.times:
        told = [", ".join(times) or "none" for times in (before.times, now.times)]
        _refuse(f"the checkpoint was made with times of column {told[0]}, now it is {told[1]}", pipeline, stream)
    if len(before.sources) != len(now.sources) or _is_another_order(before.sources, now.sources):
        told = ["; ".join(", ".join(each) for each in sources) for sources in (before.sources, now.sources)]
        _refuse(f"the checkpoint was made with sources {told[0]}, now there are {told[1]}", pipeline, stream)
    return [*_topic_changes(before, now, pipeline, stream), *_sink_changes(before.sinks, now.sinks)]


def _topic_changes(before: Plan, now: Plan, pipeline: Pipeline, stream: Stream) -> list[str]:
    found: list[str] = []
    for old, new, source in zip(before.sources, now.sources, pipeline.sources_of(stream), strict=True):
        gone = [topic for topic in old if topic not in new]
        if gone and not source.pattern and source.fail_on_data_loss:
            _refuse(
                f"topic {', '.join(gone)} is no longer read: its unread records would be lost"
                " (fail_on_data_loss: false allows that)",
                pipeline,
                stream,
            )
        added = [topic for topic in new if topic not in old]
        found += [f"topic {', '.join(added)} is new: it is read from its beginning"] if added else []
    return found


def _sink_changes(before: Sequence[str], now: Sequence[str]) -> list[str]:
    added = [f"{sink} is new: it gets rows from now on" for sink in now if sink not in before]
    return [*added, *(f"{sink} gets no rows any more" for sink in before if sink not in now)]


def _is_another_order(before: Sequence[Sequence[str]], now: Sequence[Sequence[str]]) -> bool:
    """Offsets of one source would be applied to another."""
    return any(
        not set(old) & set(new) and any(set(new) & set(other) for other in before)
        for old, new in zip(before, now, strict=True)
    )


def _refuse(cause: str, pipeline: Pipeline, stream: Stream) -> None:
    cure = (
        "revert the change, rename the pipeline, or start again with --fresh"
        f" (ottla pipeline savepoint {pipeline.name} keeps the current state)"
    )
    raise PipelineError([Problem(stream.path, cause, cure)])


def _topics(source: TopicSource) -> tuple[str, ...]:
    return (f"pattern {source.pattern}",) if source.pattern else tuple(source.topic)


def _plain(value: object) -> Any:
    """The form after a JSON round trip."""
    return json.loads(json.dumps(value, default=lambda each: getattr(each, "__qualname__", None) or str(each)))


def _default(field: dataclasses.Field[object]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _parsed(text: str, folder: str) -> Shape:
    try:
        return [[str(name), dict(fields)] for name, fields in json.loads(text)]
    except (ValueError, TypeError):
        raise CheckpointError(f"{folder}/{NOTE} is damaged; {FRESH}") from None


def _parsed_plan(text: str | None, folder: str) -> Plan | None:
    try:
        given: Mapping[str, Any] = {} if text is None else json.loads(text)
        if text is None:
            return None
        sources = tuple(tuple(map(str, each)) for each in given["sources"])
        return Plan(str(given["output"]), tuple(given["times"]), sources, tuple(given["sinks"]))
    except (ValueError, TypeError, KeyError):
        raise CheckpointError(f"{folder}/{PLAN} is damaged; {FRESH}") from None


def _told(steps: Shape) -> str:
    return ", ".join(f"{name} {json.dumps(fields)}" for name, fields in steps) or "no step that keeps state"
