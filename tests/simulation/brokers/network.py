"""The wires between hosts: delays, cuts in one direction, and what becomes of things that are on their way.

A host is a name ("b1", "zk", "c"); it outlives the processes that run on it. What is sent over a wire that is cut is
held back and arrives when the cut ends, as TCP retransmits; a client that cannot wait that long gives up
by itself. Things of one sender that belong together (a Wire) arrive in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tests.simulation.brokers.world import World

FASTEST_SECONDS: Final = 0.0001
DELAYS: Final = (0.0002, 0.0002, 0.0005, 0.001)
SLOW_SECONDS: Final = 0.08
RETRANSMISSION_SECONDS: Final = (0.001, 0.05, 0.2)
SILENCE_SECONDS_MAX: Final = 10.0  # as network/peer_transport.py sets it for connections between brokers

Way = tuple[str, str]


class Network:
    """All hosts see each other, but for what is cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cuts: dict[Way, None] = {}
        self.off: dict[str, None] = {}  # hosts without power: nothing answers there, not even with a refusal
        self.slowness = 0.0  # how often something takes SLOW_SECONDS
        self._held: dict[Way, list[Callable[[], None]]] = {}

    def delay(self) -> float:
        chance = self.world.random
        if self.slowness and chance.random() < self.slowness:
            return SLOW_SECONDS * chance.random()
        return chance.choice(DELAYS)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts or target in self.off or source in self.off

    def hold(self, source: str, target: str, event: Callable[[], None]) -> None:
        """Until the way is open again."""
        self._held.setdefault((source, target), []).append(event)

    def send(self, source: str, target: str, event: Callable[[], None]) -> None:
        """One thing on its own; its order among others is not kept."""

        def arrive() -> None:
            if self.is_cut(source, target):
                self.hold(source, target, arrive)
            else:
                event()

        self.world.after(self.delay(), arrive)

    # ---- faults

    def cut(self, ways: list[Way]) -> None:
        for way in ways:
            self.cuts[way] = None

    def mend(self, ways: list[Way]) -> None:
        for way in ways:
            self.cuts.pop(way, None)
        self._release()

    def heal(self) -> None:
        self.slowness = 0.0
        self.mend(list(self.cuts))

    def turn_off(self, host: str) -> None:
        self.off[host] = None

    def turn_on(self, host: str) -> None:
        self.off.pop(host, None)
        self._release()

    def clear(self) -> None:
        self._held.clear()

    def _release(self) -> None:
        for way in list(self._held):
            if not self.is_cut(*way):
                for event in self._held.pop(way):
                    self.world.after(self.world.random.choice(RETRANSMISSION_SECONDS), event)


class Wire:
    """One direction of a connection: what is put in comes out in this order, or waits for a cut to be mended."""

    def __init__(
        self, network: Network, source: str, target: str, on_silence: Callable[[], None] | None = None
    ) -> None:
        self.network = network
        self.source = source
        self.target = target
        self._on_silence = on_silence
        self._flight: deque[tuple[float, Callable[[], None]]] = deque()
        self._is_moving = False
        self._arrived = 0

    def put(self, event: Callable[[], None]) -> None:
        world = self.network.world
        self._flight.append((world.now + self.network.delay(), event))
        if not self._is_moving:
            self._is_moving = True
            world.push(self._flight[0][0], self._arrive, None)

    def _arrive(self) -> None:
        network, flight = self.network, self._flight
        if network.is_cut(self.source, self.target):
            network.hold(self.source, self.target, self._arrive)
            if self._on_silence is not None:
                network.world.after(SILENCE_SECONDS_MAX, self._give_up_after(self._arrived))
            return
        now = network.world.now
        while flight and flight[0][0] <= now:
            self._arrived += 1
            flight.popleft()[1]()
        if flight:
            network.world.push(flight[0][0], self._arrive, None)
        else:
            self._is_moving = False

    def _give_up_after(self, arrived: int) -> Callable[[], None]:
        def look() -> None:
            if self._arrived == arrived and self._on_silence is not None:
                self._on_silence()

        return look
