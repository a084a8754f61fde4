"""Offsets of groups as comma-separated values: what --export writes and --from-file reads.

`topic,partition,offset` where one group is meant, else `group,topic,partition,offset`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping

from ottla.base.names import TopicPartition
from ottla.base.setting_types import INT_MAX, LONG_MAX
from ottla.operations.errors import OperationError
from ottla.operations.resets import Plans

FILE_BYTES_MAX = 64 * 1024 * 1024
UNQUOTED_MAX = 24  # Kafka's writer does not look into longer words: it quotes them
SAFE = ord("-")  # so that commas, quotes and blanks are below it


class UnreadableError(OperationError):
    """A file that is not there or may not be read."""


def export_text(plans: Mapping[str, Mapping[TopicPartition, int]], is_one_group: bool) -> str:
    """One line for each partition."""
    lines = []
    for group_id, offsets in plans.items():
        group = "" if is_one_group else f"{_quoted(group_id)},"
        lines += [f"{group}{_quoted(place.topic)},{place.partition},{offset}\n" for place, offset in offsets.items()]
    return "".join(lines)


def read_plans(path: str, group_id: str | None) -> Plans:
    """The offsets in a file; those of a file without groups are for `group_id`, the only group that is meant."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError):
        raise UnreadableError(f"Unable to read file {path}") from None
    if len(data) > FILE_BYTES_MAX:
        raise OperationError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    return parse_plans(data.decode("utf-8", "replace"), group_id, path)


def parse_plans(data: str, group_id: str | None, path: str = "the file") -> Plans:
    lines = data.rstrip("\n").split("\n")
    is_short = group_id is not None and _record(lines[0], 3) is not None
    plans: dict[str, dict[TopicPartition, int]] = {}
    for number, line in enumerate(lines, 1):
        record = _record(line, 3 if is_short else 4)
        if record is None:
            raise OperationError(f"{path}, line {number}: this is not group,topic,partition,offset")
        group, topic, partition, offset = (group_id or "", *record) if is_short else record
        plans.setdefault(str(group), {})[TopicPartition(str(topic), int(partition))] = int(offset)
    return plans


def _record(line: str, columns: int) -> tuple[str | int, ...] | None:
    """The columns of a line, the last two as numbers; missing ones are 0, as Kafka reads them."""
    try:
        (cells,) = csv.reader([line.rstrip("\r")], strict=True)
    except (csv.Error, ValueError):
        return None
    if not 0 < len(cells) <= columns or not any(cells):
        return None
    texts = cells + [""] * (columns - len(cells))
    try:
        partition, offset = (int(cell or 0) for cell in texts[-2:])
    except ValueError:
        return None
    if abs(partition) > INT_MAX or abs(offset) > LONG_MAX:
        return None
    return (*texts[:-2], partition, offset)


def _quoted(word: str) -> str:
    if len(word) <= UNQUOTED_MAX and all(ord(letter) >= SAFE for letter in word):
        return word
    return '"' + word.replace('"', '""') + '"'
