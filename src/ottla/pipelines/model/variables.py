"""`${NAME}` and `${NAME:default}` in a pipeline file, and the section `environments`: one file for all deployments.

    bootstrap.servers: ${KAFKA:127.0.0.1:9092}
    environments:
      prod:
        bootstrap.servers: ${KAFKA}                # keys are those of --set
        streams.views.to.1.topic: page-views

Rules:
1. Only values are substituted, never field names. An unset variable without a default is a problem.
2. A variable may hold a number or a Boolean: where a field expects one, the text is parsed as YAML.
3. `$${` is a literal `${`. Any other `${` that is not a variable is an error.
4. Environments that are not selected are not evaluated: their variables may be unset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ottla.pipelines.model.problems import Path, PipelineError, Problem, did_you_mean

ENVIRONMENTS = "environments"
SINK_FIELDS = ("postgres", "sqlalchemy", "redis", "http", "headers")
VARIABLE = re.compile(r"\$(\$)?\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::([^{}]*))?\})?")
UNSET_HINT = "set it, or give a default: ${%s:…}"
ESCAPE_HINT = "write $${ for a literal ${"


class SubstitutedText(str):
    """Text with a substituted variable. specs.py parses it as a number or Boolean where one is expected."""

    __slots__ = ()


def substitute_variables(values: object, variables: Mapping[str, str]) -> Any:
    """Raises PipelineError with every unset variable."""
    problems: list[Problem] = []
    made = _substitute(values, (), variables, problems)
    if problems:
        raise PipelineError(problems)
    return made


def substitute_sink_variables(document: Mapping[str, object], variables: Mapping[str, str]) -> dict[str, object]:
    """Substitute variables of a pipeline written in Python: only sink addresses and headers have them. Raises
    PipelineError."""
    problems: list[Problem] = []
    streams: dict[str, object] = {}
    for name, stream in _mapping(document.get("streams")).items():
        path: Path = ("streams", str(name), "to")
        sinks = stream.get("to") if isinstance(stream, Mapping) else None
        if isinstance(sinks, list):
            found = [
                {
                    key: _substitute(value, (*path, at, key), variables, problems) if key in SINK_FIELDS else value
                    for key, value in sink.items()
                }
                for at, sink in enumerate(sinks)
            ]
            streams[str(name)] = {**stream, "to": found}
        else:
            streams[str(name)] = stream
    if problems:
        raise PipelineError(problems)
    return {**document, "streams": streams}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def select_environment(values: object, name: str | None) -> tuple[object, dict[str, object]]:
    """Return the document without its environments, and the changes of the selected one. Raises PipelineError."""
    if not isinstance(values, Mapping) or (ENVIRONMENTS not in values and name is None):
        return values, {}
    known = values.get(ENVIRONMENTS, {})
    rest = {key: value for key, value in values.items() if key != ENVIRONMENTS}
    if not isinstance(known, Mapping) or not all(isinstance(each, Mapping) for each in known.values()):
        cure = "write `environments: {prod: {bootstrap.servers: …}}`"
        raise PipelineError([Problem((ENVIRONMENTS,), "is a mapping of environments to their changes", cure)])
    if name is None:
        return rest, {}
    if name not in known:
        cure = did_you_mean(name, list(known)) if known else "the file has no `environments`"
        raise PipelineError([Problem((), f"--env: there is no environment {name!r}", cure)])
    return rest, {str(key): value for key, value in known[name].items()}


def _substitute(value: object, path: Path, variables: Mapping[str, str], problems: list[Problem]) -> Any:
    if isinstance(value, Mapping):
        return {key: _substitute(each, (*path, str(key)), variables, problems) for key, each in value.items()}
    if isinstance(value, list):
        return [_substitute(each, (*path, number), variables, problems) for number, each in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def found(match: re.Match[str]) -> str:
        is_escaped, name = match[1], match[2]
        default: str | None = match[3]
        if is_escaped:
            return match[0][1:]
        if name is None:
            problems.append(Problem(path, f"{match.string[match.start() :][:30]!r} is not a variable", ESCAPE_HINT))
            return ""
        said = variables.get(name) if name in variables else default
        if said is None:
            problems.append(Problem(path, f"the variable {name} is not set", UNSET_HINT % name))
        return said or ""

    return SubstitutedText(VARIABLE.sub(found, value))
