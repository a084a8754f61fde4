"""The inputs of healing in addition to the image, its journal, and the conditions that block it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules, excluding
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.controller.self_balancing.journals import (
    JournalFormat,
    ReplicaMove,
    Throttle,
    decode_moves,
    decode_throttle,
    encode_moves_and_throttle,
)

NAMES_MAX: Final = 5  # in one message


class OfflineReplicas(NamedTuple):
    """The time for which a broker has had offline replicas, and their number."""

    ms: int
    replicas: int


class HealJournal(NamedTuple):
    """The journal of healing (journals.py): absence times, moves and throttles."""

    away_ms: Mapping[int, int] = {}
    offline: Mapping[int, OfflineReplicas] = {}
    racks: Mapping[int, str] = {}  # also of absent brokers
    moves: tuple[ReplicaMove, ...] = ()
    throttle: Throttle = Throttle()
    waits: tuple[str, ...] = ()  # the reasons why no more moves are started, for operators

    def with_moves(self, moves: tuple[ReplicaMove, ...], throttle: Throttle) -> HealJournal:
        return self._replace(moves=moves, throttle=throttle)


def to_fields(journal: HealJournal) -> dict[str, Any]:
    return {
        "away_ms": {str(broker): ms for broker, ms in sorted(journal.away_ms.items())},
        "offline": {str(broker): list(count) for broker, count in sorted(journal.offline.items())},
        "racks": {str(broker): rack for broker, rack in sorted(journal.racks.items())},
        **encode_moves_and_throttle(journal.moves, journal.throttle),
        "waits": journal.waits,
    }


def from_fields(fields: Mapping[str, Any]) -> HealJournal:
    return HealJournal(
        {int(broker): int(ms) for broker, ms in fields["away_ms"].items()},
        {int(broker): OfflineReplicas(*map(int, count)) for broker, count in fields["offline"].items()},
        {int(broker): str(rack) for broker, rack in fields["racks"].items()},
        decode_moves(fields),
        decode_throttle(fields),
        tuple(map(str, fields["waits"])),
    )


JOURNAL_FORMAT: Final = JournalFormat("/ottla/healing", 1, HealJournal(), to_fields, from_fields)


class HealLimits(NamedTuple):
    """The settings of healing."""

    after_ms: int = 600_000  # -1: it is off
    brokers_max: int = 1
    throttle_rate: int = 50_000_000
    moves_max: int = 10
    disk_max_percentage: int = 85


class LogDir(NamedTuple):
    """A usable log directory and the space of its file system."""

    total_bytes: int
    usable_bytes: int
    path: str = ""


class BrokerDisks(NamedTuple):
    """A broker's log directories and the sizes of its replicas."""

    folders: tuple[LogDir, ...] = ()
    sizes: Mapping[TopicPartition, int] = {}


class HealInputs(NamedTuple):
    """The inputs of a healing step, in addition to the image."""

    limits: HealLimits = HealLimits()
    liveness: BrokerAvailability = BrokerAvailability()
    rules: ElectionRules = ElectionRules()
    absent: frozenset[int] = frozenset()  # absent brokers with replicas
    lost: frozenset[int] = frozenset()  # of these, absent for long enough
    failing: frozenset[int] = frozenset()  # live brokers whose replicas have been offline for long enough
    in_maintenance: frozenset[int] = frozenset()
    racks: Mapping[int, str | None] = {}  # of all known brokers, including absent ones
    disks: Mapping[int, BrokerDisks] = {}  # of the brokers that have responded
    refusals: frozenset[tuple[TopicPartition, int]] = frozenset()  # rebuilds that brokers have rejected


def is_healing_enabled(image: MetadataImage, limits: HealLimits) -> bool:
    return limits.after_ms >= 0 and ottla_version.cluster_level(image) >= ottla_version.SELF_BALANCING_LEVEL


def target_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas of a partition, or its target replicas during a reassignment."""
    return excluding(partition.replicas, partition.removing_replicas)


def lost_replicas(image: MetadataImage, situation: HealInputs) -> dict[TopicPartition, frozenset[int]]:
    """Return for each partition the brokers whose replicas must be healed."""
    lost = situation.lost - image.brokers.keys() - situation.in_maintenance
    failing = (situation.failing & image.brokers.keys()) - situation.in_maintenance
    found = {}
    for topic in image.topics.values() if lost or failing else ():
        for index, partition in enumerate(topic.partitions):
            gone = {broker for broker in target_replicas(partition) if broker in lost}
            gone |= {
                broker for broker in target_replicas(partition) if is_failed(situation, failing, topic, index, broker)
            }
            if gone:
                found[TopicPartition(topic.name, index)] = frozenset(gone)
    return found


def is_failed(situation: HealInputs, failing: Collection[int], topic: TopicImage, index: int, broker: int) -> bool:
    return broker in failing and situation.liveness.has_offline(broker, topic.topic_id, index)


def healing_blockers(image: MetadataImage, situation: HealInputs) -> list[str]:
    """Return the reasons why no move is started:

    if many brokers are absent, the cause is not a single failed broker.
    """
    found = []
    away = situation.absent - image.brokers.keys()
    ailing = away | (situation.liveness.offline_replicas.keys() & image.brokers.keys())
    if len(ailing) > situation.limits.brokers_max:
        limit = f"ottla.heal.brokers.max ({situation.limits.brokers_max})"
        found.append(
            f"{len(ailing)} brokers are away or have failed folders ({broker_list(ailing)}), more than {limit}"
        )
    if 2 * len(image.brokers) <= len(image.brokers.keys() | away):
        found.append(f"no majority of the brokers is alive ({broker_list(image.brokers)})")
    found += [
        f"all of rack {rack} is away (broker {broker_list(brokers)})" for rack, brokers in dead_racks(situation, away)
    ]
    maintained = (situation.lost | situation.failing) & situation.in_maintenance
    found += [f"broker {broker} is in maintenance" for broker in sorted(maintained)]
    return found


def dead_racks(situation: HealInputs, away: Collection[int]) -> list[tuple[str, list[int]]]:
    """Return the racks without live brokers. If every broker has its own rack, racks carry no information and are
    ignored.
    """
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(situation.racks.items()):
        if rack is not None:
            by_rack.setdefault(rack, []).append(broker)
    if len(by_rack) < 2 or all(len(brokers) == 1 for brokers in by_rack.values()):
        return []
    return [(rack, brokers) for rack, brokers in sorted(by_rack.items()) if all(each in away for each in brokers)]


def broker_list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def partitions_text(names: Sequence[TopicPartition]) -> str:
    """Return a text such as `3 partitions (a-0, a-1, b-0)`."""
    more = ", ..." if len(names) > NAMES_MAX else ""
    word = "partition" if len(names) == 1 else "partitions"
    return f"{len(names)} {word} ({', '.join(map(str, names[:NAMES_MAX]))}{more})"
