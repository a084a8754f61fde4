"""Reads values of a document into specs: frozen dataclasses whose annotations define the allowed values.

    @dataclass(frozen=True, kw_only=True)
    class Filter:
        where: str | None = field(default=None, metadata={"doc": "SQL condition that kept records fulfil"})

    read_spec(Filter, {"where": "size > 3"}, path, problems)

Rules:
1. Nothing is guessed. Unknown fields, missing fields and wrong types are problems, and all are reported at once.
2. A single value may replace a list of one, and `step: value` sets the first field of the step. So may a mapping,
   `rename: {old: new}`, if the first field is a mapping and none of its keys is a field name.
3. Where the text `null` is a choice, a bare null of YAML means it. `"also"` in the metadata of a field maps former
   texts to choices.
4. A spec may define `problems(self) -> Iterator[tuple[field name or "", cause, cure]]` for checks over several fields.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import yaml

from ottla.pipelines.model.problems import Path, Problem, did_you_mean
from ottla.pipelines.model.variables import SubstitutedText

UNITS_MS = {
    "millisecond": 1, "ms": 1,
    "second": 1_000, "s": 1_000,
    "minute": 60_000, "m": 60_000, "min": 60_000,
    "hour": 3_600_000, "h": 3_600_000,
    "day": 86_400_000, "d": 86_400_000,
    "week": 604_800_000, "w": 604_800_000,
}  # fmt: skip
SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
DURATION = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")

OnError = Literal["dead", "null", "fail"]  # for rows with which an expression fails
ON_ERROR = {"doc": "rows with which an expression fails: dead, null or fail (the pipeline's)", "also": {"die": "dead"}}

Spec = TypeVar("Spec")
Problems = list[Problem]


class Duration(int):
    """A time span in milliseconds, written `10 seconds`, `1 minute`, `500 ms`."""

    __slots__ = ()

    @property
    def sql(self) -> str:
        """The form that Spark's windows and watermarks accept."""
        return f"{int(self)} milliseconds"


class Share(float):
    """A fraction from 0 to 1, written `5 %`."""

    __slots__ = ()


class WrongValueError(ValueError):
    """The text names the expected value."""


def read_spec(spec: type[Spec], value: object, path: Path, problems: Problems) -> Spec | None:
    """Return the spec that the value describes, or None after adding to the problems."""
    fields = {field.name: field for field in dataclasses.fields(cast("Any", spec))}
    if not isinstance(value, Mapping):
        if value is None:
            value = {}
        elif fields:
            value = {next(iter(fields)): value}
    elif value and _starts_with_mapping(spec) and not {str(key).replace("-", "_") for key in value} & set(fields):
        value = {next(iter(fields)): value}
    given = {
        str(key).replace("-", "_").replace(".", "_"): (key, entry)
        for key, entry in cast("Mapping[object, object]", value).items()
    }
    found_before = len(problems)
    for name, (key, _) in given.items():
        if name not in fields:
            problems.append(Problem((*path, str(key)), f"unknown field {key!r}", did_you_mean(name, list(fields))))
    arguments = {name: _read_field(spec, name, *given[name], path, problems) for name in fields if name in given}
    for name, entry in fields.items():
        if name not in given and _is_required(entry):
            problems.append(Problem(path, f"{name!r} is missing", str(entry.metadata.get("doc", ""))))
    if len(problems) > found_before:
        return None
    made = spec(**arguments)
    for name, cause, cure in getattr(made, "problems", tuple)():
        problems.append(Problem((*path, name) if name else path, cause, cure))
    return made if len(problems) == found_before else None


def parse_duration(text: object) -> Duration:
    """Raises WrongValueError."""
    match = DURATION.fullmatch(str(text).lower())
    unit = (UNITS_MS.get(match[2]) or UNITS_MS.get(match[2].removesuffix("s"))) if match else None
    if not match or not unit:
        raise WrongValueError("a duration such as '10 seconds', '5 minutes' or '1 hour'")
    return Duration(int(match[1]) * unit)


def parse_share(text: object) -> Share:
    """Raises WrongValueError. The percent sign is required: 0.5 could mean 50 % or 0.5 %."""
    match = SHARE.fullmatch(str(text))
    if not match or float(match[1]) > 100:
        raise WrongValueError("a share such as '5 %', from 0 % to 100 %")
    return Share(float(match[1]) / 100)


def read_value(wanted: Any, value: object) -> object:
    """Convert the value to the annotated type. Raises WrongValueError that names the expected value."""
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(wanted), value)
    if origin is Literal:
        choices = get_args(wanted)
        if value is None and _may_be_null(wanted):
            return "null"
        if value not in choices:
            raise WrongValueError(f"one of {', '.join(map(str, choices))}")
        return value
    if origin in (list, tuple):
        return _read_list(get_args(wanted)[0], value)
    if origin is dict:
        return _read_dict(get_args(wanted)[1], value)
    if origin is not None and issubclass(cast("type", origin), Callable):  # type: ignore[arg-type]
        if not callable(value):
            raise WrongValueError("a Python function")
        return value
    return _read_plain(wanted, value)


def _read_field(spec: type, name: str, key: object, value: object, path: Path, problems: Problems) -> object:
    wanted = _type_hints(spec)[name]
    here = (*path, str(key))
    nested = _nested_spec(wanted)
    if nested is not None and value is not None and not isinstance(value, nested):
        return read_spec(nested, value, here, problems)
    if isinstance(value, str):
        value = _field_metadata(spec, name).get("also", {}).get(value, value)
    try:
        return read_value(wanted, value)
    except WrongValueError as wrong:
        problems.append(
            Problem(here, f"{_short_repr(value)} is not {wrong}", str(_field_metadata(spec, name).get("doc", "")))
        )
        return None


def _read_union(choices: tuple[Any, ...], value: object) -> object:
    if value is None and not any(_may_be_null(choice) for choice in choices) and type(None) in choices:
        return None
    wants: list[str] = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return read_value(choice, value)
        except WrongValueError as wrong:
            wants.append(str(wrong))
    raise WrongValueError(" or ".join(wants))


def _may_be_null(choice: Any) -> bool:
    return get_origin(choice) is Literal and "null" in get_args(choice)


def _read_list(wanted: Any, value: object) -> tuple[object, ...]:
    if isinstance(value, Mapping):
        raise WrongValueError("a list")
    entries = value if isinstance(value, list | tuple) else [value]
    return tuple(read_value(wanted, entry) for entry in entries)


def _read_dict(wanted: Any, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise WrongValueError("a mapping of names to values")
    return {str(key): read_value(wanted, entry) for key, entry in value.items()}


def _read_plain(wanted: Any, value: object) -> object:
    if isinstance(value, SubstitutedText):
        value = _parse_yaml_scalar(value) if wanted in (int, float, bool) else str(value)
    if wanted in (Any, object):
        return value
    if wanted is Duration:
        return value if isinstance(value, Duration) else parse_duration(value)
    if wanted is Share:
        return value if isinstance(value, Share) else parse_share(value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, bool) and wanted is not bool:
        raise WrongValueError(_type_text(wanted))
    if not isinstance(value, wanted):
        raise WrongValueError(_type_text(wanted))
    return value


def _parse_yaml_scalar(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _type_text(wanted: type) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(wanted, wanted.__name__)


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _nested_spec(wanted: Any) -> type | None:
    choices = get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)
    specs = [choice for choice in choices if isinstance(choice, type) and dataclasses.is_dataclass(choice)]
    return specs[0] if len(specs) == 1 and len([c for c in choices if c is not type(None)]) == 1 else None


def _starts_with_mapping(spec: type) -> bool:
    names = [field.name for field in dataclasses.fields(cast("Any", spec))]
    first = _type_hints(spec)[names[0]] if names else None
    choices = get_args(first) if get_origin(first) in (Union, types.UnionType) else (first,)
    return any(get_origin(choice) is dict for choice in choices)


def _field_metadata(spec: type, name: str) -> Mapping[str, Any]:
    return next(field.metadata for field in dataclasses.fields(spec) if field.name == name)


@cache
def _type_hints(spec: type) -> dict[str, Any]:
    return get_type_hints(spec)
