"""Balancing: what the controller does by itself so that all brokers bear their share. Pure, under machine.py's rules.

    tidy    moves that have ended, or that an operator has changed, leave the journal; those to a broker that is gone
            are cancelled, so that healing can have the partition; throttles are what the moves that are left need.
    begin   some rows of a plan that was made outside (placement/balance.py), as far as the hour's bytes go.

Rule 1: nothing is begun while anything is unusual: healing, maintenance and operators come first.
Rule 2: a row is moved only if the partition is still as the plan saw it, whole and in sync.
Rule 3: what is begun is written in the order journal, settings, moves, and what is tidied the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import BrokerRoom, PartitionLoad
from ottla.controller import tree
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.balancing.journal import Journal
from ottla.controller.decisions.changes import without
from ottla.controller.decisions.healing.situation import Disks, numbers
from ottla.controller.decisions.healing.steps import is_under_way
from ottla.controller.decisions.healing.throttling import slowed, write_configs
from ottla.controller.decisions.journals import HealMove, JournalNode
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.preferred import ElectionType, decide_elections
from ottla.controller.decisions.reassignment import Wish, decide_reassignments, is_moving
from ottla.controller.image import MetadataImage, PartitionImage

MOVES_MAX: Final = 10  # at a time


class Limits(NamedTuple):
    """The settings of balancing."""

    is_enabled: bool = False
    bytes_per_hour: int = 50_000_000_000
    throttle_rate: int = 10_000_000
    disk_max_percentage: int = 85


class Tidied(NamedTuple):
    journal: Journal
    ended: tuple[HealMove, ...] = ()
    cancelled: tuple[HealMove, ...] = ()


class Begun(NamedTuple):
    journal: Journal
    moves: tuple[HealMove, ...] = ()
    leaders: int = 0  # partitions that only get another leader


def hindrance(
    image: MetadataImage, holders: frozenset[int], liveness: Liveness, in_maintenance: frozenset[int], healing: int
) -> str | None:
    """Why nothing is begun now, in words; `holders` have replicas, so they should be there."""
    if ottla_version.level(image) < ottla_version.SELF_OPERATION:
        return "not every broker of the cluster can do it (ottla features)"
    away = holders - image.brokers.keys()
    if away:
        return f"broker {numbers(away)} is away"
    busy = (in_maintenance | frozenset(liveness.shutting_down)) & image.brokers.keys()
    if busy:
        return f"broker {numbers(busy)} is stopping or in maintenance"
    if liveness.offline.keys() & image.brokers.keys():
        return f"broker {numbers(liveness.offline.keys() & image.brokers.keys())} has folders that failed"
    if healing:
        return "replicas are being healed"
    return None


def is_free(image: MetadataImage, name: TopicPartition, partition: PartitionImage) -> bool:
    """Rule 2: whole, in sync, led, and nobody moves it."""
    return (
        not is_moving(partition)
        and partition.leader in image.brokers
        and set(partition.isr) == set(partition.replicas)
        and image.damaged.isdisjoint((tree.topic_path(name.topic), tree.partition_state_path(*name)))
    )


def loads_of(image: MetadataImage, disks: Mapping[int, Disks]) -> list[PartitionLoad]:
    """What a plan looks at. Who moves counts as if it had; a partition that may not be moved has no known size."""
    found = []
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            row = without(partition.replicas, partition.removing_replicas)
            told = [disks[broker].sizes.get(name, 0) for broker in partition.replicas if broker in disks]
            found.append(PartitionLoad(name, tuple(row), max(told) if told else None))
    return found


def rooms_of(image: MetadataImage, disks: Mapping[int, Disks]) -> dict[int, BrokerRoom]:
    rooms = {}
    for broker, found in image.brokers.items():
        folders = disks[broker].folders if broker in disks else ()
        known = bool(folders) and all(folder.total_bytes > 0 for folder in folders)
        rooms[broker] = BrokerRoom(
            found.rack,
            sum(folder.total_bytes for folder in folders) if known else None,
            sum(folder.usable_bytes for folder in folders) if known else None,
        )
    return rooms


def as_sources(moves: Iterable[HealMove]) -> list[HealMove]:
    """For throttles: who goes is there, other than with healing, and may be who is copied from."""
    return [move._replace(gone=()) for move in moves]


def decide_tidy(
    image: MetadataImage, node: JournalNode[Journal], liveness: Liveness, rules: Rules, rate: int
) -> Decision[Tidied]:
    under_way = [move for move in node.journal.moves if is_under_way(image, move)]
    useless = [move for move in under_way if not set(move.new) <= image.brokers.keys()]
    cancel = decide_reassignments(image, [Wish(move.partition, None) for move in useless], liveness, rules)
    refused = {result.partition for result in cancel.reply if result.error is not Error.NONE}
    cancelled = tuple(move for move in useless if move.partition not in refused)
    left = tuple(move for move in under_way if move not in cancelled)
    slow = slowed(cancel.image, node.journal.throttle, as_sources(left), rate)
    configs, after = write_configs(cancel.image, slow)
    journal = node.journal._replace(moves=left, throttle=slow.throttle)
    operations = (*cancel.operations, *configs)
    if journal != node.journal:
        operations += node.operations(journal)
    ended = tuple(move for move in node.journal.moves if move not in under_way)
    return Decision(operations, after, Tidied(journal, ended, cancelled))


def decide_begin(
    image: MetadataImage,
    node: JournalNode[Journal],
    liveness: Liveness,
    rules: Rules,
    limits: Limits,
    rows: Mapping[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]],
    sizes: Mapping[TopicPartition, int],
    now_ms: int,
) -> Decision[Begun]:
    """`rows` are what each partition had when the plan was made, and what it shall have."""
    wanted = {}
    for name, (before, after) in rows.items():
        partition = image.partition(*name)
        if partition is not None and partition.replicas == before and is_free(image, name, partition):
            wanted[name] = after
    moves = tuple(
        HealMove(name, without(rows[name][0], after), without(after, rows[name][0]))
        for name, after in wanted.items()
        if set(after) != set(rows[name][0])
    )
    journal = node.journal
    if not wanted:
        return Decision((), image, Begun(journal))
    slow = slowed(image, journal.throttle, as_sources((*journal.moves, *moves)), limits.throttle_rate)
    configs, throttled = write_configs(image, slow)
    begun = decide_reassignments(throttled, [Wish(name, row) for name, row in wanted.items()], liveness, rules)
    assert all(result.error is Error.NONE for result in begun.reply), "a plan names nothing that would be refused"
    handed = [name for name in wanted if name not in {move.partition for move in moves}]
    elected = decide_elections(begun.image, ElectionType.PREFERRED, handed, liveness, rules)
    written = journal._replace(moves=(*journal.moves, *moves), throttle=slow.throttle).with_spent(
        now_ms, sum(sizes.get(move.partition, 0) * len(move.new) for move in moves)
    )
    noted = node.operations(written) if written != journal else ()
    operations = (*noted, *configs, *begun.operations, *elected.operations)
    return Decision(operations, elected.image, Begun(written, moves, len(handed)))
