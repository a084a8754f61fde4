"""Plans which topics to import from the log directories of a Kafka cluster, before anything is changed. Pure.

Rules:
1. A topic is imported completely or not at all: a problem of one partition is a problem of the topic.
2. A topic with unknown settings keeps its records without limit (`retention.ms=-1`): the default of seven days could
   delete records within minutes that the old cluster kept longer.
3. Settings that Kafka 4 removed or rejects are skipped with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from ottla.base.errors import KafkaError
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.topic_keys import validate_topic_override
from ottla.cli.migration.foreign_dirs import ForeignFolder, ForeignLog
from ottla.controller.tree import decode_uuid

# ---- topic descriptions
# The output of kafka-topics.sh --describe and of kafka-configs.sh --describe --entity-type topics is accepted, also
# mixed in one file; other lines are skipped.
_TOPIC = re.compile(r"^Topic:\s*(?P<name>\S+)\s.*?\bPartitionCount:\s*(?P<count>\d+)")
_TOPIC_ID = re.compile(r"\bTopicId:\s*(\S+)")
_CONFIGS = re.compile(r"\bConfigs:\s*(\S*)")
_HEADING = re.compile(r"^Dynamic configs for topic '?(?P<name>[^\s']+)'? are:")
_CONFIG_LINE = re.compile(r"^\s+(?P<key>[a-z][a-z0-9.]*)=(?P<value>.*?) sensitive=\S+ synonyms=")


class DescribedTopic(NamedTuple):
    """A topic in a tool's output; without this information the id is empty and the partition count 0."""

    topic_id: str
    partition_count: int
    configs: dict[str, str]


def parse_described(text: str) -> dict[str, DescribedTopic]:
    """Parse the output of Kafka's tools into topics by name."""
    found: dict[str, DescribedTopic] = {}
    current: DescribedTopic | None = None
    for line in text.splitlines():
        if match := _TOPIC.match(line):
            topic_id = _TOPIC_ID.search(line)
            configs = _CONFIGS.search(line)
            pairs = parse_configs(configs.group(1)) if configs else {}
            found[match["name"]] = DescribedTopic(topic_id.group(1) if topic_id else "", int(match["count"]), pairs)
            current = None
        elif match := _HEADING.match(line):
            current = found.setdefault(match["name"], DescribedTopic("", 0, {}))
        elif current is not None and (match := _CONFIG_LINE.match(line)):
            current.configs[match["key"]] = match["value"]
    return found


def parse_configs(text: str) -> dict[str, str]:
    """Parse `a=1,b=x,y` as a=1 and b=x,y: a part without a "=" continues the value before it."""
    pairs: dict[str, str] = {}
    key = ""
    for pair in text.split(","):
        name, equals, value = pair.partition("=")
        if equals:
            key = name
            pairs[key] = value
        elif key and pair:
            pairs[key] += f",{pair}"
    return pairs


UNLIMITED_RETENTION: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
COMPACTED: Final = {"cleanup.policy": "compact"}


class ImportOptions(NamedTuple):
    """The options of an import."""

    topics: frozenset[str]  # by name; empty means all
    includes_internal: bool
    creates_missing: bool  # missing partitions are created empty
    described: Mapping[str, DescribedTopic]  # from Kafka's tools or its metadata log
    configs: Mapping[str, Mapping[str, str]]  # from the command line, by topic


class PlannedTopic(NamedTuple):
    """One topic that was found; it is imported if it has no problem."""

    name: str
    topic_id: UUID
    logs: tuple[ForeignLog | None, ...]  # by partition; None is created empty
    configs: dict[str, str]
    problem: str | None
    is_selected: bool

    @property
    def size_bytes(self) -> int:
        return sum(log.size_bytes for log in self.logs if log is not None)


class Plan(NamedTuple):
    """All topics that were found, and notes about them."""

    topics: list[PlannedTopic]
    missing: list[str]  # requested, but not found
    notes: list[str]

    @property
    def taken(self) -> list[PlannedTopic]:
        return [topic for topic in self.topics if topic.is_selected and topic.problem is None]

    @property
    def problems(self) -> list[str]:
        """Why the request cannot be executed."""
        found = [f"topic {topic.name}: {topic.problem}" for topic in self.topics if topic.is_selected and topic.problem]
        return found + [f"topic {name} is not in the folder" for name in self.missing]


def make_plan(folders: Sequence[ForeignFolder], choice: ImportOptions) -> Plan:
    """Plan the import of all topics in the folders; reads and writes nothing."""
    by_topic: dict[str, list[ForeignLog]] = {}
    for folder in folders:
        for log in folder.logs:
            by_topic.setdefault(log.partition.topic, []).append(log)
    compacted = {name for folder in folders for name in folder.compacted}
    notes: list[str] = []
    topics = [plan_topic(name, logs, compacted, choice, notes) for name, logs in sorted(by_topic.items())]
    untold = [topic.name for topic in topics if topic.is_selected and topic.name not in choice.described]
    if untold:
        some = ", ".join(untold[:8]) + (f" and {len(untold) - 8} more" if len(untold) > 8 else "")
        notes.insert(
            0, f"the settings of {some} are unknown (--settings FILE): none of their records expire by age or size"
        )
    return Plan(topics, sorted(choice.topics - by_topic.keys()), notes)


def plan_topic(
    name: str, logs: Iterable[ForeignLog], compacted: set[str], choice: ImportOptions, notes: list[str]
) -> PlannedTopic:
    is_usual = choice.includes_internal or name not in INTERNAL_TOPICS
    is_wanted = name in choice.topics if choice.topics else is_usual
    described = choice.described.get(name)
    by_index: dict[int, ForeignLog] = {}
    problems = []
    for log in logs:
        other = by_index.setdefault(log.partition.partition, log)
        if other is not log:
            problems.append(f"partition {log.partition.partition} exists in {other.directory} and in {log.directory}")
        if log.problem is not None:
            problems.append(log.problem)
    problems += missing_partitions(by_index, described, fills_missing=choice.creates_missing)
    topic_id = common_topic_id(by_index.values(), described, problems)
    count = max(max(by_index) + 1, described.partition_count if described else 0)
    configs = planned_configs(name, name in compacted, choice, notes if is_wanted else [])
    problem = "; ".join(problems) if problems else None
    return PlannedTopic(name, topic_id, tuple(by_index.get(i) for i in range(count)), configs, problem, is_wanted)


def missing_partitions(
    by_index: Mapping[int, ForeignLog], described: DescribedTopic | None, *, fills_missing: bool
) -> list[str]:
    count = max(max(by_index) + 1, described.partition_count if described else 0)
    missing = [str(index) for index in range(count) if index not in by_index]
    if not missing or fills_missing:
        return []
    some = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
    return [f"partition {some} is missing (name the other log directories, or create it empty: --fill-missing)"]


def common_topic_id(logs: Iterable[ForeignLog], described: DescribedTopic | None, problems: list[str]) -> UUID:
    """The id that all partitions and the description agree on; a new one if there is none."""
    ids = {log.topic_id for log in logs if log.topic_id is not None}
    if described is not None and described.topic_id:
        ids.add(decode_uuid(described.topic_id))
    if len(ids) > 1:
        problems.append("its partitions have different topic ids: they belong to different topics of that name")
    return min(ids, key=str) if ids else uuid4()


def planned_configs(name: str, is_compacted: bool, choice: ImportOptions, notes: list[str]) -> dict[str, str]:
    described = choice.described.get(name)
    if described is not None:
        configs = dict(described.configs)
    else:
        configs = dict(COMPACTED if is_compacted or name in INTERNAL_TOPICS else UNLIMITED_RETENTION)
    configs.update(choice.configs.get(name, {}))
    for key, value in list(configs.items()):
        try:
            validate_topic_override(key, value)
        except KafkaError as error:
            del configs[key]
            notes.append(f"topic {name}: left out {key}={value}: {error.message}")
    return configs
