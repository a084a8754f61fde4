"""A plan that removes brokers by the weight of their replicas: as `plan_drain`, where sizes are known. Pure.

The largest replicas are placed first, each on the broker with the least load over all resources, so that no broker has
to be relieved afterwards. Racks come before that, and no disk is filled beyond its mark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import (
    DISK,
    RESOURCES,
    Amounts,
    BalanceGoals,
    BrokerCapacity,
    BrokerLoads,
    PartitionLoad,
)
from ottla.base.text import format_count


def plan_removal(
    loads: Sequence[PartitionLoad], staying: Mapping[int, BrokerCapacity], gone: Collection[int], aims: BalanceGoals
) -> dict[TopicPartition, list[int]]:
    """The rows that change so that the leaving brokers hold nothing; KafkaError if there is no space for it."""
    if not staying:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "all brokers would be removed, and none would be left to hold their replicas: leave at least one "
            "out, or add a broker",
        )
    state = BrokerLoads(staying, aims)
    place_of = {broker: place for place, broker in enumerate(state.ids)}
    weights: dict[TopicPartition, Amounts] = {}
    for load in loads:
        size, written = load.follower_amounts()
        weights[load.partition] = (1.0, 1.0, size, written, load.leader_amounts())
        kept = [place_of[broker] for broker in load.row if broker in place_of]
        state.add(kept, weights[load.partition])
    state.compute_limits(RESOURCES)
    plan = {}
    for load in sorted(loads, key=lambda load: (-(load.size_bytes or 0), load.partition)):
        if not set(load.row) & set(gone):
            continue
        row = list(load.row)
        for spot, broker in enumerate(load.row):
            if broker in gone:
                _, _, size, written, sent = weights[load.partition]
                taker = _taker(state, row, spot, size, load.partition)
                row[spot] = state.ids[taker]
                amounts = (1.0, 1.0, size, written, sent) if spot == 0 else (1.0, 0.0, size, written, 0.0)
                for resource in RESOURCES:
                    state.loads[resource][taker] += amounts[resource]
        plan[load.partition] = row
    return dict(sorted(plan.items()))


def _taker(state: BrokerLoads, row: Sequence[int], spot: int, size: float, partition: TopicPartition) -> int:
    free = [place for place, broker in enumerate(state.ids) if broker not in row]
    if not free:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"{partition} has {format_count(len(row), 'replica')}, but only {len(state.ids)} of the brokers would "
            "be left: "
            f"give the topic fewer replicas first (ottla cluster replication-factor {len(state.ids)} "
            f"{partition.topic}), or add a broker",
        )
    roomy = [place for place in free if state.loads[DISK][place] + size <= state.limits[place]]
    if not roomy:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"no disk has room for {partition}: all others would be fuller than {state.aims.disk_mark:.0%}. Add a "
            "broker, make room, or give a higher --disk-mark",
        )
    racks = [room.rack for room in state.rooms]
    by_id = dict(zip(state.ids, racks, strict=True))
    used = Counter(by_id.get(other) for number, other in enumerate(row) if number != spot)
    del used[None]  # brokers without a rack share no failure domain
    return min(roomy, key=lambda place: (used[racks[place]], state.fullness(place), place))
