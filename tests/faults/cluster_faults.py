"""What can happen to a cluster, each as a function: it happens, lasts a while, and is over when the function returns.

Every fault gets a scene: the cluster, the source of chance, and the topic whose partitions are under load.
"""

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.broker_restarts import restart_command

from ottla.cli.main import main
from ottla.testing.cluster import Cluster, ClusterBroker
from ottla.testing.links import ZOOKEEPER, Links

PARTITIONS = 4


@dataclass
class Scene:
    """Where faults happen."""

    cluster: Cluster
    chance: random.Random
    topic: str

    def some_leader(self) -> ClusterBroker:
        return self.cluster.leader_of(self.topic, self.chance.randrange(PARTITIONS))

    def some_follower(self) -> ClusterBroker:
        leader = self.some_leader()
        return self.chance.choice([broker for broker in self.cluster.brokers if broker is not leader])

    def some_broker(self) -> ClusterBroker:
        return self.chance.choice(self.cluster.brokers)

    @property
    def session_seconds(self) -> float:
        return int(self.cluster.brokers[0].settings.get("zookeeper.session.timeout.ms", "6000")) / 1000

    @property
    def links(self) -> Links:
        assert self.cluster.links is not None, "this fault needs a cluster with links"
        return self.cluster.links

    def cut_off(self, lonely: ClusterBroker) -> None:
        """From all other brokers, and not from ZooKeeper."""
        for broker in self.cluster.brokers:
            if broker is not lonely:
                self.links.cut(lonely.id, broker.id)

    def cut_seconds(self) -> float:
        return self.chance.choice((1.0, 1.5 * self.session_seconds, 3 * self.session_seconds))


Fault = Callable[[Scene], None]


# ---- deaths


def kill_leader(scene: Scene) -> None:
    leader = scene.some_leader()
    leader.kill()
    time.sleep(scene.chance.choice((0.0, 0.5, 3.0)))
    leader.start()


def kill_controller(scene: Scene) -> None:
    controller = scene.cluster.controller()
    controller.kill()
    scene.cluster.controller(other_than=controller)
    time.sleep(scene.chance.choice((0.0, 1.0)))
    controller.start()


def kill_and_wipe_follower(scene: Scene) -> None:
    follower = scene.some_follower()
    follower.kill()
    follower.wipe()
    time.sleep(scene.chance.choice((0.0, 1.0)))
    follower.start()


def kill_all(scene: Scene) -> None:
    brokers = scene.chance.sample(scene.cluster.brokers, len(scene.cluster.brokers))
    for broker in brokers:
        broker.kill()
    scene.cluster.start_brokers(brokers)


def kill_two(scene: Scene) -> None:
    """Below the least number of replicas in sync: writes must wait."""
    brokers = scene.chance.sample(scene.cluster.brokers, 2)
    for broker in brokers:
        broker.kill()
    time.sleep(scene.chance.choice((0.5, 2.0)))
    scene.cluster.start_brokers(brokers)


def restart_one(scene: Scene) -> None:
    scene.some_broker().restart()


def roll(scene: Scene) -> None:
    """Every broker is restarted in an orderly way, the next one when all replicas are in sync again."""
    for broker in scene.chance.sample(scene.cluster.brokers, len(scene.cluster.brokers)):
        broker.restart()
        scene.cluster.wait_until_whole()


def roll_by_tool(scene: Scene) -> None:
    """The same by `ottla cluster roll`: leaders leave each broker first, and come back."""
    with restart_command(scene.cluster) as command, tempfile.TemporaryDirectory() as folder:
        state = str(Path(folder, "roll.json"))
        words = ["--bootstrap-server", scene.cluster.bootstrap, "--command", command, "--state", state]
        assert main(["cluster", "roll", *words]) == 0


def maintain(scene: Scene) -> None:
    """A broker is in maintenance; meanwhile it is restarted, or the controller dies, or nothing happens."""
    broker = scene.some_leader()
    where = ["--bootstrap-server", scene.cluster.bootstrap]
    assert main(["cluster", "maintenance", str(broker.id), "--for", "10m", *where]) == 0
    scene.chance.choice((broker.restart, lambda: kill_controller(scene), lambda: time.sleep(1.0)))()
    scene.cluster.wait_until_whole()
    led = [scene.cluster.leader_of(scene.topic, number).id for number in range(PARTITIONS)]
    assert broker.id not in led, f"broker {broker.id} is in maintenance and leads: {led}"
    assert main(["cluster", "maintenance", str(broker.id), "--end", *where]) == 0


# ---- pauses


def pause(scene: Scene, broker: ClusterBroker) -> None:
    broker.pause()
    time.sleep(2 * scene.session_seconds)
    broker.resume()


def pause_leader(scene: Scene) -> None:
    pause(scene, scene.some_leader())


def pause_controller(scene: Scene) -> None:
    pause(scene, scene.cluster.controller())


def pause_briefly(scene: Scene) -> None:
    """Shorter than a session: no broker should lose its session."""
    broker = scene.some_broker()
    broker.pause()
    time.sleep(scene.session_seconds / 2)
    broker.resume()


def restart_zookeeper(scene: Scene, seconds: float | None = None) -> None:
    scene.cluster.zookeeper.kill()
    time.sleep(scene.chance.choice((0.0, 2.0, 1.5 * scene.session_seconds)) if seconds is None else seconds)
    scene.cluster.zookeeper.start()


# ---- cuts, for clusters with links


def cut_leader_from_followers(scene: Scene) -> None:
    """Clients and ZooKeeper still reach it."""
    links, leader = scene.links, scene.some_leader()
    scene.cut_off(leader)
    time.sleep(scene.cut_seconds())
    links.heal()


def cut_controller_from_brokers(scene: Scene) -> None:
    """ZooKeeper still reaches it, so its session goes on."""
    scene.cut_off(scene.cluster.controller())
    time.sleep(scene.cut_seconds())
    scene.links.heal()


def cut_one_off(scene: Scene) -> None:
    """From all other brokers and ZooKeeper, but not from the clients."""
    links, lonely = scene.links, scene.some_broker()
    links.cut(lonely.id, ZOOKEEPER)
    scene.cut_off(lonely)
    time.sleep(scene.cut_seconds())
    links.heal()


def cut_from_zookeeper(scene: Scene) -> None:
    links = scene.links
    links.cut(scene.chance.choice([scene.some_leader(), scene.cluster.controller()]).id, ZOOKEEPER)
    time.sleep(scene.cut_seconds())
    links.heal()


def cut_one_way(scene: Scene) -> None:
    """A reaches B and B does not reach A."""
    links = scene.links
    one, other = scene.chance.sample(scene.cluster.brokers, 2)
    links.cut(one.id, other.id, one_way=True)
    time.sleep(scene.cut_seconds())
    links.heal()


def cut_follower(scene: Scene) -> None:
    """From the other brokers only: it is still alive for ZooKeeper."""
    links, follower = scene.links, scene.some_follower()
    scene.cut_off(follower)
    time.sleep(scene.cut_seconds())
    links.heal()


def swizzle(scene: Scene) -> None:
    """Links are cut one after the other and healed in another order."""
    links = scene.links
    nodes = [ZOOKEEPER, *(broker.id for broker in scene.cluster.brokers)]
    pairs = [(one, other) for one in nodes for other in nodes if one < other]
    chosen = scene.chance.sample(pairs, scene.chance.randint(2, len(pairs) - 1))
    for one, other in chosen:
        links.cut(one, other, one_way=scene.chance.random() < 0.3)
        time.sleep(scene.chance.uniform(0.1, 1.0))
    scene.chance.shuffle(chosen)
    for one, other in chosen:
        links.join(one, other)
        time.sleep(scene.chance.uniform(0.1, 1.0))
    links.heal()


DEATHS: dict[str, Fault] = {
    "kill leader": kill_leader,
    "kill controller": kill_controller,
    "wipe follower": kill_and_wipe_follower,
    "kill all": kill_all,
    "kill two": kill_two,
    "restart one": restart_one,
}
PAUSES: dict[str, Fault] = {
    "pause leader": pause_leader,
    "pause controller": pause_controller,
    "pause briefly": pause_briefly,
    "restart ZooKeeper": restart_zookeeper,
}
CUTS: dict[str, Fault] = {
    "cut leader from followers": cut_leader_from_followers,
    "cut controller from brokers": cut_controller_from_brokers,
    "cut one off": cut_one_off,
    "cut from ZooKeeper": cut_from_zookeeper,
    "cut one way": cut_one_way,
    "cut follower": cut_follower,
    "swizzle": swizzle,
}
