"""Offset resets of consumer groups: the scenarios of --reset-offsets, and the offset files of --export and --from-file.

Nothing here changes a group: the caller shows the plan and commits it. An offset outside the log is moved to the nearer
end, and the plan reports it.
A line of a file is `topic,partition,offset` for a single group, otherwise `group,topic,partition,offset`.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.setting_types import INT_MAX, LONG_MAX
from ottla.base.text import escape_line
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError, error_from_code
from ottla.client.groups import committed_offsets
from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from ottla.operations.errors import OperationError, WrongInputError

TO_OFFSET, TO_EARLIEST, TO_LATEST, TO_CURRENT = "to-offset", "to-earliest", "to-latest", "to-current"
SHIFT_BY, TO_DATETIME, BY_DURATION, FROM_FILE = "shift-by", "to-datetime", "by-duration", "from-file"
SCENARIOS = (TO_OFFSET, TO_EARLIEST, TO_LATEST, SHIFT_BY, TO_DATETIME, BY_DURATION, FROM_FILE, TO_CURRENT)

Offsets = dict[TopicPartition, int]
OffsetsByGroup = Mapping[str, Mapping[TopicPartition, int]]  # by group


class WrongPartitionsError(WrongInputError):
    """The arguments name no partitions, or partitions without a committed offset to shift."""


class Scenario(NamedTuple):
    """A reset scenario; `number` is an offset, a shift or a time in ms, `plans` come from a file."""

    name: str
    number: int = 0
    plans: OffsetsByGroup | None = None


class ResetPlan(NamedTuple):
    """The new offset of each partition, and notes for the caller."""

    offsets: Offsets
    out_of_range: Mapping[TopicPartition, int] = MappingProxyType({})  # requested, but outside the log
    without_record: Sequence[TopicPartition] = ()  # no record at or after the time: moved to the log end offset
    has_group: bool = True  # a file may lack this group


class OffsetResetter:
    """Computes new offsets."""

    def __init__(self, client: Client, scenario: Scenario) -> None:
        self.client = client
        self.scenario = scenario

    def plan(self, group_id: str, partitions: Collection[TopicPartition]) -> ResetPlan:
        check_partitions(self.client, partitions)
        name, number = self.scenario.name, self.scenario.number
        if name == TO_OFFSET:
            return self._in_range(dict.fromkeys(partitions, number))
        if name in (TO_EARLIEST, TO_LATEST):
            return ResetPlan(self._list_offsets(partitions, EARLIEST if name == TO_EARLIEST else LATEST))
        if name in (TO_DATETIME, BY_DURATION):
            return self._at_time(partitions, number)
        if name == FROM_FILE:
            planned = (self.scenario.plans or {}).get(group_id)
            return ResetPlan({}, has_group=False) if planned is None else self._in_range(planned)
        committed = {place: item.offset for place, item in committed_offsets(self.client, group_id).items()}
        if name == SHIFT_BY:
            return self._in_range(shift_offsets(partitions, committed, number))
        missing = [partition for partition in partitions if partition not in committed]
        kept = {place: committed[place] for place in partitions if place in committed}
        return ResetPlan(kept | self._list_offsets(missing, LATEST))

    def _in_range(self, wanted: Mapping[TopicPartition, int]) -> ResetPlan:
        return clamp_offsets(wanted, self._list_offsets(wanted, EARLIEST), self._list_offsets(wanted, LATEST))

    def _at_time(self, partitions: Collection[TopicPartition], time_ms: int) -> ResetPlan:
        found = self._list_offsets(partitions, time_ms)
        late = [place for place, offset in found.items() if offset == NO_OFFSET]
        return ResetPlan(found | self._list_offsets(late, LATEST), without_record=late)

    def _list_offsets(self, partitions: Collection[TopicPartition], time: int) -> Offsets:
        if not partitions:
            return {}
        found, failures = list_offsets(self.client, partitions, time)
        for place, problem in failures.items():
            raise _with_kafka_message(place, problem)
        return {place: item.offset for place, item in found.items()}

    def __repr__(self) -> str:
        return f"<OffsetResetter {self.scenario.name} {self.scenario.number}>"


def clamp_offsets(
    wanted: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> ResetPlan:
    """The offsets, clamped to their logs."""
    found = {place: max(starts[place], min(offset, ends[place])) for place, offset in wanted.items()}
    return ResetPlan(found, {place: offset for place, offset in wanted.items() if found[place] != offset})


def shift_offsets(partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, int], by: int) -> Offsets:
    for place in partitions:
        if place not in committed:
            raise WrongPartitionsError(
                f"Cannot shift offset for partition {place} since there is no current committed offset"
            )
    return {place: committed[place] + by for place in partitions}


def _with_kafka_message(place: TopicPartition, problem: ClientError) -> ClientError:
    if problem.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
        return problem
    return error_from_code(
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        f"Failed to fetch metadata for partition {place} because metadata for topic `{place.topic}` could not be found",
    )


def check_partitions(client: Client, partitions: Collection[TopicPartition]) -> None:
    """Reject partitions that do not exist or have no leader."""
    names = list(dict.fromkeys(place.topic for place in partitions))
    if not names:
        return
    topics = topics_of(client, names)
    leaders = {TopicPartition(name, item.number): item.leader for name in names for item in topics[name].partitions}
    missing = [str(place) for place in partitions if place not in leaders]
    if missing:
        raise OperationError(f'The partitions "{",".join(missing)}" do not exist')
    headless = [str(place) for place in partitions if leaders[place] < 0]
    if headless:
        raise OperationError(f'The partitions "{",".join(headless)}" have no leader')


def named_partitions(client: Client, words: Sequence[str]) -> list[TopicPartition]:
    """`orders:0,2` names two partitions, `orders` all of a topic."""
    found = [place for word in words if ":" in word for place in parse_partitions(word)]
    names = [word for word in words if ":" not in word]
    for name, topic in topics_of(client, names).items():
        found += [TopicPartition(name, item.number) for item in topic.partitions]
    return list(dict.fromkeys(found))


def topics_of(client: Client, names: Sequence[str]) -> dict[str, Topic]:
    """The topics of these names; raises for a missing one."""
    topics = {topic.name: topic for topic in Admin(client).topics(names)} if names else {}
    for name in names:
        if name not in topics:
            raise BrokerError(f"topic {name} does not exist", Error.UNKNOWN_TOPIC_OR_PARTITION, None)
    return topics


def parse_partitions(word: str) -> list[TopicPartition]:
    topic, *rest = word.rstrip(":").split(":")
    if len(rest) != 1:
        raise WrongPartitionsError(f"Invalid topic arg '{word}', expected topic name and partitions")
    found = []
    for part in rest[0].rstrip(",").split(","):
        digits = part[1:] if part[:1] in ("-", "+") else part
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 10 or int(digits) > INT_MAX:
            raise WrongPartitionsError(f"Invalid partition '{part}' specified in topic arg '{word}''")
        found.append(TopicPartition(topic, int(part)))
    return found


# ---- offset files
FILE_BYTES_MAX = 64 * 1024 * 1024
UNQUOTED_MAX = 24  # Kafka's CSV writer quotes longer words without looking into them
SAFE = ord("-")  # commas, quotes and blanks are below it


class UnreadableError(OperationError):
    """The file does not exist or cannot be read."""


def export_text(plans: Mapping[str, Mapping[TopicPartition, int]], is_one_group: bool) -> str:
    """One line for each partition, also if the group id has a newline."""
    lines = []
    for group_id, offsets in plans.items():
        group = "" if is_one_group else f"{_quoted(escape_line(group_id))},"
        lines += [f"{group}{_quoted(place.topic)},{place.partition},{offset}\n" for place, offset in offsets.items()]
    return "".join(lines)


def read_plans(path: str, group_id: str | None) -> OffsetsByGroup:
    """The offsets in a file; without a group column they are for `group_id`."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError):
        raise UnreadableError(f"Unable to read file {path}") from None
    if len(data) > FILE_BYTES_MAX:
        raise OperationError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    return parse_plans(data.decode("utf-8", "replace"), group_id, path)


def parse_plans(data: str, group_id: str | None, path: str = "the file") -> OffsetsByGroup:
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
    """The columns of a line, the last two as numbers; missing ones are 0, as in Kafka."""
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
