"""What may go wrong: each fault breaks something and says how it is mended some time later.

The names are those of the list of scenarios in the reliability notes (R1 … W9). A run has a theme, which is one fault
again and again, or all of them mixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulation.cluster.cluster import TOPIC, Cluster
from tests.simulation.cluster.ensemble import SESSION_MS
from tests.simulation.cluster.network import STORE

from ottla.base.names import TopicPartition
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.elect_leaders import ElectionType, decide_elections
from ottla.controller.decisions.leader_election import decide_election
from ottla.controller.decisions.leader_eligibility import BrokerAvailability
from ottla.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments
from ottla.controller.decisions.topic_changes import (
    NewTopic,
    NewTopicSeed,
    TopicDefaults,
    decide_create_topics,
    decide_delete_topics,
)
from ottla.controller.image import MetadataImage

Fault = Callable[[Cluster], None]


def later(cluster: Cluster, least_ms: int, most_ms: int, event: Callable[[], None]) -> None:
    cluster.world.after(cluster.world.random.randint(least_ms, most_ms), event)


def any_broker(cluster: Cluster) -> int:
    return cluster.world.random.choice(cluster.hosts)


def a_leader(cluster: Cluster) -> int:
    leader = cluster.leader(int(cluster.world.random.random() * cluster.partition_count))
    return leader if leader > 0 else any_broker(cluster)


def a_follower(cluster: Cluster) -> int:
    leader = cluster.leader()
    return cluster.world.random.choice([host for host in cluster.hosts if host != leader])


def the_controller(cluster: Cluster) -> int:
    controller = cluster.controller()
    return controller if controller > 0 else any_broker(cluster)


# ---- processes


def kill(cluster: Cluster, host: int, least_ms: int = 20, most_ms: int = 1_500) -> None:
    cluster.kill(host)
    later(cluster, least_ms, most_ms, lambda: cluster.start(host))


def kill_leader(cluster: Cluster) -> None:
    """R1."""
    kill(cluster, a_leader(cluster))


def kill_controller(cluster: Cluster) -> None:
    """R2."""
    kill(cluster, the_controller(cluster))


def kill_any(cluster: Cluster) -> None:
    kill(cluster, any_broker(cluster))


def spare(cluster: Cluster) -> list[int]:
    """Brokers whose disk may be lost: a follower if all are in sync, or one that is not in the ISR."""
    leader = cluster.leader()
    if cluster.is_whole():
        return [host for host in cluster.hosts if host != leader]
    topic = cluster.image().topics.get(TOPIC)
    states = topic.partitions if topic is not None else ()
    return [host for host in cluster.hosts if all(host not in (*each.isr, *each.elr) for each in states)]


def wipe_follower(cluster: Cluster) -> None:
    """R3, only while the others have everything."""
    hosts = spare(cluster)
    if hosts:
        wipe(cluster, cluster.world.random.choice(hosts))


def wipe(cluster: Cluster, host: int) -> None:
    cluster.kill(host)
    cluster.wipe(host)
    later(cluster, 20, cluster.world.random.choice((60, 800)), lambda: cluster.start(host))


def lose_power(cluster: Cluster) -> None:
    """W9, of one at a time."""
    if cluster.is_whole():
        host = any_broker(cluster)
        cluster.kill(host, with_power=True)
        later(cluster, 20, 1_200, lambda: cluster.start(host))


def lose_all_power(cluster: Cluster) -> None:
    """W10: all at once; they come back in any order."""
    for host in cluster.hosts:
        cluster.kill(host, with_power=True)
        later(cluster, 50, 1_000, lambda host=host: cluster.start(host))  # type: ignore[misc]


def pause(cluster: Cluster, host: int) -> None:
    cluster.pause(host)
    later(cluster, SESSION_MS // 2, 2 * SESSION_MS, lambda: cluster.resume(host))


def pause_leader(cluster: Cluster) -> None:
    """R5."""
    pause(cluster, a_leader(cluster))


def pause_controller(cluster: Cluster) -> None:
    """R6."""
    pause(cluster, the_controller(cluster))


def lose_session(cluster: Cluster) -> None:
    """A live broker is taken for dead."""
    broker = cluster.broker(any_broker(cluster))
    if broker is not None and broker.store.session:
        cluster.world.tell(f"the session of {broker.host} ends")
        cluster.server.store.close_session(broker.store.session)


def fail_over_twice(cluster: Cluster) -> None:
    """R18 (KIP-279): the leader dies, then the next one, before the first is back for long."""
    first = a_leader(cluster)
    kill(cluster, first, 100, 900)
    later(cluster, 30, 500, lambda: kill(cluster, a_leader(cluster), 30, 500))


def kill_in_sync(cluster: Cluster) -> None:
    """R15: the in-sync replicas die, one after the other; the first to die is back first."""
    state = cluster.state()
    at_ms = 0
    for host in state.isr if state is not None else ():
        at_ms += cluster.world.random.randint(20, 500)
        cluster.world.after(at_ms, lambda host=host: kill(cluster, host, 300, 1_500))  # type: ignore[misc]


def watch_for_moments(cluster: Cluster) -> None:
    """The leader dies just when the state of its partition has been written: its successor starts from that state."""

    def changed(paths: list[str]) -> None:
        if cluster.is_in_trouble and any(path.endswith("/state") for path in paths) and cluster.world.chance(0.3):
            soon_ms = cluster.world.random.choice((0, 1, 2, 4, 8, 25))
            cluster.world.after(soon_ms, lambda: kill(cluster, a_leader(cluster)) if cluster.is_in_trouble else None)

    cluster.on_state_written = changed


def watch_for_slow_messages(cluster: Cluster) -> None:
    """A broker loses its disk and starts again while a message of its earlier life is still on its way."""

    def slow(source: int) -> None:
        if cluster.is_in_trouble and source in cluster.hosts and cluster.world.chance(0.2):
            cluster.world.after(0, lambda: wipe(cluster, source) if source in spare(cluster) else None)

    cluster.network.on_slow = slow


# ---- the network


def cut(cluster: Cluster, ways: list[tuple[int, int]]) -> None:
    cluster.world.tell(f"cut {ways}")
    for way in ways:
        cluster.network.cuts[way] = None
    later(cluster, 200, 1_800, lambda: mend(cluster, ways))


def mend(cluster: Cluster, ways: list[tuple[int, int]]) -> None:
    cluster.world.tell(f"mended {ways}")
    for way in ways:
        cluster.network.cuts.pop(way, None)


def both(one: int, others: list[int]) -> list[tuple[int, int]]:
    return [way for other in others for way in ((one, other), (other, one))]


def cut_leader_off(cluster: Cluster) -> None:
    """R9: from the other brokers; clients and the store still reach it, or not."""
    leader = a_leader(cluster)
    others = [host for host in cluster.hosts if host != leader]
    if cluster.world.chance(0.3):
        others.append(STORE)
    cut(cluster, both(leader, others))


def cut_one_way(cluster: Cluster) -> None:
    """R10."""
    one, other = cluster.world.random.sample((*cluster.hosts, STORE), 2)
    cut(cluster, [(one, other)])


def cut_follower_off(cluster: Cluster) -> None:
    """R11."""
    follower = a_follower(cluster)
    cut(cluster, both(follower, [host for host in cluster.hosts if host != follower]))


def catch_up_late(cluster: Cluster) -> None:
    """The leader dies while a follower that was cut off is about to catch up."""
    follower = a_follower(cluster)
    ways = both(follower, [host for host in cluster.hosts if host != follower])
    cluster.world.tell(f"{follower} falls behind")
    for way in ways:
        cluster.network.cuts[way] = None

    def back() -> None:
        mend(cluster, ways)
        later(cluster, 0, 40, lambda: kill(cluster, a_leader(cluster)) if cluster.is_in_trouble else None)

    later(cluster, 450, 700, back)


def swizzle(cluster: Cluster) -> None:
    """R13: links are cut one by one and mended in another order."""
    ways = [(a, b) for a in (*cluster.hosts, STORE) for b in (*cluster.hosts, STORE) if a != b]
    cluster.world.random.shuffle(ways)
    at_ms = 0
    for way in ways[: cluster.world.random.randint(2, 6)]:
        at_ms += cluster.world.random.randint(10, 200)
        cluster.world.after(at_ms, lambda way=way: cut(cluster, [way]))  # type: ignore[misc]


def stall_store(cluster: Cluster) -> None:
    """The store is silent for less than a session: nothing may be lost by it."""
    cluster.server.pause()
    later(cluster, 50, SESSION_MS // 2, cluster.server.resume)


# ---- time


def step_clock(cluster: Cluster) -> None:
    """W1: an hour forth or back on one broker."""
    host = any_broker(cluster)
    step_ms = cluster.world.random.choice((-3_600_000, 3_600_000))
    cluster.world.tell(f"the clock of {host} is set by {step_ms} ms")
    cluster.clock_offsets_ms[host] = step_ms
    broker = cluster.broker(host)
    if broker is not None:
        broker.clock_offset_ms = step_ms


# ---- by request


def ask_controller(cluster: Cluster, decide: Callable[[MetadataImage], Decision[Any]]) -> None:
    """As an admin client does: once, by way of the supposed controller; the answer is ignored."""
    admin = cluster.readers[0]
    cluster.network.call(
        admin, the_controller(cluster), lambda broker, answer: broker.on_admin(decide, answer), ignore, ignore, 300
    )


def ignore(_: object) -> None:
    pass


def move(cluster: Cluster) -> None:
    """R19: other brokers shall hold the partition; or what is under way is cancelled."""
    name = TopicPartition(TOPIC, int(cluster.world.random.random() * cluster.partition_count))
    target = None if cluster.world.chance(0.25) else tuple(cluster.world.random.sample(cluster.hosts, 3))
    cluster.world.tell(f"{name} shall move to {target}")
    ask_controller(
        cluster,
        lambda image: decide_reassignments(
            image, [ReassignmentRequest(name, target)], BrokerAvailability(), cluster.rules
        ),
    )


def delete_topic(cluster: Cluster) -> None:
    """R20: and a topic of the same name follows."""
    cluster.world.tell("the topic shall be deleted")
    ask_controller(cluster, lambda image: decide_delete_topics(image, [(TOPIC, None)]))
    later(cluster, 5, 400, lambda: create_topic(cluster))


def create_topic(cluster: Cluster) -> None:
    """If there is none; again and again until it is there."""
    if cluster.is_creating:
        return
    new = NewTopic(TOPIC, cluster.partition_count, min(3, len(cluster.hosts)))
    lot = NewTopicSeed(
        UUID(int=cluster.world.random.getrandbits(64)), *(cluster.world.random.randint(0, 9) for _ in range(2))
    )
    if TOPIC not in cluster.image().topics:
        cluster.world.tell("the topic shall be created")
        ask_controller(
            cluster, lambda image: decide_create_topics(image, [new], TopicDefaults(), [lot], lambda configs: None)
        )
        cluster.is_creating = True
        later(cluster, 100, 200, lambda: create_topic_again(cluster))


def create_topic_again(cluster: Cluster) -> None:
    cluster.is_creating = False
    create_topic(cluster)


def prefer(cluster: Cluster) -> None:
    """The first replica shall lead again, if it is in sync."""
    names = [TopicPartition(TOPIC, index) for index in range(cluster.partition_count)]
    ask_controller(
        cluster,
        lambda image: decide_elections(image, ElectionType.PREFERRED, names, BrokerAvailability(), cluster.rules),
    )


def maintain(cluster: Cluster) -> None:
    """A broker is in maintenance: others lead, it may be restarted, and leads again later."""
    host = a_leader(cluster)
    cluster.world.tell(f"broker {host} is in maintenance")
    cluster.resting |= {host}

    def relieve(image: MetadataImage) -> Decision[Any]:
        """What the maintenance alone changes: leaders, and never to no leader."""
        before = decide_election(image, BrokerAvailability(), cluster.rules).image
        decision = decide_election(before, BrokerAvailability(demoted=cluster.resting), cluster.rules)
        for name, topic in before.topics.items():
            for old, new in zip(topic.partitions, decision.image.topics[name].partitions, strict=True):
                is_kept = (new.isr, new.elr, new.leader < 0) == (old.isr, old.elr, old.leader < 0)
                if not is_kept or (new.leader != old.leader and old.leader not in cluster.resting):
                    cluster.ledger.break_(f"maintenance of {set(cluster.resting)} makes {new} of {old}")
        return decide_election(image, BrokerAvailability(demoted=cluster.resting), cluster.rules)

    ask_controller(cluster, relieve)
    if cluster.world.chance(0.5):
        later(cluster, 5, 300, lambda: kill(cluster, host, 20, 400))
    later(cluster, 100, 900, lambda: work_again(cluster, host))


def work_again(cluster: Cluster, host: int) -> None:
    cluster.world.tell(f"broker {host} is not in maintenance any more")
    cluster.resting -= {host}
    prefer(cluster)


class Theme(NamedTuple):
    """What happens in a run, and how often such a run is played."""

    weight: int
    faults: tuple[Fault, ...]
    hosts: int = 3
    is_clean: bool = True  # no unclean elections
    flushes: bool = False  # flush.messages=1: what is acknowledged is on the disk of all in-sync replicas
    watch: Callable[[Cluster], None] | None = None  # for the worst moment


NETWORK = (cut_leader_off, cut_one_way, cut_follower_off, swizzle)
KILLS = (kill_leader, kill_controller, kill_any, fail_over_twice)
PAUSES = (pause_leader, pause_controller, lose_session)

THEMES: dict[str, Theme] = {
    "kill leader": Theme(4, (kill_leader,)),
    "kill controller": Theme(3, (kill_controller,)),
    "kill any": Theme(4, (kill_any, kill_leader)),
    "wipe": Theme(4, (wipe_follower, kill_leader, kill_controller), watch=watch_for_slow_messages),
    "power": Theme(4, (lose_power, kill_leader, kill_controller)),
    "pause": Theme(4, PAUSES),
    "cut leader": Theme(3, (cut_leader_off, cut_one_way)),
    "cut follower": Theme(2, (cut_follower_off, kill_leader)),
    "swizzle": Theme(3, (swizzle,)),
    "twice": Theme(4, (fail_over_twice, cut_one_way)),
    "in sync": Theme(3, (kill_in_sync, cut_follower_off)),
    "moments": Theme(
        12, (catch_up_late, catch_up_late, wipe_follower, kill_any, pause_leader), watch=watch_for_moments
    ),
    "move": Theme(5, (move, move, kill_any, cut_one_way, pause_leader), hosts=4),
    "recreate": Theme(3, (delete_topic, kill_any, cut_one_way, pause_leader)),
    "unclean": Theme(3, (kill_in_sync, cut_leader_off, lose_power, wipe_follower), is_clean=False),
    "flush": Theme(2, (lose_all_power, kill_leader, cut_one_way), flushes=True),
    "maintenance": Theme(4, (maintain, maintain, kill_leader, kill_controller, pause_leader, cut_follower_off)),
    "mixed": Theme(10, (*KILLS, *NETWORK, *PAUSES, wipe_follower, lose_power, stall_store, step_clock, prefer)),
}
