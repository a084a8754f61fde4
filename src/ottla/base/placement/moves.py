"""Plans with as few moves as possible: draining brokers, filling new brokers, changing the replication factor. Pure.

All other replicas stay where they are and keep their place in the row, so most leaders stay. A replica goes to the
broker with the fewest; racks with the fewest replicas of the partition come first. A new broker gets its share of every
topic, not of the first ones only: a broker that holds nothing but offsets of groups would stay idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.base.names import INTERNAL_TOPICS, TopicPartition
from ottla.base.text import format_count

Rows = Mapping[TopicPartition, Sequence[int]]
Racks = Mapping[int, str | None]


def plan_drain(
    rows: Rows, gone: Collection[int], brokers: Collection[int], racks: Racks
) -> dict[TopicPartition, list[int]]:
    """The rows that change so that the leaving brokers hold no replicas."""
    staying = sorted(set(brokers) - set(gone))
    load = loads(rows, staying)
    leads = Counter(row[0] for row in rows.values() if row)
    return {
        partition: drained(partition, row, gone, staying, racks, load, leads)
        for partition, row in sorted(rows.items())
        if set(row) & set(gone)
    }


def drained(
    partition: TopicPartition,
    row: Sequence[int],
    gone: Collection[int],
    staying: Sequence[int],
    racks: Racks,
    load: Counter[int],
    leads: Counter[int],
) -> list[int]:
    """One row with other brokers in place of the leaving ones; updates the counts in `load` and `leads`."""
    new = list(row)
    for place, broker in enumerate(row):
        if broker in gone:
            new[place] = best_broker(new, place, staying, racks, load, leads, partition)
            load[new[place]] += 1
            leads[new[place]] += place == 0
    return new


def best_broker(
    row: Sequence[int],
    place: int,
    brokers: Sequence[int],
    racks: Racks,
    load: Counter[int],
    leads: Counter[int],
    partition: TopicPartition,
) -> int:
    free = [broker for broker in brokers if broker not in row]
    if not brokers:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"no broker would be left to hold {partition}: leave at least one broker out, or add one",
        )
    if not free:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"{partition} has {len(row)} replicas, but only {format_count(len(brokers), 'broker', 'is')} left to hold "
            "them: "
            "give the topic fewer replicas first (--replication-factor), or add a broker",
        )
    used = rack_use(row, place, racks)

    def cost(broker: int) -> tuple[int, int, int, int]:
        return used[racks.get(broker)], leads[broker] if place == 0 else 0, load[broker], broker

    return min(free, key=cost)


def rack_use(row: Sequence[int], place: int, racks: Racks) -> Counter[str | None]:
    """The number of replicas of a row in each rack, without the one at `place`."""
    used = Counter(racks.get(other) for number, other in enumerate(row) if number != place)
    del used[None]  # brokers without a rack share no failure domain
    return used


def plan_fill(
    rows: Rows, new: Collection[int], brokers: Collection[int], racks: Racks
) -> dict[TopicPartition, list[int]]:
    """The rows that change so that the new brokers hold as many replicas, and lead as many partitions, as the others.

    Leaders move first: each is a replica as well, so few other moves remain.
    """
    current = {partition: list(row) for partition, row in rows.items()}
    load = loads(rows, brokers)
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(row[0] for row in rows.values() if row)
    for broker in sorted(new):
        topics = topics_of(current, len(load), is_first=True)
        assign_share(current, topics, broker, leads, load, racks, len(rows) // len(load), is_first=True)
        topics = topics_of(current, len(load), is_first=False)
        assign_share(
            current, topics, broker, load, leads, racks, sum(map(len, rows.values())) // len(load), is_first=False
        )
    return {partition: row for partition, row in sorted(current.items()) if row != list(rows[partition])}


def assign_share(
    rows: dict[TopicPartition, list[int]],
    topics: list[TopicShare],
    broker: int,
    counted: Counter[int],
    other: Counter[int],
    racks: Racks,
    share: int,
    *,
    is_first: bool,
) -> None:
    """Move replicas to a broker, topic by topic, until it has its share. `is_first`: move leaders."""
    while topics and counted[broker] < share:
        topic = min(topics, key=lambda one: one.next_share(broker))
        found = choose_source(topic, rows, broker, counted, racks, share, is_first=is_first)
        if found is None:  # the other brokers only lose replicas, so this topic will have none later either
            topics.remove(topic)
            continue
        partition, place = found
        giver = rows[partition][place]
        rows[partition][place] = broker
        for counter in (topic.held, counted, other) if is_first else (topic.held, counted):
            counter[giver] -= 1
            counter[broker] += 1


class TopicShare(NamedTuple):
    """The replicas of a topic by broker, and the share that each broker should hold."""

    name: str
    partitions: list[TopicPartition]
    held: Counter[int]
    fair: int
    remainder: int

    def next_share(self, broker: int) -> tuple[int, bool, int, str]:
        """The sort key of a topic, smallest first: topics below the fair share, then one round for each replica more.

        Users' topics come before internal topics, and topics with the largest remainder in the last round come first.
        """
        return max(0, self.held[broker] + 1 - self.fair), self.name in INTERNAL_TOPICS, -self.remainder, self.name


def topics_of(rows: Rows, broker_count: int, *, is_first: bool) -> list[TopicShare]:
    partitions: dict[str, list[TopicPartition]] = {}
    for partition in sorted(rows):
        partitions.setdefault(partition.topic, []).append(partition)
    found = []
    for name, own in partitions.items():
        held = Counter(broker for partition in own for broker in (rows[partition][:1] if is_first else rows[partition]))
        found.append(TopicShare(name, own, held, *divmod(held.total(), broker_count)))
    return found


def choose_source(
    topic: TopicShare,
    rows: Rows,
    broker: int,
    counted: Counter[int],
    racks: Racks,
    share: int,
    *,
    is_first: bool,
) -> tuple[TopicPartition, int] | None:
    """The replica of a topic that the broker takes over, from one of the brokers that hold most of the topic."""
    givers = [giver for giver in topic.held if giver != broker and counted[giver] > share]
    return next(
        (
            (partition, place)
            for giver in sorted(givers, key=lambda one: (-topic.held[one], -counted[one], one))
            for partition in topic.partitions
            for place in ((0,) if is_first else range(1, len(rows[partition])))
            if rows[partition][place] == giver and may_replace(rows[partition], place, broker, racks)
        ),
        None,
    )


def plan_factor(rows: Rows, factor: int, brokers: Collection[int], racks: Racks) -> dict[TopicPartition, list[int]]:
    """The rows that change to this replication factor: replicas are appended, or the last ones removed."""
    living = sorted(brokers)
    if factor > len(living):
        message = f"Replication factor: {factor} larger than available brokers: {len(living)}."
        raise KafkaError(Error.INVALID_REPLICATION_FACTOR, message)
    load = loads(rows, living)
    for row in rows.values():
        load.subtract(broker for broker in row[factor:] if broker in load)
    plan = {}
    for partition, row in sorted(rows.items()):
        new = list(row[:factor])
        while len(new) < factor:
            new.append(best_broker(new, len(new), living, racks, load, Counter(), partition))
            load[new[-1]] += 1
        if new != list(row):
            plan[partition] = new
    return plan


def may_replace(row: Sequence[int], place: int, broker: int, racks: Racks) -> bool:
    """Whether the broker has no replica of the row yet, and the row keeps its number of racks."""
    if broker in row:
        return False
    others = {racks.get(one) for number, one in enumerate(row) if number != place}
    return len(others | {racks.get(broker)}) >= len(others | {racks.get(row[place])})


def loads(rows: Rows, brokers: Collection[int]) -> Counter[int]:
    found = Counter(dict.fromkeys(brokers, 0))
    found.update(broker for row in rows.values() for broker in row if broker in found)
    return found
