"""Balancing plans: replicas, leaders, bytes on disk, in and out, with as few bytes copied as possible.

Rules:
1. Nothing moves while every broker is within the tolerance of its share. If one is not, all are brought much closer, so
   that small changes do not start a new plan: after a plan was carried out, the next one is empty.
2. Free changes come first: leadership moves or is swapped before anything is copied. Then replicas move, those first
   that gain most for their bytes. Two replicas are swapped only where a broker is beyond the tolerance and no single
   move helps.
3. No partition has two replicas on a broker, or fewer racks than before; one that could have more racks gets them.
4. Disks past their mark come first, and no disk is filled beyond its mark.
5. Unknown figures are no aims: a partition of unknown size stays where it is.

Pure. `steps` yields to the event loop every few milliseconds, because the controller has other work.

Even numbers of replicas and leaders on new brokers, with few bytes copied.

A plan ends where the next copy is not worth its bytes. The numbers of replicas and of leaders may then still differ by
one or two, and a small partition is enough for each. This is only a part of a plan that moves something anyway; it does
not start one. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from heapq import merge
from math import ceil, floor, log2
from typing import Final

from ottla.base.placement.balance_layout import BalancePlan, Steps
from ottla.base.placement.broker_loads import (
    DISK,
    IN,
    LEADERS,
    OUT,
    PER_SLICE,
    REPLICAS,
    BalanceGoals,
    BrokerCapacity,
    PartitionLoad,
)
from ottla.base.placement.leader_swaps import GAIN_MIN, LeaderSwaps

USUAL: Final = BalanceGoals()
GAIN_PER_BYTE_MIN: Final = (
    0.1  # of the cost: a broker that cannot be helped must not cause moves at each small change of its load
)
ROUNDS_MAX: Final = 3
TURNS_MAX: Final = 50  # three or four are enough
TRIES_MAX: Final = 50  # replicas in a row without a gain: the next ones promise less
TEMPORARY_COST_MAX: Final = 0.02  # of the giver's fullness, for each failure
FAILURES_MAX: Final = 200  # failures of all givers together
TARGETS_MAX: Final = 4  # of the emptiest brokers, tried for one replica
NEIGHBOURS: Final = 5  # replicas around the best weight, on either side
SWAPS_MAX: Final = 40  # of the heaviest replicas of a broker, tried for swaps
GAINS_PER_STEP: Final = 200


def plan_balance(
    loads: Sequence[PartitionLoad],
    brokers: Mapping[int, BrokerCapacity],
    aims: BalanceGoals = USUAL,
    takers: Collection[int] | None = None,
) -> BalancePlan:
    """The whole plan at once. With `takers` only these brokers receive replicas, such as new brokers."""
    running = steps(loads, brokers, aims, takers)
    while True:
        try:
            next(running)
        except StopIteration as ended:
            plan: BalancePlan = ended.value
            return plan


def steps(
    loads: Sequence[PartitionLoad],
    brokers: Mapping[int, BrokerCapacity],
    aims: BalanceGoals = USUAL,
    takers: Collection[int] | None = None,
) -> Steps:
    """The plan in slices: each `next` works for some milliseconds; the generator returns the plan."""
    made = GreedyDescent(loads, brokers, aims, takers)
    yield from made.read()
    before, bands = made.state.cost(), list(made.state.bands)
    for turn in range(TURNS_MAX):
        done = made.changes
        if takers is None:
            yield from made.fix_rack_violations()
        made.state.set_bands()  # resources that are within the tolerance by now get the full band again
        if made.state.cost() > GAIN_MIN:
            yield from made.descend()
            if turn == 0:
                yield from made.restore_preferred_leaders()
                yield from made.descend()
                if made.is_new and made.changes != done:
                    yield from made.even_out()
        if made.changes == done:
            break
    plan = yield from made.plan(before)
    made.state.bands = bands
    is_worth_it = plan.urgent or made.rack_fixes or made.state.cost() <= before * (1 - GAIN_PER_BYTE_MIN)
    return plan if is_worth_it else plan._replace(rows={}, cost_after=before)


COPY_MAX: Final = 0.01  # of the mean bytes of a broker: larger replicas are not worth a copy
MOVES_MAX: Final = 2_000
PRICE: Final = 0.01  # for as many bytes as the mean of a broker: so the last half percent is not worth a copy


class EvenCounts(LeaderSwaps):
    """The last step of a plan: every broker has the same number, or one more."""

    def even_out(self) -> Iterator[None]:
        self.state.narrow(DISK)
        yield from self._trade_with_new()
        self.state.set_bands()
        for resource, pass_on in ((REPLICAS, self._pass_replica), (LEADERS, self._pass_leader)):
            stuck: set[tuple[int, int]] = set()
            for _ in range(MOVES_MAX):
                pair = self._largest_deviation(resource, stuck)
                if pair is None:
                    break
                yield
                if not pass_on(*pair):
                    stuck.add(pair)

    def _trade_with_new(self) -> Iterator[None]:
        """Swap replicas between old and new brokers: each new broker returns one and gets another, to even out
        disks."""
        state = self.state
        old = [place for place in range(len(state.ids)) if place not in self.targets]
        for place in sorted(old, key=lambda place: -state.excess(DISK, place)):
            for new in self.targets:
                mine = sorted(item for item in self._followed(place) if new not in self.rows[item[1]])
                taken = sorted(item for item in self._followed(new) if self._is_from(item[1], place))
                for size, number in taken:
                    yield
                    if not state.excess(DISK, place):
                        break
                    wanted = size + state.loads[DISK][place] - state.targets[DISK][place]
                    near = bisect_left(mine, (wanted, -1))
                    for item in mine[max(0, near - 1) : near + 1]:
                        if self._trade(item[1], place, number, new):
                            mine.remove(item)
                            break

    def _followed(self, place: int) -> Iterator[tuple[float, int]]:
        for number in self.partitions_by_broker[place]:
            if self.rows[number][0] != place and number not in self.pinned:
                yield self.weights[number][DISK], number

    def _is_from(self, number: int, place: int) -> bool:
        return self.state.ids[place] in self.original_rows[number].row and place not in self.rows[number]

    def _trade(self, number: int, place: int, taken: int, new: int) -> bool:
        mine, its = self.rows[number], self.rows[taken]
        spot, spot_there = mine.index(place), its.index(new)
        if not self.fits(mine, spot, new) or not self.fits(its, spot_there, place):
            return False
        there, here = self.load_of(number, spot), self.load_of(taken, spot_there)
        passed = (0.0, 0.0, there[DISK] - here[DISK], there[IN] - here[IN], 0.0)
        if self.state.gain(place, new, passed) <= PRICE * abs(passed[DISK]) * self.state.scales[DISK]:
            return False
        self.put(number, spot, new, there)
        self.put(taken, spot_there, place, here)
        return True

    def _largest_deviation(self, resource: int, stuck: set[tuple[int, int]]) -> tuple[int, int] | None:
        """The pair of brokers with the largest difference, one of them with a replica too many or too few; None at the
        end."""
        loads = self.state.loads[resource]
        mean = self.state.totals[resource] / len(loads)
        best, best_gap = None, 1.0
        for giver, most in enumerate(loads):
            for taker, least in enumerate(loads):
                is_uneven = most > ceil(mean) or least < floor(mean)
                if is_uneven and most - least > best_gap and (giver, taker) not in stuck:
                    best, best_gap = (giver, taker), most - least
        return best

    def _pass_replica(self, giver: int, taker: int) -> bool:
        """A replica that returns to its original broker costs nothing, so it comes first; then the smallest. Leaders
        stay."""
        limit = COPY_MAX / self.state.scales[DISK] if self.state.scales[DISK] else 0.0
        found = []
        for number in self.partitions_by_broker[giver]:
            row = self.rows[number]
            if row[0] == giver or number in self.pinned or not self.fits(row, row.index(giver), taker):
                continue
            is_home = self.state.ids[taker] in self.original_rows[number].row
            size = 0.0 if is_home else self.weights[number][DISK]
            if size <= limit and (is_home or taker in self.targets):
                found.append((size, number))
        for _, number in sorted(found):
            spot = self.rows[number].index(giver)
            amounts = self.load_of(number, spot)
            if self.state.gain(giver, taker, amounts) >= 0:
                self.put(number, spot, taker, amounts)
                return True
        return False

    def _pass_leader(self, giver: int, taker: int) -> bool:
        """Move leadership within a row: nothing is copied, so it is allowed between old brokers, too."""
        shared = [
            (self.weights[number][OUT], number)
            for number in self.partitions_by_broker[taker]
            if self.rows[number][0] == giver and number not in self.pinned
        ]
        for out, number in sorted(shared):
            amounts = (0.0, 1.0, 0.0, 0.0, out)
            if self.state.gain(giver, taker, amounts) >= 0:
                self.state.move(giver, taker, amounts)
                self.lead(number, taker)
                return True
        return False


class GreedyDescent(EvenCounts):
    """Greedy descent: each change lowers the cost, until none does."""

    def descend(self) -> Iterator[None]:
        """A few rounds, or until nothing helps: the last percent is not worth more."""
        for _ in range(ROUNDS_MAX):
            done = self.changes
            yield from self._hand_over()
            yield from self.swap_leaders()
            for place in self._overloaded_brokers():
                yield from self._give(place)
                yield from self._take(place)
            if self.changes == done and not self.is_new:
                for place in self._overloaded_brokers():
                    yield from self._swap(place)
            if self.changes == done:
                return

    def restore_preferred_leaders(self) -> Iterator[None]:
        """Undo moves that gain nothing, the largest first: later moves may have made them unnecessary."""
        homes = [[self.place_of.get(broker, -1) for broker in load.row] for load in self.original_rows]
        yield
        moved = [number for number, row in enumerate(self.rows) if row != homes[number] and number not in self.pinned]
        yield
        for count, number in enumerate(sorted(moved, key=lambda number: -self.weights[number][DISK])):
            if count % (GAINS_PER_STEP // 4) == 0:
                yield
            row = self.rows[number]
            for spot, home in enumerate(homes[number]):
                if home not in row and row[spot] not in homes[number] and self.fits(row, spot, home):
                    amounts = self.load_of(number, spot)
                    if self.state.gain(row[spot], home, amounts) >= 0:
                        self.put(number, spot, home, amounts)
            self._lead_again(number, homes[number][0])

    def _lead_again(self, number: int, leader: int) -> None:
        row = self.rows[number]
        if row[0] == leader or leader not in row:
            return
        amounts = (0.0, 1.0, 0.0, 0.0, self.weights[number][OUT])
        if self.state.gain(row[0], leader, amounts) >= 0:
            self.state.move(row[0], leader, amounts)
            self.changes += 1
            spot = row.index(leader)
            row[0], row[spot] = row[spot], row[0]

    def _overloaded_brokers(self) -> list[int]:
        """Brokers outside of a band: disks past their mark first, then those furthest away."""
        found = []
        for place in range(len(self.state.ids)):
            pull = self.state.overload(place)
            if any(pull):
                far = sum(abs(each) / (self.state.scales[resource] or 1) for resource, each in enumerate(pull))
                found.append((-self.state.too_full(place), -far, place))
        return [place for _, _, place in sorted(found)]

    def _hand_over(self) -> Iterator[None]:
        """Move leadership to another replica of the row: nothing is copied."""
        state = self.state
        tried = 0
        pulls = [state.overload(place) for place in range(len(state.ids))]
        for number, row in enumerate(self.rows):
            if number % PER_SLICE == PER_SLICE - 1:
                yield
            if len(row) < 2 or number in self.pinned:
                continue
            leader = row[0]
            out = self.weights[number][OUT]
            best, best_gain = 0, GAIN_MIN
            for spot in range(1, len(row)):
                other = row[spot]
                mine, its = pulls[leader], pulls[other]
                if its[LEADERS] - mine[LEADERS] + (its[OUT] - mine[OUT]) * out <= 0:
                    continue
                if self.is_new and other not in self.targets:
                    continue
                gain = state.gain(leader, other, (0.0, 1.0, 0.0, 0.0, out))
                tried += 1
                if gain > best_gain:
                    best, best_gain = spot, gain
            if best:
                state.move(leader, row[best], (0.0, 1.0, 0.0, 0.0, out))
                row[0], row[best] = row[best], row[0]
                self.changes += 1
                pulls[leader], pulls[row[0]] = state.overload(leader), state.overload(row[0])
            if tried > GAINS_PER_STEP:
                tried = 0
                yield

    def _give(self, giver: int) -> Iterator[None]:
        """Unload a broker that has too much of a resource: each replica goes to one of the emptiest brokers."""
        pull = [-each for each in self.state.overload(giver)]
        if max(pull) <= 0:
            return
        candidates = yield from self._candidate_replicas(giver, pull)
        failures = 0
        takers = self._emptiest(giver)
        for tried, (_, _, number) in enumerate(candidates):
            if tried % (GAINS_PER_STEP // TARGETS_MAX) == 0:
                yield
            row = self.rows[number]
            spot = row.index(giver)
            amounts = self.load_of(number, spot)
            best, best_gain = -1, self.price(amounts[DISK])
            for taker in takers:
                if self.fits(row, spot, taker):
                    gain = self.state.gain(giver, taker, amounts)
                    if gain > best_gain:
                        best, best_gain = taker, gain
            if best < 0:
                failures += 1
                if failures > TRIES_MAX:
                    return
                continue
            failures = 0
            self.put(number, spot, best, amounts)
            takers = self._emptiest(giver)
            if max(-each for each in self.state.overload(giver)) <= 0:
                return

    def _take(self, taker: int) -> Iterator[None]:
        """Fill a broker that has too little of a resource, from the fullest brokers in turns."""
        pull = self.state.overload(taker)
        if max(pull) <= 0 or taker not in self.targets:
            return
        givers: dict[int, Iterator[tuple[int, float, int]]] = {}
        # A giver that fails moves back in the order.
        order = {giver: self.state.fullness(giver) for giver in range(len(self.state.ids)) if giver != taker}
        failures = dict.fromkeys(order, 0)
        tried = 0
        while order and sum(failures.values()) <= FAILURES_MAX:
            giver = max(order, key=order.__getitem__)
            tried += 1
            if tried % GAINS_PER_STEP == 0:
                yield
            if giver not in givers:
                givers[giver] = yield from self._candidate_replicas(giver, pull)
            found = next(givers[giver], None)
            if found is None or failures[giver] > TRIES_MAX:
                del order[giver]
                continue
            number = found[2]
            row = self.rows[number]
            spot = row.index(giver)
            amounts = self.load_of(number, spot)
            if not self.fits(row, spot, taker):
                continue
            if self.state.gain(giver, taker, amounts) > self.price(amounts[DISK]):
                self.put(number, spot, taker, amounts)
                failures[giver] = 0
                order[giver] = self.state.fullness(giver)
                if max(self.state.overload(taker)) <= 0:
                    return
            else:
                failures[giver] += 1
                order[giver] -= TEMPORARY_COST_MAX

    def _candidate_replicas(
        self, giver: int, pull: Sequence[float]
    ) -> Generator[None, None, Iterator[tuple[int, float, int]]]:
        """A broker's replicas by gain per weight over all resources, so that a move serves several aims. Among equal
        ones the topics alternate.
        """
        weights, rows = self.weights, self.rows
        base, by_lead, by_size, by_in, by_out = pull
        _, usual_lead, usual_size, usual_in, usual_out = self.usual_replication
        parts: list[list[tuple[int, float, int]]] = []
        numbers = list(self.partitions_by_broker[giver].items())
        for start in range(0, len(numbers), PER_SLICE):
            part = []
            for number, turn in numbers[start : start + PER_SLICE]:
                _, _, size, written, sent = weights[number]
                value = base + by_size * size + by_in * written
                weight = 1 + usual_size * size + usual_in * written
                if rows[number][0] == giver:
                    value += by_lead + by_out * sent
                    weight += usual_lead + usual_out * sent
                if value > 0 and number not in self.pinned:
                    part.append((-int(4 * log2(value / weight)), turn, number))
            part.sort()
            parts.append(part)
            yield
        return merge(*parts)

    def _swap(self, place: int) -> Iterator[None]:
        """Swap a heavy replica for a light one, where a single move would unbalance another resource."""
        state = self.state
        for resource in state.known:
            if resource in (REPLICAS, LEADERS) or not state.is_out_of_band(resource, place):
                continue
            is_above = state.loads[resource][place] > state.targets[resource][place]
            others = sorted(
                (other for other in range(len(state.ids)) if other != place),
                key=lambda other: state.loads[resource][other] - state.targets[resource][other],
                reverse=not is_above,
            )
            for other in others[:TARGETS_MAX]:
                giver, taker = (place, other) if is_above else (other, place)
                yield from self._swap_between(giver, taker, resource)
                if not state.is_out_of_band(resource, place):
                    break

    def _swap_between(self, giver: int, taker: int, resource: int) -> Iterator[None]:
        mine = yield from self._weighted_gain(giver, resource)
        light = yield from self._weighted_gain(taker, resource)
        enough = mine[bisect_left(mine, (self.transfer_target(giver, taker, resource) / 2, -1)) :] or mine[-SWAPS_MAX:]
        enough.sort(key=lambda item: self.weights[item[1]][DISK])  # both are copied: prefer small ones
        for weight, number in enough[:SWAPS_MAX]:
            near = bisect_left(light, (weight - self.transfer_target(giver, taker, resource), -1))
            around = light[max(0, near - NEIGHBOURS) : near + NEIGHBOURS]
            for _, other in sorted(
                around, key=lambda item: self._is_leader(item[1], taker) != self._is_leader(number, giver)
            ):
                if self._try_swap(number, giver, other, taker):
                    light = [item for item in light if item[1] != other]
                    break
            yield

    def _is_leader(self, number: int, place: int) -> bool:
        return self.rows[number][0] == place

    def _weighted_gain(self, place: int, resource: int) -> Generator[None, None, list[tuple[float, int]]]:
        """A broker's replicas by their weight in one resource, the lightest first."""
        found = []
        for count, number in enumerate(self.partitions_by_broker[place]):
            found.append((self.load_of(number, self.rows[number].index(place))[resource], number))
            if count % PER_SLICE == 0:
                yield
        found.sort()
        yield
        return found

    def _try_swap(self, number: int, giver: int, other: int, taker: int) -> bool:
        mine, its = self.rows[number], self.rows[other]
        if {number, other} & self.pinned or giver not in mine or taker not in its:
            return False
        spot, spot_there = mine.index(giver), its.index(taker)
        if not self.fits(mine, spot, taker) or not self.fits(its, spot_there, giver):
            return False
        there, here = self.load_of(number, spot), self.load_of(other, spot_there)
        passed = (there[0] - here[0], there[1] - here[1], there[2] - here[2], there[3] - here[3], there[4] - here[4])
        if self.state.gain(giver, taker, passed) <= self.price(there[DISK] + here[DISK]):
            return False
        self.put(number, spot, taker, there)
        self.put(other, spot_there, giver, here)
        return True

    def price(self, size: float) -> float:
        """The gain that a copy of so many bytes must have, so that little gain is not bought with many bytes."""
        return GAIN_MIN + PRICE * size * self.state.scales[DISK]

    def _emptiest(self, giver: int) -> list[int]:
        return sorted((place for place in self.targets if place != giver), key=self.state.fullness)[:TARGETS_MAX]
