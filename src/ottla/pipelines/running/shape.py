"""What may change in a pipeline from run to run, and what must stay as the checkpoint was made with.

Spark compares the columns of its state with those of the query, but not what they mean: with windows of another size it
would go on, and mix what it has with what it gets. So what a query is made of is noted when it begins:

    steps without state   may change, before and behind steps that keep state, unless records that died in the last
                          run's steps are still to be sent: they are found by taking these steps once more
    steps with state      must stay: which, how many, in which order, and all their fields; so must the column of time
                          that a watermark names, and the output mode
    sources               must stay in number and order. Topics may be added, and are read from their beginning; one
                          that is gone from the file is a loss
    sinks                 those that remember their batches are asked (belonging.py); the others may change
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.model.sinks import SINKS, Sink, shown_place
from ottla.pipelines.running.checkpoint import FRESH, CheckpointError
from ottla.pipelines.running.notes import read_note, write_note
from ottla.pipelines.steps.frame import Passage
from ottla.pipelines.steps.watermark import Watermark

NOTE = "state-steps"
ALL = "steps"  # note of all steps with which the query was started last
PLAN = "plan"  # the rest; queries of earlier versions have none

Shape = list[list[Any]]  # [["window", {"size": 60000}], …]: steps with the fields that somebody has written


class Plan(NamedTuple):
    """What else a query is made of."""

    output: str
    times: tuple[str, ...]  # columns that watermarks name
    sources: tuple[tuple[str, ...], ...]  # topics, or a pattern, of each
    sinks: tuple[str, ...]


def check_shape(
    pipeline: Pipeline, stream: Stream, passages: Iterable[Passage], folder: str, is_new: bool
) -> list[str]:
    """What has changed and may, in words. Raises PipelineError, CheckpointError; notes what a new query is made of."""
    passages = list(passages)
    now: Shape = [step_shape(pipeline, passage) for passage in passages if passage.keeps_state]
    plan = plan_of(pipeline, stream)
    changes: list[str] = []
    if not is_new:
        before = _parsed(read_note(folder, NOTE) or "", folder)
        started = read_note(folder, ALL)
        if started is None:
            _check_noted(before, now, pipeline, stream)
        if started != _all_steps(pipeline, passages):  # else they are those of the last run
            _check_steps(before, now, pipeline, stream)
        known = _parsed_plan(read_note(folder, PLAN), folder)
        changes = _changes(known, plan, pipeline, stream, has_state=bool(now)) if known is not None else []
    else:
        write_note(folder, NOTE, json.dumps(now))
        write_note(folder, PLAN, json.dumps(plan._asdict()))
    return changes


def check_file(pipeline: Pipeline, stream: Stream, folder: str) -> None:
    """What can be told without Spark, which alone knows what keeps state: the steps that did are in the file, and what
    else must stay has. Raises PipelineError, CheckpointError."""
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
    """Of a query that goes on, with what has changed."""
    write_note(folder, PLAN, json.dumps(plan_of(pipeline, stream)._asdict()))


def plan_of(pipeline: Pipeline, stream: Stream) -> Plan:
    specs = [step.spec for each in pipeline.ancestry(stream) for step in each.steps]
    times = tuple(spec.time for spec in specs if isinstance(spec, Watermark))
    sources = tuple(_topics(source) for source in pipeline.sources_of(stream))
    return Plan(stream.output, times, sources, tuple(map(shown_sink, stream.sinks)))


def shown_sink(sink: Sink) -> str:
    kind = next(name for name, each in SINKS.items() if each is type(sink))
    return " ".join(word for word in (kind, shown_place(sink), getattr(sink, "table", "")) if word)


def note_steps(pipeline: Pipeline, passages: Iterable[Passage], folder: str) -> None:
    """Of a run that begins. Another version may have taken other steps for such with state."""
    passages = list(passages)
    with_state = [step_shape(pipeline, passage) for passage in passages if passage.keeps_state]
    for name, steps in ((NOTE, json.dumps(with_state)), (ALL, _all_steps(pipeline, passages))):
        if read_note(folder, name) != steps:
            write_note(folder, name, steps)


def check_unsent(pipeline: Pipeline, stream: Stream, passages: Iterable[Passage], folder: str) -> None:
    """Called where letters of earlier batches are not sent yet. Raises PipelineError if they would be others now."""
    before = read_note(folder, ALL)
    if before is not None and before != _all_steps(pipeline, passages):
        cause = "dead letters or late rows of the last batches are not sent yet, and steps have changed since"
        raise PipelineError([Problem(stream.path, cause, "run it once as it was, then with the change")])


def _all_steps(pipeline: Pipeline, passages: Iterable[Passage]) -> str:
    return json.dumps([step_shape(pipeline, passage) for passage in passages])


def step_shape(pipeline: Pipeline, passage: Passage) -> list[Any]:
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
    """Of a query of a version that knew of no state in SQL. Raises PipelineError."""
    if before != now and before == [each for each in now if each[0] != "sql"]:
        cause = (
            "the checkpoint is that of an earlier version, which has not noted sql: nobody knows whether it has changed"
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
                f"topic {', '.join(gone)} is not read any more: what is unread there would be lost"
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
    """Offsets of a source would be taken for those of another."""
    return any(
        not set(old) & set(new) and any(set(new) & set(other) for other in before)
        for old, new in zip(before, now, strict=True)
    )


def _refuse(cause: str, pipeline: Pipeline, stream: Stream) -> None:
    cure = (
        "take the change back, give the pipeline another name, or begin anew with --fresh"
        f" (ottla pipeline savepoint {pipeline.name} keeps what there is)"
    )
    raise PipelineError([Problem(stream.path, cause, cure)])


def _topics(source: TopicSource) -> tuple[str, ...]:
    return (f"pattern {source.pattern}",) if source.pattern else tuple(source.topic)


def _plain(value: object) -> Any:
    """As JSON gives it back."""
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
