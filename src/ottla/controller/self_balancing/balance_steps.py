"""Balancing steps: the moves that balance the load of brokers. Pure, by the rules of decision.py.

    tidy    moves that have ended, or that an operator has changed, leave the journal. Moves to a failed broker are
    cancelled, so healing can move the partition. Throttles are reduced to the remaining moves. begin   starts some
    moves of a plan (placement/balance.py), within the bytes of the current hour.

Rule 1: no move is started during healing, maintenance, shutdowns or reassignments of operators.
Rule 2: a partition is moved only if its replicas are those of the plan, and all of them are in sync.
Rule 3: a start is written in the order journal, settings, moves; a cleanup (move_steps.py) in the reverse order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import BrokerCapacity, PartitionLoad
from ottla.controller import tree
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.elect_leaders import ElectionType, decide_elections
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules, excluding
from ottla.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments, is_reassigning
from ottla.controller.image import MetadataImage, PartitionImage
from ottla.controller.self_balancing.heal_state import BrokerDisks, broker_list
from ottla.controller.self_balancing.journals import (
    JournalFormat,
    JournalNode,
    ReplicaMove,
    Throttle,
    decode_moves,
    decode_throttle,
    encode_moves_and_throttle,
)
from ottla.controller.self_balancing.move_steps import CleanupResult, decide_move_cleanup
from ottla.controller.self_balancing.replica_throttles import throttle_configs, write_configs

HOUR_MS: Final = 3_600_000
MOVES_MAX: Final = 10  # at a time


class BalanceJournal(NamedTuple):
    """The journal of balancing (journals.py): its moves and throttles, and the bytes moved in the current hour."""

    moves: tuple[ReplicaMove, ...] = ()
    throttle: Throttle = Throttle()
    hour_began_ms: int = 0  # since 1970
    spent_bytes: int = 0  # in that hour

    def with_moves(self, moves: tuple[ReplicaMove, ...], throttle: Throttle) -> BalanceJournal:
        return self._replace(moves=moves, throttle=throttle)

    def spent(self, now_ms: int) -> int:
        """Return the bytes of the current hour; an hour that starts in the future is from another clock and ignored."""
        return self.spent_bytes if self.hour_began_ms <= now_ms < self.hour_began_ms + HOUR_MS else 0

    def with_spent(self, now_ms: int, size: int) -> BalanceJournal:
        before = self.spent(now_ms)
        began_ms = self.hour_began_ms if before else now_ms
        return self._replace(hour_began_ms=began_ms, spent_bytes=before + size) if size else self


def to_fields(journal: BalanceJournal) -> dict[str, Any]:
    return {
        "hour_began_ms": journal.hour_began_ms,
        "spent_bytes": journal.spent_bytes,
        **encode_moves_and_throttle(journal.moves, journal.throttle),
    }


def from_fields(fields: Mapping[str, Any]) -> BalanceJournal:
    return BalanceJournal(
        decode_moves(fields), decode_throttle(fields), int(fields["hour_began_ms"]), int(fields["spent_bytes"])
    )


JOURNAL_FORMAT: Final = JournalFormat("/ottla/balance", 1, BalanceJournal(), to_fields, from_fields)


class BalanceLimits(NamedTuple):
    """The settings of balancing."""

    is_enabled: bool = False
    bytes_per_hour: int = 50_000_000_000
    throttle_rate: int = 10_000_000
    disk_max_percentage: int = 85


class StartResult(NamedTuple):
    journal: BalanceJournal
    moves: tuple[ReplicaMove, ...] = ()
    leaders: int = 0  # the number of partitions that only get another leader


def balancing_blocker(
    image: MetadataImage,
    holders: frozenset[int],
    liveness: BrokerAvailability,
    in_maintenance: frozenset[int],
    healing: int,
) -> str | None:
    """Return the reason why no move can be started now, or None; `holders` are the brokers with replicas."""
    if ottla_version.cluster_level(image) < ottla_version.SELF_BALANCING_LEVEL:
        return "not all brokers of the cluster support it (ottla features)"
    away = holders - image.brokers.keys()
    if away:
        return f"broker {broker_list(away)} is away"
    busy = (in_maintenance | frozenset(liveness.shutting_down)) & image.brokers.keys()
    if busy:
        return f"broker {broker_list(busy)} is stopping or in maintenance"
    if liveness.offline_replicas.keys() & image.brokers.keys():
        return f"broker {broker_list(liveness.offline_replicas.keys() & image.brokers.keys())} has folders that failed"
    if healing:
        return "replicas are being healed"
    return None


def is_movable(image: MetadataImage, name: TopicPartition, partition: PartitionImage) -> bool:
    """Return whether a partition may be moved (rule 2): all replicas in sync, a leader, and no reassignment."""
    return (
        not is_reassigning(partition)
        and partition.leader in image.brokers
        and set(partition.isr) == set(partition.replicas)
        and image.damaged.isdisjoint((tree.topic_path(name.topic), tree.partition_state_path(*name)))
    )


def partition_loads(image: MetadataImage, disks: Mapping[int, BrokerDisks]) -> list[PartitionLoad]:
    """Return the partitions for a plan; those being reassigned have their target replicas.

    Unknown sizes prevent moves.
    """
    found = []
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            row = excluding(partition.replicas, partition.removing_replicas)
            reported = [disks[broker].sizes.get(name, 0) for broker in partition.replicas if broker in disks]
            found.append(PartitionLoad(name, tuple(row), max(reported) if reported else None))
    return found


def broker_capacities(image: MetadataImage, disks: Mapping[int, BrokerDisks]) -> dict[int, BrokerCapacity]:
    rooms = {}
    for broker, found in image.brokers.items():
        folders = disks[broker].folders if broker in disks else ()
        known = bool(folders) and all(folder.total_bytes > 0 for folder in folders)
        rooms[broker] = BrokerCapacity(
            found.rack,
            sum(folder.total_bytes for folder in folders) if known else None,
            sum(folder.usable_bytes for folder in folders) if known else None,
        )
    return rooms


def for_throttles(moves: Iterable[ReplicaMove]) -> list[ReplicaMove]:
    """Return the moves for throttles: unlike in healing, the removed replicas are alive and may be copied from."""
    return [move._replace(removed=()) for move in moves]


def decide_cleanup(
    image: MetadataImage,
    node: JournalNode[BalanceJournal],
    liveness: BrokerAvailability,
    rules: ElectionRules,
    rate: int,
) -> Decision[CleanupResult[BalanceJournal]]:
    def is_obsolete(move: ReplicaMove) -> bool:
        return not set(move.added) <= image.brokers.keys()

    return decide_move_cleanup(image, node, is_obsolete, liveness, rules, rate, for_throttles)


def decide_start(
    image: MetadataImage,
    node: JournalNode[BalanceJournal],
    liveness: BrokerAvailability,
    rules: ElectionRules,
    limits: BalanceLimits,
    rows: Mapping[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]],
    sizes: Mapping[TopicPartition, int],
    now_ms: int,
) -> Decision[StartResult]:
    """`rows` has the replicas of each partition when the plan was made, and its planned replicas."""
    wanted = {}
    for name, (before, after) in rows.items():
        partition = image.partition(*name)
        if partition is not None and partition.replicas == before and is_movable(image, name, partition):
            wanted[name] = after
    moves = tuple(
        ReplicaMove(name, excluding(rows[name][0], after), excluding(after, rows[name][0]))
        for name, after in wanted.items()
        if set(after) != set(rows[name][0])
    )
    journal = node.journal
    if not wanted:
        return Decision((), image, StartResult(journal))
    slow = throttle_configs(image, journal.throttle, for_throttles((*journal.moves, *moves)), limits.throttle_rate)
    configs, throttled = write_configs(image, slow)
    begun = decide_reassignments(
        throttled, [ReassignmentRequest(name, row) for name, row in wanted.items()], liveness, rules
    )
    assert all(result.error is Error.NONE for result in begun.reply), "a plan names nothing that would be refused"
    handed = [name for name in wanted if name not in {move.partition for move in moves}]
    elected = decide_elections(begun.image, ElectionType.PREFERRED, handed, liveness, rules)
    written = journal._replace(moves=(*journal.moves, *moves), throttle=slow.throttle).with_spent(
        now_ms, sum(sizes.get(move.partition, 0) * len(move.added) for move in moves)
    )
    noted = node.operations(written) if written != journal else ()
    operations = (*noted, *configs, *begun.operations, *elected.operations)
    return Decision(operations, elected.image, StartResult(written, moves, len(handed)))
