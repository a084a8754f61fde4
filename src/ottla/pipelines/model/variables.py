"""`${NAME}` and `${NAME:default}` in a pipeline file, and the section `environments`: one file for all places.

    bootstrap.servers: ${KAFKA:127.0.0.1:9092}
    environments:
      prod:
        bootstrap.servers: ${KAFKA}                # keys are those of --set
        streams.views.to.1.topic: page-views

Rules:
1. Only text is looked at, never names of fields. A variable that is not set and has no default is a problem.
2. A number or a switch may come from a variable: where a field wants one, the text is read as YAML would.
3. `$${` is `${` as it stands. Anything else that begins with `${` and is no variable is refused.
4. An environment that is not chosen is not looked at: its variables may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ottla.pipelines.model.problems import Path, PipelineError, Problem, did_you_mean

ENVIRONMENTS = "environments"
VARIABLE = re.compile(r"\$(\$)?\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::([^{}]*))?\})?")
CURE = "set it, or give a default: ${%s:…}"
TEXT_CURE = "write $${ for the text itself"


class FromVariable(str):
    """Text with a variable in it; fields.py reads it as a number or a switch where one is wanted."""

    __slots__ = ()


def with_variables(values: object, variables: Mapping[str, str]) -> Any:
    """Raises PipelineError with every variable that is missing."""
    problems: list[Problem] = []
    made = _replaced(values, (), variables, problems)
    if problems:
        raise PipelineError(problems)
    return made


def take_environment(values: object, name: str | None) -> tuple[object, dict[str, object]]:
    """The document without its environments, and the changes of the chosen one. Raises PipelineError."""
    if not isinstance(values, Mapping) or (ENVIRONMENTS not in values and name is None):
        return values, {}
    known = values.get(ENVIRONMENTS, {})
    rest = {key: value for key, value in values.items() if key != ENVIRONMENTS}
    if not isinstance(known, Mapping) or not all(isinstance(each, Mapping) for each in known.values()):
        cure = "write `environments: {prod: {bootstrap.servers: …}}`"
        raise PipelineError([Problem((ENVIRONMENTS,), "names environments, each with its changes", cure)])
    if name is None:
        return rest, {}
    if name not in known:
        cure = did_you_mean(name, list(known)) if known else "the file has no `environments`"
        raise PipelineError([Problem((), f"--env: there is no environment {name!r}", cure)])
    return rest, {str(key): value for key, value in known[name].items()}


def _replaced(value: object, path: Path, variables: Mapping[str, str], problems: list[Problem]) -> Any:
    if isinstance(value, Mapping):
        return {key: _replaced(each, (*path, str(key)), variables, problems) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, (*path, number), variables, problems) for number, each in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def found(match: re.Match[str]) -> str:
        is_escaped, name = match[1], match[2]
        default: str | None = match[3]
        if is_escaped:
            return match[0][1:]
        if name is None:
            problems.append(Problem(path, f"{match.string[match.start() :][:30]!r} is no variable", TEXT_CURE))
            return ""
        said = variables.get(name) if name in variables else default
        if said is None:
            problems.append(Problem(path, f"the variable {name} is not set", CURE % name))
        return said or ""

    return FromVariable(VARIABLE.sub(found, value))
