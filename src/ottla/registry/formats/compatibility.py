"""Whether a new version of a schema fits the earlier ones, under the seven levels.

* BACKWARD: whoever reads with the new one understands what was written with the last one.
* FORWARD: whoever reads with the last one understands what is written with the new one.
* FULL: both. With _TRANSITIVE: not the last one alone, but every earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.registry.formats.parsed import InvalidSchemaError, Parsed

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


def check(level: str, new: Parsed, earlier: Sequence[Parsed], versions: Sequence[int] = ()) -> list[str]:
    """What is wrong, as the registry says it when asked verbosely; nothing: compatible.

    `earlier`: oldest first; `versions`: their numbers, if they are to be told. The newest is looked at first, and the
    first one that does not fit ends the search.
    """
    direction, _, transitive = level.partition("_")
    if direction == "NONE":
        return []
    numbers: Sequence[int | None] = versions or [None] * len(earlier)
    newest_first = list(zip(earlier, numbers, strict=True))[::-1]
    for old, version in newest_first if transitive else newest_first[:1]:
        problems: list[str] = []
        if direction in ("FORWARD", "FULL"):
            problems += told(differences(old, new), "old", "new")
        backward = told(differences(new, old), "new", "old") if direction != "FORWARD" else []
        problems += backward
        if problems:
            # Who asks for both directions learns the old schema with what is wrong backward alone.
            return problems + (shown(old, version) if backward or direction == "FORWARD" else [])
    return []


def differences(reader: Parsed, writer: Parsed) -> list[str]:
    """Why the reader would not understand what the writer writes; %s stands for the reader, then for the writer."""
    if reader.kind != writer.kind:
        return ["Incompatible because of different schema type"]
    try:
        return reader.problems_reading(writer)
    except RecursionError:
        raise InvalidSchemaError("The schemas are nested too deep to be compared") from None


def told(problems: list[str], reader: str, writer: str) -> list[str]:
    return [problem.replace("%s", reader, 1).replace("%s", writer, 1) for problem in problems]


def shown(old: Parsed, version: int | None) -> list[str]:
    result = [] if version is None else [f"{{oldSchemaVersion: {version}}}"]
    if len(old.text) <= SHOWN_CHARACTERS_MAX:
        return [*result, f"{{oldSchema: '{old.text}'}}"]
    part = old.text[:SHOWN_CHARACTERS_MAX]
    return [*result, f"{{oldSchema: <truncated to {SHOWN_CHARACTERS_MAX} characters> '{part}'}}"]
