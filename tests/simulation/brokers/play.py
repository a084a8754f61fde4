"""One life of a cluster of real brokers, made from a seed: `simulate(seed)` raises when a promise is broken.

`OTTLA_PURE=1 python -m tests.simulation.brokers.play SEEDS [FIRST] [THEME]` plays many.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from random import Random

from tests.simulation.brokers.admin import Creator
from tests.simulation.brokers.cluster import Cluster, running
from tests.simulation.brokers.consumers import Consumer, FinalReader
from tests.simulation.brokers.faults import THEMES, Theme, is_whole, states
from tests.simulation.brokers.healing import FOLDER_SETTINGS as FOLDERS
from tests.simulation.brokers.healing import SETTINGS as HEALING
from tests.simulation.brokers.healing import play_failed_folder, play_healing
from tests.simulation.brokers.invariants import (
    Invariant,
    NoRequestWaits,
    NoTaskDied,
    NoTasksAreLeft,
    NoUnexpectedError,
    ReplicasAreEqual,
    ends_of_replicas,
)
from tests.simulation.brokers.ledger import Ledger, Place
from tests.simulation.brokers.logins import ALICE, Accounts, Intruder, PasswordSetter
from tests.simulation.brokers.logins import SETTINGS as SECURED
from tests.simulation.brokers.members import ClassicMember, ConsumerMember, Member
from tests.simulation.brokers.producers import Producer
from tests.simulation.brokers.renewers import Renewer, slow_forgetting
from tests.simulation.brokers.transactors import IN as TOPIC
from tests.simulation.brokers.transactors import OUT, Counter, Transactor
from tests.simulation.brokers.wire import Client
from tests.simulation.brokers.world import BrokenPromiseError, World

START_SECONDS_MAX = 20.0
RECOVERY_SECONDS_MAX = 10.0
QUIET_SECONDS_MAX = 10.0
REST_SECONDS_MAX = 10.0
TROUBLE_SECONDS = 8.0


class Life:
    """What happens to one cluster."""

    def __init__(self, cluster: Cluster, theme: Theme) -> None:
        self.theme = theme
        cluster.sockets.small_buffers = theme.small_buffers
        self.cluster = cluster
        self.world = cluster.world
        self.ledger = Ledger(self.world)
        self.partitions = self.world.random.choice((1, 2))
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.transactors: list[Transactor] = []
        self.members: list[Member] = []
        self.renewers = [Renewer(cluster, f"t{number}") for number in range(2 if theme.renews else 0)]
        if theme.is_secured:
            cluster.accounts = Accounts()

    def places(self) -> list[Place]:
        return [(topic, index) for topic in (TOPIC, OUT) for index in range(self.partitions)]

    def workers(self) -> list[Producer | Transactor | Member]:
        """The clients that must make progress once all faults are repaired."""
        return [*self.producers, *self.transactors, *self.members]

    def clients(self) -> list[Client]:
        return [*self.workers(), *self.consumers, *self.renewers]

    def play(self) -> None:
        self.begin()
        if self.theme.is_harmless:
            self.cluster.is_in_trouble, self.cluster.mended_at = False, self.world.now
        self.employ()
        self.world.run(1.0)
        if self.theme.folders > 1:
            play_failed_folder(self)
        elif self.theme.heals:
            play_healing(self)
        else:
            self.meddle(TROUBLE_SECONDS)
            self.world.run(TROUBLE_SECONDS)
        self.cluster.heal()
        self.recover()
        self.check_rest()
        self.check_data()
        self.check_old_passwords()

    def begin(self) -> None:
        for host in self.cluster.hosts:
            host.start()
        creator = Creator(self.cluster, {TOPIC: self.partitions, OUT: self.partitions})
        creator.start()
        if self.cluster.accounts is not None:
            PasswordSetter(self.cluster, self.cluster.accounts.passwords[ALICE]).start()
        if not self.world.run(START_SECONDS_MAX, lambda: not self.cluster.working and self.world.seconds > 0.1):
            self.world.break_("the cluster does not start")
        self.tasks_left = NoTasksAreLeft(self.cluster)

    def employ(self) -> None:
        chance = self.world.random
        for place in self.places():
            if place[0] == TOPIC:
                for number in range(chance.choice((1, 1, 2))):
                    self.producers.append(Producer(self.cluster, f"p{place[1]}{number}", self.ledger, *place))
            for is_committed in (False, True):
                if chance.random() < 0.6:
                    name = f"{'r' if is_committed else 'u'}{place[0][0]}{place[1]}"
                    self.consumers.append(Consumer(self.cluster, name, self.ledger, place, is_committed=is_committed))
        for number in range(chance.choice((0, 1, 2))):
            self.transactors.append(Transactor(self.cluster, f"x{number}", self.ledger, self.partitions))
        for kind, letter in ((ClassicMember, "m"), (ConsumerMember, "n")):
            for number in range(chance.choice((0, 0, 1, 2, 3))):
                name = f"{letter}{number}"
                self.members.append(kind(self.cluster, name, self.ledger, f"group {letter}", TOPIC, self.partitions))
        for client in self.clients():
            client.start()

    def meddle(self, seconds: float) -> None:
        end = self.world.now + seconds - 0.5

        def strike() -> None:
            if self.world.now < end:
                self.world.random.choice(self.theme.faults)(self)
                self.world.after(self.world.random.uniform(0.3, 3.0), strike)

        self.world.after(self.world.random.uniform(0.0, 1.0), strike)

    def recover(self) -> None:
        """Work goes on; when there is no more, all clients stop."""
        mended_at = self.world.now

        def stuck() -> list[str]:
            return [
                *(each.name for each in self.producers if each.acked_at <= mended_at),
                *(each.name for each in self.transactors if each.committed_at <= mended_at),
                *(each.name for each in self.members if each.placed_at <= mended_at),
            ]

        if not self.world.run(RECOVERY_SECONDS_MAX, lambda: not stuck()):
            self.world.break_(f"the work of {stuck()} does not go on after all is mended")
        self.world.run(self.world.random.choice((0.0, 1.0, 3.0)))
        for client in self.clients():
            client.is_done = True
        if not self.world.run(QUIET_SECONDS_MAX, lambda: not self.cluster.working):
            self.world.break_(f"clients do not come to an end: {list(self.cluster.working)}")

    def check_rest(self) -> None:
        """No client sends requests any more."""
        settled: tuple[Invariant, ...] = (NoRequestWaits(), self.tasks_left, ReplicasAreEqual())

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
        counters = [Counter(self.cluster, f"count of {each.name}", self.ledger, each) for each in self.transactors]
        for counter in counters:
            counter.start()
        if not self.world.run(QUIET_SECONDS_MAX, lambda: not self.cluster.working):
            self.world.break_("open transactions do not come to an end")
        ends = {place: max(found.values()) for place, found in ends_of_replicas(self.cluster).items()}
        readers = [
            FinalReader(
                self.cluster,
                f"final {place} {is_committed}",
                self.ledger,
                place,
                ends.get(place, 0),
                is_committed=is_committed,
            )
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
        committed = {reader.place: reader.log for reader in readers if reader.is_committed}
        self.ledger.check_transactions(committed)
        self.ledger.check_counts(committed, {each.producer: each.found for each in counters})

    def check_old_passwords(self) -> None:
        """An old password is refused by every broker."""
        accounts = self.cluster.accounts
        for password in accounts.old if accounts is not None else ():
            for host in self.cluster.hosts:
                Intruder(self.cluster, f"{password} at {host.name}", host.number, password).start()
        if not self.world.run(QUIET_SECONDS_MAX, lambda: not self.cluster.working):
            self.world.break_("logins with old passwords do not come to an end")


def simulate(seed: int, theme: str | None = None, lines: int | None = 80) -> World:
    chance = Random(seed)
    name = theme or chance.choices(list(THEMES), [each.weight for each in THEMES.values()])[0]
    settings = SECURED if THEMES[name].is_secured else HEALING if THEMES[name].heals else None
    settings = FOLDERS if THEMES[name].folders > 1 else settings
    with running(seed, THEMES[name].brokers, settings, lines, THEMES[name].folders) as cluster:
        cluster.world.tell(f"theme {name}")
        with slow_forgetting(cluster.world) if THEMES[name].renews else nullcontext():
            Life(cluster, THEMES[name]).play()
    return cluster.world


def play_piece(first: int, count: int) -> None:
    """Some seeds, one after the other."""
    for seed in range(first, first + count):
        simulate(seed)


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
