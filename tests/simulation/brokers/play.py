"""One life of a cluster of real brokers, made from a seed: `simulate(seed)` plays it and raises when a promise is broken.

`OTTLA_PURE=1 python -m tests.simulation.brokers.play SEEDS [FIRST] [THEME]` plays many.
"""

from __future__ import annotations

import sys
import time
from random import Random

from tests.simulation.brokers.admin import Creator
from tests.simulation.brokers.cluster import Cluster, running
from tests.simulation.brokers.consumers import Consumer, FinalReader
from tests.simulation.brokers.faults import THEMES, Theme, is_whole, states
from tests.simulation.brokers.invariants import (
    Invariant,
    NobodyWaits,
    NoTaskDied,
    NoTasksAreLeft,
    NoUnexpectedError,
    ReplicasAreEqual,
)
from tests.simulation.brokers.ledger import Ledger, Place
from tests.simulation.brokers.producers import Producer
from tests.simulation.brokers.world import BrokenPromiseError, World

TOPIC = "events"
START_SECONDS_MAX = 20.0
RECOVERY_SECONDS_MAX = 10.0
QUIET_SECONDS_MAX = 10.0
REST_SECONDS_MAX = 10.0
TROUBLE_SECONDS = 8.0


class Life:
    """What happens to one cluster."""

    def __init__(self, cluster: Cluster, theme: Theme) -> None:
        self.theme = theme
        self.cluster = cluster
        self.world = cluster.world
        self.ledger = Ledger(self.world)
        self.partitions = self.world.random.choice((1, 2))
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []

    def places(self) -> list[Place]:
        return [(TOPIC, index) for index in range(self.partitions)]

    def play(self) -> None:
        self.begin()
        self.employ()
        self.world.run(1.0)
        self.meddle()
        self.world.run(TROUBLE_SECONDS)
        self.cluster.heal()
        self.recover()
        self.check_data()
        self.check_rest()

    def begin(self) -> None:
        for host in self.cluster.hosts:
            host.start()
        creator = Creator(self.cluster, {TOPIC: self.partitions})
        creator.start()
        if not self.world.run(START_SECONDS_MAX, lambda: not self.cluster.working and self.world.seconds > 0.1):
            self.world.break_("the cluster does not start")
        self.tasks_left = NoTasksAreLeft(self.cluster)

    def employ(self) -> None:
        for place in self.places():
            for number in range(self.world.random.choice((1, 2))):
                self.producers.append(Producer(self.cluster, f"p{place[1]}{number}", self.ledger, *place))
            self.consumers.append(Consumer(self.cluster, f"u{place[1]}", self.ledger, place, is_committed=False))
            self.consumers.append(Consumer(self.cluster, f"r{place[1]}", self.ledger, place, is_committed=True))
        for client in (*self.producers, *self.consumers):
            client.start()

    def meddle(self) -> None:
        end = self.world.now + TROUBLE_SECONDS - 0.5

        def strike() -> None:
            if self.world.now < end:
                self.world.random.choice(self.theme.faults)(self)
                self.world.after(self.world.random.uniform(0.3, 3.0), strike)

        self.world.after(self.world.random.uniform(0.0, 1.0), strike)

    def recover(self) -> None:
        """Writes go on; and when there is no more work, everybody comes to an end."""
        mended_at = self.world.now
        if not self.world.run(
            RECOVERY_SECONDS_MAX, lambda: all(producer.acked_at > mended_at for producer in self.producers)
        ):
            stuck = [producer.name for producer in self.producers if producer.acked_at <= mended_at]
            self.world.break_(f"nothing of {stuck} is acknowledged after all is mended")
        for client in (*self.producers, *self.consumers):
            client.is_done = True
        if not self.world.run(QUIET_SECONDS_MAX, lambda: not self.cluster.working):
            self.world.break_(f"clients do not come to an end: {list(self.cluster.working)}")

    def check_rest(self) -> None:
        """Nobody asks for anything any more."""
        settled: tuple[Invariant, ...] = (NobodyWaits(), self.tasks_left, ReplicasAreEqual())

        def problem() -> str | None:
            if not is_whole(self.cluster):
                return f"not all replicas are in sync: {states(self.cluster)}"
            return next((found for each in settled if (found := each.broken(self.cluster)) is not None), None)

        if not self.world.run(REST_SECONDS_MAX, lambda: problem() is None):
            self.world.break_(f"no rest: {problem()}")
        for invariant in (NoTaskDied(), NoUnexpectedError()):
            found = invariant.broken(self.cluster)
            if found is not None:
                self.world.break_(found)

    def check_data(self) -> None:
        readers = [
            FinalReader(self.cluster, f"final {place} {is_committed}", self.ledger, place, is_committed=is_committed)
            for place in self.places()
            for is_committed in (False, True)
        ]
        for reader in readers:
            reader.start()
        if not self.world.run(QUIET_SECONDS_MAX, lambda: all(reader.has_ended for reader in readers)):
            self.world.break_("a partition cannot be read to its end")
        for reader in readers:
            if not reader.is_committed:
                self.ledger.check_log(reader.place, reader.log)
        self.ledger.check_transactions({reader.place: reader.log for reader in readers if reader.is_committed})


def simulate(seed: int, theme: str | None = None, lines: int | None = 80) -> World:
    chance = Random(seed)
    name = theme or chance.choices(list(THEMES), [each.weight for each in THEMES.values()])[0]
    with running(seed, THEMES[name].brokers, lines=lines) as cluster:
        cluster.world.tell(f"theme {name}")
        Life(cluster, THEMES[name]).play()
    return cluster.world


def main() -> int:
    count = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    theme = sys.argv[3] if len(sys.argv) > 3 and sys.argv[3] in THEMES else None
    goes_on = "--all" in sys.argv  # to the end, with a line for each broken promise
    started = time.process_time()  # of this process: others may be busy, too
    broken = 0
    for seed in range(first, first + count):
        try:
            simulate(seed, theme)
        except BrokenPromiseError as error:
            print(
                error if count == 1 or not goes_on else f"seed {seed}: {str(error).splitlines()[0][:300]}", flush=True
            )
            broken += 1
            if not goes_on:
                return 1
    seconds = time.process_time() - started
    print(f"{count} seeds in {seconds:.1f} s: {count * 60 / seconds:,.0f} a minute, {broken or 'nothing'} broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
