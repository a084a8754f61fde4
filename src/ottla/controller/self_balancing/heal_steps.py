"""Healing steps: new replicas for those of lost brokers and failed log directories. Pure, by the rules of decision.py.

When a broker is absent for ottla.heal.after.ms, or a log directory has failed for the same time, its replicas move to
other brokers by ordinary reassignments (reassignment.py), throttled and in limited number. Replicas of a failed
directory stay on their broker if another directory has space: the broker rebuilds them there. Healing depends only on
the current state, and the journal has its own moves:

    tidy    moves that have ended, or that an operator has changed, leave the journal. Obsolete moves are cancelled.
            Throttles are reduced to the remaining moves.
    begin   starts as many moves as the limits permit, the partitions with the smallest ISR first.

Rule 1: a move that an operator has started, changed or cancelled no longer belongs to healing.
Rule 2: if the absent broker returns during a move, the move is cancelled if the old replica lacks fewer bytes than the
        new one.
Rule 3: a move to a lost broker, or with an offline new replica, is cancelled. A replica to rebuild is offline until its
        broker starts the rebuild; it is cancelled if the broker refuses.
Rule 4: a start is written in the order journal, settings, moves, a cleanup (move_steps.py) in the reverse order.

Rules of the plan; its target brokers are those of a drain (placement/moves.py):
1. The partitions whose ISR is smallest compared with min.insync.replicas come first. Among equal ones the largest comes
   first, so that all brokers finish at about the same time.
2. Brokers that are absent, in maintenance, shutting down or whose disk would get too full are not targets. The used
   space assumes that all replicas in progress go to the fullest directory.
3. Two replicas never share a rack while a broker of another rack is alive, even if that is full or in maintenance.
4. Partitions that are being reassigned, or have no leader to copy from, are skipped.
5. A replica of a failed directory is rebuilt in another directory of its broker if that has space: it is copied again
   from the leader. A replica in the ISR or ELR is not rebuilt, because it might be elected. After a rejection by the
   broker the replica moves to another broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.moves import drained, loads, rack_use
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.leader_eligibility import topic_rules
from ottla.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments, is_reassigning
from ottla.controller.image import MetadataImage, PartitionImage
from ottla.controller.self_balancing.heal_state import (
    HealInputs,
    HealJournal,
    broker_list,
    healing_blockers,
    is_healing_enabled,
    lost_replicas,
    partitions_text,
    target_replicas,
)
from ottla.controller.self_balancing.journals import JournalNode, ReplicaMove
from ottla.controller.self_balancing.move_steps import CleanupResult, decide_move_cleanup, is_move_in_progress
from ottla.controller.self_balancing.replica_throttles import throttle_configs, write_configs

NO_LEADER_TO_COPY: Final = "there is no leader to copy from"
BEING_REASSIGNED: Final = "another reassignment of them is in progress"
DAMAGED: Final = "their nodes in the store cannot be read"
SIZE_UNKNOWN: Final = "no broker has reported their size"
NO_BROKER: Final = "there is no other broker for them (add one, or lower the replication factor)"
BROKERS_UNAVAILABLE: Final = "the possible target brokers are stopping or in maintenance"
TOO_FULL: Final = "the disks of the possible target brokers would exceed ottla.heal.disk.max.percentage"
SAME_RACK: Final = "two replicas would be in one rack: brokers of other racks are full, stopping or in maintenance"
Rows = Mapping[TopicPartition, tuple[int, ...]]


class HealPlan(NamedTuple):
    """The moves to start, and the reasons why there are not more."""

    rows: dict[TopicPartition, tuple[int, ...]]
    moves: tuple[ReplicaMove, ...]
    waits: tuple[str, ...]


def plan_moves(
    image: MetadataImage, situation: HealInputs, slots: int, under_way: Sequence[ReplicaMove] = ()
) -> HealPlan:
    """Plan at most `slots` moves in addition to those in progress."""
    lost = lost_replicas(image, situation)
    for move in under_way:
        lost.pop(move.partition, None)
    rows = {
        TopicPartition(topic.name, index): target_replicas(partition)
        for topic in (image.topics.values() if lost else ())
        for index, partition in enumerate(topic.partitions)
    }
    targets = TargetBrokers(image, situation, rows, under_way)
    chosen: dict[TopicPartition, tuple[int, ...]] = {}
    moves: list[ReplicaMove] = []
    waiting: dict[str, list[TopicPartition]] = {}
    for name in sorted(lost, key=lambda each: urgency(image, situation, each)):
        if len(moves) >= slots:
            break
        row = targets.choose_replicas(name, lost[name])
        if isinstance(row, str):
            waiting.setdefault(row, []).append(name)
            continue
        gone = tuple(sorted(lost[name]))
        if row == rows[name]:
            moves.append(ReplicaMove(name, gone, gone))
            continue
        chosen[name] = row
        moves.append(ReplicaMove(name, gone, tuple(b for b in row if b not in rows[name])))
    waits = [f"{partitions_text(names)}: {reason}" for reason, names in sorted(waiting.items())]
    if waiting and targets.unreported:
        waits.append(f"brokers that have not reported the usage of their disks: {broker_list(targets.unreported)}")
    return HealPlan(chosen, tuple(moves), tuple(waits))


def urgency(image: MetadataImage, situation: HealInputs, name: TopicPartition) -> tuple[int, int, TopicPartition]:
    """Return the sort key of partitions; lower ones are healed first."""
    partition = image.topics[name.topic].partitions[name.partition]
    in_sync = sum(broker in image.brokers for broker in partition.isr)
    minimum = min(topic_rules(image, name.topic, situation.rules).min_insync_replicas, len(partition.replicas))
    return in_sync - minimum, -(replica_size(situation, name, partition) or 0), name


def replica_size(situation: HealInputs, name: TopicPartition, partition: PartitionImage) -> int | None:
    """Return the bytes that a new replica must copy; None if unknown."""
    reported = [situation.disks[broker] for broker in partition.replicas if broker in situation.disks]
    return max((disks.sizes.get(name, 0) for disks in reported), default=None)


class TargetBrokers:
    """The brokers that can get replicas, with their free space."""

    def __init__(
        self, image: MetadataImage, situation: HealInputs, rows: Rows, under_way: Sequence[ReplicaMove] = ()
    ) -> None:
        self._image = image
        self._situation = situation
        self._rows = rows
        self._usable = [
            broker
            for broker in sorted(image.brokers)
            if broker not in situation.liveness.shutting_down and broker not in situation.in_maintenance
        ]
        self.unreported = [broker for broker in self._usable if free_bytes(situation, broker) is None]
        self._room = {
            broker: free_bytes(situation, broker) or 0 for broker in self._usable if broker not in self.unreported
        }
        self._load = loads(rows, self._usable)
        self._leads = Counter(row[0] for row in rows.values() if row)
        coming = (
            [(name, partition.adding_replicas) for name, partition in reassigning_partitions(image)] if rows else []
        )
        coming += [(move.partition, move.added) for move in under_way if move.is_same_broker and move.partition in rows]
        for name, brokers in coming:
            size = replica_size(situation, name, image.topics[name.topic].partitions[name.partition]) or 0
            for broker in brokers:
                if broker in self._room:
                    self._room[broker] -= max(0, size - situation.disks[broker].sizes.get(name, 0))

    def choose_replicas(self, name: TopicPartition, gone: frozenset[int]) -> tuple[int, ...] | str:
        """Return the new replicas of a partition, or the reason why it waits. Unchanged replicas mean a rebuild on
        their broker.
        """
        image, situation = self._image, self._situation
        partition = image.topics[name.topic].partitions[name.partition]
        if is_reassigning(partition):
            return BEING_REASSIGNED
        if not image.damaged.isdisjoint((tree.topic_path(name.topic), tree.partition_state_path(*name))):
            return DAMAGED
        if partition.leader not in image.brokers:
            return NO_LEADER_TO_COPY
        size = replica_size(situation, name, partition)
        if size is None:
            return SIZE_UNKNOWN
        row = partition.replicas
        if all(self._fits_other_log_dir(name, partition, broker, size) for broker in gone):
            for broker in gone:
                self._room[broker] -= size
            return row
        if sum(broker not in row for broker in image.brokers) < len(gone):
            return NO_BROKER
        fitting = [broker for broker, room in self._room.items() if size <= room]
        load, leads = self._load.copy(), self._leads.copy()
        try:
            new = drained(name, row, gone, fitting, situation.racks, load, leads)
        except KafkaError:
            return TOO_FULL if any(broker not in row for broker in self._usable) else BROKERS_UNAVAILABLE
        if self._worsens_rack_spread(row, new):
            return SAME_RACK
        self._load, self._leads = load, leads
        for broker in set(new) - set(row):
            self._room[broker] -= size
        return tuple(new)

    def _fits_other_log_dir(self, name: TopicPartition, partition: PartitionImage, broker: int, size: int) -> bool:
        """Return whether another directory of the broker has space (rule 5).

        A replica with a reported size is in a usable directory, and is damaged or has no space there.
        """
        situation = self._situation
        return (
            broker in self._image.brokers
            and size <= self._room.get(broker, -1)
            and name not in situation.disks[broker].sizes
            and broker not in (*partition.isr, *partition.elr)
            and (name, broker) not in situation.refusals
        )

    def _worsens_rack_spread(self, row: tuple[int, ...], new: list[int]) -> bool:
        """Return whether a live broker of another rack would spread the replicas better."""
        racks = self._situation.racks
        for place, broker in enumerate(new):
            if broker in row:
                continue
            used = rack_use(new, place, racks)
            others = [used[racks.get(each)] for each in self._image.brokers if each not in (*row, *new)]
            if used[racks.get(broker)] > min(others, default=used[racks.get(broker)]):
                return True
        return False


def free_bytes(situation: HealInputs, broker: int) -> int | None:
    """Return the bytes that a broker can still store; None if it has not reported."""
    disks = situation.disks.get(broker)
    known = [folder for folder in disks.folders if folder.total_bytes > 0] if disks is not None else []
    share = situation.limits.disk_max_percentage / 100
    return min(
        (int(folder.total_bytes * share) - (folder.total_bytes - folder.usable_bytes) for folder in known),
        default=None,
    )


def reassigning_partitions(image: MetadataImage) -> list[tuple[TopicPartition, PartitionImage]]:
    return [
        (TopicPartition(topic.name, index), partition)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if is_reassigning(partition)
    ]


class StartResult(NamedTuple):
    """The result of a start: the moves, and the reasons why there are not more."""

    journal: HealJournal
    moves: tuple[ReplicaMove, ...] = ()
    waits: tuple[str, ...] = ()


def decide_cleanup(
    image: MetadataImage, node: JournalNode[HealJournal], situation: HealInputs
) -> Decision[CleanupResult[HealJournal]]:
    return decide_move_cleanup(
        image,
        node,
        lambda move: is_obsolete(image, situation, move),
        situation.liveness,
        situation.rules,
        situation.limits.throttle_rate,
    )


def is_obsolete(image: MetadataImage, situation: HealInputs, move: ReplicaMove) -> bool:
    topic = image.topics[move.partition.topic]
    partition = topic.partitions[move.partition.partition]

    def is_offline(broker: int) -> bool:
        return situation.liveness.has_offline(broker, topic.topic_id, move.partition.partition)

    if any(broker in situation.lost and broker not in image.brokers for broker in move.added):
        return True  # rule 3
    if move.is_same_broker:
        return any(is_offline(broker) and (move.partition, broker) in situation.refusals for broker in move.added)
    if any(is_offline(broker) for broker in move.added):
        return True
    if any(broker not in image.brokers or is_offline(broker) for broker in move.removed):
        return False
    return costs_more_than_return(situation, move, partition)


def costs_more_than_return(situation: HealInputs, move: ReplicaMove, partition: PartitionImage) -> bool:
    """Return whether the new replicas lack more bytes than the returned ones (rule 2); False if a broker has not
    reported.
    """
    if any(broker not in situation.disks for broker in (*move.added, *move.removed)):
        return False
    size = replica_size(situation, move.partition, partition) or 0

    def lacking(brokers: tuple[int, ...]) -> int:
        sizes = (situation.disks[broker].sizes.get(move.partition, 0) for broker in brokers)
        return sum(max(0, size - each) for each in sizes)

    return lacking(move.added) > lacking(move.removed)


def needs_disk_sizes(image: MetadataImage, journal: HealJournal) -> bool:
    """Return whether a broker has returned whose replica healing moves; then the sizes of both replicas are needed."""
    moves = [move for move in journal.moves if not move.is_same_broker]
    return any(all(broker in image.brokers for broker in move.removed) for move in moves)


class ReplicaRebuild(NamedTuple):
    """A replica that its broker must rebuild in this log directory."""

    broker: int
    partition: TopicPartition
    path: str


def pending_rebuilds(image: MetadataImage, journal: HealJournal, situation: HealInputs) -> list[ReplicaRebuild]:
    """Return the rebuilds to request from brokers; each replica goes to the directory with the most free space."""
    free: dict[int, dict[str, int]] = {}
    found = []
    for move in journal.moves:
        topic = image.topics.get(move.partition.topic)
        for broker in (
            move.added if move.is_same_broker and topic is not None and is_move_in_progress(image, move) else ()
        ):
            if topic is None or not situation.liveness.has_offline(broker, topic.topic_id, move.partition.partition):
                continue
            disks = situation.disks.get(broker)
            folders = disks.folders if disks is not None else ()
            room = free.setdefault(broker, {folder.path: folder.usable_bytes for folder in folders})
            if room:
                path = max(room, key=lambda each: room[each])
                room[path] -= replica_size(situation, move.partition, topic.partitions[move.partition.partition]) or 0
                found.append(ReplicaRebuild(broker, move.partition, path))
    return found


def decide_start(image: MetadataImage, node: JournalNode[HealJournal], situation: HealInputs) -> Decision[StartResult]:
    """Start the possible moves; the journal gets the reasons why there are not more."""
    journal = node.journal
    if not is_healing_enabled(image, situation.limits):
        return with_reasons(image, node, ())
    hindering = healing_blockers(image, situation) if situation.lost or situation.failing else []
    if hindering:
        return with_reasons(image, node, tuple(hindering))
    plan = plan_moves(image, situation, situation.limits.moves_max - len(journal.moves), journal.moves)
    if not plan.moves:
        return with_reasons(image, node, plan.waits)
    moves = (*journal.moves, *plan.moves)
    slow = throttle_configs(image, journal.throttle, moves, situation.limits.throttle_rate)
    configs, throttled = write_configs(image, slow)
    requests = [ReassignmentRequest(name, row) for name, row in plan.rows.items()]
    begun = decide_reassignments(throttled, requests, situation.liveness, situation.rules)
    assert all(result.error is Error.NONE for result in begun.reply), "a plan names nothing that would be refused"
    after = journal._replace(moves=moves, throttle=slow.throttle, waits=plan.waits)
    operations = (*node.operations(after), *configs, *begun.operations)
    return Decision(operations, begun.image, StartResult(after, plan.moves, plan.waits))


def with_reasons(image: MetadataImage, node: JournalNode[HealJournal], waits: tuple[str, ...]) -> Decision[StartResult]:
    journal = node.journal._replace(waits=waits)
    operations = node.operations(journal) if journal != node.journal else ()
    return Decision(operations, image, StartResult(journal, (), waits))
