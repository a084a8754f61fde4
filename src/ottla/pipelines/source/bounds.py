"""Where reading starts and ends, as options say it: earliest, latest, offsets, or times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.base.names import TopicPartition

LATEST, EARLIEST = -1, -2  # as offsets in the options, and as times on the wire
OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMES_EXAMPLE = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'

Offsets = dict[TopicPartition, int]


class OptionError(ValueError):
    """An option of the source that is wrong; str() is one sentence with the cause and the cure."""


@dataclass(frozen=True)
class Bound:
    """One end of what is read. Exactly one field is set."""

    everywhere: int | None = None  # EARLIEST or LATEST
    offsets: Offsets = field(default_factory=dict)  # of single partitions, EARLIEST and LATEST among them
    times_ms: Offsets = field(default_factory=dict)  # of single partitions
    time_ms: int | None = None  # of all partitions


def offsets_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets in the form in which Spark's kafka source writes them, always in the same order.

    Spark compares offsets by their text: another order would look like new data.
    """
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def offsets_of(document: object, name: str = "the offsets", example: str = OFFSETS_EXAMPLE) -> Offsets:
    """The offsets in a parsed document; OptionError if it is of another form."""
    found: Offsets = {}
    try:
        if not isinstance(document, dict):
            raise TypeError
        for topic, partitions in document.items():
            for partition, offset in partitions.items():
                if isinstance(offset, bool) or not isinstance(offset, int):
                    raise TypeError
                found[TopicPartition(str(topic), int(partition))] = offset
    except (TypeError, ValueError, AttributeError):
        raise _bad_form(name, example, document) from None
    return found


def parse_offsets(text: str, name: str, example: str = OFFSETS_EXAMPLE) -> Offsets:
    return offsets_of(_parse(text, name, example), name, example)


def parse_assignment(text: str, name: str) -> tuple[TopicPartition, ...]:
    """The partitions of the option `assign`."""
    document = _parse(text, name, ASSIGN_EXAMPLE)
    found: list[TopicPartition] = []
    try:
        if not isinstance(document, dict):
            raise TypeError
        for topic, partitions in document.items():
            found += [TopicPartition(topic, int(partition)) for partition in partitions]
    except (TypeError, ValueError):
        raise _bad_form(name, ASSIGN_EXAMPLE, text) from None
    if not found:
        raise OptionError(f"{name} names no partitions: write for example {ASSIGN_EXAMPLE}")
    return tuple(found)


def _parse(text: str, name: str, example: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise _bad_form(name, example, text) from None


def _bad_form(name: str, example: str, got: object) -> OptionError:
    return OptionError(f"{name} must be of the form {example}, not {str(got)[:200]!r}")
