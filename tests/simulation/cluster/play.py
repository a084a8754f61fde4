"""One life of the cluster, made from a seed: `simulate(seed)` plays it and raises when a promise is broken.

`python -m tests.simulation.cluster.play SEEDS [FIRST]` plays many.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence

from tests.simulation.cluster.clients import Producer, Reader
from tests.simulation.cluster.cluster import TOPIC, Cluster
from tests.simulation.cluster.faults import THEMES, Fault, create_topic
from tests.simulation.world import World

TROUBLE_MS = 4_000
RECOVERY_MS = 6_000
CHECK_MS = 100


def simulate(seed: int, theme: str | None = None, lines: int | None = 60) -> World:
    """Keep the last `lines` of the trace for the report; None: all."""
    world = World(seed)
    world.trace = deque(maxlen=lines)
    names = list(THEMES)
    name = theme or world.random.choices(names, [each.weight for each in THEMES.values()])[0]
    chosen = THEMES[name]
    partitions = world.random.choice((1, 1, 2))
    world.tell(f"theme {name}, {partitions} partitions")
    cluster = Cluster(
        world, hosts=chosen.hosts, partitions=partitions, is_clean=chosen.is_clean, flushes=chosen.flushes
    )
    cluster.network.loss = world.random.choice((0.0, 0.0, 0.01, 0.05))
    cluster.network.slowness = world.random.choice((0.0, 0.02, 0.1))
    employ(cluster)
    if chosen.watch is not None:
        chosen.watch(cluster)
    meddle(cluster, chosen.faults)
    world.run(TROUBLE_MS, 100_000)
    heal(cluster)
    recover(cluster)
    return world


def employ(cluster: Cluster) -> None:
    world = cluster.world
    host = -10
    pauses_ms = (900,) if world.chance(0.2) else (30, 80)  # now and then there is little to do
    for index in range(cluster.partition_count):
        for acks in (-1, world.random.choice((-1, 1))):
            host -= 1
            where = (world, cluster.network, cluster.ledger, host, cluster.hosts, TOPIC, index)
            name = f"{'p' if acks == -1 else 'q'}{-host}"
            producer = Producer(
                *where, name=name, producer_id=-host, acks=acks, pause_ms=world.random.choice(pauses_ms)
            )
            cluster.producers.append(producer)
            producer.after(50, producer.live)
        host -= 1
        reader = Reader(world, cluster.network, cluster.ledger, host, cluster.hosts, TOPIC, index, name=f"r{-host}")
        cluster.readers.append(reader)
        reader.after(100, reader.live)


def meddle(cluster: Cluster, faults: Sequence[Fault]) -> None:
    world = cluster.world
    end_ms = world.now_ms + TROUBLE_MS - 300

    def strike() -> None:
        if world.now_ms < end_ms:
            world.random.choice(faults)(cluster)
            world.after(world.random.randint(100, 1_400), strike)

    world.after(world.random.randint(200, 700), strike)


def heal(cluster: Cluster) -> None:
    cluster.world.tell("all is mended")
    cluster.is_in_trouble = False
    cluster.network.heal()
    cluster.server.resume()
    for host in cluster.hosts:
        cluster.resume(host)
        cluster.start(host)
    create_topic(cluster)


def recover(cluster: Cluster) -> None:
    """Acknowledgements flow again; and when there is no more work, all replicas become equal."""
    world = cluster.world
    healed_ms = world.now_ms
    while world.now_ms < healed_ms + RECOVERY_MS:
        create_topic(cluster)  # a wish to delete it may have come late
        world.run(CHECK_MS, 100_000)
        if all(producer.acked_ms > healed_ms for producer in cluster.producers):
            break
    else:
        stuck = [producer.name for producer in cluster.producers if producer.acked_ms <= healed_ms]
        cluster.ledger.break_(f"L: nothing of {stuck} is acknowledged after all is mended: {cluster.unfinished()}")
    for client in (*cluster.producers, *cluster.readers):
        client.is_done = True
    healed_ms = world.now_ms
    while cluster.unfinished() is not None:
        create_topic(cluster)
        world.run(CHECK_MS, 100_000)
        if world.now_ms > healed_ms + RECOVERY_MS:
            cluster.ledger.break_(f"L: the cluster does not come to rest: {cluster.unfinished()}")
    cluster.check_logs()


def main() -> int:
    count = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    theme = sys.argv[3] if len(sys.argv) > 3 and sys.argv[3] in THEMES else None
    started = time.process_time()  # of this process: others may be busy, too
    for seed in range(first, first + count):
        simulate(seed, theme)
    seconds = time.process_time() - started
    print(f"{count} seeds in {seconds:.1f} s: {count * 60 / seconds:,.0f} a minute, nothing broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
