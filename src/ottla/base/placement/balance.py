"""Plans that balance a cluster: replicas, leaders, bytes on disk, in and out, with as few bytes copied as possible.

Rules:
1. Nothing moves while every broker is within the tolerance of its share. Where one is not, all are brought much closer,
   so small changes do not begin it anew: the plan of a cluster that has followed a plan is empty.
2. What costs nothing comes first: who leads is changed before anything is copied, one by one or two for one another.
   Then replicas move, those first that help most for their bytes; two replicas change places only where somebody is
   beyond the tolerance and no single move helps.
3. No partition has two replicas on a broker, or fewer racks than before; one that could have more racks gets them.
4. Disks past their mark come before all else, and nobody is filled beyond his mark.
5. What is not known is no aim: a partition whose size nobody tells stays where it is.

Pure. `steps` gives the loop back every few milliseconds, because a controller has other things to do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from heapq import merge
from math import log2
from typing import Final

from ottla.base.placement.balance_layout import BalancePlan, Steps
from ottla.base.placement.broker_loads import (
    DISK,
    LEADERS,
    OUT,
    PER_SLICE,
    REPLICAS,
    Aims,
    BrokerRoom,
    PartitionLoad,
)
from ottla.base.placement.even_counts import PRICE, EvenCounts
from ottla.base.placement.leader_trades import GAIN_MIN

USUAL: Final = Aims()
WORTH: Final = 0.1  # of the cost: who cannot be helped is not moved about for each little change of his load
ROUNDS_MAX: Final = 3
TURNS_MAX: Final = 50  # three or four are enough
TRIES_MAX: Final = 50  # replicas in a row that help nobody: the next ones, which promise less, will not either
SETBACK: Final = 0.02  # of its fullness, for each of them
FAILURES_MAX: Final = 200  # the same, of all brokers together
TAKERS_MAX: Final = 4  # of the emptiest brokers, for one replica
NEIGHBOURS: Final = 5  # of the weight that would be best, on either side
SWAPS_MAX: Final = 40  # of the heaviest replicas of a broker
GAINS_PER_SLICE: Final = 200


def plan_balance(
    loads: Sequence[PartitionLoad],
    brokers: Mapping[int, BrokerRoom],
    aims: Aims = USUAL,
    takers: Collection[int] | None = None,
) -> BalancePlan:
    """The whole plan at once. With `takers` only these get anything: new brokers that are given their share."""
    running = steps(loads, brokers, aims, takers)
    while True:
        try:
            next(running)
        except StopIteration as ended:
            plan: BalancePlan = ended.value
            return plan


def steps(
    loads: Sequence[PartitionLoad],
    brokers: Mapping[int, BrokerRoom],
    aims: Aims = USUAL,
    takers: Collection[int] | None = None,
) -> Steps:
    """The same in slices: each `next` works for some milliseconds; the plan is what it returns in the end."""
    made = Descent(loads, brokers, aims, takers)
    yield from made.read()
    before, bands = made.state.cost(), list(made.state.bands)
    for turn in range(TURNS_MAX):
        done = made.changes
        if takers is None:
            yield from made.mend_racks()
        made.state.set_bands()  # what has become good enough may now differ by a little more
        if made.state.cost() > GAIN_MIN:
            yield from made.descend()
            if turn == 0:
                yield from made.go_home()
                yield from made.descend()
                if made.is_new and made.changes != done:
                    yield from made.even_out()
        if made.changes == done:
            break
    plan = yield from made.plan(before)
    made.state.bands = bands
    is_worth_it = plan.urgent or made.mended or made.state.cost() <= before * (1 - WORTH)
    return plan if is_worth_it else plan._replace(rows={}, cost_after=before)


class Descent(EvenCounts):
    """Change after change, each of which lowers the cost, until none does."""

    def descend(self) -> Iterator[None]:
        """A few rounds, or until nothing helps any more: the last percent is not worth more."""
        for _ in range(ROUNDS_MAX):
            done = self.changes
            yield from self._hand_over()
            yield from self.trade_leaders()
            for place in self._strained():
                yield from self._give(place)
                yield from self._take(place)
            if self.changes == done and not self.is_new:
                for place in self._strained():
                    yield from self._swap(place)
            if self.changes == done:
                return

    def go_home(self) -> Iterator[None]:
        """Leave where it was what was moved in vain, the largest first: later moves have made up for it."""
        homes = [[self.place_of.get(broker, -1) for broker in load.row] for load in self.given]
        yield
        moved = [number for number, row in enumerate(self.rows) if row != homes[number] and number not in self.pinned]
        yield
        for count, number in enumerate(sorted(moved, key=lambda number: -self.weights[number][DISK])):
            if count % (GAINS_PER_SLICE // 4) == 0:
                yield
            row = self.rows[number]
            for spot, home in enumerate(homes[number]):
                if home not in row and row[spot] not in homes[number] and self.fits(row, spot, home):
                    amounts = self.amounts(number, spot)
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

    def _strained(self) -> list[int]:
        """Those outside of a band; disks past their mark first, then whoever is furthest away."""
        found = []
        for place in range(len(self.state.ids)):
            pull = self.state.pull(place)
            if any(pull):
                far = sum(abs(each) / (self.state.scales[resource] or 1) for resource, each in enumerate(pull))
                found.append((-self.state.too_full(place), -far, place))
        return [place for _, _, place in sorted(found)]

    def _hand_over(self) -> Iterator[None]:
        """Give leadership to another replica of the row: nothing is copied."""
        state = self.state
        tried = 0
        pulls = [state.pull(place) for place in range(len(state.ids))]
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
                if self.is_new and other not in self.takers:
                    continue
                gain = state.gain(leader, other, (0.0, 1.0, 0.0, 0.0, out))
                tried += 1
                if gain > best_gain:
                    best, best_gain = spot, gain
            if best:
                state.move(leader, row[best], (0.0, 1.0, 0.0, 0.0, out))
                row[0], row[best] = row[best], row[0]
                self.changes += 1
                pulls[leader], pulls[row[0]] = state.pull(leader), state.pull(row[0])
            if tried > GAINS_PER_SLICE:
                tried = 0
                yield

    def _give(self, giver: int) -> Iterator[None]:
        """Off a broker that has too much of something: each replica to one of the emptiest others."""
        pull = [-each for each in self.state.pull(giver)]
        if max(pull) <= 0:
            return
        candidates = yield from self._promising(giver, pull)
        failures = 0
        takers = self._emptiest(giver)
        for tried, (_, _, number) in enumerate(candidates):
            if tried % (GAINS_PER_SLICE // TAKERS_MAX) == 0:
                yield
            row = self.rows[number]
            spot = row.index(giver)
            amounts = self.amounts(number, spot)
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
            if max(-each for each in self.state.pull(giver)) <= 0:
                return

    def _take(self, taker: int) -> Iterator[None]:
        """To a broker that has too little of something: from whoever is fullest, in turns."""
        pull = self.state.pull(taker)
        if max(pull) <= 0 or taker not in self.takers:
            return
        givers: dict[int, Iterator[tuple[int, float, int]]] = {}
        # Each failure lets the others go first.
        order = {giver: self.state.fullness(giver) for giver in range(len(self.state.ids)) if giver != taker}
        failures = dict.fromkeys(order, 0)
        tried = 0
        while order and sum(failures.values()) <= FAILURES_MAX:
            giver = max(order, key=order.__getitem__)
            tried += 1
            if tried % GAINS_PER_SLICE == 0:
                yield
            if giver not in givers:
                givers[giver] = yield from self._promising(giver, pull)
            found = next(givers[giver], None)
            if found is None or failures[giver] > TRIES_MAX:
                del order[giver]
                continue
            number = found[2]
            row = self.rows[number]
            spot = row.index(giver)
            amounts = self.amounts(number, spot)
            if not self.fits(row, spot, taker):
                continue
            if self.state.gain(giver, taker, amounts) > self.price(amounts[DISK]):
                self.put(number, spot, taker, amounts)
                failures[giver] = 0
                order[giver] = self.state.fullness(giver)
                if max(self.state.pull(taker)) <= 0:
                    return
            else:
                failures[giver] += 1
                order[giver] -= SETBACK

    def _promising(self, giver: int, pull: Sequence[float]) -> Generator[None, None, Iterator[tuple[int, float, int]]]:
        """A broker's replicas, those first that bring most for what they weigh in all: they have of each what is wanted
        of it, so bytes are not spent on half of the aims. Of equal ones each topic has its turn.
        """
        weights, rows = self.weights, self.rows
        base, by_lead, by_size, by_in, by_out = pull
        _, usual_lead, usual_size, usual_in, usual_out = self.usual
        parts: list[list[tuple[int, float, int]]] = []
        numbers = list(self.held[giver].items())
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
        """A heavy replica for a light one, where moves alone would upset something else."""
        state = self.state
        for resource in state.known:
            if resource in (REPLICAS, LEADERS) or not state.is_far(resource, place):
                continue
            is_above = state.loads[resource][place] > state.targets[resource][place]
            others = sorted(
                (other for other in range(len(state.ids)) if other != place),
                key=lambda other: state.loads[resource][other] - state.targets[resource][other],
                reverse=not is_above,
            )
            for other in others[:TAKERS_MAX]:
                giver, taker = (place, other) if is_above else (other, place)
                yield from self._swap_between(giver, taker, resource)
                if not state.is_far(resource, place):
                    break

    def _swap_between(self, giver: int, taker: int, resource: int) -> Iterator[None]:
        mine = yield from self._weighed(giver, resource)
        light = yield from self._weighed(taker, resource)
        enough = mine[bisect_left(mine, (self.wanted(giver, taker, resource) / 2, -1)) :] or mine[-SWAPS_MAX:]
        enough.sort(key=lambda item: self.weights[item[1]][DISK])  # both are copied: the smaller they are the better
        for weight, number in enough[:SWAPS_MAX]:
            near = bisect_left(light, (weight - self.wanted(giver, taker, resource), -1))
            around = light[max(0, near - NEIGHBOURS) : near + NEIGHBOURS]
            for _, other in sorted(
                around, key=lambda item: self._is_led(item[1], taker) != self._is_led(number, giver)
            ):
                if self._try_swap(number, giver, other, taker):
                    light = [item for item in light if item[1] != other]
                    break
            yield

    def _is_led(self, number: int, place: int) -> bool:
        return self.rows[number][0] == place

    def _weighed(self, place: int, resource: int) -> Generator[None, None, list[tuple[float, int]]]:
        """A broker's replicas by what they weigh of something, the lightest first."""
        found = []
        for count, number in enumerate(self.held[place]):
            found.append((self.amounts(number, self.rows[number].index(place))[resource], number))
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
        there, here = self.amounts(number, spot), self.amounts(other, spot_there)
        passed = (there[0] - here[0], there[1] - here[1], there[2] - here[2], there[3] - here[3], there[4] - here[4])
        if self.state.gain(giver, taker, passed) <= self.price(there[DISK] + here[DISK]):
            return False
        self.put(number, spot, taker, there)
        self.put(other, spot_there, giver, here)
        return True

    def price(self, size: float) -> float:
        """What a copy of so many bytes must gain: nobody copies much for next to nothing."""
        return GAIN_MIN + PRICE * size * self.state.scales[DISK]

    def _emptiest(self, giver: int) -> list[int]:
        return sorted((place for place in self.takers if place != giver), key=self.state.fullness)[:TAKERS_MAX]
