"""Leaderships that change places: a busy one for an idle one, where the numbers of leaders have to stay.  Pure.

Where everybody leads as many partitions as it should, no single hand-over is possible any more, however unlike the
partitions are. Two brokers that hold both partitions trade them: nothing is copied, and the numbers stay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from typing import Final

from ottla.base.placement.balance_layout import Layout
from ottla.base.placement.broker_loads import OUT, PER_SLICE, Amounts

GAIN_MIN: Final = 1e-9
NEAR: Final = 3  # of the weight that would be best, on either side
TRADES_FAILED_MAX: Final = 10  # in a row between two brokers: what is lighter will not help either
TRIES_PER_SLICE: Final = 30
PAIRS_PER_SLICE: Final = 5

Led = dict[tuple[int, int], list[tuple[float, int]]]  # by who leads and who could: bytes out, and the partition


class LeaderTrades(Layout):
    """Of a plan in the making: what it can still even out of bytes out at no cost."""

    def trade_leaders(self) -> Iterator[None]:
        """From whoever sends most to whoever sends least. With new brokers only these get anything: there is none."""
        state = self.state
        if self.is_new or OUT not in state.known:
            return
        if not any(state.beyond(OUT, place) for place in range(len(state.ids))):
            return
        led = yield from self._led()
        away = [load - target for load, target in zip(state.loads[OUT], state.targets[OUT], strict=True)]
        pairs = [pair for pair in led if away[pair[0]] > away[pair[1]] and pair[::-1] in led]
        pairs.sort(key=lambda pair: (away[pair[1]] - away[pair[0]], pair))
        for count, (giver, taker) in enumerate(pairs):
            if count % PAIRS_PER_SLICE == 0:
                yield
            yield from self._trade_between(giver, taker, led)

    def _led(self) -> Generator[None, None, Led]:
        led: Led = {}
        for number, row in enumerate(self.rows):
            if number % PER_SLICE == PER_SLICE - 1:
                yield
            if number not in self.pinned:
                for other in row[1:]:
                    led.setdefault((row[0], other), []).append((self.weights[number][OUT], number))
        return led

    def _trade_between(self, giver: int, taker: int, led: Led) -> Iterator[None]:
        if not self.state.beyond(OUT, giver) and not self.state.beyond(OUT, taker):
            return
        light = sorted(item for item in led[taker, giver] if self.rows[item[1]][0] == taker)
        failures = 0
        for tried, (weight, number) in enumerate(sorted(led[giver, taker], reverse=True)):
            is_strained = self.state.beyond(OUT, giver) or self.state.beyond(OUT, taker)
            if not is_strained or failures > TRADES_FAILED_MAX or not light or weight <= light[0][0]:
                return
            if tried % TRIES_PER_SLICE == TRIES_PER_SLICE - 1:
                yield
            if self.rows[number][0] != giver:  # traded before, with somebody else
                continue
            near = bisect_left(light, (weight - self.wanted(giver, taker, OUT), -1))
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

    def wanted(self, giver: int, taker: int, resource: int) -> float:
        """How much should pass from one to the other."""
        loads, targets = self.state.loads[resource], self.state.targets[resource]
        surplus, lack = loads[giver] - targets[giver], targets[taker] - loads[taker]
        return min(surplus, lack) if min(surplus, lack) > 0 else max(surplus, lack)


def _sent(amount: float) -> Amounts:
    return (0.0, 0.0, 0.0, 0.0, amount)
