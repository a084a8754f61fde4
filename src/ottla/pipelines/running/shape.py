"""Steps that keep state must be those that the checkpoint was made with.

Spark compares the columns of its state with those of the query, but not what they mean: with windows of another size it
would go on, and mix what it has with what it gets. Steps without state may change from run to run, unless records that
died in the last run's steps are still to be sent: they are found by taking these steps once more.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.running.checkpoint import FRESH, CheckpointError
from ottla.pipelines.running.notes import read_note, write_note
from ottla.pipelines.steps.frame import Passage

NOTE = "state-steps"
ALL = "steps"  # note of all steps with which the query was started last
CURE = "take the change back, or begin anew with --fresh"

Shape = list[list[Any]]  # [["window", {"size": 60000}], …]: steps with the fields that somebody has written


def check_shape(pipeline: Pipeline, stream: Stream, passages: Iterable[Passage], folder: str, is_new: bool) -> None:
    """Raises PipelineError, CheckpointError; notes the steps of a query that is new."""
    now: Shape = [step_shape(pipeline, passage) for passage in passages if passage.operators]
    if is_new:
        write_note(folder, NOTE, json.dumps(now))
        return
    before = _parsed(read_note(folder, NOTE) or "", folder)
    if before != now:
        gone = [each for each in before if each not in now] or before
        new = [each for each in now if each not in before] or now
        cause = f"the checkpoint was made with {_told(gone)}, now there is {_told(new)}"
        raise PipelineError([Problem(stream.path, cause, CURE)])


def note_steps(pipeline: Pipeline, passages: Iterable[Passage], folder: str) -> None:
    """Of a run that begins."""
    steps = json.dumps([step_shape(pipeline, passage) for passage in passages])
    if read_note(folder, ALL) != steps:
        write_note(folder, ALL, steps)


def check_unsent(pipeline: Pipeline, stream: Stream, passages: Iterable[Passage], folder: str) -> None:
    """Called where letters of earlier batches are not sent yet. Raises PipelineError if they would be others now."""
    before = read_note(folder, ALL)
    if before is not None and before != json.dumps([step_shape(pipeline, passage) for passage in passages]):
        cause = "dead letters or late rows of the last batches are not sent yet, and steps have changed since"
        raise PipelineError([Problem(stream.path, cause, "run it once as it was, then with the change")])


def step_shape(pipeline: Pipeline, passage: Passage) -> list[Any]:
    spec = pipeline.streams[passage.stream].steps[passage.number - 1].spec
    assert dataclasses.is_dataclass(spec)
    given = {
        each.name: _plain(getattr(spec, each.name))
        for each in dataclasses.fields(spec)
        if each.init and getattr(spec, each.name) != _default(each)
    }
    return [passage.step, given]


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


def _told(steps: Shape) -> str:
    return ", ".join(f"{name} {json.dumps(fields)}" for name, fields in steps) or "no step that keeps state"
