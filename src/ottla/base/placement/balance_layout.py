"""The placement of all replicas while a balancing plan is made: which moves are allowed, and what has changed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import (
    DISK,
    PER_SLICE,
    REPLICAS,
    RESOURCES,
    Amounts,
    BalanceGoals,
    BrokerCapacity,
    BrokerLoads,
    PartitionLoad,
    remove_leader_load,
)

Steps = Generator[None, None, "BalancePlan"]


class BalancePlan(NamedTuple):
    """The rows that change; those in `urgent` relieve a disk past its mark, and move first."""

    rows: dict[TopicPartition, list[int]]
    urgent: frozenset[TopicPartition]
    unknown: frozenset[int]  # resources that could not be aims, because some figure is missing
    pinned: int  # partitions that stay where they are, because their size is not known
    cost_before: float
    cost_after: float


class Layout:
    """A plan in the making. Brokers are numbered by the order of their ids, partitions by that of `loads`."""

    def __init__(
        self,
        loads: Sequence[PartitionLoad],
        brokers: Mapping[int, BrokerCapacity],
        aims: BalanceGoals,
        takers: Collection[int] | None,
    ) -> None:
        self.original_rows = loads
        self.state = BrokerLoads(brokers, aims)
        self.place_of = {broker: place for place, broker in enumerate(self.state.ids)}
        self.is_new = takers is not None
        wanted = brokers if takers is None else takers
        self.targets = [place for place, broker in enumerate(self.state.ids) if broker in wanted]
        racks = [room.rack for room in self.state.rooms]
        self.racks: list[str | None] = racks
        self.rack_count = len(set(racks)) if None not in racks else 0
        self.has_racks = any(rack is not None for rack in racks)
        self.rows: list[list[int]] = []
        self.weights: list[Amounts] = []
        # By partition: its rank within its topic, from 0 to 1.
        self.partitions_by_broker: list[dict[int, float]] = [{} for _ in self.state.ids]
        self.pinned: set[int] = set()
        self.unknown: set[int] = set()
        self.urgent: set[int] = set()
        self.changes = 0
        self.rack_fixes = 0  # partitions that got another rack
        self.usual_replication = [0.0] * len(
            RESOURCES
        )  # factor that turns an amount into a multiple of the mean replica

    # ---- reading

    def read(self) -> Iterator[None]:
        unknown = self.unknown
        by_topic: list[dict[str, list[int]]] = [{} for _ in self.state.ids]
        for number, load in enumerate(self.original_rows):
            size, written = load.follower_amounts()
            weight = (1.0, 1.0, size, written, load.leader_amounts())
            row = [self.place_of[broker] for broker in load.row if broker in self.place_of]
            unknown.update(remove_leader_load(load))
            if load.size_bytes is None or len(row) < len(load.row):
                self.pinned.add(number)
            self.rows.append(row)
            self.weights.append(weight)
            self.state.add(row, weight)
            for place in row:
                by_topic[place].setdefault(load.partition.topic, []).append(number)
            if number % PER_SLICE == PER_SLICE - 1:
                yield
        for place, topics in enumerate(by_topic):
            for numbers in topics.values():  # spread evenly over 0 to 1, so that topics alternate
                for rank, number in enumerate(numbers):
                    self.partitions_by_broker[place][number] = (rank + 0.5) / len(numbers)
            yield
        self.state.compute_limits([resource for resource in RESOURCES if resource not in unknown])
        count = self.state.totals[REPLICAS]
        totals = [self.state.totals[resource] if resource in self.state.known else 0.0 for resource in RESOURCES]
        self.usual_replication = [count / total if total >= 1 else 0.0 for total in totals]

    # ---- racks

    def fix_rack_violations(self) -> Iterator[None]:
        """Move replicas that share a rack to racks that have none."""
        for number, row in enumerate(self.rows):
            if number % PER_SLICE == PER_SLICE - 1:
                yield
            while len({self.racks[place] for place in row}) < min(len(row), self.rack_count):
                if number in self.pinned or not self._mend(number, row):
                    break

    def _mend(self, number: int, row: list[int]) -> bool:
        used = [self.racks[place] for place in row]
        spot = next(spot for spot in reversed(range(len(row))) if used.count(used[spot]) > 1)
        amounts = self.load_of(number, spot)
        free = [
            place
            for place, rack in enumerate(self.racks)
            if rack not in used and self.state.loads[DISK][place] + amounts[DISK] <= self.state.limits[place]
        ]
        if not free:
            return False
        self.put(number, spot, min(free, key=self.state.fullness), amounts)
        self.rack_fixes += 1
        return True

    # ---- one change

    def load_of(self, number: int, spot: int) -> Amounts:
        _, _, size, written, sent = self.weights[number]
        return (1.0, 1.0, size, written, sent) if spot == 0 else (1.0, 0.0, size, written, 0.0)

    def fits(self, row: Sequence[int], spot: int, taker: int) -> bool:
        """Whether the broker has no replica of the row yet, and the row keeps its number of racks."""
        if taker in row:
            return False
        if not self.has_racks:
            return True
        others = {self.racks[place] for number, place in enumerate(row) if number != spot}
        return self.racks[taker] not in others or self.racks[row[spot]] in others

    def put(self, number: int, spot: int, taker: int, amounts: Amounts) -> None:
        row = self.rows[number]
        giver = row[spot]
        if self.state.too_full(giver):
            self.urgent.add(number)
        self.state.move(giver, taker, amounts)
        self.partitions_by_broker[taker][number] = self.partitions_by_broker[giver].pop(number)
        row[spot] = taker
        self.changes += 1

    def plan(self, before: float) -> Steps:
        ids = self.state.ids
        rows = {}
        urgent = set()
        for number, load in enumerate(self.original_rows):
            if number % PER_SLICE == 0:
                yield
            row = [ids[place] for place in self.rows[number]]
            if number not in self.pinned and row != list(load.row):
                rows[load.partition] = row
                if number in self.urgent:
                    urgent.add(load.partition)
        return BalancePlan(
            rows,
            frozenset(urgent),
            frozenset(self.unknown),
            len(self.pinned),
            before,
            self.state.cost(),
        )
