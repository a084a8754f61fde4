"""The part of a plan that may be carried out now: so many moves, so many bytes.  Pure.

A plan is good as a whole; half of it may be worse than nothing, and whoever plans anew after each half would move for
ever. So only rows are taken that better the cluster one by one, each after those before it, and two that trade their
leaders where both together do: then every next plan begins closer to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.balance_layout import BalancePlan
from ottla.base.placement.broker_loads import RESOURCES, Aims, BrokerLoads, BrokerRoom, PartitionLoad
from ottla.base.placement.leader_trades import GAIN_MIN


class Portion(NamedTuple):
    """Rows to be moved now, and the bytes that they copy."""

    rows: dict[TopicPartition, list[int]]
    bytes: int


def affordable(
    plan: BalancePlan,
    loads: Sequence[PartitionLoad],
    brokers: Mapping[int, BrokerRoom],
    aims: Aims,
    bytes_max: int,
    moves_max: int,
) -> Portion:
    """What relieves disks first, then what copies nothing, then the rest; `moves_max` counts copies."""
    state = BrokerLoads(brokers, aims)
    place_of = {broker: place for place, broker in enumerate(state.ids)}
    known: dict[TopicPartition, PartitionLoad] = {}
    for load in loads:
        known[load.partition] = load
        size, written = load.followed()
        row = [place_of[broker] for broker in load.row if broker in place_of]
        state.add(row, (1.0, 1.0, size, written, load.led()))
    state.settle([resource for resource in RESOURCES if resource not in plan.unknown])
    rows: dict[TopicPartition, list[int]] = {}
    spent = copies = 0
    left: list[TopicPartition] = []  # what copies nothing, but betters nothing alone

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
    for pair in _trades(left, plan, known):
        for name in pair:
            _change(state, place_of, known[name], known[name].row, plan.rows[name])
        after = state.cost()
        if after <= cost - GAIN_MIN:
            cost = after
            rows |= {name: plan.rows[name] for name in pair}
            continue
        for name in pair:
            _change(state, place_of, known[name], plan.rows[name], known[name].row)
    return Portion(rows, spent)


def _trades(
    left: Sequence[TopicPartition], plan: BalancePlan, known: Mapping[TopicPartition, PartitionLoad]
) -> Iterator[tuple[TopicPartition, TopicPartition]]:
    """Two partitions each whose leaders change places, the busiest with the idlest: together they upset no numbers."""
    by_way: dict[tuple[int, int], list[TopicPartition]] = {}
    for name in sorted(left, key=lambda name: known[name].led()):
        by_way.setdefault((known[name].row[0], plan.rows[name][0]), []).append(name)
    for (old, new), names in by_way.items():
        if old < new:
            yield from zip(reversed(names), by_way.get((new, old), ()), strict=False)


def _change(
    state: BrokerLoads, place_of: Mapping[int, int], load: PartitionLoad, old: Sequence[int], new: Sequence[int]
) -> None:
    size, written = load.followed()
    weight = (1.0, 1.0, size, written, load.led())
    state.add([place_of[broker] for broker in new], weight)
    state.add([place_of[broker] for broker in old], weight, sign=-1)
