"""Compatibility of a new schema version with earlier ones, by the seven compatibility levels.

* BACKWARD: the new version can read data of the last one.
* FORWARD: the last version can read data of the new one.
* FULL: both. With _TRANSITIVE: not only the last one, but every earlier version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ottla.registry.formats.schema_format import InvalidSchemaError, ParsedSchema

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
SHOWN_CHARACTERS_MAX = 10 * 1024  # of the old schema

T = TypeVar("T")


def compared_versions(level: str, earlier: Sequence[T]) -> Sequence[T]:
    """Return which earlier versions (oldest first) a new version is compared with: all, the last or none."""
    if level == "NONE":
        return ()
    return earlier if level.endswith("_TRANSITIVE") else earlier[-1:]


def check(level: str, new: ParsedSchema, earlier: Sequence[ParsedSchema], versions: Sequence[int] = ()) -> list[str]:
    """The differences as the registry returns them in verbose mode; empty if compatible.

    `earlier`: oldest first; `versions`: their numbers, if they are to be included. The newest is checked first, and the
    first incompatible version ends the check.
    """
    direction = level.removesuffix("_TRANSITIVE")
    numbers: Sequence[int | None] = versions or [None] * len(earlier)
    for old, version in reversed(compared_versions(level, list(zip(earlier, numbers, strict=True)))):
        problems: list[str] = []
        if direction in ("FORWARD", "FULL"):
            problems += replace_placeholders(differences(old, new), "old", "new")
        backward = replace_placeholders(differences(new, old), "new", "old") if direction != "FORWARD" else []
        problems += backward
        if problems:
            # For both directions the old schema is included only if backward compatibility is violated.
            return problems + (old_schema_messages(old, version) if backward or direction == "FORWARD" else [])
    return []


def differences(reader: ParsedSchema, writer: ParsedSchema) -> list[str]:
    """Why the reader cannot read the writer's data; the first %s is the reader, the second the writer."""
    if reader.kind != writer.kind:
        return ["Incompatible because of different schema type"]
    try:
        return reader.problems_reading(writer)
    except RecursionError:
        raise InvalidSchemaError("The schemas are nested too deep to be compared") from None


def replace_placeholders(problems: list[str], reader: str, writer: str) -> list[str]:
    return [problem.replace("%s", reader, 1).replace("%s", writer, 1) for problem in problems]


def old_schema_messages(old: ParsedSchema, version: int | None) -> list[str]:
    result = [] if version is None else [f"{{oldSchemaVersion: {version}}}"]
    if len(old.text) <= SHOWN_CHARACTERS_MAX:
        return [*result, f"{{oldSchema: '{old.text}'}}"]
    part = old.text[:SHOWN_CHARACTERS_MAX]
    return [*result, f"{{oldSchema: <truncated to {SHOWN_CHARACTERS_MAX} characters> '{part}'}}"]
