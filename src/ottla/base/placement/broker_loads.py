"""The load of each broker and its distance from the fair share: the figures behind balancing plans. Pure.

A replica uses disk space and receives what is written; a leader also sends to consumers and to the followers. An
unknown figure is None and never 0: a broker that reports nothing would look empty, and be filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.moves import Racks

REPLICAS, LEADERS, DISK, IN, OUT = range(5)
RESOURCES: Final = (REPLICAS, LEADERS, DISK, IN, OUT)
# Below this a difference is not worth a move, however large its share: one replica, 8 MiB, 64 KiB a second.
SLACK: Final = (1.0, 1.0, 8.0 * 2**20, 65536.0, 65536.0)
# If something has to move, the aim is narrower: a tenth of the tolerance, at most half a replica from the mean. Small
# changes later do not start a new plan, because that takes the whole tolerance.
NARROW: Final = (0.1, 0.1, 0.1, 0.5, 0.5)
NARROW_SLACK: Final = (0.5, 0.5, 0.5 * 2**20, 32768.0, 32768.0)
# Rates are measured over seconds and fluctuate: they may differ by more before anything moves.
WIDTH: Final = (1.0, 1.0, 1.0, 2.0, 2.0)
REFUSED: Final = -1.0
MARK_WEIGHT: Final = 100.0  # a disk past its mark counts for more than all the rest together
ROUNDING: Final = 1e-9
PER_SLICE: Final = 300  # partitions per slice before the plan yields to the event loop: a millisecond or two

Amounts = tuple[float, float, float, float, float]


class PartitionLoad(NamedTuple):
    """The load of one partition: bytes of a replica, and bytes per second written by producers and read by
    consumers."""

    partition: TopicPartition
    row: tuple[int, ...]
    size_bytes: int | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None

    def follower_amounts(self) -> tuple[float, float]:
        """The load of every replica: disk space and bytes written."""
        return self.size_bytes or 0, self.bytes_in or 0.0

    def leader_amounts(self) -> float:
        """The load that only the leader has: bytes sent."""
        return (self.bytes_out or 0.0) + (self.bytes_in or 0.0) * (len(self.row) - 1)


class BrokerCapacity(NamedTuple):
    """A broker that can hold replicas; None where it does not report a figure."""

    rack: str | None = None
    disk_bytes: int | None = None  # of all its log directories
    free_bytes: int | None = None


class BalanceGoals(NamedTuple):
    """The tolerance of the balance, and the disk mark."""

    tolerance: float = 0.10  # of the mean; once a broker is beyond it, all are brought much closer
    disk_mark: float = 0.85  # of a disk


class BrokerLoads:
    """The load of all brokers by resource, and what a change would gain.

    The cost is the sum of squares of what lies outside the band, so nothing moves while every broker is within it. A
    change must not push a broker out of the tolerance, or from one side of it to the other, unless it relieves a disk,
    nor fill a disk beyond its mark. So what is balanced stays balanced, and a plan ends where a second one would have
    nothing to do.
    """

    def __init__(self, brokers: Mapping[int, BrokerCapacity], aims: BalanceGoals) -> None:
        self.ids = sorted(brokers)
        self.rooms = [brokers[broker] for broker in self.ids]
        self.aims = aims
        self.loads = [[0.0] * len(self.ids) for _ in RESOURCES]
        self.totals = [0.0] * len(RESOURCES)
        self.targets = [[0.0] * len(self.ids) for _ in RESOURCES]
        self.bands = [inf] * len(RESOURCES)
        self.wide = [inf] * len(RESOURCES)
        self.scales = [0.0] * len(RESOURCES)
        self.limits = [inf] * len(self.ids)
        self.known: list[int] = list(RESOURCES)

    def __repr__(self) -> str:
        return f"<BrokerLoads of {len(self.ids)} brokers, cost {self.cost():.4g}>"

    def add(self, places: Sequence[int], weight: Amounts, sign: int = 1) -> None:
        """Add a partition with replicas at these places; the first one leads. A sign of -1 removes it again."""
        for place in places:
            self.loads[REPLICAS][place] += sign
            self.loads[DISK][place] += sign * weight[DISK]
            self.loads[IN][place] += sign * weight[IN]
        if places:
            self.loads[LEADERS][places[0]] += sign
            self.loads[OUT][places[0]] += sign * weight[OUT]

    def compute_limits(self, known: Sequence[int]) -> None:
        """After all partitions are added: compute each broker's target and limit."""
        self.known = list(known)
        count = len(self.ids)
        self.totals = [sum(loads) for loads in self.loads]
        for resource in RESOURCES:
            mean = self.totals[resource] / count
            self.scales[resource] = 1 / max(mean, SLACK[resource])
            self.targets[resource] = [mean] * count
        sizes = [room.disk_bytes for room in self.rooms]
        known_sizes = [size for size in sizes if size]
        if len(known_sizes) == count:  # the target grows with the size of the disk
            self.targets[DISK] = [self.totals[DISK] * size / sum(known_sizes) for size in known_sizes]
        for place, room in enumerate(self.rooms):
            if room.disk_bytes and room.free_bytes is not None:
                spare = room.free_bytes - (1 - self.aims.disk_mark) * room.disk_bytes
                self.limits[place] = self.loads[DISK][place] + spare
        self.set_bands()

    def set_bands(self) -> None:
        """The band is the tolerance; a resource with a broker outside of it gets a narrower one."""
        for resource in RESOURCES:
            share = self.aims.tolerance * WIDTH[resource] * self.totals[resource] / len(self.ids)
            self.wide[resource] = self.bands[resource] = max(share, SLACK[resource])
            if any(self.excess(resource, place) > 0 for place in range(len(self.ids))):
                self.narrow(resource)

    def narrow(self, resource: int) -> None:
        """Use the narrow band for a resource, even if every broker is within the tolerance."""
        share = self.aims.tolerance * WIDTH[resource] * self.totals[resource] / len(self.ids)
        self.bands[resource] = max(share * NARROW[resource], NARROW_SLACK[resource])

    def is_out_of_band(self, resource: int, place: int) -> bool:
        """Whether a broker lies outside of the tolerance."""
        return abs(self.loads[resource][place] - self.targets[resource][place]) > self.wide[resource]

    def excess(self, resource: int, place: int) -> float:
        """How far a broker lies outside of the band, on either side."""
        away = abs(self.loads[resource][place] - self.targets[resource][place]) - self.bands[resource]
        return away if away * self.scales[resource] > ROUNDING else 0.0

    def cost(self) -> float:
        total = sum(
            (self.excess(resource, place) * self.scales[resource]) ** 2
            for resource in self.known
            for place in range(len(self.ids))
        )
        return total + MARK_WEIGHT * sum((self.too_full(place)) ** 2 for place in range(len(self.ids)))

    def too_full(self, place: int) -> float:
        """How far a disk is past its mark, as a share of the mean load."""
        return max(0.0, self.loads[DISK][place] - self.limits[place]) * self.scales[DISK]

    def overload(self, place: int) -> list[float]:
        """How much the cost falls per unit that a broker gets; negative: per unit that it gives."""
        found = [0.0] * len(RESOURCES)
        for resource in self.known:
            beyond = self.excess(resource, place) * self.scales[resource] ** 2
            is_above = self.loads[resource][place] > self.targets[resource][place]
            found[resource] = -beyond if is_above else beyond
        found[DISK] -= MARK_WEIGHT * self.too_full(place) * self.scales[DISK]
        return found

    def fullness(self, place: int) -> float:
        """Above 0: more than its share of all resources together."""
        return sum(
            (self.loads[resource][place] - self.targets[resource][place]) * self.scales[resource]
            for resource in self.known
        )

    def gain(self, giver: int, taker: int, amounts: Amounts) -> float:
        """How much the cost falls if these amounts move from one broker to the other; REFUSED if they may not."""
        full = self.too_full(giver)
        size = amounts[DISK]
        if (size > 0 and self.loads[DISK][taker] + size > self.limits[taker]) or (
            size < 0 and self.loads[DISK][giver] - size > self.limits[giver]
        ):
            return REFUSED
        total = 0.0
        for resource in self.known:
            amount = amounts[resource]
            if not amount:
                continue
            loads, targets = self.loads[resource], self.targets[resource]
            band, wide, scale = self.bands[resource], self.wide[resource], self.scales[resource]
            for place, change in ((giver, -amount), (taker, amount)):
                away = loads[place] - targets[place]
                before = (abs(away) - band) * scale
                after = (abs(away + change) - band) * scale
                if after > ROUNDING:
                    if not full and abs(away + change) > wide and (abs(away) <= wide or away * (away + change) < 0):
                        # A broker above its share would fall below it, or the reverse: a later plan would undo it.
                        return REFUSED
                    total -= after * after
                if before > ROUNDING:
                    total += before * before
        if full:
            less = max(0.0, full - size * self.scales[DISK])
            total += MARK_WEIGHT * (full * full - less * less)
        return total

    def move(self, giver: int, taker: int, amounts: Amounts) -> None:
        for loads, amount in zip(self.loads, amounts, strict=True):
            loads[giver] -= amount
            loads[taker] += amount


class BrokerFigures(NamedTuple):
    """One broker's figures for display; None: not known."""

    broker: int
    replicas: int
    leaders: int
    disk_bytes: float | None
    bytes_in: float | None
    bytes_out: float | None


def figures_of(
    loads: Sequence[PartitionLoad], rows: Mapping[TopicPartition, Sequence[int]], brokers: Sequence[int]
) -> list[BrokerFigures]:
    """The load of each broker if the partitions had these rows; partitions without a row keep theirs."""
    found = {broker: [0, 0, 0.0, 0.0, 0.0] for broker in brokers}
    unknown: dict[int, set[int]] = {broker: set() for broker in brokers}
    for load in loads:
        row = rows.get(load.partition, load.row)
        size, written = load.follower_amounts()
        for number, broker in enumerate(row):
            if broker not in found:
                continue
            mine = found[broker]
            mine[REPLICAS] += 1
            mine[LEADERS] += number == 0
            mine[DISK] += size
            mine[IN] += written
            mine[OUT] += load.leader_amounts() if number == 0 else 0.0
            unknown[broker].update(remove_leader_load(load, is_led=number == 0))
    return [
        BrokerFigures(broker, int(mine[0]), int(mine[1]), *(
            None if resource in unknown[broker] else mine[resource] for resource in (DISK, IN, OUT)
        ))
        for broker, mine in sorted(found.items())
    ]  # fmt: skip


def remove_leader_load(load: PartitionLoad, *, is_led: bool = True) -> Iterator[int]:
    """The resources of a partition whose figures are unknown."""
    if load.size_bytes is None:
        yield DISK
    if load.bytes_in is None:
        yield IN
    if is_led and (load.bytes_out is None or load.bytes_in is None):
        yield OUT


def skew(values: Sequence[float | None]) -> float | None:
    """The difference between the most and the least, as a share of the mean; None if a value is not known."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known or not sum(known):
        return None if len(known) < len(values) else 0.0
    return (max(known) - min(known)) * len(known) / sum(known)


def racks_of(brokers: Mapping[int, BrokerCapacity]) -> Racks:
    return {broker: room.rack for broker, room in brokers.items()}
