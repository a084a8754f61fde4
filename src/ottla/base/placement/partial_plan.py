"""The part of a plan that may be carried out now, limited by moves and bytes. Pure.

A plan improves the cluster as a whole; half of it may be worse than nothing, and replanning after each half might never
end. So a row is taken only if it improves the cluster after the rows before it, and a pair that swaps leaders only if
both together do. Every next plan then starts closer to the goal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.balance_layout import BalancePlan
from ottla.base.placement.broker_loads import RESOURCES, BalanceGoals, BrokerCapacity, BrokerLoads, PartitionLoad
from ottla.base.placement.leader_swaps import GAIN_MIN


class PlanSlice(NamedTuple):
    """The rows to move now, and the bytes that they copy."""

    rows: dict[TopicPartition, list[int]]
    bytes: int


def affordable_slice(
    plan: BalancePlan,
    loads: Sequence[PartitionLoad],
    brokers: Mapping[int, BrokerCapacity],
    aims: BalanceGoals,
    bytes_max: int,
    moves_max: int,
) -> PlanSlice:
    """Rows that relieve disks come first, then those that copy nothing, then the rest; `moves_max` counts copies."""
    state = BrokerLoads(brokers, aims)
    place_of = {broker: place for place, broker in enumerate(state.ids)}
    known: dict[TopicPartition, PartitionLoad] = {}
    for load in loads:
        known[load.partition] = load
        size, written = load.follower_amounts()
        row = [place_of[broker] for broker in load.row if broker in place_of]
        state.add(row, (1.0, 1.0, size, written, load.leader_amounts()))
    state.compute_limits([resource for resource in RESOURCES if resource not in plan.unknown])
    rows: dict[TopicPartition, list[int]] = {}
    spent = copies = 0
    left: list[TopicPartition] = []  # rows that copy nothing, but gain nothing alone

    def order(name: TopicPartition) -> tuple[bool, bool, TopicPartition]:
        return name not in plan.urgent, bool(set(plan.rows[name]) - set(known[name].row)), name

    cost = state.cost()
    for name in sorted(plan.rows, key=order):
        load, row = known[name], plan.rows[name]
        new = set(row) - set(load.row)
        size = (load.size_bytes or 0) * len(new)
        if new and (copies >= moves_max or spent + size > bytes_max):
            continue
        _change(state, place_of, load, load.row, row)
        after = state.cost()
        if after > cost - GAIN_MIN:
            _change(state, place_of, load, row, load.row)
            if not new:
                left.append(name)
            continue
        cost = after
        rows[name] = row
        spent += size
        copies += bool(new)
    for pair in _independent_swaps(left, plan, known):
        for name in pair:
            _change(state, place_of, known[name], known[name].row, plan.rows[name])
        after = state.cost()
        if after <= cost - GAIN_MIN:
            cost = after
            rows |= {name: plan.rows[name] for name in pair}
            continue
        for name in pair:
            _change(state, place_of, known[name], plan.rows[name], known[name].row)
    return PlanSlice(rows, spent)


def _independent_swaps(
    left: Sequence[TopicPartition], plan: BalancePlan, known: Mapping[TopicPartition, PartitionLoad]
) -> Iterator[tuple[TopicPartition, TopicPartition]]:
    """Pairs of partitions that swap leaders, the busiest with the idlest: together they keep the numbers of leaders."""
    by_way: dict[tuple[int, int], list[TopicPartition]] = {}
    for name in sorted(left, key=lambda name: known[name].leader_amounts()):
        by_way.setdefault((known[name].row[0], plan.rows[name][0]), []).append(name)
    for (old, new), names in by_way.items():
        if old < new:
            yield from zip(reversed(names), by_way.get((new, old), ()), strict=False)


def _change(
    state: BrokerLoads, place_of: Mapping[int, int], load: PartitionLoad, old: Sequence[int], new: Sequence[int]
) -> None:
    size, written = load.follower_amounts()
    weight = (1.0, 1.0, size, written, load.leader_amounts())
    state.add([place_of[broker] for broker in new], weight)
    state.add([place_of[broker] for broker in old], weight, sign=-1)
