"""New brokers that get their share: the last replica and the last leader, so that numbers are even, with few bytes.

A plan ends where the next copy is not worth its bytes. The numbers of replicas and of leaders may then still differ by
one or two, and a small partition is enough for each. It is a part of a plan that moves something anyway: by itself it
is no reason for one.  Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import ceil, floor
from typing import Final

from ottla.base.placement.broker_loads import DISK, IN, LEADERS, OUT, REPLICAS
from ottla.base.placement.leader_trades import LeaderTrades

COPY_MAX: Final = 0.01  # of the bytes that a broker has on the mean: what is larger is not worth it
MOVES_MAX: Final = 2_000
PRICE: Final = 0.01  # for as many bytes as a broker has on the mean: so the last half percent is not worth a copy


class EvenCounts(LeaderTrades):
    """Of a plan in the making: everybody has as many as the others, or one more."""

    def even_out(self) -> Iterator[None]:
        self.state.narrow(DISK)
        yield from self._trade_with_new()
        self.state.set_bands()
        for resource, pass_on in ((REPLICAS, self._pass_replica), (LEADERS, self._pass_leader)):
            stuck: set[tuple[int, int]] = set()
            for _ in range(MOVES_MAX):
                pair = self._furthest(resource, stuck)
                if pair is None:
                    break
                yield
                if not pass_on(*pair):
                    stuck.add(pair)

    def _trade_with_new(self) -> Iterator[None]:
        """Another replica of a broker for the one that a new broker has from it: so the others' disks become even."""
        state = self.state
        old = [place for place in range(len(state.ids)) if place not in self.takers]
        for place in sorted(old, key=lambda place: -state.beyond(DISK, place)):
            for new in self.takers:
                mine = sorted(item for item in self._followed(place) if new not in self.rows[item[1]])
                taken = sorted(item for item in self._followed(new) if self._is_from(item[1], place))
                for size, number in taken:
                    yield
                    if not state.beyond(DISK, place):
                        break
                    wanted = size + state.loads[DISK][place] - state.targets[DISK][place]
                    near = bisect_left(mine, (wanted, -1))
                    for item in mine[max(0, near - 1) : near + 1]:
                        if self._trade(item[1], place, number, new):
                            mine.remove(item)
                            break

    def _followed(self, place: int) -> Iterator[tuple[float, int]]:
        for number in self.held[place]:
            if self.rows[number][0] != place and number not in self.pinned:
                yield self.weights[number][DISK], number

    def _is_from(self, number: int, place: int) -> bool:
        return self.state.ids[place] in self.given[number].row and place not in self.rows[number]

    def _trade(self, number: int, place: int, taken: int, new: int) -> bool:
        mine, its = self.rows[number], self.rows[taken]
        spot, spot_there = mine.index(place), its.index(new)
        if not self.fits(mine, spot, new) or not self.fits(its, spot_there, place):
            return False
        there, here = self.amounts(number, spot), self.amounts(taken, spot_there)
        passed = (0.0, 0.0, there[DISK] - here[DISK], there[IN] - here[IN], 0.0)
        if self.state.gain(place, new, passed) <= PRICE * abs(passed[DISK]) * self.state.scales[DISK]:
            return False
        self.put(number, spot, new, there)
        self.put(taken, spot_there, place, here)
        return True

    def _furthest(self, resource: int, stuck: set[tuple[int, int]]) -> tuple[int, int] | None:
        """Who has one too many and who one too few, the furthest apart; None if nobody is left."""
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
        """What comes home costs nothing, and so comes first; then the smallest. Who leads stays."""
        limit = COPY_MAX / self.state.scales[DISK] if self.state.scales[DISK] else 0.0
        found = []
        for number in self.held[giver]:
            row = self.rows[number]
            if row[0] == giver or number in self.pinned or not self.fits(row, row.index(giver), taker):
                continue
            is_home = self.state.ids[taker] in self.given[number].row
            size = 0.0 if is_home else self.weights[number][DISK]
            if size <= limit and (is_home or taker in self.takers):
                found.append((size, number))
        for _, number in sorted(found):
            spot = self.rows[number].index(giver)
            amounts = self.amounts(number, spot)
            if self.state.gain(giver, taker, amounts) >= 0:
                self.put(number, spot, taker, amounts)
                return True
        return False

    def _pass_leader(self, giver: int, taker: int) -> bool:
        """Of what both hold; nothing is copied, so also between others when only new brokers get anything."""
        shared = [
            (self.weights[number][OUT], number)
            for number in self.held[taker]
            if self.rows[number][0] == giver and number not in self.pinned
        ]
        for out, number in sorted(shared):
            amounts = (0.0, 1.0, 0.0, 0.0, out)
            if self.state.gain(giver, taker, amounts) >= 0:
                self.state.move(giver, taker, amounts)
                self.lead(number, taker)
                return True
        return False
