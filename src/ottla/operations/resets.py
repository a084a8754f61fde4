"""Where a consumer group shall go on reading: the scenarios of --reset-offsets, and the arithmetic behind them.

Nothing here changes a group; the caller shows the plan, and commits it. An offset outside of a partition's log is moved
to the nearer end, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.setting_types import INT_MAX
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import ClientError, RefusedError, refusal
from ottla.client.groups import committed_offsets
from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from ottla.operations.errors import OperationError, WrongInputError

TO_OFFSET, TO_EARLIEST, TO_LATEST, TO_CURRENT = "to-offset", "to-earliest", "to-latest", "to-current"
SHIFT_BY, TO_DATETIME, BY_DURATION, FROM_FILE = "shift-by", "to-datetime", "by-duration", "from-file"
SCENARIOS = (TO_OFFSET, TO_EARLIEST, TO_LATEST, SHIFT_BY, TO_DATETIME, BY_DURATION, FROM_FILE, TO_CURRENT)

Offsets = dict[TopicPartition, int]
Plans = Mapping[str, Mapping[TopicPartition, int]]  # by group


class WrongPlaceError(WrongInputError):
    """Words that name no partitions, or partitions that a shift cannot start from."""


class Scenario(NamedTuple):
    """What shall become of the offsets; `number` is an offset, a shift or a time in ms, `plans` come from a file."""

    name: str
    number: int = 0
    plans: Plans | None = None


class ResetPlan(NamedTuple):
    """The new offset of each partition, and what whoever asked should know about them."""

    offsets: Offsets
    outside: Mapping[TopicPartition, int] = MappingProxyType({})  # asked for, but not in the log
    late: Sequence[TopicPartition] = ()  # without a record at or after the time: moved to their ends
    has_group: bool = True  # a file may have nothing for this group


class Resetter:
    """Works out new offsets."""

    def __init__(self, client: Client, scenario: Scenario) -> None:
        self.client = client
        self.scenario = scenario

    def plan(self, group_id: str, partitions: Collection[TopicPartition]) -> ResetPlan:
        check_partitions(self.client, partitions)
        name, number = self.scenario.name, self.scenario.number
        if name == TO_OFFSET:
            return self._in_range(dict.fromkeys(partitions, number))
        if name in (TO_EARLIEST, TO_LATEST):
            return ResetPlan(self._ends(partitions, EARLIEST if name == TO_EARLIEST else LATEST))
        if name in (TO_DATETIME, BY_DURATION):
            return self._at_time(partitions, number)
        if name == FROM_FILE:
            planned = (self.scenario.plans or {}).get(group_id)
            return ResetPlan({}, has_group=False) if planned is None else self._in_range(planned)
        committed = {place: item.offset for place, item in committed_offsets(self.client, group_id).items()}
        if name == SHIFT_BY:
            return self._in_range(shifted(partitions, committed, number))
        missing = [partition for partition in partitions if partition not in committed]
        kept = {place: committed[place] for place in partitions if place in committed}
        return ResetPlan(kept | self._ends(missing, LATEST))

    def _in_range(self, wanted: Mapping[TopicPartition, int]) -> ResetPlan:
        return in_range(wanted, self._ends(wanted, EARLIEST), self._ends(wanted, LATEST))

    def _at_time(self, partitions: Collection[TopicPartition], time_ms: int) -> ResetPlan:
        found = self._ends(partitions, time_ms)
        late = [place for place, offset in found.items() if offset == NO_OFFSET]
        return ResetPlan(found | self._ends(late, LATEST), late=late)

    def _ends(self, partitions: Collection[TopicPartition], time: int) -> Offsets:
        if not partitions:
            return {}
        found, failures = list_offsets(self.client, partitions, time)
        for place, problem in failures.items():
            raise _explained(place, problem)
        return {place: item.offset for place, item in found.items()}

    def __repr__(self) -> str:
        return f"<Resetter {self.scenario.name} {self.scenario.number}>"


def in_range(
    wanted: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> ResetPlan:
    """The offsets, moved into their logs where they lie outside."""
    found = {place: max(starts[place], min(offset, ends[place])) for place, offset in wanted.items()}
    return ResetPlan(found, {place: offset for place, offset in wanted.items() if found[place] != offset})


def shifted(partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, int], by: int) -> Offsets:
    for place in partitions:
        if place not in committed:
            raise WrongPlaceError(
                f"Cannot shift offset for partition {place} since there is no current committed offset"
            )
    return {place: committed[place] + by for place in partitions}


def _explained(place: TopicPartition, problem: ClientError) -> ClientError:
    if problem.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
        return problem
    return refusal(
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        f"Failed to fetch metadata for partition {place} because metadata for topic `{place.topic}` could not be found",
    )


def check_partitions(client: Client, partitions: Collection[TopicPartition]) -> None:
    """Refuse partitions that do not exist or have no leader."""
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
    """The topics of these names; a missing one is refused."""
    topics = {topic.name: topic for topic in Admin(client).topics(names)} if names else {}
    for name in names:
        if name not in topics:
            raise RefusedError(f"topic {name} does not exist", Error.UNKNOWN_TOPIC_OR_PARTITION, None)
    return topics


def parse_partitions(word: str) -> list[TopicPartition]:
    topic, *rest = word.rstrip(":").split(":")
    if len(rest) != 1:
        raise WrongPlaceError(f"Invalid topic arg '{word}', expected topic name and partitions")
    found = []
    for part in rest[0].rstrip(",").split(","):
        digits = part[1:] if part[:1] in ("-", "+") else part
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 10 or int(digits) > INT_MAX:
            raise WrongPlaceError(f"Invalid partition '{part}' specified in topic arg '{word}''")
        found.append(TopicPartition(topic, int(part)))
    return found
