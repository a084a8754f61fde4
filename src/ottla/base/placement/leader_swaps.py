"""Swaps of leadership: a busy partition for an idle one, with the numbers of leaders unchanged. Pure.

If every broker leads as many partitions as it should, no single hand-over is possible any more, however unequal the
partitions are. Two brokers with replicas of both partitions swap their leadership: nothing is copied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from typing import Final

from ottla.base.placement.balance_layout import Layout
from ottla.base.placement.broker_loads import OUT, PER_SLICE, Amounts

GAIN_MIN: Final = 1e-9
NEAR: Final = 3  # candidates around the best weight, on either side
TRADES_FAILED_MAX: Final = 10  # in a row between two brokers: the lighter ones will not help either
TRIES_PER_SLICE: Final = 30
PAIRS_PER_SLICE: Final = 5

Led = dict[tuple[int, int], list[tuple[float, int]]]  # by leader and follower: bytes out and partition


class LeaderSwaps(Layout):
    """The part of a plan that evens out bytes out without any copy."""

    def swap_leaders(self) -> Iterator[None]:
        """From the brokers that send most to those that send least. Skipped when a plan only fills new brokers."""
        state = self.state
        if self.is_new or OUT not in state.known:
            return
        if not any(state.excess(OUT, place) for place in range(len(state.ids))):
            return
        led = yield from self._led()
        away = [load - target for load, target in zip(state.loads[OUT], state.targets[OUT], strict=True)]
        pairs = [pair for pair in led if away[pair[0]] > away[pair[1]] and pair[::-1] in led]
        pairs.sort(key=lambda pair: (away[pair[1]] - away[pair[0]], pair))
        for count, (giver, taker) in enumerate(pairs):
            if count % PAIRS_PER_SLICE == 0:
                yield
            yield from self._swap_pair(giver, taker, led)

    def _led(self) -> Generator[None, None, Led]:
        led: Led = {}
        for number, row in enumerate(self.rows):
            if number % PER_SLICE == PER_SLICE - 1:
                yield
            if number not in self.pinned:
                for other in row[1:]:
                    led.setdefault((row[0], other), []).append((self.weights[number][OUT], number))
        return led

    def _swap_pair(self, giver: int, taker: int, led: Led) -> Iterator[None]:
        if not self.state.excess(OUT, giver) and not self.state.excess(OUT, taker):
            return
        light = sorted(item for item in led[taker, giver] if self.rows[item[1]][0] == taker)
        failures = 0
        for tried, (weight, number) in enumerate(sorted(led[giver, taker], reverse=True)):
            is_strained = self.state.excess(OUT, giver) or self.state.excess(OUT, taker)
            if not is_strained or failures > TRADES_FAILED_MAX or not light or weight <= light[0][0]:
                return
            if tried % TRIES_PER_SLICE == TRIES_PER_SLICE - 1:
                yield
            if self.rows[number][0] != giver:  # already swapped with another broker
                continue
            near = bisect_left(light, (weight - self.transfer_target(giver, taker, OUT), -1))
            best, best_gain = None, GAIN_MIN
            for item in light[max(0, near - NEAR) : near + NEAR]:
                gain = self.state.gain(giver, taker, _sent(weight - item[0]))
                if gain > best_gain:
                    best, best_gain = item, gain
            if best is None:
                failures += 1
                continue
            failures = 0
            light.remove(best)
            self.state.move(giver, taker, _sent(weight - best[0]))
            self.lead(number, taker)
            self.lead(best[1], giver)
        yield

    def lead(self, number: int, place: int) -> None:
        row = self.rows[number]
        spot = row.index(place)
        row[0], row[spot] = row[spot], row[0]
        self.changes += 1

    def transfer_target(self, giver: int, taker: int, resource: int) -> float:
        """The amount that should move from one broker to the other."""
        loads, targets = self.state.loads[resource], self.state.targets[resource]
        surplus, lack = loads[giver] - targets[giver], targets[taker] - loads[taker]
        return min(surplus, lack) if min(surplus, lack) > 0 else max(surplus, lack)


def _sent(amount: float) -> Amounts:
    return (0.0, 0.0, 0.0, 0.0, amount)
