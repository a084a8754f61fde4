"""Whether a new version of a schema fits the earlier ones, under the seven levels.

* BACKWARD: whoever reads with the new one understands what was written with the last one.
* FORWARD: whoever reads with the last one understands what is written with the new one.
* FULL: both. With _TRANSITIVE: not the last one alone, but every earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.registry.formats.parsed import Parsed

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)


def check(level: str, new: Parsed, earlier: Sequence[Parsed]) -> list[str]:
    """What is wrong, as the registry says it when asked verbosely; nothing: compatible. `earlier`: oldest first.

    As Confluent's: the newest version is looked at first, and the first version that does not fit ends the search.
    """
    direction, _, transitive = level.partition("_")
    if direction == "NONE":
        return []
    for each in reversed(earlier) if transitive else earlier[-1:]:
        problems: list[str] = []
        if direction in ("BACKWARD", "FULL"):
            problems += differences(new, each)
        if direction in ("FORWARD", "FULL"):
            problems += differences(each, new)
        if problems:
            return problems
    return []


def differences(reader: Parsed, writer: Parsed) -> list[str]:
    """Why the reader would not understand what the writer writes."""
    if reader.kind != writer.kind:
        return [f"Incompatible because of different schema type: {reader.kind} and {writer.kind}"]
    if reader.text == writer.text:
        return []
    if reader.kind == "AVRO":
        from ottla.registry.formats.avro import reading as avro  # noqa: PLC0415

        return avro.differences(reader, writer)
    raise AssertionError(reader.kind)
