"""Plans that move as little as possible: take everything off brokers that go, give new brokers their share.  Pure.

Nothing moves that need not: every other replica stays where it is and in its place in the row, so most leaders stay.
A replica goes where the least lies; a rack that has none of the partition's replicas comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ottla.base.names import TopicPartition
from ottla.cli.reassign_plan import PlanError

Rows = Mapping[TopicPartition, Sequence[int]]
Racks = Mapping[int, str | None]


def plan_drain(
    rows: Rows, gone: Collection[int], brokers: Collection[int], racks: Racks
) -> dict[TopicPartition, list[int]]:
    """The rows that change so that nothing is left on the brokers that go."""
    staying = sorted(set(brokers) - set(gone))
    load = loads(rows, staying)
    leads = Counter(row[0] for row in rows.values() if row)
    plan = {}
    for partition, row in sorted(rows.items()):
        if not set(row) & set(gone):
            continue
        new = list(row)
        for place, broker in enumerate(row):
            if broker in gone:
                new[place] = best(new, place, staying, racks, load, leads, partition)
                load[new[place]] += 1
                leads[new[place]] += place == 0
        plan[partition] = new
    return plan


def best(
    row: Sequence[int],
    place: int,
    brokers: Sequence[int],
    racks: Racks,
    load: Counter[int],
    leads: Counter[int],
    partition: TopicPartition,
) -> int:
    free = [broker for broker in brokers if broker not in row]
    if not free:
        raise PlanError(
            f"{partition} has {len(row)} replicas, but only {len(brokers)} brokers are left to hold them: give the "
            "topic fewer replicas first, or add a broker"
        )
    used = {racks.get(other) for number, other in enumerate(row) if number != place}

    def cost(broker: int) -> tuple[bool, int, int, int]:
        is_same_rack = racks.get(broker) is not None and racks.get(broker) in used
        return is_same_rack, leads[broker] if place == 0 else 0, load[broker], broker

    return min(free, key=cost)


def plan_fill(
    rows: Rows, new: Collection[int], brokers: Collection[int], racks: Racks
) -> dict[TopicPartition, list[int]]:
    """The rows that change so that the new brokers have as many replicas, and lead as many partitions, as the others.

    Leaders move first: each is a replica as well, so few other moves are left to do.
    """
    current = {partition: list(row) for partition, row in rows.items()}
    load = loads(rows, brokers)
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(row[0] for row in rows.values() if row)
    for broker in sorted(new):
        take(current, broker, leads, load, racks, len(rows) // len(set(brokers)), is_first=True)
        take(current, broker, load, leads, racks, sum(map(len, rows.values())) // len(set(brokers)), is_first=False)
    return {partition: row for partition, row in sorted(current.items()) if row != list(rows[partition])}


def take(
    rows: dict[TopicPartition, list[int]],
    broker: int,
    counted: Counter[int],
    other: Counter[int],
    racks: Racks,
    share: int,
    *,
    is_first: bool,
) -> None:
    """Give a broker replicas of those who have most, until it has its share. `is_first`: of leaders."""
    while counted[broker] < share:
        found = next(
            (
                (partition, place)
                for giver, count in counted.most_common()
                if giver != broker and count > share
                for partition, row in sorted(rows.items())
                for place in ((0,) if is_first else range(1, len(row)))
                if row[place] == giver and may_replace(row, place, broker, racks)
            ),
            None,
        )
        if found is None:
            return
        partition, place = found
        giver = rows[partition][place]
        rows[partition][place] = broker
        for counter in (counted, other) if is_first else (counted,):
            counter[giver] -= 1
            counter[broker] += 1


def may_replace(row: Sequence[int], place: int, broker: int, racks: Racks) -> bool:
    """Not twice in a row, and no fewer racks than before."""
    if broker in row:
        return False
    others = {racks.get(one) for number, one in enumerate(row) if number != place}
    return len(others | {racks.get(broker)}) >= len(others | {racks.get(row[place])})


def loads(rows: Rows, brokers: Collection[int]) -> Counter[int]:
    found = Counter(dict.fromkeys(brokers, 0))
    found.update(broker for row in rows.values() for broker in row if broker in found)
    return found
