"""Which replicas healing gives to whom next. Pure; the places are those that a drain would choose (placement/moves.py).

Rules:
1. The most endangered first: whose in-sync replicas are fewest compared with min.insync.replicas. Among equals the
   largest, so that at the end no broker is idle while another one still copies.
2. Never to a broker that is away, in maintenance, about to stop, or whose disk would get too full: reckoned as if
   everything that is on its way there went to its fullest folder.
3. Never a second replica in a rack while a broker of another one lives, be it full or in maintenance: that waits.
4. A partition that somebody moves is left alone. One that nobody leads has nothing to copy from.
5. What a failed folder held stays on its broker, in another folder, if that has room: it is copied anew from the
   leader. Not while the broker counts as one that has everything (ISR, eligible leaders): it might be elected. Nor if
   the broker has refused: then others get it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.moves import drained, loads, rack_use
from ottla.controller import tree
from ottla.controller.decisions.healing.situation import Situation, lost_replicas, numbers, partitions_text, row_of
from ottla.controller.decisions.journals import HealMove
from ottla.controller.decisions.liveness import rules_of
from ottla.controller.decisions.reassignment import is_moving
from ottla.controller.image import MetadataImage, PartitionImage

NOBODY_LEADS: Final = "there is no leader to copy from"
MOVED: Final = "somebody else is moving them"
DAMAGED: Final = "their nodes in the store cannot be read"
SIZE_UNKNOWN: Final = "no broker has told how large they are"
NO_BROKER: Final = "no other broker could hold them (add one, or give the topics fewer replicas)"
BUSY: Final = "the brokers that could hold them are stopping or in maintenance"
TOO_FULL: Final = "the disks that could hold them would get fuller than ottla.heal.disk.max.percentage"
ONE_RACK: Final = "two replicas would be in one rack: brokers of other racks are full, stopping or in maintenance"
Rows = Mapping[TopicPartition, tuple[int, ...]]


class Plan(NamedTuple):
    """What to begin, and why not more."""

    rows: dict[TopicPartition, tuple[int, ...]]
    moves: tuple[HealMove, ...]
    waits: tuple[str, ...]


def plan_moves(image: MetadataImage, situation: Situation, slots: int, under_way: Sequence[HealMove] = ()) -> Plan:
    """The next moves, at most so many, beside those that are under way."""
    lost = lost_replicas(image, situation)
    for move in under_way:
        lost.pop(move.partition, None)
    rows = {
        TopicPartition(topic.name, index): row_of(partition)
        for topic in (image.topics.values() if lost else ())
        for index, partition in enumerate(topic.partitions)
    }
    targets = Targets(image, situation, rows, under_way)
    chosen: dict[TopicPartition, tuple[int, ...]] = {}
    moves: list[HealMove] = []
    waiting: dict[str, list[TopicPartition]] = {}
    for name in sorted(lost, key=lambda each: danger(image, situation, each)):
        if len(moves) >= slots:
            break
        row = targets.place(name, lost[name])
        if isinstance(row, str):
            waiting.setdefault(row, []).append(name)
            continue
        gone = tuple(sorted(lost[name]))
        if row == rows[name]:
            moves.append(HealMove(name, gone, gone))
            continue
        chosen[name] = row
        moves.append(HealMove(name, gone, tuple(b for b in row if b not in rows[name])))
    waits = [f"{partitions_text(names)}: {reason}" for reason, names in sorted(waiting.items())]
    if waiting and targets.silent:
        waits.append(f"brokers that have not told how full their disks are: {numbers(targets.silent)}")
    return Plan(chosen, tuple(moves), tuple(waits))


def danger(image: MetadataImage, situation: Situation, name: TopicPartition) -> tuple[int, int, TopicPartition]:
    """The smaller, the sooner it is healed."""
    partition = image.topics[name.topic].partitions[name.partition]
    in_sync = sum(broker in image.brokers for broker in partition.isr)
    minimum = min(rules_of(image, name.topic, situation.rules).min_insync_replicas, len(partition.replicas))
    return in_sync - minimum, -(size_of(situation, name, partition) or 0), name


def size_of(situation: Situation, name: TopicPartition, partition: PartitionImage) -> int | None:
    """What a new replica has to copy; None if nobody has told."""
    told = [situation.disks[broker] for broker in partition.replicas if broker in situation.disks]
    return max((disks.sizes.get(name, 0) for disks in told), default=None)


class Targets:
    """The brokers that can be given replicas, and how much room each has left."""

    def __init__(
        self, image: MetadataImage, situation: Situation, rows: Rows, under_way: Sequence[HealMove] = ()
    ) -> None:
        self._image = image
        self._situation = situation
        self._rows = rows
        self._usable = [
            broker
            for broker in sorted(image.brokers)
            if broker not in situation.liveness.shutting_down and broker not in situation.in_maintenance
        ]
        self.silent = [broker for broker in self._usable if room_of(situation, broker) is None]
        self._room = {broker: room_of(situation, broker) or 0 for broker in self._usable if broker not in self.silent}
        self._load = loads(rows, self._usable)
        self._leads = Counter(row[0] for row in rows.values() if row)
        coming = [(name, partition.adding_replicas) for name, partition in moving(image)] if rows else []
        coming += [(move.partition, move.new) for move in under_way if move.is_at_home and move.partition in rows]
        for name, brokers in coming:
            size = size_of(situation, name, image.topics[name.topic].partitions[name.partition]) or 0
            for broker in brokers:
                if broker in self._room:
                    self._room[broker] -= max(0, size - situation.disks[broker].sizes.get(name, 0))

    def place(self, name: TopicPartition, gone: frozenset[int]) -> tuple[int, ...] | str:
        """The row without those who have lost the partition, or why nothing is done. The same row: anew at home."""
        image, situation = self._image, self._situation
        partition = image.topics[name.topic].partitions[name.partition]
        if is_moving(partition):
            return MOVED
        if not image.damaged.isdisjoint((tree.topic_path(name.topic), tree.partition_state_path(*name))):
            return DAMAGED
        if partition.leader not in image.brokers:
            return NOBODY_LEADS
        size = size_of(situation, name, partition)
        if size is None:
            return SIZE_UNKNOWN
        row = partition.replicas
        if all(self._has_room_at_home(name, partition, broker, size) for broker in gone):
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
            return TOO_FULL if any(broker not in row for broker in self._usable) else BUSY
        if self._shares_a_rack(row, new):
            return ONE_RACK
        self._load, self._leads = load, leads
        for broker in set(new) - set(row):
            self._room[broker] -= size
        return tuple(new)

    def _has_room_at_home(self, name: TopicPartition, partition: PartitionImage, broker: int, size: int) -> bool:
        """Rule 5; what a broker tells the size of lies in a folder that works, and is damaged or has no room there."""
        situation = self._situation
        return (
            broker in self._image.brokers
            and size <= self._room.get(broker, -1)
            and name not in situation.disks[broker].sizes
            and broker not in (*partition.isr, *partition.eligible)
            and (name, broker) not in situation.refusals
        )

    def _shares_a_rack(self, row: tuple[int, ...], new: list[int]) -> bool:
        """Whether a broker that lives in another rack would keep the replicas further apart."""
        racks = self._situation.racks
        for place, broker in enumerate(new):
            if broker in row:
                continue
            used = rack_use(new, place, racks)
            others = [used[racks.get(each)] for each in self._image.brokers if each not in (*row, *new)]
            if used[racks.get(broker)] > min(others, default=used[racks.get(broker)]):
                return True
        return False


def room_of(situation: Situation, broker: int) -> int | None:
    """Bytes that may still come to a broker; None if it has not told."""
    disks = situation.disks.get(broker)
    known = [folder for folder in disks.folders if folder.total_bytes > 0] if disks is not None else []
    share = situation.limits.disk_max_percentage / 100
    return min(
        (int(folder.total_bytes * share) - (folder.total_bytes - folder.usable_bytes) for folder in known),
        default=None,
    )


def moving(image: MetadataImage) -> list[tuple[TopicPartition, PartitionImage]]:
    return [
        (TopicPartition(topic.name, index), partition)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if is_moving(partition)
    ]
