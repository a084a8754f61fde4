"""Healing in a cluster of real brokers: one of four dies for good, while other things go wrong.

Watched is what is written to ZooKeeper, in the moment in which it is written: nothing is moved off a broker that was
well a short while ago, nothing moves unthrottled, and nothing to a broker that is about to stop. At the end every
partition has all its replicas again, on live brokers, and no throttle is left behind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.brokers.cluster import BrokerHost, Cluster
from tests.simulation.brokers.faults import state_of, states, the_controller

from ottla.base.placement.throttled_replicas import FOLLOWER_REPLICAS, LEADER_REPLICAS, RATE_KEYS, REPLICA_KEYS
from ottla.controller.self_balancing.heal_state import JOURNAL_FORMAT
from ottla.controller.self_balancing.journals import ReplicaMove

if TYPE_CHECKING:
    from tests.simulation.brokers.play import Life

AFTER_MS: Final = 4_000
MOVES_MAX: Final = 2
SETTINGS: Final = {
    "ottla.heal.after.ms": str(AFTER_MS),
    "ottla.heal.moves.max": str(MOVES_MAX),
    "ottla.heal.throttle.rate": "3000000",
    "ottla.heal.disk.max.percentage": "100",
}
FOLDER_SETTINGS: Final = {
    **SETTINGS,
    "ottla.heal.brokers.max": "2",  # so that it dares more
    "ottla.heal.throttle.rate": "30000000",  # large records are written meanwhile
}
LOOK_SECONDS: Final = 0.1
SURELY_HEARD_SECONDS: Final = 4.0  # a broker that was healthy for so long has polled the controller
SLACK_SECONDS: Final = 0.5
TROUBLE_SECONDS: Final = 10.0
HEAL_SECONDS_MAX: Final = 60.0
NO_BROKER: Final = -1


class HealingWatch:
    """Looks at everything that healing writes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.begun = 0
        self._moves: frozenset[ReplicaMove] = frozenset()
        self._well_since: dict[int, float] = {}
        self._well_at = {host.number: self.world.now for host in cluster.hosts}  # and had been for a while
        cluster.server.on_change = self._on_change
        self._look()

    def _look(self) -> None:
        for host in self.cluster.hosts:
            if self._is_well(host):
                since = self._well_since.setdefault(host.number, self.world.now)
                if self.world.now - since >= SURELY_HEARD_SECONDS:
                    self._well_at[host.number] = self.world.now
            else:
                self._well_since.pop(host.number, None)
        self.world.after(LOOK_SECONDS, self._look)

    def _is_well(self, host: BrokerHost) -> bool:
        is_registered = f"/brokers/ids/{host.number}" in self.cluster.server.nodes
        is_running = host.loop is not None and not host.loop.is_paused
        is_whole = self.cluster.disk.disk_of(host.name).failed is None
        return is_registered and is_running and is_whole and not self.cluster.network.cuts

    def _on_change(self, path: str) -> None:
        node = self.cluster.server.nodes.get(JOURNAL_FORMAT.path)
        if path != JOURNAL_FORMAT.path or node is None:
            return
        listed = JOURNAL_FORMAT.decode(node.data).moves
        if len(listed) > MOVES_MAX:
            self.world.break_(f"healing moves {len(listed)} partitions at a time")
        moves = frozenset(listed)
        for move in sorted(moves - self._moves):
            self.begun += 1
            self.world.tell(f"healing begins {move}")
            self._check(move)
        self._moves = moves

    def _check(self, move: ReplicaMove) -> None:
        for broker in move.removed:
            seconds = self.world.now - self._well_at[broker]
            if seconds < AFTER_MS / 1000 - SLACK_SECONDS:
                self.world.break_(f"{move} is healed too early: broker {broker} was well {seconds:.1f} s ago")
        for broker in move.added:
            if f"/brokers/ids/{broker}" not in self.cluster.server.nodes:
                self.world.break_(f"{move} goes to broker {broker}, which is not there")
            if broker in self._stopping():
                self.world.break_(f"{move} goes to broker {broker}, which is about to stop")
        self._check_throttle(move)

    def _stopping(self) -> frozenset[int]:
        """Brokers whose shutdown the controller has granted."""
        assembly = the_controller(self.cluster).assembly
        clustering = assembly.lifecycle if assembly is not None else None
        return clustering.controller.liveness.shutting_down if clustering is not None else frozenset()

    def _check_throttle(self, move: ReplicaMove) -> None:
        topic, index = move.partition
        row = state_of(self.cluster, f"/brokers/topics/{topic}").get("partitions", {}).get(str(index), ())
        sources = [broker for broker in row if broker not in (*move.removed, *move.added)]
        config = config_of(self.cluster, f"/config/topics/{topic}")
        for key, brokers in ((LEADER_REPLICAS, sources), (FOLLOWER_REPLICAS, move.added)):
            missing = [broker for broker in brokers if f"{index}:{broker}" not in config.get(key, "").split(",")]
            if missing:
                self.world.break_(f"{move} begins, and {key} does not name brokers {missing}")
        for broker in (*sources, *move.added):
            is_there = f"/brokers/ids/{broker}" in self.cluster.server.nodes
            rates = config_of(self.cluster, f"/config/brokers/{broker}")
            if is_there and not all(key in rates for key in RATE_KEYS):
                self.world.break_(f"{move} begins, and broker {broker} has no rate: {rates}")

    # ---- the end

    def problem(self, dead: int) -> str | None:
        """What is not healed, or has been left behind."""
        for path in list(self.cluster.server.nodes):
            topic = path.removeprefix("/brokers/topics/")
            if topic != path and "/" not in topic:
                node = state_of(self.cluster, path)
                if node.get("adding_replicas") or node.get("removing_replicas"):
                    return f"{topic} still moves: {node}"
                if any(dead in row for row in node.get("partitions", {}).values()):
                    return f"{topic} is still on broker {dead}: {node}"
            left = [key for key in (*RATE_KEYS, *REPLICA_KEYS) if key in config_of(self.cluster, path)]
            if left:
                return f"a throttle is left in {path}: {left}"
        if not is_in_sync(self.cluster):
            return f"not everything is in sync: {states(self.cluster)}"
        return f"moves are left in the journal: {self._moves}" if self._moves else None


def is_in_sync(cluster: Cluster) -> bool:
    return all(len(each.get("isr", ())) >= 3 for each in states(cluster))


def config_of(cluster: Cluster, path: str) -> dict[str, Any]:
    if not path.startswith(("/config/topics/", "/config/brokers/")):
        return {}
    node = cluster.server.nodes.get(path)
    found: dict[str, Any] = json.loads(node.data).get("config", {}) if node is not None and node.data else {}
    return found


def play_healing(life: Life) -> None:
    """One broker dies for good; it may come back for a while in the middle, and others have their own troubles."""
    cluster, world = life.cluster, life.world
    watch = HealingWatch(cluster)
    dead = world.random.choice(cluster.hosts)
    is_needed = watch.problem(dead.number) is not None  # it may hold nothing
    dead.kill()
    if world.chance(0.5):
        world.after(world.random.uniform(0.5, TROUBLE_SECONDS), dead.start)
    life.meddle(TROUBLE_SECONDS)
    world.run(TROUBLE_SECONDS)
    dead.kill()
    dead.is_gone = True
    world.tell(f"all is mended but {dead.name}")
    cluster.mend()
    if not world.run(HEAL_SECONDS_MAX, lambda: watch.problem(dead.number) is None):
        world.break_(f"broker {dead.number} is not healed: {watch.problem(dead.number)}")
    if watch.begun == 0 and is_needed:
        world.break_("nothing was healed at all")
    dead.is_gone = False


def play_failed_folder(life: Life) -> None:
    """One of two folders of a broker fails for good: there is no other broker, so what it held goes to the other one.

    At the end the folder may be back, with all that was in it when it failed, and all brokers restart at once.
    """
    cluster, world = life.cluster, life.world
    watch = HealingWatch(cluster)
    victim = world.random.choice(cluster.hosts)
    folder = world.random.choice(victim.folders)
    world.tell(f"{folder.rpartition('/')[2]} of {victim.name} fails")
    disk = cluster.disk.disk_of(victim.name)
    disk.failed = folder
    life.meddle(TROUBLE_SECONDS)
    world.run(TROUBLE_SECONDS)
    world.tell("all is mended but the folder")
    cluster.mend()
    if not world.run(HEAL_SECONDS_MAX, lambda: watch.problem(NO_BROKER) is None):
        world.break_(f"a failed folder is not healed: {watch.problem(NO_BROKER)}")
    if world.chance(0.5):
        world.tell("the folder is back")
        disk.failed = None
        for host in cluster.hosts:
            host.kill()
            host.start()
