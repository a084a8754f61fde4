"""Where a consumer group shall go on reading: the scenarios of --reset-offsets, and the arithmetic behind them.

Nothing here changes a group; the caller commits what comes out. An offset outside of a partition's log is moved to the
nearer end, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli.java.options import INTEGER_MAX
from ottla.cli.java.order import partition_order
from ottla.cli.terminal import ToolError, UsageError
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import ClientError, RefusedError, refusal
from ottla.client.groups import committed_offsets
from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets

TO_OFFSET, TO_EARLIEST, TO_LATEST, TO_CURRENT = "to-offset", "to-earliest", "to-latest", "to-current"
SHIFT_BY, TO_DATETIME, BY_DURATION, FROM_FILE = "shift-by", "to-datetime", "by-duration", "from-file"
SCENARIOS = (TO_OFFSET, TO_EARLIEST, TO_LATEST, SHIFT_BY, TO_DATETIME, BY_DURATION, FROM_FILE, TO_CURRENT)

Offsets = dict[TopicPartition, int]
Plans = Mapping[str, Mapping[TopicPartition, int]]  # by group


class WrongPlaceError(UsageError):
    """Words that name no partitions, or partitions that a shift cannot start from: a wrong command line."""


class Scenario(NamedTuple):
    """What shall become of the offsets; `number` is an offset, a shift or a time in ms, `plans` come from a file."""

    name: str
    number: int = 0
    plans: Plans | None = None


class Resetter:
    """Works out new offsets; what the user should know meanwhile goes to `tell` and `warn`."""

    def __init__(
        self, client: Client, scenario: Scenario, tell: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        self.client = client
        self.scenario = scenario
        self.tell = tell
        self.warn = warn

    def offsets_of(self, group_id: str, partitions: Collection[TopicPartition]) -> Offsets:
        """The new offset of each partition, in the order in which Kafka's tool lists them."""
        check_partitions(self.client, partitions)
        found = self._offsets_of(group_id, partitions)
        return {partition: found[partition] for partition in partition_order(list(found))}

    def _offsets_of(self, group_id: str, partitions: Collection[TopicPartition]) -> Offsets:
        name, number = self.scenario.name, self.scenario.number
        if name == TO_OFFSET:
            return self._in_range(dict.fromkeys(partitions, number))
        if name in (TO_EARLIEST, TO_LATEST):
            return self._ends(partitions, EARLIEST if name == TO_EARLIEST else LATEST)
        if name in (TO_DATETIME, BY_DURATION):
            return self._at_time(partitions, number)
        if name == FROM_FILE:
            return self._planned(group_id)
        committed = {place: item.offset for place, item in committed_offsets(self.client, group_id).items()}
        if name == SHIFT_BY:
            return self._in_range(shifted(partitions, committed, number))
        missing = [partition for partition in partitions if partition not in committed]
        return {place: committed[place] for place in partitions if place in committed} | self._ends(missing, LATEST)

    def _planned(self, group_id: str) -> Offsets:
        plan = (self.scenario.plans or {}).get(group_id)
        if plan is None:
            self.tell(f"\nError: No reset plan for group {group_id} found")
            return {}
        return self._in_range(plan)

    def _in_range(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        found, warnings = in_range(wanted, self._ends(wanted, EARLIEST), self._ends(wanted, LATEST))
        for line in warnings:
            self.warn(line)
        return found

    def _at_time(self, partitions: Collection[TopicPartition], time_ms: int) -> Offsets:
        found = self._ends(partitions, time_ms)
        late = partition_order([place for place, offset in found.items() if offset == NO_OFFSET])
        for place in late:
            self.tell(
                f"\nWarn: Partition {place.partition} from topic {place.topic} is empty. "
                "Falling back to latest known offset."
            )
        return found | (self._ends(late, LATEST) if late else {})

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
) -> tuple[Offsets, list[str]]:
    """The offsets, moved into their logs where they lie outside, and a line for each that was moved."""
    found: Offsets = {}
    warnings = []
    for place, offset in wanted.items():
        found[place] = max(starts[place], min(offset, ends[place]))
        if found[place] != offset:
            side = "higher than latest" if offset > ends[place] else "lower than earliest"
            warnings.append(
                f"New offset ({offset}) is {side} offset for topic partition {place}. "
                f"Value will be set to {found[place]}"
            )
    return found, warnings


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
        raise ToolError(f'The partitions "{",".join(missing)}" do not exist')
    headless = [str(place) for place in partitions if leaders[place] < 0]
    if headless:
        raise ToolError(f'The partitions "{",".join(headless)}" have no leader')


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
        if not (digits.isascii() and digits.isdecimal()) or int(digits) > INTEGER_MAX:
            raise WrongPlaceError(f"Invalid partition '{part}' specified in topic arg '{word}''")
        found.append(TopicPartition(topic, int(part)))
    return found
