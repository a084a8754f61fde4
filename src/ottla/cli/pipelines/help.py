"""`ottla pipeline steps` and `init`: documentation from the step classes, and an example file."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ottla.cli.arguments import closest_match
from ottla.cli.terminal import ToolError, UsageError, print_line
from ottla.pipelines.model.pipeline import PipelineFields, TopicSource
from ottla.pipelines.model.sink_specs import SINKS
from ottla.pipelines.model.specs import Duration, Share

WORDS = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true|false",
    Duration: "time",
    Share: "share",
    object: "value",
    Any: "value",
}

YAML_EXAMPLE = """\
# A pipeline: the source of records, the steps that process them, the sinks of the results.
#   ottla pipeline check {file}           check it
#   ottla pipeline run {file}             run it, and watch
#   ottla pipeline steps                  list steps, sources and sinks
name: {name}
# bootstrap.servers: HOST:PORT   (default: $OTTLA_BOOTSTRAP_SERVER, else 127.0.0.1:9092)

from:
  topic: site-events           # created with: ottla topics create site-events
  starting: earliest           # where the first run starts; later runs resume

steps:
  # Records that do not match the schema go to the topic {name}-dead-letters, with the reason.
  - parse: {{format: json, schema: {{user: string, page: string, at: timestamp}}}}
  - filter: {{where: "page IS NOT NULL"}}

to:
  - console                    # for experiments; other sinks below
  # - {{topic: pages, key: page}}
  # - {{sqlite: pages.db, table: pages}}
  # - {{parquet: pages}}
"""
PYTHON_EXAMPLE = '''\
"""A pipeline: ottla pipeline run {file}"""

from ottla.pipelines import pipeline, topic

pages = (
    topic("site-events", starting="earliest")
    .parse(format="json", schema={{"user": "string", "page": "string", "at": "timestamp"}})
    .filter(where="page IS NOT NULL")
    .to(console=20)  # or .to(topic="pages", key="page"), .to(sqlite="pages.db", table="pages"), …
)

pipeline("{name}", pages)  # bootstrap_servers="HOST:PORT", unless $OTTLA_BOOTSTRAP_SERVER or 127.0.0.1:9092
'''


def run_steps(options: argparse.Namespace) -> int:
    sections = _sections()
    if options.name is None:
        for title, specs in sections.items():
            print_line(f"{title}:")
            for name, spec in specs.items():
                print_line(f"  {name:16}{summary(spec)}")
            print_line("")
        print_line("All fields of one: ottla pipeline steps NAME")
        return 0
    known = [name for specs in sections.values() for name in specs]
    found = [(title, specs[options.name]) for title, specs in sections.items() if options.name in specs]
    if not found:
        guess = closest_match(options.name, known)
        raise ToolError(f"unknown step {options.name!r}{f': did you mean {guess}?' if guess else ''}", 2)
    for title, spec in found:
        for line in spec_lines(title, options.name, spec):
            print_line(line)
    return 0


def run_init(options: argparse.Namespace) -> int:
    file = Path(options.file)
    if file.exists() and not options.force:
        raise UsageError(f"{file} exists: --force replaces it")
    example = PYTHON_EXAMPLE if file.suffix == ".py" else YAML_EXAMPLE
    file.write_text(example.format(file=file.name, name=_name_of(file)), encoding="utf-8")
    print_line(f"{file} is written. Next: ottla pipeline check {file}")
    return 0


def spec_lines(title: str, name: str, spec: type) -> Iterator[str]:
    """The description, then the fields with name, type, default and meaning."""
    yield f"{name} ({title})"
    yield from (f"  {line}" for line in inspect.cleandoc(spec.__doc__ or "").splitlines())
    rows = [field_words(spec, field) for field in dataclasses.fields(spec)]
    widths = [max((len(row[place]) for row in rows), default=0) for place in range(2)]
    yield ""
    for field, kind, words in rows:
        yield f"  {field.ljust(widths[0])}  {kind.ljust(widths[1])}  {words}".rstrip()
    depends = getattr(spec, "ORDER_MATTERS", "")
    if depends:
        yield f"\n  Depends on the order of arrival: {depends}"
    yield ""


def field_words(spec: type, field: dataclasses.Field[Any]) -> tuple[str, str, str]:
    words = str(field.metadata.get("doc", ""))
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        words = f"{words} (required)"
    elif field.default not in (None, "", dataclasses.MISSING):
        default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        words = words if default in words else f"{words} ({default})"
    return field.name, type_words(get_type_hints(spec)[field.name]), words


def type_words(wanted: Any) -> str:
    """A type annotation in words: `list[str] | None` is "list of text"."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_words(choice) for choice in arguments if choice is not type(None)))
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin in (list, tuple):
        return f"list of {type_words(arguments[0])}"
    if origin is dict:
        return f"name: {type_words(arguments[1])}"
    if origin is not None:
        return "function"
    return WORDS.get(wanted, getattr(wanted, "__name__", str(wanted)).lower())


def summary(spec: type) -> str:
    return (spec.__doc__ or "").strip().partition("\n")[0]


def _sections() -> Mapping[str, Mapping[str, type]]:
    from ottla.pipelines.steps.step_table import STEPS  # noqa: PLC0415 (imports pyspark)

    return {"steps": STEPS, "to": SINKS, "from": {"from": TopicSource}, "top of the file": {"pipeline": PipelineFields}}


def _name_of(file: Path) -> str:
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in file.stem).strip("-")
    return plain or "pipeline"
