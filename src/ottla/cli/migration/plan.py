"""What is to be taken from foreign log folders, decided before anything is touched.  Pure.

Rules:
1. A topic is taken as a whole or not at all: what is wrong with one of its partitions is a problem of the topic.
2. A topic whose settings nobody told keeps its records for ever (`retention.ms=-1`) until somebody says otherwise: the
   default of seven days could delete in the first minute what the old cluster was told to keep.
3. Settings that Kafka 4 does not know any more, or would not take, are left out with a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from ottla.base.errors import KafkaError
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.topic_keys import validate_topic_override
from ottla.cli.topics.described_topics import DescribedTopic
from ottla.controller.tree import decode_uuid
from ottla.storage.adoption import ForeignFolder, ForeignLog

KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
COMPACTED: Final = {"cleanup.policy": "compact"}


class Choice(NamedTuple):
    """What the user asked for."""

    topics: frozenset[str]  # by name; empty means all
    takes_internal: bool
    fills_missing: bool  # partitions that are not here come up empty
    described: Mapping[str, DescribedTopic]  # what Kafka's tools or its metadata log said
    configs: Mapping[str, Mapping[str, str]]  # given on the command line, by topic


class PlannedTopic(NamedTuple):
    """One topic that was found; taken if it has no problem."""

    name: str
    topic_id: UUID
    logs: tuple[ForeignLog | None, ...]  # by partition; None comes up empty
    configs: dict[str, str]
    problem: str | None
    is_wanted: bool

    @property
    def size_bytes(self) -> int:
        return sum(log.size_bytes for log in self.logs if log is not None)


class Plan(NamedTuple):
    """Everything that was found, and what to say about it."""

    topics: list[PlannedTopic]
    missing: list[str]  # asked for by name, but not there
    notes: list[str]

    @property
    def taken(self) -> list[PlannedTopic]:
        return [topic for topic in self.topics if topic.is_wanted and topic.problem is None]

    @property
    def problems(self) -> list[str]:
        """Why what was asked for cannot be done."""
        found = [f"topic {topic.name}: {topic.problem}" for topic in self.topics if topic.is_wanted and topic.problem]
        return found + [f"topic {name} is not in the folder" for name in self.missing]


def make_plan(folders: Sequence[ForeignFolder], choice: Choice) -> Plan:
    """Look at all topics of the folders; nothing is read or written any more."""
    by_topic: dict[str, list[ForeignLog]] = {}
    for folder in folders:
        for log in folder.logs:
            by_topic.setdefault(log.partition.topic, []).append(log)
    compacted = {name for folder in folders for name in folder.compacted}
    notes: list[str] = []
    topics = [plan_topic(name, logs, compacted, choice, notes) for name, logs in sorted(by_topic.items())]
    untold = [topic.name for topic in topics if topic.is_wanted and topic.name not in choice.described]
    if untold:
        some = ", ".join(untold[:8]) + (f" and {len(untold) - 8} more" if len(untold) > 8 else "")
        notes.insert(
            0, f"nobody told the settings of {some} (--settings FILE): nothing of them is deleted by age or size"
        )
    return Plan(topics, sorted(choice.topics - by_topic.keys()), notes)


def plan_topic(
    name: str, logs: Iterable[ForeignLog], compacted: set[str], choice: Choice, notes: list[str]
) -> PlannedTopic:
    is_usual = choice.takes_internal or name not in INTERNAL_TOPICS
    is_wanted = name in choice.topics if choice.topics else is_usual
    described = choice.described.get(name)
    by_index: dict[int, ForeignLog] = {}
    problems = []
    for log in logs:
        other = by_index.setdefault(log.partition.partition, log)
        if other is not log:
            problems.append(f"partition {log.partition.partition} stands in {other.directory} and in {log.directory}")
        if log.problem is not None:
            problems.append(log.problem)
    problems += missing_partitions(by_index, described, fills_missing=choice.fills_missing)
    topic_id = agreed_id(by_index.values(), described, problems)
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
    return [f"partition {some} is not here (name the other log folders too, or let them be empty: --fill-missing)"]


def agreed_id(logs: Iterable[ForeignLog], described: DescribedTopic | None, problems: list[str]) -> UUID:
    """The id that all partitions and the description agree on; a new one if none of them has any."""
    ids = {log.topic_id for log in logs if log.topic_id is not None}
    if described is not None and described.topic_id:
        ids.add(decode_uuid(described.topic_id))
    if len(ids) > 1:
        problems.append("its partitions have different topic ids: they are of different topics of that name")
    return min(ids, key=str) if ids else uuid4()


def planned_configs(name: str, is_compacted: bool, choice: Choice, notes: list[str]) -> dict[str, str]:
    described = choice.described.get(name)
    if described is not None:
        configs = dict(described.configs)
    else:
        configs = dict(COMPACTED if is_compacted or name in INTERNAL_TOPICS else KEPT_FOR_EVER)
    configs.update(choice.configs.get(name, {}))
    for key, value in list(configs.items()):
        try:
            validate_topic_override(key, value)
        except KafkaError as error:
            del configs[key]
            notes.append(f"topic {name}: left out {key}={value}: {error.message}")
    return configs
