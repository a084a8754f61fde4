"""Healing: what the controller does about replicas that are lost. Pure, under the rules of machine.py.

When a broker is away for longer than ottla.heal.after.ms, or a folder has failed for as long, their replicas are given
to others: by ordinary moves (reassignment.py), throttled, a bounded number at a time. What a failed folder held stays
on its broker if another folder has room: the broker is told to have it anew there. Healing looks at what is, never at
what happened, and the journal says which moves are its own:

    tidy    moves that have ended, or that an operator has changed, leave the journal; those that are of no use any more
            are cancelled; throttles are what the moves that are left need.
    begin   as many moves as there is room for, most endangered partitions first (planning.py).

Rule 1: a move that anybody else has begun, changed or cancelled is not healing's business any more: the operator wins.
Rule 2: who is back in the middle of a move keeps its replica if it lacks fewer bytes than the new one: then the move is
        cancelled. A tie goes to the move.
Rule 3: a move to a broker that is lost itself, or whose new replica is offline, is cancelled. A replica that its own
        broker shall have anew is offline until it has begun with it; it is given up if the broker refuses.
Rule 4: what is tidied is written in the order moves, settings, journal; what is begun the other way round. So after a
        crash in between the journal names too much rather than too little, and the next round tidies up.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller.decisions.healing.journal import Journal
from ottla.controller.decisions.healing.planning import plan_moves, size_of
from ottla.controller.decisions.healing.situation import Situation, hindrances, is_on
from ottla.controller.decisions.healing.throttling import slowed, write_configs
from ottla.controller.decisions.journals import HealMove, JournalNode
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.reassignment import Wish, decide_reassignments, is_moving
from ottla.controller.image import MetadataImage, PartitionImage


class Tidied(NamedTuple):
    """What became of healing's moves."""

    journal: Journal
    ended: tuple[HealMove, ...] = ()  # or somebody else's by now
    cancelled: tuple[HealMove, ...] = ()


class Begun(NamedTuple):
    """What healing has begun, and why not more."""

    journal: Journal
    moves: tuple[HealMove, ...] = ()
    waits: tuple[str, ...] = ()


def is_under_way(image: MetadataImage, move: HealMove) -> bool:
    """Whether a move is still as healing has begun it."""
    partition = image.partition(*move.partition)
    if partition is None:
        return False
    if move.is_at_home:
        is_held = not is_moving(partition) and set(move.new) <= set(partition.replicas)
        return is_held and not set(move.new) <= set(partition.isr)
    return set(partition.adding_replicas) == set(move.new) and set(partition.removing_replicas) == set(move.gone)


def decide_tidy(image: MetadataImage, node: JournalNode[Journal], situation: Situation) -> Decision[Tidied]:
    under_way = [move for move in node.journal.moves if is_under_way(image, move)]
    useless = [move for move in under_way if is_useless(image, situation, move)]
    wishes = [Wish(move.partition, None) for move in useless if not move.is_at_home]
    cancel = decide_reassignments(image, wishes, situation.liveness, situation.rules)
    refused = {result.partition for result in cancel.reply if result.error is not Error.NONE}
    cancelled = tuple(move for move in useless if move.partition not in refused)
    left = tuple(move for move in under_way if move not in cancelled)
    slow = slowed(cancel.image, node.journal.throttle, left, situation.limits.throttle_rate)
    configs, after = write_configs(cancel.image, slow)
    journal = node.journal._replace(moves=left, throttle=slow.throttle)
    ended = tuple(move for move in node.journal.moves if move not in under_way)
    operations = (*cancel.operations, *configs)
    if journal != node.journal:
        operations += node.operations(journal)
    return Decision(operations, after, Tidied(journal, ended, cancelled))


def is_useless(image: MetadataImage, situation: Situation, move: HealMove) -> bool:
    topic = image.topics[move.partition.topic]
    partition = topic.partitions[move.partition.partition]

    def is_offline(broker: int) -> bool:
        return situation.liveness.has_offline(broker, topic.topic_id, move.partition.partition)

    if any(broker in situation.lost and broker not in image.brokers for broker in move.new):
        return True  # rule 3
    if move.is_at_home:
        return any(is_offline(broker) and (move.partition, broker) in situation.refusals for broker in move.new)
    if any(is_offline(broker) for broker in move.new):
        return True
    if any(broker not in image.brokers or is_offline(broker) for broker in move.gone):
        return False
    return is_dearer(situation, move, partition)


def is_dearer(situation: Situation, move: HealMove, partition: PartitionImage) -> bool:
    """Rule 2: whether the new replicas lack more than those who are back; if anybody has not told, nobody knows."""
    if any(broker not in situation.disks for broker in (*move.new, *move.gone)):
        return False
    size = size_of(situation, move.partition, partition) or 0

    def lacking(brokers: tuple[int, ...]) -> int:
        sizes = (situation.disks[broker].sizes.get(move.partition, 0) for broker in brokers)
        return sum(max(0, size - each) for each in sizes)

    return lacking(move.new) > lacking(move.gone)


def must_compare(image: MetadataImage, journal: Journal) -> bool:
    """Whether somebody is back whose replica healing moves: then the brokers have to tell how far they are."""
    moves = [move for move in journal.moves if not move.is_at_home]
    return any(all(broker in image.brokers for broker in move.gone) for move in moves)


class Refill(NamedTuple):
    """A replica that its broker shall have anew, in this folder."""

    broker: int
    partition: TopicPartition
    path: str


def refills(image: MetadataImage, journal: Journal, situation: Situation) -> list[Refill]:
    """What brokers with failed folders are still to be told: each replica goes where there is most room left."""
    free: dict[int, dict[str, int]] = {}
    found = []
    for move in journal.moves:
        topic = image.topics.get(move.partition.topic)
        for broker in move.new if move.is_at_home and topic is not None and is_under_way(image, move) else ():
            if topic is None or not situation.liveness.has_offline(broker, topic.topic_id, move.partition.partition):
                continue
            disks = situation.disks.get(broker)
            folders = disks.folders if disks is not None else ()
            room = free.setdefault(broker, {folder.path: folder.usable_bytes for folder in folders})
            if room:
                path = max(room, key=lambda each: room[each])
                room[path] -= size_of(situation, move.partition, topic.partitions[move.partition.partition]) or 0
                found.append(Refill(broker, move.partition, path))
    return found


def decide_begin(image: MetadataImage, node: JournalNode[Journal], situation: Situation) -> Decision[Begun]:
    """Begin what can be begun; the journal takes the reasons why not more, for people."""
    journal = node.journal
    if not is_on(image, situation.limits):
        return with_waits(image, node, ())
    hindering = hindrances(image, situation) if situation.lost or situation.failing else []
    if hindering:
        return with_waits(image, node, tuple(hindering))
    plan = plan_moves(image, situation, situation.limits.moves_max - len(journal.moves), journal.moves)
    if not plan.moves:
        return with_waits(image, node, plan.waits)
    moves = (*journal.moves, *plan.moves)
    slow = slowed(image, journal.throttle, moves, situation.limits.throttle_rate)
    configs, throttled = write_configs(image, slow)
    wishes = [Wish(name, row) for name, row in plan.rows.items()]
    begun = decide_reassignments(throttled, wishes, situation.liveness, situation.rules)
    assert all(result.error is Error.NONE for result in begun.reply), "a plan names nothing that would be refused"
    after = journal._replace(moves=moves, throttle=slow.throttle, waits=plan.waits)
    operations = (*node.operations(after), *configs, *begun.operations)
    return Decision(operations, begun.image, Begun(after, plan.moves, plan.waits))


def with_waits(image: MetadataImage, node: JournalNode[Journal], waits: tuple[str, ...]) -> Decision[Begun]:
    journal = node.journal._replace(waits=waits)
    operations = node.operations(journal) if journal != node.journal else ()
    return Decision(operations, image, Begun(journal, (), waits))
