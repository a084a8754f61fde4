"""`ottla pipeline infer`: creates a `parse` step from sample records, with the number of mismatches. Without Spark."""

from __future__ import annotations

import argparse
import json

from ottla.cli.arguments import bootstrap_of
from ottla.cli.client_settings import command_properties
from ottla.cli.terminal import ToolError, print_line
from ottla.pipelines.model.inference import FormatGuess, InferredSchema, format_parse_step, guess_format, infer_schema
from ottla.pipelines.model.pipeline import PipelineFields, TopicSource
from ottla.pipelines.running.source_options import source_options
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.source.options import read_options
from ottla.pipelines.source.range_reader import sample_values


def run_infer(options: argparse.Namespace) -> int:
    config = getattr(options, "command_config", None)
    client = command_properties(config)
    head = PipelineFields(name="infer", bootstrap_servers=bootstrap_of(options), client=client)
    source = source_options(head, TopicSource(topic=[options.topic]), "earliest", None, None)
    try:
        values = sample_values(read_options(source), options.samples)
    except SourceError as problem:
        raise ToolError(f"{options.topic}: {problem}") from None
    guess, found = inferred(options.topic, values, options.format)
    if options.json:
        print(json.dumps(as_json(options.topic, guess, found), ensure_ascii=False))
    else:
        for line in format_parse_step(options.topic, guess, found).splitlines():
            print_line(line)
    return 0


def inferred(topic: str, values: list[bytes | None], chosen: str | None) -> tuple[FormatGuess, InferredSchema]:
    """Infer the step. Raises ToolError if the samples are insufficient."""
    if not any(value is not None for value in values):
        raise ToolError(f"{topic} has no records with a value, so columns cannot be inferred")
    guess = guess_format(values)
    if chosen is not None and chosen != guess.format:
        guess = FormatGuess(chosen)  # type: ignore[arg-type]
    if guess.format == "binary":
        raise ToolError(f"the records of {topic} are neither JSON nor CSV nor text: give `parse` a schema file")
    found = infer_schema(values, guess)
    if not found.schema:
        why = "; ".join(found.remarks()) or "no sample has a field"
        raise ToolError(f"no columns can be inferred from the samples of {topic}: {why}")
    return guess, found


def as_json(topic: str, guess: FormatGuess, found: InferredSchema) -> dict[str, object]:
    return {
        "topic": topic,
        "format": guess.format,
        "encoding": guess.encoding,
        "samples": found.samples,
        "empty": found.null_values,
        "unread": dict(found.unreadable),
        "schema": dict(found.schema),
        "present": dict(found.present),
        "remarks": found.remarks(),
    }
