"""`ottla pipeline infer`: from records of a topic to a `parse` step, with what did not fit and how often. No Spark."""

from __future__ import annotations

import argparse
import json

from ottla.cli.arguments import bootstrap_of
from ottla.cli.client_settings import command_properties
from ottla.cli.terminal import ToolError, say
from ottla.pipelines.model.inference import Guess, Inference, guess_format, infer
from ottla.pipelines.model.inferred_step import parse_step
from ottla.pipelines.model.pipeline import Head, TopicSource
from ottla.pipelines.running.source_options import source_options
from ottla.pipelines.source.losses import SourceError
from ottla.pipelines.source.options import read_options
from ottla.pipelines.source.sampling import sample_values


def run_infer(options: argparse.Namespace) -> int:
    config = getattr(options, "command_config", None)
    client = command_properties(config)
    head = Head(name="infer", bootstrap_servers=bootstrap_of(options), client=client)
    source = source_options(head, TopicSource(topic=[options.topic]), "earliest", None, None)
    try:
        values = sample_values(read_options(source), options.samples)
    except SourceError as problem:
        raise ToolError(f"{options.topic}: {problem}") from None
    guess, found = inferred(options.topic, values, options.format)
    if options.json:
        print(json.dumps(as_json(options.topic, guess, found), ensure_ascii=False))
    else:
        for line in parse_step(options.topic, guess, found).splitlines():
            say(line)
    return 0


def inferred(topic: str, values: list[bytes | None], chosen: str | None) -> tuple[Guess, Inference]:
    """Raises ToolError where samples tell nothing."""
    if not any(value is not None for value in values):
        raise ToolError(f"{topic} has no records with a value: nothing tells its columns")
    guess = guess_format(values)
    if chosen is not None and chosen != guess.format:
        guess = Guess(chosen)  # type: ignore[arg-type]
    if guess.format == "binary":
        raise ToolError(f"the records of {topic} are neither JSON nor CSV nor text: give `parse` the file of a schema")
    found = infer(values, guess)
    if not found.schema:
        why = "; ".join(found.remarks()) or "no sample has a field"
        raise ToolError(f"no column can be made of the samples of {topic}: {why}")
    return guess, found


def as_json(topic: str, guess: Guess, found: Inference) -> dict[str, object]:
    return {
        "topic": topic,
        "format": guess.format,
        "encoding": guess.encoding,
        "samples": found.samples,
        "empty": found.empty,
        "unread": dict(found.unread),
        "schema": dict(found.schema),
        "present": dict(found.present),
        "remarks": found.remarks(),
    }
